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


def none_inherited() -> None:
    """
    Let every signal do what it does by itself, and block none.

    Right before an exec of what is not to notice who started it: ``nohup`` ignores SIGHUP.
    """
    for number in _signal.valid_signals():
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
