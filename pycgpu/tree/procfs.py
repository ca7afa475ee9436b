# SPDX-License-Identifier: MIT
"""
The tree of nodes: ``/proc/cgpu_km`` (kernel door) or ``/run/cgpu_km`` (user door).

One function a file. Every function takes *root*, so that the same code reads the real tree, the
agent's and a test's. All of them raise :class:`~pycgpu.errors.ModuleNotLoaded` when the tree is
absent, :class:`~pycgpu.errors.PermissionDenied`, :class:`~pycgpu.errors.NodeError` with the errno
of a refused write or a node that went away, and :class:`~pycgpu.errors.ProtocolError` when the
text of a node is not what the contract says.
"""

from __future__ import annotations

import errno
import posix

from ..errors import CgpuError, ModuleNotLoaded, NodeError, PermissionDenied, ProtocolError
from ..request.model import Card, Grant, Tenant

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

#: Where the driver tells of itself, among others.
PROC = "/proc"
KERNEL_DOOR = "/proc/cgpu_km"
USER_DOOR = "/run/cgpu_km"
#: The same tree over the agent's socket, for hosts without FUSE; a root that ends so is one.
USER_DOOR_SOCKET = "/run/cgpu/tree.sock"
_SOCKET = ".sock"
#: The only layout of nodes that this package reads.
API_VERSION = 1
#: Longest command that inst_ctl takes, with its newline.
COMMAND_MAX = 4096
_ID_MAX = 64
_ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")

_CREATE_REASONS = {
    # create_command() rejects every other malformed command.
    errno.EINVAL: "a process of the host's pid namespace is no container: name its cgroup; a cgroup"
    " must be a directory of its own below /sys/fs/cgroup",
    errno.ERANGE: "a number is out of bounds (mem is in bytes, at least 1 MiB)",
    errno.ENODEV: "no such card",
    errno.ENXIO: "a card is in MIG mode, in which nobody can be given the whole of it",
    errno.EOPNOTSUPP: "NVIDIA's driver is of a branch that cgpu does not know, so none of its "
    "cards is under control; `cgpu doctor` names it",
    errno.ESRCH: "no such process",
    errno.ENOENT: "no such cgroup",
    errno.EEXIST: "a container of this id is registered already",
    errno.ENOSPC: "max_inst is reached, the memory or weight of a card is promised already, or a"
    " limit is above the card",
}
_SETTING_REASONS = {
    "overcommit_ratio": {
        errno.EBUSY: "limits of containers on the card add up to more already: lower some"
        " (`cgpu set --mem`), or wait until some have ended"
    }
}
_DESTROY_REASONS = {
    errno.ENOENT: "no such container",
    errno.EBUSY: "processes of the container still hold the GPU",
}


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except (OSError, ValueError):
        return False
    return True


def is_users(root: str) -> bool:
    """Whether the tree at *root* is the agent's."""
    return root == USER_DOOR or root.endswith(_SOCKET)


def doors(prefix: str = "/") -> tuple[str, ...]:
    """Return the roots at which a tree may be, below *prefix*, the kernel's first."""
    top = prefix.rstrip("/")
    return tuple(f"{top}{door}" for door in (KERNEL_DOOR, USER_DOOR, USER_DOOR_SOCKET))


def is_open(root: str) -> bool:
    """Whether a door serves the tree at *root*."""
    if root.endswith(_SOCKET) and _exists(root):
        from . import remote

        # An agent that was killed leaves its socket.
        return remote.answers(root)
    return _exists(f"{root}/api_version")


def find_root() -> str:
    """Return the root of the door that is open, the kernel's first."""
    for root in doors():
        if is_open(root):
            return root
    raise ModuleNotLoaded(KERNEL_DOOR)


def read(path: str, root: str) -> str:
    """Return the text of the node at *root*/*path*."""
    full = f"{root}/{path}"
    try:
        if root.endswith(_SOCKET):
            from . import remote

            chunks = [remote.read(path, root)]
        else:
            chunks = _chunks(full)
    except OSError as error:
        raise _node_error(full, error, root) from None
    # The names of processes are theirs to choose, and cut off in the middle of a character.
    return b"".join(chunks).decode(errors="replace")


