# SPDX-License-Identifier: MIT
"""
The agent's sockets; only ``tree.sock`` is open to users other than root.

``agent.sock``: one JSON object a connection, and its answer. ``{"op": "run", "create": "create
…"}`` comes with the seccomp listener of the caller, and so does ``{"op": "join", "id": "…"}`` for a
container that is there; ``park`` and ``resume`` move the container ``id``; ``command`` is a line of
inst_ctl; ``ping`` and ``counters`` tell of the agent. An answer is ``{"ok": true, …}`` or
``{"ok": false, "errno": n, "message": "…"}``.

``tree.sock``: the nodes, for all users, see :mod:`pycgpu.agent.node_server`.

``seccomp.sock``: what OCI runtimes connect to (``listenerPath``): the container's state as the
runtime specification has it, and the listener among the descriptors passed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pycgpu.agent import client, door, filter, node_server, tree
from pycgpu.agent.nodes import Nodes
from pycgpu.errors import CgpuError
from pycgpu.parking import asked
from pycgpu.parking.books import Books
from pycgpu.parking.moves import Parking
from pycgpu.tree import authority, cards, device_nodes, lock, procfs
from pycgpu.tree.socket_server import accept, listen, own_directory, receive

log = logging.getLogger("cgpud")

DIRECTORY, SOCKET = client.DIRECTORY, client.SOCKET
LISTENER_SOCKET = f"{DIRECTORY}/seccomp.sock"
TREE_SOCKET = procfs.USER_DOOR_SOCKET
FRAGMENT = f"{DIRECTORY}/seccomp.json"
#: Held as long as the agent lives: its watchdog closes it, as all that belongs to no tenant.
LOCK = f"{DIRECTORY}/agent.lock"
#: The log of an agent that is started on demand.
LOG = f"{DIRECTORY}/agent.log"
#: Root's alone: there the watchdog of an agent that has ended hands the state on.
WATCHDOG_SOCKET = f"{DIRECTORY}/watchdog.sock"
#: The most bytes of a runtime's message: it has config.json's annotations, which an image may set.
STATE_MAX_BYTES = 32 << 20
_ANSWER_TIMEOUT_S = 10
_PAUSE_S = 0.1
# Under an emulated processor an agent takes a minute to start.
_TURN_TIMEOUT_S = 120
# A hook may register the container after its runtime passed the listener.
_CONTAINER_WAIT_S = 10
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _holders(minor: int) -> str:
    """Tell which containers hold a card, for the message of a refusal."""
    nodes = {(node.place, node.name): node.number for node in door.nodes()}
    lines = door.show(nodes[1, "memory"], minor).decode().split()
    weight = door.show(nodes[1, "free_weight"], minor).decode().strip()
    memory = dict(zip(lines[::2], map(int, lines[1::2]), strict=False))
    held = []
    for found in door.containers():
        # The container may have gone since.
        with contextlib.suppress(OSError):
            if minor in found.cards:
                size = door.show(nodes[2, "memsize"], minor, found.id).decode().strip()
                held.append(f"{found.id} {int(size) >> 20 if size.isdecimal() else size} MiB")
    return (
        f"card {minor} has {memory['free'] >> 20} MiB of {memory['total'] >> 20} MiB"
        f" and weight {weight} free"
        f" ({', '.join(held) or 'nobody holds any'})"
    )


def _refusal(error: OSError, command: str) -> dict[str, Any]:
    message = {
        errno.EEXIST: "a container of this name exists: choose another name",
        errno.ENODEV: f"no such card: this host has {', '.join(map(str, door.cards()))}",
        errno.ERANGE: "a number is out of bounds (mem is in bytes, at least 1 MiB)",
        errno.EINVAL: "the request is malformed, or what it names as its group leads none",
        errno.ENOENT: "no such container, or group",
    }.get(error.errno or 0, os.strerror(error.errno or 0))
    if error.errno == errno.ENOSPC:
        minors = [int(w[4:].split(",")[0]) for w in command.split() if w.startswith("gpu=")]
        message = "no room: " + "; ".join(_holders(minor) for minor in minors)
    return {"ok": False, "errno": error.errno, "message": message}


def _run(message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    command = str(message.get("create", ""))
    words = command.split()
    if len(fds) != 1 or len(words) < 3 or words[0] != "create":
        raise OSError(errno.EINVAL, "run wants a create command and one listener")
    door.command(command.encode())
    _attach(words[1], fds)
    return {"ok": True, "devices": _devices(words[1])}


def _join(message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    if len(fds) != 1:
        raise OSError(errno.EINVAL, "join wants one listener")
    _attach(str(message.get("id", "")), fds)
    return {"ok": True}


def _attach(container_id: str, fds: list[int]) -> None:
    """Hand the one listener to the agent; if that is refused, the caller still has it."""
    door.attach(container_id, fds[0])
    fds.clear()


def _devices(container_id: str) -> list[str]:
    """UUIDs of a container's cards; none where it has all, or the driver tells none."""
    cards = next((c.cards for c in door.containers() if c.id == container_id), ())
    if len(cards) == len(door.cards()):
        return []
    uuid = next(node.number for node in door.nodes() if (node.place, node.name) == (1, "uuid"))
    uuids = [door.show(uuid, minor).decode().strip() for minor in cards]
    return uuids if all(uuids) else []


