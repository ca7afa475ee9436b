# SPDX-License-Identifier: MIT
"""NVIDIA's own components: which are installed, and which bypass cgpu."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator

from ...errors import InstallError
from ...oci.runtime import TOOLKIT
from .. import engines, program
from ..containerd import table
from ..launcher import is_ours
from .finding import FAIL, NOTE, WARN, Finding
from .host import Host

PAGE = "docs/nvidia.md"
#: The GPU Operator's toolkit, and the directory in which it records what is ready.
OPERATOR = ("usr/local/nvidia/toolkit", "run/nvidia/validations")
DRIVER = "run/nvidia/driver/usr"
TOOLKIT_CONFIGS = (
    "etc/nvidia-container-runtime/config.toml",
    "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
)
PLUGIN = "var/lib/kubelet/device-plugins/nvidia-gpu.sock"
OWN_PLUGINS = "var/lib/kubelet/device-plugins"
DRA = "var/lib/kubelet/plugins/gpu.nvidia.com"
CDI = ("etc/cdi", "var/run/cdi")


def nvidia(host: Host) -> Iterator[Finding]:
    """Each recognised component, and which of them must be off."""
    yield from _toolkit(host)
    yield from _operator(host)
    yield from _kubernetes(host)


def _toolkit(host: Host) -> Iterator[Finding]:
    operators = f"/{OPERATOR[0]}/{TOOLKIT}"
    found = program.find(TOOLKIT, host.prefix) or program.there(operators, host.prefix)
    if found is None:
        return
    shown = "/" + os.path.relpath(found, host.prefix)
    yield Finding(NOTE, "nvidia", f"container toolkit: {shown} stands behind our runtime")
    for path in TOOLKIT_CONFIGS:
        try:
            config = table(tomllib.loads(host.read(path)), "nvidia-container-runtime")
        except tomllib.TOMLDecodeError as error:
            yield Finding(WARN, "nvidia", f"/{path}: not TOML: {error}", "correct it")
            continue
        named = [one for one in config.get("runtimes") or () if "/" in str(one)]
        if named and config.get("mode") != "legacy":
            yield Finding(
                WARN,
                "nvidia",
                f"/{path} names {named[0]} by its path: what the toolkit adds is not taken out"
                " again, and the hook refuses containers with it",
                "nvidia-ctk config --in-place --set nvidia-container-runtime.runtimes=runc,crun",
            )
    for engine in engines.find(host.prefix):
        yield from _past_us(engine)
    listed = [
        f"/{folder}/{path.name}"
        for folder in CDI
        for path in sorted((host.prefix / folder).glob("*nvidia*"))
    ]
    if listed:
        yield Finding(
            NOTE,
            "nvidia",
            f"CDI devices of NVIDIA's ({', '.join(listed)}): a container that names one and not our"
            " runtime counts as one without a grant",
        )


def _past_us(engine: engines.Engine) -> Iterator[Finding]:
    """If a toolkit's runtime is the default, it gives cards to containers without limits."""
    try:
        default = "" if engine.left_out() else engine.default()
    except InstallError:
        return  # which the engine's own finding tells
    path = engine.programs().get(default, "") if default else ""
    if os.path.basename(path).startswith(TOOLKIT) and not is_ours(path):
        yield Finding(
            WARN,
            "nvidia",
            f"{engine.name}: its default runtime {default!r} is the toolkit's: containers without"
            " --runtime get cards past ours",
            f"cgpu install-runtime --engine {engine.name} --name cgpu --name nvidia --default",
        )


def _operator(host: Host) -> Iterator[Finding]:
    if any((host.prefix / path).exists() for path in OPERATOR):
        yield Finding(
            NOTE,
            "nvidia",
            "GPU Operator: its toolkit may rewrite the engine's files at each start of its pod;"
            " look here again after that",
        )
    if (host.prefix / DRIVER).exists():
        yield Finding(
            WARN,
            "nvidia",
            "GPU Operator: the driver is a container's (/run/nvidia/driver). It cannot be replaced"
            " while cgpu_rm is loaded, and CDI does not find its libraries",
            f"driver.enabled=false, and the driver on the host ({PAGE})",
        )


def _kubernetes(host: Host) -> Iterator[Finding]:
    ours = any((host.prefix / OWN_PLUGINS).glob("cgpu-*.sock"))
    if (host.prefix / PLUGIN).exists():
        yield Finding(
            FAIL if ours else WARN,
            "nvidia",
            "device plugin: it offers whole cards as nvidia.com/gpu"
            + (", and so does ours: a pod gets what either gave it" if ours else " past ours"),
            f"devicePlugin.enabled=false in the GPU Operator, or uninstall it ({PAGE})",
        )
    if (host.prefix / DRA).exists():
        yield Finding(
            WARN,
            "nvidia",
            "DRA driver: claims of gpu.nvidia.com get whole cards past ours",
            f"resources.gpus.enabled=false in its chart; claims of cgpu's driver instead ({PAGE})",
        )
