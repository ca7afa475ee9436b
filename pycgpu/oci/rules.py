# SPDX-License-Identifier: MIT
"""
The agent's seccomp rules, and whether a container's ``config.json`` has them.

Under the user door nothing else limits a container: if the agent does not see its calls, it has the
whole card, whatever it was granted.
"""

from __future__ import annotations

from .. import json_text
from ..errors import HookError

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The agent publishes the rules that containers need under the user door.
PATH = "/run/cgpu/seccomp.json"
#: By these crun puts another filter in the place of the configured one, or sends its listener
#: elsewhere.
REPLACED_BY = (
    "run.oci.seccomp_bpf_data",
    "run.oci.seccomp.receiver",
    "run.oci.seccomp.plugins",
)


def load(path: str = PATH) -> dict[str, Any]:
    """Return the rules that the agent has published. HookError: it has published none."""
    try:
        with open(path, encoding="utf-8") as file:
            rules: Any = json_text.loads(file.read())
        if all(rule["names"] for rule in rules["syscalls"]) and rules["listenerPath"]:
            return dict(rules)
        raise ValueError("without rules")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HookError(f"{path}: cannot read the agent's rules ({error!r}); restart it") from None


def check(config: dict[str, object], path: str = PATH) -> None:
    """Raise HookError if the agent would not hear of the calls of *config*'s container."""
    annotations = config.get("annotations")
    replaced = [key for key in REPLACED_BY if isinstance(annotations, dict) and key in annotations]
    if replaced:
        raise HookError(
            f"the annotation {replaced[0]} takes the agent's seccomp rules away: leave it out"
        )
    rules = load(path)
    linux = config.get("linux")
    seccomp = linux.get("seccomp") if isinstance(linux, dict) else None
    present = seccomp.get("syscalls") if isinstance(seccomp, dict) else None
    if (
        not isinstance(seccomp, dict)
        or not isinstance(present, list)
        or seccomp.get("listenerPath") != rules["listenerPath"]
        or any(rule not in present for rule in rules["syscalls"])
    ):
        raise HookError(
            "the container has not the agent's seccomp rules, and nothing would hold it to its"
            " part: start it with the runtime cgpu"
        )
