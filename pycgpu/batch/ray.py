# SPDX-License-Identifier: MIT
"""
Ray: the ``num_gpus=0.3`` of a task or an actor is the limit of its worker.

``RAY_RUNTIME_ENV_HOOK=pycgpu.batch.ray.hook`` in the driver's environment, or
``ray.init(runtime_env={"worker_process_setup_hook": "pycgpu.batch.ray.setup"})``. A worker learns
its part of a card when its task comes and Ray sets CUDA_VISIBLE_DEVICES. At that moment it becomes
a tenant of its own. It keeps the limit until it ends, as do the processes that it starts.

A worker that is not root runs ``sudo -n cgpu attach``, or the command in PYCGPU_ATTACH. With
PYCGPU_GROUP=NAME in its environment it becomes a member of the group NAME-CARD, whose workers use
their card at the same time.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from pycgpu.agent import filter
from pycgpu.errors import CgpuError, RequestError
from pycgpu.tree import group

#: The command by which a worker asks, in words of a shell.
COMMAND = "PYCGPU_ATTACH"
GROUP = "PYCGPU_GROUP"
_SETUP = "pycgpu.batch.ray.setup"
_GPU = "GPU"
_PLACEMENT = "GPU_group_"

Assigned = tuple[tuple[str, float], ...]
_attached: Assigned | None = None


def hook(runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    Return a job's runtime environment with our :func:`setup` in it, as RAY_RUNTIME_ENV_HOOK.

    Raises:
        RequestError: the job has a setup hook of its own, which must call ours.
    """
    env = dict(runtime_env or {})
    own = env.setdefault("worker_process_setup_hook", _SETUP)
    if own != _SETUP:
        raise RequestError(
            f"worker_process_setup_hook is {own!r} already: call {_SETUP}() in it, and take"
            " RAY_RUNTIME_ENV_HOOK away"
        )
    return env


def setup() -> None:
    """Make this worker take its limits when Ray says which cards it may use."""
    nvidia_gpu = import_module("ray._private.accelerators.nvidia_gpu")
    manager = nvidia_gpu.NvidiaGPUAcceleratorManager

    tell = manager.set_current_process_visible_accelerator_ids

    def limited(ids: list[str]) -> None:
        tell(ids)
        join(assigned(_resources(), [str(one) for one in ids]))

    manager.set_current_process_visible_accelerator_ids = staticmethod(limited)


def _resources() -> Mapping[str, Sequence[tuple[int, float]]]:
    worker = import_module("ray._private.worker")
    found: Mapping[str, Sequence[tuple[int, float]]]
    found = worker.global_worker.core_worker.resource_ids()
    return found


def assigned(resources: Mapping[str, Sequence[tuple[int, float]]], ids: Sequence[str]) -> Assigned:
    """
    Return the cards that a worker has by *resources*, as CUDA_VISIBLE_DEVICES names them, each with
    its part.

    Args:
        ids: the names that Ray shows the worker. They differ from Ray's numbers if the node's
            CUDA_VISIBLE_DEVICES chooses among the host's cards.
    """
    parts: dict[int, float] = {}
    for name, pairs in resources.items():
        # Bundles of a placement group are listed once more, each with its number.
        if name == _GPU or (name.startswith(_PLACEMENT) and name.count("_") == 2):
            for index, part in pairs:
                parts[index] = parts.get(index, 0) + part
    if len(ids) != len(parts):
        raise RequestError(f"Ray gave cards {sorted(parts)} and shows {', '.join(ids) or 'none'}")
    if len(parts) > 1 and sorted(map(str, parts)) != sorted(ids):
        raise RequestError(
            f"Ray gave cards {sorted(parts)} and shows {', '.join(ids)}: which is which cannot be"
            " told; start the node without CUDA_VISIBLE_DEVICES"
        )
    if len(parts) == 1:
        (part,) = parts.values()
        return ((ids[0], part),)
    return tuple((str(index), parts[index]) for index in sorted(parts))


def command(cards: Assigned, pid: int, environment: Mapping[str, str]) -> list[str]:
    """
    Return the command by which process *pid* asks for *cards*.

    Memory and compute are rounded down to their units, so parts of a card that add up to 1 fit.

    Raises:
        RequestError: a part is less than the smallest limit of compute.
    """
    default = "cgpu attach" if os.geteuid() == 0 else "sudo -n cgpu attach"
    parts = _ten_thousandths(cards)
    for (name, part), ten_thousandths in zip(cards, parts, strict=True):
        if ten_thousandths < 100:
            raise RequestError(
                f"num_gpus={part:g} of card {name}: the least is 0.01, 1 % of its compute"
            )
    joins = _group(cards, environment)
    memory = [f"{part // 100}.{part % 100:02}".removesuffix(".00") for part in parts]
    return [
        *shlex.split(environment.get(COMMAND, default)),
        *(("--group", joins) if joins else ()),
        *("--name", f"ray-{pid}", "--gpu", ",".join(name for name, _ in cards)),
        *("--mem", ",".join(f"{percent}%" for percent in memory)),
        *("--quota", ",".join(map(str, _quotas(cards))), str(pid)),
    ]


def _group(cards: Assigned, environment: Mapping[str, str]) -> str | None:
    """Return the group of a job's workers on these cards; a group is of the same cards."""
    name = environment.get(GROUP)
    return "-".join([name, *(card for card, _ in cards)]) if name else None


def _ten_thousandths(cards: Assigned) -> list[int]:
    # Ray counts in units of 1/10000; the addition corrects for binary fractions just below one.
    return [int(part * 10000 + 1e-6) for _, part in cards]


def _quotas(cards: Assigned) -> list[int]:
    return [part // 100 for part in _ten_thousandths(cards)]


def join(cards: Assigned, attach: Callable[[list[str]], None] | None = None) -> None:
    """
    Become a tenant with *cards*; whole ones are left alone. A second task of the same worker keeps
    what the first was given.

    Raises:
        RequestError: a second task has another part.
        CgpuError: the part is refused; the message says why.
    """
    global _attached
    if cards == _attached or all(part >= 1 for _, part in cards):
        return
    if _attached is not None:
        raise RequestError(
            f"this worker has {_attached}, and its next task {cards}: use max_calls=1"
        )
    (attach or ask)(command(cards, os.getpid(), os.environ))
    joins = _group(cards, os.environ)
    if joins:
        # CUDA reads them as it starts, which it has not.
        os.environ.update(group.environment(joins, quota=_quotas(cards)[0]))
    _attached = cards


def ask(words: list[str]) -> None:
    """Talk to the helper that *words* start, as :mod:`pycgpu.agent.attach` says."""
    try:
        helper = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    except OSError as error:
        raise CgpuError(f"{words[0]}: {error.strerror}") from None
    with helper:
        assert helper.stdin is not None and helper.stdout is not None
        line = helper.stdout.readline().strip()
        if line.startswith("filter "):
            listener = filter.install(all_threads=True)
            try:
                helper.stdin.write(f"{listener}\n")
                line = helper.stdout.readline().strip()
            finally:
                os.close(listener)
    if line != "ok":
        why = line.removeprefix("error ") or f"{shlex.join(words)} gave no answer"
        raise CgpuError(f"this worker gets no part of a card: {why}")
