# SPDX-License-Identifier: MIT
"""
Requests of containers, cards, and grants.

These are immutable named tuples of :mod:`pycgpu.request.record`. Hook and runtime start a Python
for every container, and imports take most of their time.
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from .record import Record as NamedTuple

MIB = 1 << 20
GIB = 1 << 30

AVERAGE = 0
PREEMPTIVE = 1
WEIGHTED = 2
FIXED = 3
WEAK = 4
NATIVE = 5
MIXED = 6
WEIGHTED_CONSERVING = 7
BURST = 8
ONLINE = 9
#: The highest priority; the core's CGPU_PRIORITY_MAX.
PRIORITY_MAX = 15
#: Names of the policies, by number.
POLICIES = (
    "average",
    "preemptive",
    "weighted",
    "fixed",
    "weak",
    "native",
    "mixed",
    "weighted-conserving",
    "burst",
    "online",
)


class MemoryBytes(NamedTuple):
    """An absolute amount: the memory that the container sees, in bytes."""

    bytes: int

    def on(self, total_bytes: int, kept_bytes: int = 0) -> int:
        """Return the bytes asked of a card of *total_bytes*, *kept_bytes* of them the driver's."""
        return self.bytes


class MemoryShare(NamedTuple):
    """
    A part of the card: ``total * numerator / denominator``, less a reserve.

    ``denominator`` None stands for the card's own size rounded up to whole GiB.
    The product is rounded down to a multiple of ``granule_bytes`` before the reserve goes off.
    ``states_size``: the denominator is the card's size in GiB, as the request states it.
    ``at_most_bytes``: a further bound in the request, if it is less than the part.
    ``usable``: the part refers to the total without the driver's reserve. Then parts that add up to
    a whole all fit.
    """

    numerator: int
    denominator: int | None
    reserved_bytes: int = 0
    granule_bytes: int = 1
    states_size: bool = False
    at_most_bytes: int | None = None
    usable: bool = False

    def understates(self, total_bytes: int) -> bool:
        """
        Tell whether the request states a smaller size than the card has.

        An image may state the size while an operator sets the part, and a smaller size makes the
        same part more of the card.
        """
        return (
            self.states_size
            and self.denominator is not None
            and self.denominator < total_bytes // GIB
        )

    def on(self, total_bytes: int, kept_bytes: int = 0) -> int:
        """
        Return the bytes asked of a card of *total_bytes*, *kept_bytes* of them the driver's.

        They are zero or less if nothing is left.
        """
        denominator = self.denominator or -(-total_bytes // GIB)
        whole_bytes = max(0, total_bytes - kept_bytes) if self.usable else total_bytes
        share_bytes = whole_bytes * self.numerator // denominator
        part_bytes = share_bytes - share_bytes % self.granule_bytes - self.reserved_bytes
        return part_bytes if self.at_most_bytes is None else min(part_bytes, self.at_most_bytes)


class CardShare(NamedTuple):
    """
    A request for one card.

    memory: None asks for no limit of its own.
    quota, quota_min: percent of the card; None asks for none.
    weight: scheduling weight; ``weight_percent`` instead asks for that part of ``max_inst``.
    policy: the policy that the request's words mean. It becomes the card's if no operator has set
        one and no other container is there; otherwise it counts for this container alone.
    whole: asks for a card without other containers.
    """

    memory: MemoryBytes | MemoryShare | None = None
    weight: int | None = None
    weight_percent: int | None = None
    quota: int | None = None
    quota_min: int | None = None
    priority: int | None = None
    policy: int | None = None
    uvm_disable: bool = False
    oom_action: str | None = None
    whole: bool = False


class Request(NamedTuple):
    """
    A container's request.

    selectors: cards by index (int) or UUID (str), in the container's order; None is every card.
    shares: one per card in the same order; a shorter tuple repeats its last if ``repeat_last``.
    visible: the cards that NVIDIA_VISIBLE_DEVICES lists where something else gives the selectors;
        the two must be the same cards. None when it lists none.
    native: cards that the container uses without a limit, except those among the selectors.
    count: number of cards that the container must end up with, or None.
    nodes: cards whose nodes its engine gives it, where that leaves a choice or contradicts the
        selectors; it gets no others. None: any card.
    oom_script: path inside the container, run when an allocation is refused, or None.
    only_given: the request is the pod's, and holds for this container only if it is given a card.
    group: the group that it joins, as the request names it, or None.
    idle_park_s: the idle time after which it may be parked, 0: never; None: not set.
    """

    dialect: str
    selectors: tuple[int | str, ...] | None
    shares: tuple[CardShare, ...]
    repeat_last: bool = True
    visible: tuple[int | str, ...] | None = None
    native: tuple[int | str, ...] = ()
    count: int | None = None  # type: ignore[assignment]  # hides tuple.count
    nodes: tuple[int, ...] | None = None
    oom_script: str | None = None
    only_given: bool = False
    group: str | None = None
    idle_park_s: int | None = None


class Tenant(NamedTuple):
    """
    A container's parts of one card's compute, in percent; its memory is in the card's sums.

    promised_ppm: its part whatever other containers do, which includes its guarantee.
    """

    id: str
    quota: int | None = None
    quota_min: int | None = None
    promised_ppm: int = 0


class Card(NamedTuple):
    """
    One GPU of the host.

    index: N of ``/dev/nvidiaN``.
    total_bytes: the board's memory; ``reserved_bytes`` of it are the driver's.
    overcommit_ratio: percent of the card that the limits of its containers may add up to.
    mig: the driver has divided it, so that no container can have all of it.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    uuid: str
    total_bytes: int
    reserved_bytes: int = 0
    allocated_bytes: int = 0
    used_bytes: int = 0
    policy: int = WEIGHTED_CONSERVING
    max_inst: int = 20
    free_weight: int = 20
    tenants: tuple[Tenant, ...] = ()
    policy_by_hand: bool = False
    mig: bool = False
    overcommit_ratio: int = 100

    @property
    def usable_bytes(self) -> int:
        """The most that one container can have: the total without the driver's reserve."""
        return max(0, self.total_bytes - self.reserved_bytes)

    @property
    def promisable_bytes(self) -> int:
        """What the limits of all containers may add up to, as ``kmod/core/tree/card.c`` has it."""
        promised = self.total_bytes * self.overcommit_ratio // 100
        return max(0, promised - self.reserved_bytes)

    @property
    def free_bytes(self) -> int:
        """What may still be promised to containers, together."""
        return max(0, self.promisable_bytes - self.allocated_bytes)

    @property
    def grantable_bytes(self) -> int:
        """What may still be promised to one container."""
        return min(self.free_bytes, self.usable_bytes)

    @property
    def nominal_bytes(self) -> int:
        """The size on the box: a 32 GB board reports 32510 MiB, and is sold as 32768 MiB."""
        return -(-self.total_bytes // GIB) * GIB


class CardGrant(NamedTuple):
    """One card of a grant; ``memory_bytes`` None is no limit, ``asked_bytes`` before capping."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    memory_bytes: int | None
    asked_bytes: int | None = None
    weight: int | None = None
    quota: int | None = None
    quota_min: int | None = None
    priority: int | None = None
    policy: int | None = None
    uvm_disable: bool = False
    oom_action: str | None = None
    idle_park_s: int | None = None


class Grant(NamedTuple):
    """
    Cards that a container gets, all of them.

    notes: lines for the log.
    short: lines that say what it gets less of than it asked for, and why.
    """

    cards: tuple[CardGrant, ...]
    oom_script: str | None = None
    notes: tuple[str, ...] = ()
    short: tuple[str, ...] = ()


class Refusal(NamedTuple):
    """Why a container gets nothing; ``fitting`` are the cards that would have had room."""

    reasons: tuple[str, ...]
    fitting: tuple[CardGrant, ...] = ()

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons)