def _handle(message: dict[str, Any], fds: list[int], parking: Parking) -> dict[str, Any]:
    op = message.get("op")
    try:
        if op == "run":
            return _run(message, fds)
        if op == "join":
            return _join(message, fds)
        if op in ("park", "resume"):
            return asked.answer(message, parking)
        if op == "command":
            door.command(str(message.get("command", "")).encode())
            return {"ok": True}
    except OSError as error:
        return _refusal(error, str(message.get("create", message.get("command", ""))))
    if op == "ping":
        return {"ok": True, "pid": os.getpid()}
    if op == "counters":
        return {"ok": True, "counters": door.counters()}
    return {"ok": False, "errno": errno.EINVAL, "message": f"no such operation: {op!r}"}


class Attendance:
    """
    Tells whether the agent is still needed: a client that asks will bring a container.

    The agent may not end between a program's question and its container. If the question comes
    after the decision to end, the agent does not answer, and the program starts another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_s = time.monotonic()
        self._over = False

    def begin(self) -> bool:
        """Note a client. False: the agent is about to end."""
        with self._lock:
            self._asked_s = time.monotonic()
            return not self._over

    def end(self, idle_s: float, count: Callable[[], tuple[int, int]]) -> bool:
        """
        Decide to end, for good, if *idle_s* have passed without a question or a container.

        Args:
            count: how many containers are alive, and when the last one ended (monotonic ns, 0:
                none has).
        """
        with self._lock:
            alive, ended_ns = count()
            self._over = not alive and (
                time.monotonic() - max(ended_ns / 1e9, self._asked_s) > idle_s
            )
            return self._over


def _serve_client(connection: socket.socket, attendance: Attendance, parking: Parking) -> None:
    with connection:
        if not attendance.begin():
            return
        connection.settimeout(_ANSWER_TIMEOUT_S)
        fds: list[int] = []
        message: dict[str, Any] = {}
        try:
            message = receive(connection, fds)
            answer = _handle(message, fds, parking)
        except (ValueError, OSError) as error:
            log.warning("a client's message: %s", error)
            return
        finally:
            _refuse(_container_of(message), fds)
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(answer).encode())


def _container_of(message: dict[str, Any]) -> str:
    """Return the container that a client's message is about, "" for none."""
    words = str(message.get("create", "")).split()
    return words[1] if len(words) > 1 else str(message.get("id", ""))


def _refuse(container_id: str, fds: list[int]) -> None:
    """
    Dispose of descriptors that have not been taken.

    A listener is not simply closed: its processes could then answer their own calls by another.
    """
    while fds:
        door.refuse(container_id, fds.pop())


def _serve_runtime(connection: socket.socket) -> None:
    fds: list[int] = []
    container_id = ""
    try:
        with connection:
            connection.settimeout(_ANSWER_TIMEOUT_S)
            state = receive(connection, fds, STATE_MAX_BYTES)
        container_id = str(state["state"]["id"])
        at = state.get("fds", []).index("seccompFd")
        _await(container_id, fds[at])
        del fds[at]
    except (ValueError, OSError, KeyError, IndexError, TypeError, AttributeError) as error:
        log.warning("container %s gets no card: its runtime's message: %s", container_id, error)
    finally:
        _refuse(container_id, fds)


