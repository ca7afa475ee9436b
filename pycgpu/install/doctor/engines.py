# SPDX-License-Identifier: MIT
"""The container engines."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InstallError
from .. import containerd, registration
from .finding import NOTE, OK, WARN, Finding
from .host import Host


def engines(host: Host) -> Iterator[Finding]:
    """Container engines start containers through the runtime."""
    there = registration.engines_here(host.prefix)
    if not there:
        yield Finding(NOTE, "engines", "no container engine is configured here")
        return
    for engine in there:
        text = "".join(host.read(path) for path in _files(engine, host))
        if f"/{registration.RUNTIME}" in text or f"/{registration.HOOK}" in text:
            yield Finding(OK, "engines", f"{engine}: the runtime is registered")
        else:
            yield Finding(
                WARN,
                "engines",
                f"{engine}: the runtime is not registered: its containers are not limited",
                f"cgpu install-runtime --engine {engine}",
            )


def _files(engine: str, host: Host) -> tuple[str, ...]:
    if engine != "containerd":
        return _ENGINE_FILES[engine]
    try:
        return (containerd.deciding(host.prefix),)
    except InstallError:
        return (containerd.MAIN,)  # which it cannot read, either


_HOOK_FILE = f"{registration.HOOKS_D}/90-cgpu-createruntime.json"
_ENGINE_FILES = {
    "docker": (registration.DAEMON_JSON,),
    "podman": (registration.PODMAN_CONF, _HOOK_FILE),
    "crio": (registration.CRIO_CONF, _HOOK_FILE),
}
