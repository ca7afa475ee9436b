# SPDX-License-Identifier: MIT
"""
The steps of an upgrade on top of an installation, and how both become one. No effects.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from ..errors import InstallError
from . import installation, registration, service
from .host import Host
from .installation import Options
from .journal import Journal
from .step import KEPT, Step, dkms_modules, place


class Request(NamedTuple):
    """
    What to do.

    version: where it leads; the modules must be of it.
    cold: unload the old modules and load the new ones, while no container runs.
    modules: a directory with modules that are built already, or None.
    tools: the link that leads to the tools, or None; it will lead to those that run this.
    trial_s: how long the new core may run without having been accepted.
    prove_s: how long it is watched.
    """

    version: str = __version__
    cold: bool = False
    modules: str | None = None
    tools: str | None = None
    trial_s: float = 120.0
    prove_s: float = 1.0


def options_of(held: Journal, modules: str | None) -> Options:
    """Return the options of the present installation."""
    of_kind = {step.kind: step.data for step in held.steps}
    runtime = of_kind.get("runtime", {})
    enabled = {step.data["unit"] for step in held.steps if step.kind == "service"}
    return Options(
        dkms="dkms" in of_kind and modules is None,
        modules=modules,
        runtimes="runtime" in of_kind,
        names=tuple(runtime.get("names", ("cgpu",))),
        default=runtime.get("default", False),
        exporter=service.EXPORTER in enabled,
        load="load" in of_kind,
        agent=not of_kind.keys() & {"dkms", "place"},
        cgpu=_program(held),
        ungranted=_ungranted(held),
        usage=service.USAGE in enabled,
    )


def _ungranted(held: Journal) -> str:
    texts = (step.data["text"] for step in held.steps if step.kind == "file")
    found = (re.search(r"^options cgpu_km ungranted=(\S+)$", text, re.M) for text in texts)
    # Versions without it let everybody through, and an upgrade changes no behaviour.
    return next((match[1] for match in found if match), "allow")


_OURS = r"^ExecStart(?:Post)?=-?(\S+) (?:exporter|usage --record|agent|parkd|cards --apply)$"


def _program(held: Journal) -> str:
    texts = (step.data["text"] for step in held.steps if step.kind == "file")
    found = (re.search(_OURS, text, re.M) for text in texts)
    return next((match[1] for match in found if match), Options().cgpu)


def prepare_steps(options: Options, version: str, host: Host) -> list[Step]:
    """Return the steps that build the new modules and touch nothing that is in use."""
    if options.agent or options.modules is not None:
        return []
    if options.dkms:
        data = {"version": version}
        shown = f"dkms add, build cgpu {version} for {host.release}"
        return [installation.tree(version), Step("dkms_build", shown, data)]
    return [installation.stage(host)]


def built_in(options: Options, version: str, host: Host) -> Path:
    """Return the directory in which the new modules are once they are prepared."""
    if options.modules is not None:
        return Path(options.modules)
    if options.dkms:
        return dkms_modules(host, version)
    return host.prefix / installation.STAGED


def place_steps(request: Request, options: Options, host: Host, held: Journal) -> list[Step]:
    """Return the steps that put the new version's files in the place of the old one's."""
    steps = []
    if options.dkms:
        data = {"version": request.version, "former": held.version}
        steps.append(Step("dkms_install", f"dkms install cgpu {request.version}", data))
    elif not options.agent:
        path = installation.PLACED.format(release=host.release)
        steps.append(place(built_in(options, request.version, host), path, host))
    ours = {step.data["path"]: step.data["text"] for step in held.steps if step.kind == "file"}
    for step in installation.files(options, host):
        before = step.data["before"]
        # A file that somebody has changed since is left alone.
        if before != step.data["text"] and before == ours.get(step.data["path"], before):
            steps.append(step)
    enabled = {step.data["unit"] for step in held.steps if step.kind == "service"}
    steps += [
        installation.enable(unit)
        for unit in installation.units(options, host)
        if unit not in enabled
    ]
    tools = request.tools
    if tools is not None:
        data = {"link": tools, "to": os.path.realpath(sys.prefix), "before": os.readlink(tools)}
        steps.append(Step("tools", f"{tools} -> {data['to']}", data))
    if options.runtimes:
        # Only our programs change: the engines' files name their paths.
        launchers = registration.Options((), options.names, options.default)
        changes = [list(change) for change in registration.renewed(launchers, host.prefix)]
        if changes:
            steps.append(Step("relaunch", "renew runtime and hook", {"changes": changes}))
    return steps


def check_tools(link: str) -> None:
    """Raise InstallError if *link* cannot be led to the tools that run this."""
    if not os.path.islink(link):
        raise InstallError(f"{link} is no link to an installation of the tools")
    if sys.prefix == sys.base_prefix:
        raise InstallError(f"{sys.prefix} is no virtual environment: run scripts/upgrade.sh")


def united(held: Journal) -> Journal:
    """Return the installation and the upgrade on top of it as one installation."""
    layer = held.layer
    assert layer is not None
    new = list(layer.steps)
    retired: list[Step] = []

    def take(*kinds: str) -> Step | None:
        found = next((step for step in new if step.kind in kinds), None)
        if found is not None:
            new.remove(found)
        return found

    def counterpart(old: Step) -> Step | None:
        same = (step for step in new if step.kind == old.kind)
        return next((step for step in same if step.data.get("path") == old.data["path"]), None)

    steps: list[Step] = []
    for old in held.steps:
        if old.kind == "file" and (own := counterpart(old)):
            new.remove(own)
            data = own.data | {"before": old.data["before"], "made": old.data.get("made", [])}
            steps.append(own._replace(data=data))
        elif old.kind == "tree" and (own := take("tree")):
            made = own.data.get("made") or old.data.get("made", [])
            steps.append(own._replace(data=own.data | {"made": made}))
            # The directories above are still needed.
            retired.append(old._replace(data=old.data | {"made": []}))
        elif old.kind == "dkms" and (own := take("dkms_install")):
            take("dkms_build")
            shown = f"dkms add, build, install cgpu {layer.version}"
            steps.append(Step("dkms", shown, {"version": layer.version}))
            retired.append(old)
        elif old.kind in ("dkms", "tree"):
            retired.append(old)
        elif old.kind == "place" and (own := counterpart(old)):
            new.remove(own)
            old_had = set(old.data["had"]) & set(own.data["names"])
            kept = {"had": sorted(old_had), "gone": old.data["gone"]}
            data = own.data | kept | {"made": old.data.get("made", [])}
            steps.append(own._replace(data=data))
            retired.append(_leftover("remove what was kept", [KEPT]))
        else:
            steps.append(old)
    if stage := take("stage"):
        retired.append(_leftover("remove what was built", [stage.data["path"]]))
    tools = take("tools")
    # Only a directory that scripts/install made is removed, not a user's own.
    if tools and tools.data["before"].startswith(f"{tools.data['link']}-"):
        retired.append(_leftover("remove the former tools", [tools.data["before"]]))
    take("relaunch")
    load = [step for step in steps if step.kind == "load"]
    steps = [step for step in steps if step.kind != "load"] + new + load
    return Journal(layer.version, held.made, steps, None, (*held.retired, *retired))


def _leftover(shown: str, paths: list[str]) -> Step:
    return Step("leftover", shown, {"paths": paths})
