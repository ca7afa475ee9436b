# SPDX-License-Identifier: MIT
"""What ``cgpu run`` does, and its options as they are when they are plain."""

from __future__ import annotations

import os

from pycgpu.agent import caller, launch
from pycgpu.dialects import cgpu
from pycgpu.errors import CgpuError, LaunchError, RequestError
from pycgpu.request import permit
from pycgpu.request.model import WEIGHTED_CONSERVING

from . import _asked, _plain

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NamedTuple, NoReturn

    from pycgpu.request.model import Request
    from pycgpu.tree import group
else:
    from pycgpu.request.record import Record as NamedTuple

# Weights divide the card, containers with work get the idle time, and a quota caps.
DEFAULT_POLICY = WEIGHTED_CONSERVING


def request(
    values: dict[str, str | None], uvm_disable: bool, allowed: permit.Permit | None = None
) -> Request:
    """
    Return what the options ask for.

    Args:
        allowed: what who asks may ask for; None: root, everything.

    Raises:
        LaunchError: which of them cannot be, and its bounds.
    """
    asked = {key: text for key, text in values.items() if text is not None}
    if uvm_disable:
        asked[cgpu.UVM_DISABLE] = "1"
    try:
        if allowed is not None:
            allowed.check(asked)
        return _asked.parse({cgpu.POLICY: str(DEFAULT_POLICY)} | asked)
    except RequestError as error:
        raise LaunchError(_asked.in_options(str(error))) from None


def _of_job(path: str, identity: caller.Identity | None, allowed: permit.Permit | None) -> Request:
    from pycgpu.batch import settings as job_settings

    text = caller.read(path, identity)
    try:
        found = job_settings.parse(text)
        if allowed is not None:
            allowed.check(found)
        return job_settings.request(found)
    except RequestError as error:
        raise LaunchError(f"{path}: {error}") from None


def permitted(identity: caller.Identity | None) -> permit.Permit | None:
    """Return what holds for who called sudo; None: it is root, the operator."""
    if identity is None:
        return None
    try:
        return permit.load()
    except CgpuError as error:
        raise LaunchError(str(error)) from None


def _group(
    options: Options, who: caller.Identity | None, identity: caller.Identity | None
) -> group.Group | None:
    if options.group is None:
        return None
    if options.settings is not None:
        raise LaunchError("--group: not with --settings, which is a whole job's; give its limits")
    caller.check_name(options.group, who, "--group")
    from pycgpu.tree import group

    uid = 0 if identity is None else identity.uid
    return group.Group(options.group, uid, options.policy is not None)


class Options(NamedTuple):
    """As :mod:`pycgpu.cli.run` describes them."""

    mem: str | None = None
    quota: str | None = None
    weight: str | None = None
    policy: str | None = None
    gpu: tuple[str, ...] = ()
    name: str | None = None
    user: str | None = None
    uvm_disable: bool = False
    settings: str | None = None
    unknown_driver: str = "refused"
    group: str | None = None
    idle_park: str | None = None


_FLAGS = {"--uvm-disable": ("uvm_disable", True)}
_VALUES = {
    "--mem": "mem",
    "--quota": "quota",
    "--weight": "weight",
    "--policy": "policy",
    "--gpu": "gpu",
    "--name": "name",
    "--user": "user",
    "-u": "user",
    "--settings": "settings",
    "--unknown-driver": "unknown_driver",
    "--group": "group",
    "--idle-park": "idle_park",
}


def parse(words: Sequence[str]) -> tuple[Options, list[str]] | None:
    """Return the options and the program, or None where typer must look at them."""
    plain = _plain.read(words, _FLAGS, _VALUES, many=("gpu",))
    if plain is None or not plain[1]:
        return None
    found, program = plain
    # typer looks whether it is a path at all, and one of the words
    other = found.get("unknown_driver", "refused") not in ("refused", "newest")
    return None if found.get("settings") == "" or other else (Options(**found), program)


def run(options: Options, program: Sequence[str]) -> NoReturn:
    """Become the program, on a part of a card."""
    values = {
        cgpu.GPU: ",".join(options.gpu) if options.gpu else None,
        cgpu.MEM: options.mem,
        cgpu.QUOTA: options.quota,
        cgpu.WEIGHT: options.weight,
        cgpu.POLICY: options.policy,
        cgpu.IDLE_PARK: options.idle_park,
    }
    who = caller.caller(os.environ)
    allowed = permitted(who)
    if options.settings is None:
        wanted = request(values, options.uvm_disable, allowed)
    elif options.uvm_disable or any(text is not None for text in values.values()):
        raise LaunchError("--settings says what is asked for: give no other limit beside it")
    else:
        wanted = _of_job(options.settings, who, allowed)
    tenant = options.name or f"run-{os.getpid()}"
    caller.check_name(tenant, who)
    identity = who if options.user is None else caller.user(options.user, os.environ)
    launch.run(
        tenant,
        wanted,
        program,
        identity=identity,
        group=_group(options, who, identity),
        allowed=allowed or permit.DEFAULT,
        unknown_driver=options.unknown_driver,
    )