def read_lines(path: str, root: str) -> list[str]:
    """Return the lines of a node, split at LF only: process names may hold other line ends."""
    return _lines(read(path, root))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _chunks(full: str) -> list[bytes]:
    fd = posix.open(full, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        chunks = []
        while chunk := posix.read(fd, 65536):
            chunks.append(chunk)
        return chunks
    finally:
        posix.close(fd)


def write(path: str, text: str, root: str, reasons: dict[int, str] | None = None) -> None:
    """Write *text* and a newline to the node in one write; *reasons* explain its errnos."""
    full = f"{root}/{path}"
    try:
        if root.endswith(_SOCKET):
            from . import remote

            return remote.write(path, text, root)
        fd = posix.open(full, posix.O_WRONLY | posix.O_CLOEXEC)
        try:
            posix.write(fd, text.encode() + b"\n")
        finally:
            posix.close(fd)
    except OSError as error:
        raise _node_error(full, error, root, text, reasons) from None


def _node_error(
    full: str,
    error: OSError,
    root: str,
    text: str | None = None,
    reasons: dict[int, str] | None = None,
) -> CgpuError:
    number = error.errno or errno.EIO
    if number == errno.ECONNREFUSED or (number == errno.ENOENT and not _exists(root)):
        return ModuleNotLoaded(root)
    if number in (errno.EACCES, errno.EPERM):
        return PermissionDenied(full)
    reason = (reasons or {}).get(number) or posix.strerror(number)
    return NodeError(full, number, f"{reason} ({errno.errorcode.get(number, number)})", text)


def _number(path: str, root: str) -> int:
    text = read(path, root)
    digits = text.rstrip("\n")
    if not (digits.isascii() and digits.isdecimal()):
        raise ProtocolError(f"{root}/{path}", 1, text)
    return int(digits)


def _limit(path: str, root: str, none: str) -> int | None:
    text = read(path, root).rstrip("\n")
    if text in ("max", none):
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ProtocolError(f"{root}/{path}", 1, text)
    return int(text)


def _table(path: str, root: str) -> dict[str, int]:
    table = {}
    for line, text in enumerate(read_lines(path, root), 1):
        key, _, number = text.partition(" ")
        if not (key and number.isascii() and number.isdecimal()):
            raise ProtocolError(f"{root}/{path}", line, text)
        table[key] = int(number)
    return table


def _listing(path: str, root: str) -> list[str]:
    full = f"{root}/{path}" if path else root
    try:
        if root.endswith(_SOCKET):
            from . import remote

            directories, files = remote.names(path, root)
            return directories + files
        return posix.listdir(full)
    except OSError as error:
        raise _node_error(full, error, root) from None


def read_version(root: str) -> str:
    """``version``: the release of the door's code."""
    return read("version", root).rstrip("\n")


def read_api_version(root: str) -> int:
    """``api_version``: see :data:`API_VERSION`."""
    return _number("api_version", root)


def read_features(root: str) -> frozenset[str]:
    """``features``: one word a line."""
    return frozenset(read("features", root).split())


def card_indexes(root: str) -> list[int]:
    """
    Return N of every ``/dev/nvidiaN`` under control, in order.

    A module that was loaded before the driver, or saw it loaded anew, looks for cards when root
    opens inst_ctl.
    """
    found = _card_indexes(root)
    if found:
        return found
    try:
        read("inst_ctl", root)
    except (NodeError, PermissionDenied):
        return []
    return _card_indexes(root)


def _card_indexes(root: str) -> list[int]:
    return sorted(int(name) for name in _listing("", root) if name.isdecimal())


def container_names(card: int, root: str) -> list[str]:
    """Return the names of the containers' directories on *card*, in order."""
    full = f"{root}/{card}"
    if root.endswith(_SOCKET):
        from . import remote

        try:
            return sorted(remote.names(str(card), root)[0])
        except OSError as error:
            raise _node_error(full, error, root) from None
    try:
        with posix.scandir(full) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise _node_error(full, error, root) from None


def container_ids(root: str) -> list[str]:
    """Return the full ids of all containers, in order."""
    return sorted(_listing("container", root))


def read_uuid(card: int, root: str) -> str:
    """``<gpu>/uuid``, as NVML writes it; empty if the door does not know it."""
    return read(f"{card}/uuid", root).rstrip("\n")


def read_policy(card: int, root: str) -> int:
    """``<gpu>/policy``: 0 to 9, see :data:`pycgpu.request.model.POLICIES`."""
    return _number(f"{card}/policy", root)


def write_policy(card: int, policy: int, root: str) -> None:
    """``<gpu>/policy``: from now on a request's hint does not change it."""
    write(f"{card}/policy", str(policy), root)


def read_max_inst(card: int, root: str) -> int:
    """``<gpu>/max_inst``: how many containers the card takes."""
    return _number(f"{card}/max_inst", root)


def governs(root: str) -> bool:
    """Tell whether the door can give parts of the compute: the bridge is there."""
    return not read_features(root).isdisjoint(("slices", "gate"))


def parks(root: str) -> bool:
    """Tell whether the door can park containers."""
    return "park" in read_features(root)


def read_setting(card: int, name: str, root: str) -> int:
    """One of ``<gpu>/policy``, ``max_inst``, ``timeslice_us``, ``overcommit_ratio``."""
    return _number(f"{card}/{name}", root)


def write_setting(card: int, name: str, value: int, root: str) -> None:
    """What :func:`read_setting` reads."""
    reasons = {errno.EBUSY: "the containers on the card need more"}
    reasons = _SETTING_REASONS.get(name, reasons)
    write(f"{card}/{name}", str(value), root, reasons)


def read_overcommit_ratio(card: int, root: str) -> int:
    """``<gpu>/overcommit_ratio`` in percent; of a core that has no such file it is 100."""
    ratio = unless_gone(_number, f"{card}/overcommit_ratio", root)
    return 100 if ratio is None else ratio


def read_free_weight(card: int, root: str) -> int:
    """``<gpu>/free_weight``: max_inst less the weights of the card's containers."""
    return _number(f"{card}/free_weight", root)


def read_timeslice_us(card: int, root: str) -> int:
    """``<gpu>/timeslice_us``: the unit window."""
    return _number(f"{card}/timeslice_us", root)


def read_memory(card: int, root: str) -> dict[str, int]:
    """``<gpu>/memory``: total, reserved, allocated, used and free, in bytes."""
    table = _table(f"{card}/memory", root)
    for key in ("total", "reserved", "allocated", "used", "free"):
        if key not in table:
            raise ProtocolError(f"{root}/{card}/memory", 0, f"no line {key!r}")
    return table


def read_card_stat(card: int, root: str) -> dict[str, int]:
    """``<gpu>/stat``: counters of the card."""
    return _table(f"{card}/stat", root)


def read_mig(card: int, root: str) -> bool | None:
    """Whether the driver told the door that the card is in MIG mode; None: it did not tell."""
    mode = read_card_stat(card, root).get("mig")
    return None if mode is None else bool(mode)


def read_cid(card: int, name: str, root: str) -> str:
    """``<gpu>/<id>/cid``: the full id behind a directory's name."""
    return read(f"{card}/{name}/cid", root).rstrip("\n")


def read_group(card: int, name: str, root: str) -> str | None:
    """``<gpu>/<id>/group``: the id of its group's leader; None: it is in no group."""
    text = read(f"{card}/{name}/group", root).rstrip("\n")
    return None if text == "-" else text


def read_state(card: int, name: str, root: str) -> str:
    """``<gpu>/<id>/state``: where the container's memory is, on all its cards."""
    return read(f"{card}/{name}/state", root).rstrip("\n")


def read_memsize(card: int, name: str, root: str) -> int | None:
    """``<gpu>/<id>/memsize`` in bytes; None is no limit."""
    return _limit(f"{card}/{name}/memsize", root, "max")


def write_memsize(card: int, name: str, memory_bytes: int, root: str) -> None:
    """``<gpu>/<id>/memsize`` in bytes."""
    write(f"{card}/{name}/memsize", str(memory_bytes), root)


def read_weight(card: int, name: str, root: str) -> int:
    """``<gpu>/<id>/weight``."""
    return _number(f"{card}/{name}/weight", root)


def write_weight(card: int, name: str, weight: int, root: str) -> None:
    """``<gpu>/<id>/weight``."""
    write(f"{card}/{name}/weight", str(weight), root)


def read_quota(card: int, name: str, root: str) -> int | None:
    """``<gpu>/<id>/quota`` in percent; None is none."""
    return _limit(f"{card}/{name}/quota", root, "0")


def write_quota(card: int, name: str, quota: int | None, root: str) -> None:
    """``<gpu>/<id>/quota`` in percent; None takes it away."""
    write(f"{card}/{name}/quota", str(quota or 0), root)


def read_quota_min(card: int, name: str, root: str) -> int | None:
    """``<gpu>/<id>/quota_min`` in percent; None is none."""
    return _limit(f"{card}/{name}/quota_min", root, "0")


def write_quota_min(card: int, name: str, quota_min: int | None, root: str) -> None:
    """``<gpu>/<id>/quota_min`` in percent; None takes it away."""
    write(f"{card}/{name}/quota_min", str(quota_min or 0), root)


def read_priority(card: int, name: str, root: str) -> int:
    """``<gpu>/<id>/priority``."""
    return _number(f"{card}/{name}/priority", root)


def write_priority(card: int, name: str, priority: int, root: str) -> None:
    """``<gpu>/<id>/priority``."""
    write(f"{card}/{name}/priority", str(priority), root)


def read_idle_park_s(card: int, name: str, root: str) -> int:
    """``<gpu>/<id>/idle_park_s``: idle for so long it may be parked; 0 is never."""
    return _number(f"{card}/{name}/idle_park_s", root)


def write_idle_park_s(card: int, name: str, seconds: int, root: str) -> None:
    """``<gpu>/<id>/idle_park_s``."""
    write(f"{card}/{name}/idle_park_s", str(seconds), root)


def read_stat(card: int, name: str, root: str) -> dict[str, int]:
    """``<gpu>/<id>/stat``: counters of the container on the card."""
    return _table(f"{card}/{name}/stat", root)


def read_events(card: int, name: str, root: str) -> dict[str, int]:
    """``<gpu>/<id>/events``: how often each event happened (``oom``, ``refused``, …)."""
    return _table(f"{card}/{name}/events", root)


def read_card(card: int, root: str, *, tenants: bool = True) -> Card:
    """
    Return one card as admission wants it.

    Args:
        tenants: False leaves the containers out, which takes one read for each of their nodes,
            and whether somebody set the policy.
    """
    memory = read_memory(card, root)
    return Card(
        index=card,
        uuid=read_uuid(card, root),
        total_bytes=memory["total"],
        reserved_bytes=memory["reserved"],
        allocated_bytes=memory["allocated"],
        used_bytes=memory["used"],
        policy=read_policy(card, root),
        max_inst=read_max_inst(card, root),
        free_weight=read_free_weight(card, root),
        tenants=read_tenants(card, root) if tenants else (),
        policy_by_hand=tenants and bool(read_card_stat(card, root).get("policy_by_hand")),
        mig=has_instances(card),
        overcommit_ratio=read_overcommit_ratio(card, root),
    )


def has_instances(card: int, proc: str | None = None) -> bool:
    """
    Tell whether the driver has divided a card into MIG instances.

    A card in MIG mode without instances computes for no process; :mod:`.mig` finds those.
    """
    try:
        names = posix.listdir(f"{proc or PROC}/driver/nvidia/capabilities/gpu{card}/mig")
    except OSError:
        return False
    return any(name.startswith("gi") for name in names)


def read_cards(root: str, *, tenants: bool = True) -> list[Card]:
    """Return every card under control, by index."""
    return [read_card(card.index, root, tenants=tenants) for card in find_cards(root)]


def find_cards(root: str) -> list[Card]:
    """
    Return every card under control, by index, with its UUID and nothing else.

    That is enough to tell which cards a request means. On a host with eight cards, reading the
    other nodes takes longer than everything else that the runtime does.
    """
    api_version = read_api_version(root)
    if api_version != API_VERSION:
        raise ProtocolError(f"{root}/api_version", 1, str(api_version))
    indexes = card_indexes(root)
    return [Card(card, read_uuid(card, root), total_bytes=0) for card in indexes]


def read_tenants(card: int, root: str) -> tuple[Tenant, ...]:
    """Return the containers on *card*; a container that ends meanwhile is left out."""
    found = []
    for name in container_names(card, root):
        try:
            # A member's quota is of its group's threads, and its floor is a part of its group's.
            leader = unless_gone(read_group, card, name, root)
            is_member = leader is not None and leader != read_cid(card, name, root)
            found.append(
                Tenant(
                    name,
                    None if is_member else read_quota(card, name, root),
                    None if is_member else read_quota_min(card, name, root),
                    read_stat(card, name, root).get("promised_ppm", 0),
                )
            )
        except NodeError as error:
            if not is_gone(error):
                raise
    return tuple(found)


def is_gone(error: NodeError) -> bool:
    """Whether a node was not there, or went while it was read: then the kernel says EIO."""
    return error.errno in (errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EIO)


def unless_gone(read: Callable[..., T], *args: object) -> T | None:
    """Return what *read* returns of *args*, or None where the node has gone."""
    try:
        return read(*args)
    except NodeError as error:
        if is_gone(error):
            return None
        raise


def open_events(root: str) -> int:
    """Open ``events`` for reading and ``poll()``; the caller closes the descriptor."""
    full = f"{root}/events"
    try:
        if root.endswith(_SOCKET):
            from . import remote

            return remote.events(root)
        return posix.open(full, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError as error:
        raise _node_error(full, error, root) from None


def new_events(descriptor: int) -> list[str]:
    """Return the lines of ``events`` not read yet by that descriptor, of :func:`open_events`."""
    text = b""
    try:
        while chunk := posix.read(descriptor, 65536):
            text += chunk
    except BlockingIOError:
        pass
    return _lines(text.decode(errors="replace"))


def create_command(
    container_id: str,
    grant: Grant,
    *,
    pid: int | None = None,
    cgroup: str | None = None,
    group: str | None = None,
) -> str:
    """
    Return the ``create`` command for inst_ctl, without its newline.

    Args:
        pid, cgroup: exactly one; the container's first process (the host's number), or its
            cgroup's path below the cgroup file system's root.
        group: the id of its group's leader, which may be its own.

    Raises:
        CgpuError: the id or the path cannot be written there, or the command grows too long.
    """
    check_id(container_id)
    if (pid is None) == (cgroup is None):
        raise CgpuError(f"{container_id}: name its process or its cgroup, one of them")
    if cgroup is not None and not (cgroup.isprintable() and cgroup.strip() and " " not in cgroup):
        raise CgpuError(f"cgroup {cgroup!r} has characters that inst_ctl does not take")
    words = ["create", container_id, f"cgroup={cgroup}" if pid is None else f"pid={pid}"]
    for card in grant.cards:
        memory = "max" if card.memory_bytes is None else str(card.memory_bytes)
        word = f"gpu={card.index},mem={memory}"
        for key in ("weight", "quota", "quota_min", "priority", "policy", "oom_action"):
            value = getattr(card, key)
            if value is not None:
                word += f",{key}={value}"
        word += ",uvm_disable=1" if card.uvm_disable else ""
        words.append(word + (f",idle_park_s={card.idle_park_s}" if card.idle_park_s else ""))
    if group is not None:
        words.append(f"group={group}")
    command = " ".join(words)
    if len(command.encode()) >= COMMAND_MAX:
        raise CgpuError(f"{container_id}: {len(grant.cards)} cards do not fit one command")
    return command


def create(
    container_id: str,
    grant: Grant,
    root: str,
    *,
    pid: int | None = None,
    cgroup: str | None = None,
    group: str | None = None,
) -> None:
    """
    Register a container with all cards of *grant*, or with none; see create_command().

    Raises:
        CgpuError: it asks to be parked when idle, and this door cannot park.
    """
    if any(card.idle_park_s for card in grant.cards) and not parks(root):
        raise CgpuError(
            f"{container_id}: it asks to be parked when idle, and this door ({root}) cannot park:"
            " leave CGPU_IDLE_PARK or --idle-park out"
        )
    command = create_command(container_id, grant, pid=pid, cgroup=cgroup, group=group)
    write("inst_ctl", command, root, _CREATE_REASONS)


def destroy(container_id: str, root: str) -> bool:
    """Remove a container; return False if it was gone already."""
    check_id(container_id)
    try:
        write("inst_ctl", f"destroy {container_id}", root, _DESTROY_REASONS)
    except NodeError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    return True


def check_id(container_id: str) -> None:
    """Raise CgpuError if the door takes no container of that id."""
    if (
        not 1 <= len(container_id) <= _ID_MAX
        or not container_id[0].isalnum()
        or not _ID_CHARS.issuperset(container_id)
    ):
        raise CgpuError(
            f"container id {container_id!r}: write 1 to {_ID_MAX} letters, digits, '_', '.', '-',"
            " a letter or digit first"
        )
