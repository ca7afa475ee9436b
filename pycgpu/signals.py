# SPDX-License-Identifier: MIT
"""What Python changes of signals as it starts, and a program that it becomes would inherit."""

from __future__ import annotations

# What `signal` wraps in enumerations, which take longer to import than all that the hook does.
import _signal  # type: ignore[import-not-found]


def as_before_python() -> None:
    """
    Let the signals that Python ignores as it starts end the process again.

    Right before an exec: ``sh -c 'yes | head'`` ends by SIGPIPE, and who ignores it never does.
    As :mod:`subprocess` does for its children (``restore_signals``).
    """
    for name in ("SIGPIPE", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
