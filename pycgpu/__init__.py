# SPDX-License-Identifier: MIT
"""
Share one NVIDIA GPU among containers.

The public interface is that of :mod:`pycgpu.api`. It is loaded on first use, because hook and
runtime import this package at every container start.
"""

__version__ = "0.1.0"

_INTERFACE = (
    *("Card", "Changed", "Container", "Event", "Limits", "Part", "ProcessUsage", "Usage"),
    *("cards", "container", "containers", "create", "destroy", "events", "park", "resume"),
    *("set", "set_policy"),
    *("usage", "CgpuError", "ModuleNotLoaded", "NodeError", "PermissionDenied", "ProtocolError"),
)


def __getattr__(name: str) -> object:
    # Also asked for submodules, before they are imported.
    if name not in _INTERFACE:
        raise AttributeError(f"module 'pycgpu' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("pycgpu.api"), name)


def __dir__() -> list[str]:
    return ["__version__", *_INTERFACE]
