# SPDX-License-Identifier: MIT
"""
``cgpu`` as a program of its own: ``run``, behind which every program of a user's waits, goes by
the shortest way where its options are plain; all else is :mod:`pycgpu.cli.main`'s.
"""

from __future__ import annotations

import sys

from pycgpu.errors import CgpuError

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from . import _run


def app() -> None:
    """Run ``cgpu``."""
    if sys.argv[1:2] == ["run"]:
        from . import _run

        plain = _run.parse(sys.argv[2:])
        if plain is not None:
            _become(*plain)
    from .main import app as whole

    whole()


def _become(options: _run.Options, program: list[str]) -> NoReturn:
    from . import _locale, _output, _run

    _output.open_streams()
    _locale.obey()
    try:
        with _output.Told("cgpu"):
            _run.run(options, program)
    except CgpuError as error:
        print(f"cgpu: {error}", file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    app()
