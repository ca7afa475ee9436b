# SPDX-License-Identifier: MIT
"""The runtimes and hooks of ours that an engine gets."""

from __future__ import annotations

from typing import NamedTuple

from .launcher import RUNTIME, runtime_of


class Wanted(NamedTuple):
    """
    names: of runtimes that are to be ours.
    default: the first of them becomes the engine's default.
    annotations: patterns of those that the runtime is shown, where an engine chooses.
    hooks_d: also give Podman and CRI-O the hook for every container, whatever its runtime.
    own: engines that have a program of their own.
    """

    names: tuple[str, ...] = ("cgpu",)
    default: bool = False
    annotations: tuple[str, ...] = ()
    hooks_d: bool = True
    own: frozenset[str] = frozenset()

    def program(self, engine: str) -> str:
        """Return the program that an engine starts."""
        return f"/{runtime_of(engine) if engine in self.own else RUNTIME}"
