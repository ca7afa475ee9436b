# SPDX-License-Identifier: MIT
"""The hook for every container of Podman and CRI-O, whatever its runtime."""

from __future__ import annotations

import json
from pathlib import Path

from .change import Change, changed
from .launcher import HOOK
from .wanted import Wanted

HOOKS_D = "etc/containers/oci/hooks.d"


def plan(wanted: Wanted, prefix: Path) -> list[Change]:
    """Return the changes that put the hook where both look for such."""
    if not wanted.hooks_d:
        return []
    return [
        changed(prefix, f"{HOOKS_D}/90-cgpu-{stage.lower()}.json", definition(stage))
        for stage in ("createRuntime", "poststop")
    ]


def definition(stage: str) -> str:
    """Return the file that gives every container the hook in one *stage*."""
    said = {
        "version": "1.0.0",
        "hook": {"path": f"/{HOOK}", "args": ["cgpu-hook", stage]},
        "when": {"always": True},
        "stages": [stage],
    }
    return json.dumps(said, indent=2) + "\n"
