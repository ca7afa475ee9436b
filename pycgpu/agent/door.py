# SPDX-License-Identifier: MIT
"""The agent's C half as Python functions; numbers of nodes and places are those of nodes.h."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from pycgpu._agent import ffi, lib
from pycgpu.errors import CgpuError
from pycgpu.tree import hierarchy

log = logging.getLogger(__name__)

_BUFFER = 1 << 18
#: Not cleared: the agent reads a few lines ten times a second.
_new = ffi.new_allocator(should_clear_after_alloc=False)  # type: ignore[attr-defined]  # in no stub
_OOM_SCORE = -900


@dataclass(frozen=True, slots=True)
class Node:
    """One kind of file: ``place`` is 0 root, 1 card, 2 container on a card, 3 container."""

    number: int
    name: str
    mode: int
    place: int


@dataclass(frozen=True, slots=True)
class Container:
    """``name`` is its directory under a card; ``cards`` are minors."""

    id: str
    name: str
    cards: tuple[int, ...]


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result), what)
    return result


@dataclass(frozen=True, slots=True)
class Keeping:
    """
    Tells what the watchdog does when the agent has ended.

    Attributes:
        socket: the path where the next agent asks the watchdog.
        hold_s: the time that gates stay shut; 0: the watchdog opens them at once.
        wait_s: the time that calls wait for the next agent; then they fail with EPERM.
        successor: the next agent's program and arguments; none: something else starts an agent.
        log: the file for its output.
    """

    socket: str
    hold_s: float = 0
    wait_s: float = 60
    successor: Sequence[str] = ()
    log: str = os.devnull


def _set_keeping(keeping: Keeping) -> None:
    _check(lib.cgpu_agent_socket(keeping.socket.encode()), keeping.socket)
    hold_ms, wait_ms = (round(1000 * seconds) for seconds in (keeping.hold_s, keeping.wait_s))
    _check(lib.cgpu_agent_watchdog(hold_ms, wait_ms), "watchdog")
    if keeping.successor:
        words = [ffi.new("char[]", os.fsencode(word)) for word in keeping.successor]
        command = ffi.new("char *[]", [*words, ffi.NULL])
        _check(lib.cgpu_agent_successor(keeping.log.encode(), command), "successor")


def start(keeping: Keeping, unknown_driver: str = "refused") -> int:
    """
    Find the driver and begin, or resume for an agent that has ended; call it before any thread
    starts.

    Return how many agents have handed these containers on. CgpuError: why it cannot begin.
    """
    message = ffi.new("char[256]")
    # If memory runs out, the host's or a tenant's process is killed first, as under the service.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(_OOM_SCORE))
    mounts = hierarchy.mounts()
    for controller in ("memory", "devices"):
        for version, controllers in ((1, (controller,)), (2, ("",))):
            directory = hierarchy.directory(controllers, mounts)
            if directory is not None:
                told = (controller.encode(), directory.encode(), version)
                _check(lib.cgpu_agent_hierarchy(*told), directory)
                break
    _set_keeping(keeping)
    err = lib.cgpu_agent_start(unknown_driver == "newest", message)
    said = ffi.string(message).decode()
    if err < 0:
        raise CgpuError(said)
    if said:
        log.warning("%s", said)
    adopted: int = lib.cgpu_agent_adopted()
    return adopted


def end_watchdog(socket: str) -> bool:
    """
    End the watchdog of an agent that has ended; its tenants' calls fail from then on.

    False: no watchdog is there.
    """
    _check(lib.cgpu_agent_socket(socket.encode()), socket)
    result = lib.cgpu_agent_end_watchdog()
    if result in (-errno.ENOENT, -errno.ECONNREFUSED):
        return False
    return _check(result, socket) == 0


def stop() -> None:
    """Leave the containers to the watchdog."""
    lib.cgpu_agent_stop()


def command(text: bytes) -> None:
    """One command of inst_ctl. OSError: refused, with the errno of the contract."""
    _check(lib.cgpu_agent_command(text, len(text)), "inst_ctl")


def attach(container_id: str, listener: int) -> None:
    """Give a container its listener, for good. OSError ENOENT: no such container."""
    _check(lib.cgpu_agent_attach(container_id.encode(), listener), container_id)


def refuse(container_id: str, fd: int) -> None:
    """Take a descriptor for good: a listener whose calls are all refused, anything else closed."""
    lib.cgpu_agent_refuse(container_id.encode(errors="replace"), fd)


def nodes() -> list[Node]:
    """Return every kind of file."""
    found: list[Node] = []
    name, mode, place = ffi.new("char[64]"), ffi.new("int *"), ffi.new("int *")
    while lib.cgpu_agent_node(len(found), name, mode, place) == 0:
        found.append(Node(len(found), ffi.string(name).decode(), mode[0], place[0]))
    return found


def show(node: int, minor: int = -1, container_id: str = "") -> bytes:
    """Return the text of a file. OSError ENOENT: its subject is gone."""
    buf = _new("char[]", _BUFFER)
    used = lib.cgpu_agent_show(node, minor, container_id.encode(), buf, _BUFFER)
    return bytes(ffi.buffer(buf, _check(used, "read")))


def store(node: int, text: bytes, minor: int = -1, container_id: str = "") -> None:
    """Write a file. OSError: refused; nothing changed."""
    _check(lib.cgpu_agent_store(node, minor, container_id.encode(), text, len(text)), "write")


def cards() -> list[int]:
    """Return the minors of the host's cards."""
    buf = ffi.new("char[]", 4096)
    lib.cgpu_agent_cards(buf, 4096)
    return [int(line) for line in ffi.string(buf).split()]


def containers() -> list[Container]:
    """Return the containers alive."""
    buf = _new("char[]", _BUFFER)
    lib.cgpu_agent_containers(buf, _BUFFER)
    found = []
    for line in ffi.string(buf).decode().splitlines():
        words = line.split()
        found.append(Container(words[0], words[1], tuple(int(word) for word in words[2:])))
    return found


def events(position: int, size: int, timeout_ms: int) -> tuple[int, bytes]:
    """
    Return the new position and the lines after *position*, at most *size* bytes, waiting for one.

    OSError EINVAL: *size* is too small for a line.
    """
    at, buf = ffi.new("unsigned long long *", position), ffi.new("char[]", max(size, 1))
    used = _check(lib.cgpu_agent_events(at, buf, size, timeout_ms), "events")
    return at[0], bytes(ffi.buffer(buf, used))


def count() -> tuple[int, int]:
    """Return how many containers are alive, and when the last one ended (monotonic ns, 0: none)."""
    ended = ffi.new("unsigned long long *")
    return lib.cgpu_agent_count(ended), ended[0]


def counters() -> dict[str, int]:
    """Return the agent's own counters: calls, busy_ns and so on."""
    buf = ffi.new("char[]", 4096)
    lib.cgpu_agent_counters(buf, 4096)
    return {k: int(v) for k, v in (line.split() for line in ffi.string(buf).decode().splitlines())}
