# SPDX-License-Identifier: MIT
"""Signal settings that Python changes at its start, and that an executed program would inherit."""

from __future__ import annotations

# `signal` wraps this module in enumerations, whose import takes longer than all that the hook does.
import _signal  # type: ignore[import-not-found]


def as_before_python() -> None:
    """
    Let the signals that Python ignores as it starts end the process again.

    For use right before an exec: ``sh -c 'yes | head'`` ends by SIGPIPE, and never ends if that is
    ignored. :mod:`subprocess` does the same for its children (``restore_signals``).
    """
    for name in ("SIGPIPE", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)


def none_inherited() -> None:
    """
    Reset every signal to its default, and block none.

    For use right before an exec of a program that must not inherit its caller's settings:
    ``nohup`` ignores SIGHUP.
    """
    for number in _signal.valid_signals():
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