def _await(container_id: str, listener: int) -> None:
    """Give a container its listener. OSError: it does not come, or does not take it."""
    deadline = time.monotonic() + _CONTAINER_WAIT_S
    while True:
        try:
            return door.attach(container_id, listener)
        except OSError as error:
            if error.errno != errno.ENOENT or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _retire(idle_s: float, attendance: Attendance) -> None:
    """End the program once it has not been needed for *idle_s*."""
    while not attendance.end(idle_s, door.count):
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """
    Be the only agent while the context lasts.

    Several programs that start at once each start an agent. Two agents would divide a card that
    each takes for its own. A later one waits until the first answers, or has ended.

    CgpuError: an agent answers, or one holds the lock and does not answer for two minutes.
    """
    held = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _TURN_TIMEOUT_S
    try:
        while True:
            with contextlib.suppress(OSError, ValueError):
                answer = client.ask({"op": "ping"}, path=SOCKET)
                raise CgpuError(f"an agent runs already, process {answer.get('pid')}")
            if lock.acquire(held, lock.PAUSE_MAX_S, pause_s=lock.PAUSE_MAX_S):
                break
            if time.monotonic() > deadline:
                raise CgpuError(f"another agent holds {LOCK} and does not answer: end it first")
        yield
    finally:
        os.close(held)


def _publish() -> None:
    draft = f"{FRAGMENT}.new"
    with open(draft, "w") as file:
        json.dump(filter.oci_fragment(LISTENER_SOCKET), file, indent=1)
    os.rename(draft, FRAGMENT)


KEEPING = door.Keeping(WATCHDOG_SOCKET)


def main(
    *,
    unknown_driver: str = "refused",
    idle_s: float | None = None,
    keeping: door.Keeping = KEEPING,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """
    Be the agent until SIGTERM or SIGINT; with *idle_s*, until it has been idle so long. *keeping*
    says what becomes of its tenants then. *ready* is called once the sockets answer.

    CgpuError: no root, no driver, one of an unknown branch, or another agent runs.
    """
    if os.geteuid() != 0:
        raise CgpuError("the agent needs root: run it by sudo")
    authority.refuse_beside_module()
    own_directory(DIRECTORY)
    with only_one():
        _be_the_agent(unknown_driver, idle_s, keeping, ready)


def _be_the_agent(
    unknown_driver: str, idle_s: float | None, keeping: door.Keeping, ready: Callable[[], None]
) -> None:
    # Every thread that starts from here on leaves them to the wait below, so none is lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        if minors := device_nodes.minors():
            for failed in device_nodes.ensure(minors):
                log.warning("containers may lose a device at a daemon-reload: %s", failed)
        adopted = door.start(keeping, unknown_driver)
        try:
            _serve(idle_s, ready, adopted)
        finally:
            for path in (SOCKET, LISTENER_SOCKET, TREE_SOCKET, FRAGMENT):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            door.stop()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set_cards() -> None:
    """Give the cards what /etc/cgpu/cards.toml says of them."""
    try:
        for card, key, now, value in cards.apply(cards.load(), TREE_SOCKET):
            log.info("card %d: %s %d, and now %d", card, key, now, value)
    except CgpuError as error:
        log.warning("cards keep their defaults: %s", error)


def _serve(idle_s: float | None, ready: Callable[[], None], adopted: int) -> None:
    """Answer until a signal comes."""
    runtime, client = listen(LISTENER_SOCKET), listen(SOCKET)
    nodes = listen(TREE_SOCKET, 0o666)
    # Again, because a module that is loaded from now on looks for a listening agent.
    authority.refuse_beside_module()
    mount = tree.Mount()
    if not mount.start():
        log.warning("cgpu-smi and the other tools use %s instead", TREE_SOCKET)
    attendance, parking = Attendance(), Parking(Books(Nodes()))
    served = (
        (runtime, _serve_runtime),
        (client, lambda connection: _serve_client(connection, attendance, parking)),
        (nodes, node_server.NodeServer().serve),
    )
    for listening, serve in served:
        threading.Thread(target=accept, args=(listening, serve), daemon=True).start()
    threading.Thread(target=parking.watch, daemon=True).start()
    if idle_s is not None:
        threading.Thread(target=_retire, args=(idle_s, attendance), daemon=True).start()
    # An adopted state keeps settings that were changed since the first agent.
    if not adopted:
        _set_cards()
    _publish()
    ready()
    log.info("ended by %s", signal.Signals(signal.sigwait(_SIGNALS)).name)
    mount.stop()
