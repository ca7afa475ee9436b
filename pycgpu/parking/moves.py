# SPDX-License-Identifier: MIT
"""
Moves a container's memory to the host, and back when a thread of it waits for the card.

The driver moves it (:mod:`.checkpoint`); the core keeps the books, in which room is reserved before
the driver is asked (``kmod/core/memory/parking.h``). All processes of a container move, or none. A
move that fails, or that an agent began and did not end, is undone: the program goes on.

One move at a time: two would share the bus, and both take longer.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from pycgpu.errors import CgpuError
from pycgpu.parking import began, host_memory, rules, stopped
from pycgpu.parking.books import Books, Wanting
from pycgpu.parking.checkpoint import Checkpoint, CheckpointError, ProcessState
from pycgpu.parking.idle import Idleness, Idler, Moves, choose
from pycgpu.parking.wishes import Process, stirred
from pycgpu.request.model import MIB
from pycgpu.tree import nvml_library
from pycgpu.tree.moving import Moving, State

log = logging.getLogger("cgpud")

#: The pause between two looks at parked containers; a look sees a thread that waits.
LOOK_S = 0.1
#: The pause between two looks into the books, if no parked process ran and none waits for room.
_BOOKS_LOOK_S = 0.5
#: Memory outside containers is sampled so often, so that a call that ends meanwhile is not missed.
_SAMPLES, _SAMPLE_PAUSE_S = 3, 0.01
_RETRY_S = 1.0
#: How often a container that waits for room asks for it: each attempt asks the driver.
_ROOM_LOOK_S = 0.5
_BUSY = "is parked already, or moves at the moment"
_NOT_PARKED = "is not parked"
_IDLE_LOOK_S = 1.0
#: How long a container that could not be parked is left alone.
_SPARE_S = 60.0
#: A process between two states settles by itself.
_SETTLE_S, _SETTLE_PAUSE_S = 30.0, 0.05
#: How soon a move that could not be settled or brought back is tried again.
_AGAIN_S = 1.0
#: A slow failure is tried again only after so many times its duration: others wait meanwhile.
_AGAIN_TIMES = 9


#: The states that a process leaves as it comes back, one after the other.
_STEPS = (ProcessState.CHECKPOINTED, ProcessState.LOCKED)


class ParkError(CgpuError):
    """The container cannot be parked or resumed; nothing has changed."""


class NoRoom(ParkError):
    """The container waits for room, and comes back when there is some; *wanting* names the card."""

    def __init__(self, message: str, wanting: Wanting) -> None:
        super().__init__(message)
        self.wanting = wanting


class Parking:
    """Moves the containers of one door. Its methods may be called by any thread."""

    def __init__(self, books: Books, checkpoint: Checkpoint | None = None) -> None:
        self._books = books
        self._checkpoint = checkpoint or Checkpoint()
        self._move = threading.Lock()
        #: Used by the look alone: another thread that moves a container adds it to `_renewed`.
        self._watched: dict[str, list[Process]] = {}
        self._renewed: set[str] = set()
        self._due_s: dict[str, float] = {}
        self._idleness, self._begun = Idleness(), Moves()
        self._idlers: list[Idler] = []
        #: Containers that could not be parked, and the time until which they are left alone.
        self._spared_s: dict[str, float] = {}
        self._idle_looked_s = self._read_s = -math.inf
        #: A container waits for room.
        self._waiting = False
        self._rules, self._rules_ns = rules.Rules(), -1

    # ---- what people ask for

    def park(self, container_id: str, hold: bool = False) -> int:
        """
        Move a container to the host; return its bytes.

        Args:
            hold: the container comes back by :meth:`resume` alone.

        Raises:
            ParkError: why not; the container goes on as before.
        """
        with self._move:
            pids = self._parkable(container_id)
            try:
                self._books.park(container_id, pids, hold)
            except OSError as error:
                raise ParkError(_reason(container_id, error)) from error
            try:
                self._leave(container_id, pids)
                self._books.parked(container_id)
            except (CgpuError, OSError) as error:
                self._settle(container_id, pids)
                raise ParkError(f"{container_id} was not parked, and goes on: {error}") from error
            self._renewed.add(container_id)
            return sum(o.parked_bytes for o in self._books.moving() if o.id == container_id)

    def resume(self, container_id: str) -> None:
        """
        Move a container back to its cards.

        Raises:
            NoRoom: the container is queued, and comes back by itself.
            ParkError: the container is not parked.
        """
        with self._move:
            moved = {one.id: one for one in self._books.moving()}
            found = moved.get(container_id)
            if found is None:
                raise ParkError(f"{container_id} {_NOT_PARKED}")
            pids = _own(found)
            if why := _stand_still(pids):
                raise ParkError(f"{container_id} cannot come back: {why}")
            self._reserve(container_id)
            self._settle(container_id, pids)

    # ---- what happens by itself

    def watch(self) -> None:
        """Look after parked containers, for ever."""
        while True:
            time.sleep(self.look_quietly(time.monotonic()))

    def look_quietly(self, now_s: float) -> float:
        """Look, and log what fails; return a pause."""
        try:
            return self.look(now_s)
        except OSError as error:
            # The door may come later, and a container may go meanwhile.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                log.exception("who is parked was not looked at")
        except Exception:
            log.exception("who is parked was not looked at")
        return _RETRY_S

    def look(self, now_s: float) -> float:
        """
        Bring back containers that want to, settle moves left halfway, and park idle containers for
        those that need the room; return a pause.
        """
        ran = stirred(chain.from_iterable(self._watched.values()))
        rest = not (ran or self._renewed or self._waiting)
        if rest and now_s < self._read_s + _BOOKS_LOOK_S:
            return LOOK_S
        self._read_s = now_s
        if now_s >= self._idle_looked_s + _IDLE_LOOK_S:
            self._look_for_idlers(now_s)
            self._park_idlers(now_s)
        listed = self._books.listed()
        for one in listed:
            if one.want_card is None:
                continue
            wanted = {one.want_card: one.want_bytes}
            if not self._make_room(one.id, wanted, now_s, for_growth=True):
                with contextlib.suppress(OSError):
                    self._books.no_room(one.id)
        moved = [one for one in listed if one.state is not State.RUNNING]
        self._waiting = any(one.asked_ns for one in moved)
        for one in self._stirred(moved, {process.pid for process in ran}):
            # A wish is seen once: no container is looked at before its last one is acted on.
            if now_s < self._due_s.get(one.id, 0.0):
                continue
            if one.state is not State.PARKED:
                self._settle_left(one, now_s)
                continue
            processes = self._watched[one.id]
            if all(process.has_ended() for process in processes):
                with contextlib.suppress(OSError):
                    self._books.running(one.id)
                continue
            wishes = [process.wants(now_s) for process in processes]
            if not one.asked_ns and (one.held or not any(wishes)):
                continue
            self._due_s[one.id] = now_s + (_ROOM_LOOK_S if one.asked_ns else LOOK_S)
            if self._stays(one) or not self._come_back(one.id, now_s):
                self._due_s[one.id] = now_s + _AGAIN_S
                self._renewed.add(one.id)
        return LOOK_S if moved else 2 * LOOK_S

    def _stirred(self, moved: Sequence[Moving], ran: set[int]) -> list[Moving]:
        """Return the containers that may have changed since the last look."""
        self._forget_all_but({one.id for one in moved})
        found = []
        for one in moved:
            is_new = one.state is State.PARKED and one.id not in self._watched
            if is_new:
                self._watched[one.id] = [Process(pid) for pid in _own(one)]
            if (
                is_new
                or one.asked_ns
                or one.state is not State.PARKED
                or not ran.isdisjoint(one.pids)
            ):
                found.append(one)
        return found

    def _settle_left(self, left: Moving, now_s: float) -> None:
        """
        Settle a move that an agent that has ended left halfway, unless a move is under way.

        A container that stands still, or fails again, is settled later: others would wait.
        """
        with self._unless_busy() as free:
            if not free or _stand_still(left.pids):
                return
            if not any((o.id, o.state) == (left.id, left.state) for o in self._books.moving()):
                return
            began_s = time.monotonic()
            try:
                was_parking = left.state is State.PARKING
                self._settle(left.id, _own(left), was_parking, _SETTLE_PAUSE_S)
            except CgpuError as error:
                self._due_s[left.id] = _next_s(now_s, began_s, _AGAIN_S)
                log.warning("%s", error)

    def _look_for_idlers(self, now_s: float) -> None:
        """Find the idle containers."""
        self._idle_looked_s = now_s
        self._read_rules()
        self._spared_s = {one: until for one, until in self._spared_s.items() if until > now_s}
        found = self._idleness.idlers(self._books.uses(), now_s, self._rules.park_min_s)
        self._idlers = [one for one in found if one.id not in self._spared_s]

    def _park_idlers(self, now_s: float) -> None:
        """Park all idle containers, if the operator wants that even when the room is not needed."""
        if self._rules.when == "idle":
            left = self._begun.left(now_s, self._rules.moves_per_min)
            for one in self._idlers[:left]:
                if self._can_swap_beside([one]):
                    self._park_idler(one, now_s, "")

    def _read_rules(self) -> None:
        if (changed_ns := rules.changed_ns()) == self._rules_ns:
            return
        self._rules_ns = changed_ns
        try:
            self._rules = rules.load()
        except CgpuError as error:
            log.warning("parking goes on by the rules from before: %s", error)

    def _can_swap_beside(self, chosen: Sequence[Idler]) -> bool:
        """
        Return whether the host still has room for one more, as large as any, with these parked.

        If a container comes back to a full card, another is parked for it first.
        """
        parked = [one.parked_bytes for one in self._books.moving()]
        sizes = [sum(one.held.values()) for one in chosen]
        needed = sum(sizes) + max([*parked, *sizes], default=0)
        budget = self._rules.park_host_bytes
        left = [host_memory.available_bytes(), *([budget - sum(parked)] if budget else [])]
        return needed <= min(left)

    def _make_room(
        self, container_id: str, wanted: dict[int, int], now_s: float, for_growth: bool = False
    ) -> bool:
        """
        Park idle containers, so that a card has so much more; False: that cannot be had.

        Args:
            for_growth: nothing leaves the host for it, so the host must keep room for one more.
        """
        try:
            priority = self._books.priority(container_id)
        except OSError:
            return False
        # A container that has begun to work since the last look is not idle any more.
        self._look_for_idlers(now_s)
        idlers = [one for one in self._idlers if one.id != container_id]
        chosen = choose(idlers, wanted, priority, len(idlers))
        if len(chosen) > self._begun.left(now_s, self._rules.moves_per_min):
            # The container goes on waiting, if the operator lets this many be parked at all.
            return self._rules.moves_per_min >= len(chosen)
        if not chosen or (for_growth and not self._can_swap_beside(chosen)):
            return False
        for one in chosen:
            self._park_idler(one, now_s, container_id)
        return True

    def _park_idler(self, idler: Idler, now_s: float, wanted_by: str) -> None:
        self._idlers = [one for one in self._idlers if one.id != idler.id]
        if self._is_at_work(idler.id, now_s):
            self._spared_s[idler.id] = now_s + _IDLE_LOOK_S
            return
        self._begun.begin(now_s)
        began_s = time.monotonic()
        try:
            size = self.park(idler.id)
        except CgpuError as error:
            self._spared_s[idler.id] = _next_s(now_s, began_s, _SPARE_S)
            log.warning("%s", error)
            return
        reason = f"{wanted_by} needs the room" if wanted_by else "it was idle"
        log.info("parked %s, %d MiB: %s", idler.id, size // MIB, reason)

    def _is_at_work(self, container_id: str, now_s: float) -> bool:
        """Return whether a thread of it is in CUDA: it may wait for something that takes long."""
        try:
            pids = list(self._books.holders(container_id))
        except OSError:
            return False
        for pid in pids:
            with contextlib.closing(Process(pid)) as process:
                if process.is_at_work(now_s):
                    return True
        return False

    def _stays(self, one: Moving) -> bool:
        """Return whether the container stands still; then no other waits for room behind it."""
        if not _stand_still(one.pids):
            return False
        if one.asked_ns:
            with contextlib.suppress(OSError):
                self._books.stay(one.id)
        return True

    def _come_back(self, container_id: str, now_s: float) -> bool:
        """Return False if the container is still parked, and does not wait for room either."""
        try:
            self.resume(container_id)
        except NoRoom as error:
            # The list of idle containers is a second old at most.
            if error.wanting.card is not None and self._idlers:
                wanted = {error.wanting.card: error.wanting.short_bytes}
                self._make_room(container_id, wanted, now_s)
        except (CgpuError, OSError) as error:
            # Another thread may have brought it back since the look.
            if any(one.id == container_id for one in self._books.moving()):
                log.warning("%s", error)
                return False
        return True

    @contextlib.contextmanager
    def _unless_busy(self) -> Iterator[bool]:
        free = self._move.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._move.release()

    # ---- one container

    def _parkable(self, container_id: str) -> list[int]:
        """Return the processes to park. ParkError: something cannot be parked."""
        held = self._holders(container_id)
        if any(one.id == container_id for one in self._books.moving()):
            raise ParkError(f"{container_id} {_BUSY}")
        if why := _stand_still(held):
            raise ParkError(f"{container_id} cannot be parked: {why}")
        self._checkpoint.start()
        pids, unknown = [], ""
        for pid, size in held.items():
            try:
                state = self._checkpoint.state(pid)
            except CheckpointError as error:
                # The driver does not know a monitoring tool, say.
                if not size:
                    unknown = unknown or str(error)
                    continue
                raise ParkError(f"{container_id} cannot be parked: {error}") from error
            if state is ProcessState.GONE:
                continue
            if state is ProcessState.NOT_CUDA:
                if size:
                    raise ParkError(
                        f"{container_id} cannot be parked: process {pid} has {size // MIB} MiB of"
                        " the card and does not use CUDA"
                    )
                continue
            if state is not ProcessState.RUNNING:
                raise ParkError(
                    f"{container_id} cannot be parked: another checkpoint of process {pid} is under"
                    f" way ({state.name.lower()})"
                )
            pids.append(pid)
        if not pids:
            why = unknown or "no process of it uses CUDA"
            raise ParkError(f"{container_id} cannot be parked: {why}")
        self._check_host(container_id, {pid: held[pid] for pid in pids})
        return pids

    def _check_host(self, container_id: str, held: dict[int, int]) -> None:
        """Raise ParkError if the host has no room for these processes' memory."""
        try:
            host_memory.check(held)
        except CgpuError as error:
            raise ParkError(f"{container_id} cannot be parked: {error}") from error
        self._check_budget(container_id, sum(held.values()))

    def _check_budget(self, container_id: str, size: int) -> None:
        self._read_rules()
        budget = self._rules.park_host_bytes
        others = [one for one in self._books.moving() if one.id != container_id]
        parked = sum(one.parked_bytes for one in others)
        if budget and parked + size > budget:
            raise ParkError(
                f"{container_id} cannot be parked: it has {size // MIB} MiB, and of the"
                f" {budget // MIB} MiB that {rules.PATH} gives to what is parked {parked // MIB}"
                " are taken"
            )

    def _holders(self, container_id: str) -> dict[int, int]:
        try:
            # Asked first, because the driver tells less of a grouped container.
            if self._books.is_grouped(container_id):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return self._books.holders(container_id)
        except OSError as error:
            raise ParkError(_reason(container_id, error)) from error

    def _leave(self, container_id: str, pids: Sequence[int]) -> None:
        for pid in pids:
            if why := stopped.reason(pid):
                raise CheckpointError(why)
            self._checkpoint.lock(pid)
        # They may have grown since the look; from here on they cannot.
        held = self._holders(container_id)
        self._check_host(container_id, {pid: held.get(pid, 0) for pid in pids})
        for pid in pids:
            self._checkpoint.checkpoint(pid)

    def _reserve(self, container_id: str) -> None:
        foreign = self._foreign()
        try:
            wanting = self._books.come_back(container_id, foreign)
        except OSError as error:
            raise ParkError(_reason(container_id, error, _NOT_PARKED)) from error
        if wanting is not None:
            where = "others are first"
            if wanting.card is not None:
                where = f"card {wanting.card} lacks {-(-wanting.short_bytes // MIB)} MiB"
            raise NoRoom(
                f"{container_id} waits for room, and comes back by itself: {where}", wanting
            )

    def _foreign(self) -> dict[int, int]:
        """Return by card the most bytes in use that no container has."""
        most: dict[int, int] = {}
        if not nvml_library.begin():
            return most
        try:
            for sample in range(_SAMPLES):
                if sample:
                    time.sleep(_SAMPLE_PAUSE_S)
                used, known = nvml_library.used_bytes(), self._books.known()
                for minor in used.keys() & known.keys():
                    foreign = max(0, used[minor] - known[minor])
                    most[minor] = max(most.get(minor, 0), foreign)
        finally:
            nvml_library.end()
        return most

    def _settle(
        self,
        container_id: str,
        pids: Sequence[int],
        parked: bool = False,
        patience_s: float = _SETTLE_S,
    ) -> None:
        """
        Bring all processes back to running, and close the books.

        Args:
            parked: the processes may also all be parked, which was the aim.
            patience_s: how long a failing step of the driver's is tried again.

        Raises:
            CgpuError: not all are back; their room stays reserved, and a later look tries again.
        """
        if parked and all(self._checkpoint.state(pid) is ProcessState.CHECKPOINTED for pid in pids):
            self._books.parked(container_id)
            return
        deadline = time.monotonic() + patience_s
        failed: CgpuError | None = None
        # First all that must be copied: no process runs before its container's others are back.
        for left in (_STEPS[:1], _STEPS):
            for pid in pids:
                try:
                    self._bring(pid, left, deadline)
                except CgpuError as error:
                    failed = error
        if failed is not None:
            raise ParkError(f"{container_id} is not back yet: {failed}") from failed
        self._renewed.add(container_id)
        with contextlib.suppress(OSError):
            self._books.running(container_id)

    def _bring(self, pid: int, left: Sequence[ProcessState], deadline: float) -> None:
        """Make a process leave these states. CheckpointError: it does not."""
        if why := stopped.reason(pid):
            raise CheckpointError(why)
        # A copy may go on after its helper has ended: a locked process may be on the host soon.
        while (state := self._checkpoint.state(pid)) in left:
            try:
                if state is ProcessState.CHECKPOINTED:
                    self._checkpoint.restore(pid)
                else:
                    self._checkpoint.unlock(pid)
            except CheckpointError:
                # Or another call had begun the step, or the process has died.
                if time.monotonic() > deadline or stopped.reason(pid):
                    raise
                time.sleep(_SETTLE_PAUSE_S)
        if state is ProcessState.FAILED:
            log.warning("process %d: the driver says that its checkpoint has failed", pid)

    def _forget(self, container_id: str) -> None:
        for process in self._watched.pop(container_id, []):
            process.close()

    def _forget_all_but(self, ids: set[str]) -> None:
        for container_id in self._watched.keys() - ids:
            self._forget(container_id)
        while self._renewed:
            self._forget(self._renewed.pop())
        self._due_s = {one: due_s for one, due_s in self._due_s.items() if one in ids}


def _own(moved: Moving) -> list[int]:
    """Return its processes, without later ones that got the number of one that ended."""
    return [pid for pid in moved.pids if began.before(pid, moved.since_ns)]


def _next_s(now_s: float, began_s: float, pause_s: float) -> float:
    """Return when to try again after a failure: the longer it took, the later, as others wait."""
    took_s = time.monotonic() - began_s
    return now_s + took_s + max(pause_s, _AGAIN_TIMES * took_s)


def _stand_still(pids: Iterable[int]) -> str:
    """Return why one of the processes stands still; "": none does."""
    return next((why for pid in pids if (why := stopped.reason(pid))), "")


def _reason(container_id: str, error: OSError, busy: str = _BUSY) -> str:
    told: dict[int, str] = {
        errno.ENOENT: f"no container {container_id}",
        errno.EBUSY: f"{container_id} {busy}",
        errno.EINVAL: f"{container_id} cannot be held by this door: `cgpu upgrade` takes it to one"
        " that can",
        errno.EXDEV: f"{container_id} is in a group, and what MPS serves cannot be parked",
        errno.E2BIG: f"{container_id} has more processes on a card than can be parked (64)",
    }
    return told.get(error.errno or 0, f"{container_id}: {error}")
