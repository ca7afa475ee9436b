# SPDX-License-Identifier: MIT
"""Every error that the package raises on purpose; each message is one line with its remedy."""

from __future__ import annotations


class CgpuError(Exception):
    """Base of the package's errors: ``str(error)`` is fit to be shown to a user."""

    #: Exit status of a command that ends with it.
    status = 1


class RequestError(CgpuError):
    """
    What a container asks for cannot be understood.

    Attributes:
        key: the environment variable or annotation at fault, or None when it is their combination.
        value: its text as found, or None.
    """

    def __init__(self, message: str, key: str | None = None, value: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.value = value


class ConflictError(RequestError):
    """Two dialects ask in one container; the message names both."""


class ProtocolError(CgpuError):
    """
    A file of the tree does not read as its contract says.

    Attributes:
        file: path of the node.
        line: number of the line, from 1; 0 when a line is missing.
        text: the line as read.
    """

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(
            f"{file}:{line}: cannot read {text!r}: the module and this package are of"
            " different versions; install them together"
        )
        self.file = file
        self.line = line
        self.text = text


class ModuleNotLoaded(CgpuError):
    """Neither door serves the tree."""

    def __init__(self, root: str) -> None:
        super().__init__(f"{root} is absent: run `modprobe cgpu_km`, or start the agent")
        self.root = root


class PermissionDenied(CgpuError):
    """A node may be read or written by root alone."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: permission denied: run this as root")
        self.path = path


class NodeError(CgpuError):
    """
    The tree refused a write, or a node is gone.

    Attributes:
        path: the node.
        errno: the number that the write or read returned.
        text: the text that was written; None for a read.
    """

    def __init__(self, path: str, errno: int, reason: str, text: str | None = None) -> None:
        wrote = "" if text is None else f" to {text!r}"
        super().__init__(f"{path}: {reason}{wrote}")
        self.path = path
        self.errno = errno
        self.text = text


class LaunchError(CgpuError):
    """
    A program was not started. ``status`` is that of other launchers: 125 for an error of the
    launcher itself, 126 if the program cannot be executed, 127 if it is not there.
    """

    STATUS = 125

    def __init__(self, message: str, status: int = STATUS) -> None:
        super().__init__(message)
        self.status = status


class HookError(CgpuError):
    """What the engine handed to the hook (state or bundle) cannot be used."""


class InstallError(CgpuError):
    """An engine's configuration cannot be changed as asked; nothing was changed."""
