# SPDX-License-Identifier: MIT
"""One scenario: tenants on cards under a policy; and their resulting shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

from ._runlist import ffi, lib

Kind = Literal["backlogged", "bursty", "idle", "closer", "waking", "server", "spinner", "frozen"]
Controller = Literal[
    "engine", "recent", "slices", "windows", "windows_shut", "sleeper", "requests", "submissions"
]
#: The engine's sources on which tenants have work: each channel's USERD and the log of context
#: switches, as on a real card; or none.
Reports = Literal["log", "none"]

MS = 1_000_000
#: The most samples that servers take in a run.
SAMPLES = 200_000
KINDS_OF_SAMPLES = {lib.MODEL_STEP: "step", lib.MODEL_REQUEST: "request", lib.MODEL_WAIT: "wait"}
#: Loss of a context switch, by workload, fitted to what was measured on an H200, ns: when the
#: runlist switches, and, where they differ, after another's gate has shut and from rest.
SWITCH_NS = {"kernels_1ms": 140_000, "kernels_100us": 170_000, "resnet50": 200_000}
FIXED_WORK = {"switch_ns": 200_000, "gate_ns": 160_000, "rest_ns": 230_000}
#: On an H100 (580.159.04) the log counts 0.14 to 0.20 ms of a loading as run.
LOGGED_EARLY_NS = 170_000


@dataclass(frozen=True)
class Tenant:
    """One container on one card. Times in ns; ``on_ns`` and ``off_ns`` are means."""

    kind: Kind = "backlogged"
    groups: int = 1
    weight: int = 1
    quota: int = 0
    quota_min: int = 0
    priority: int = 0
    uncapped: bool = False
    slice_us: int = 2048
    window_ns: int = 10 * MS
    pause_ns: int = 10 * MS
    on_ns: int = 0
    off_ns: int = 0
    #: Of a server: the steps of a request, and the host's time between two steps.
    steps: int = 1
    step_ns: int = 0
    host_ns: int = 50_000
    #: Of a job over several cards, a server on each with its number: what they reduce together
    job: int = 0
    reduce_ns: int = 0
    #: and in how many pieces, and how far apart, the host submits a step
    pieces: int = 1
    launch_ns: int = 0
    #: of one that is backlogged: the card has fetched all that is queued, GP_PUT moves this often;
    #: of a server, not 0: what it submits is fetched even while it waits for its turn
    fetched_ns: int = 0
    #: when its requests come; empty: by Poisson, ``off_ns`` apart; ``off_ns`` 0: one always waits
    arrivals: tuple[int, ...] = ()
    channels: int = 2
    #: so long all of them move, as while contexts are made
    made_ns: int = 0
    switch_ns: int = FIXED_WORK["switch_ns"]
    gate_ns: int = FIXED_WORK["gate_ns"]
    rest_ns: int = FIXED_WORK["rest_ns"]
    #: of ``rest_ns``, what the log of context switches counts as run
    early_ns: int = 0
    stubborn_ns: int = 0
    open_ns: int = 0
    close_ns: int = 2**63
    #: opens it again so long after, for ``close_ns`` each time; 0: never
    again_ns: int = 0
    card: int = 0


@dataclass(frozen=True)
class Change:
    """At ``at_ns`` the card's policy and one tenant's numbers become these."""

    at_ns: int
    policy: int
    tenant: int
    weight: int
    quota: int = 0


@dataclass(frozen=True)
class Scenario:
    tenants: tuple[Tenant, ...]
    policy: int = 0
    max_inst: int = 20
    timeslice_us: int = 5000
    controller: Controller = "engine"
    loss_ppm: int = 0
    reports: Reports = "log"
    open_call_ns: int = 0
    shut_call_ns: int = 0
    #: the card's clock is so much faster than the host's, which time servers move by up to 500
    card_clock_ppm: int = 0
    fail_ns: int = 0
    duration_ns: int = 10_000 * MS
    bin_ns: int = 5 * MS
    seed: int = 1
    cards: int = 1
    changes: tuple[Change, ...] = field(default=())


@dataclass(frozen=True)
class Run:
    """The result: rows of bins, ns, for each tenant or card; totals for each card.

    A tenant holds the engine while it works and while it switches among its own groups; ``lost``
    is switching between tenants. ``used`` is each tenant's `used_ns` of the engine's `stat`,
    ``slowest`` the useful work of its slowest group.
    """

    scenario: Scenario
    useful: list[list[int]]
    held: list[list[int]]
    backlog: list[list[int]]
    lost: list[list[int]]
    used: list[int]
    slowest: list[int]
    cards: list[dict[str, int]]
    #: The servers' samples: (tenant, kind, at_ns, ns).
    samples: list[tuple[int, str, int, int]]

    def times(self, tenant: int, kind: str, since_ns: int = 0) -> list[float]:
        """Return a server's ``step``, ``request`` or ``wait`` times, ms, in ascending order."""
        return sorted(
            ns / MS for i, k, at, ns in self.samples if (i, k) == (tenant, kind) and at >= since_ns
        )

    def percentile(self, tenant: int, kind: str, fraction: float, since_ns: int = 0) -> float:
        """Return a percentile of these times, ms."""
        return percentile(self.times(tenant, kind, since_ns), fraction)

    def work(self, tenant: int, since_ns: int = 0) -> float:
        """Return a tenant's useful work over the run, as a fraction of its work alone."""
        skip = since_ns // self.scenario.bin_ns
        row = self.useful[tenant][skip:]
        return sum(row) / (len(row) * self.scenario.bin_ns)

    def efficiency(self, card: int = 0) -> float:
        """Return the sum of all tenants' work relative to one tenant alone."""
        return sum(self.work(i) for i, t in enumerate(self.scenario.tenants) if t.card == card)

    def shares(
        self, tenant: int, window_ns: int, since_ns: int = 0, nobodys: float = 0
    ) -> list[float]:
        """Return the tenant's share over every window of that length.

        A share is time held over the window, without the time in which the card switched between
        tenants, which ``efficiency`` counts. If a fraction ``nobodys`` of the card is unassigned,
        switching takes from that first.
        """
        width = window_ns // self.scenario.bin_ns
        skip = since_ns // self.scenario.bin_ns
        lost = self.lost[self.scenario.tenants[tenant].card][skip:]
        free = nobodys * window_ns
        mine = _sliding(self.held[tenant][skip:], width)
        return [
            u / (window_ns - max(0, gone - free))
            for u, gone in zip(mine, _sliding(lost, width), strict=True)
        ]

    def taken(self, tenant: int, window_ns: int, since_ns: int = 0) -> list[float]:
        """Return the tenant's work over every window, as a fraction of its work alone."""
        skip = since_ns // self.scenario.bin_ns
        width = window_ns // self.scenario.bin_ns
        return [u / window_ns for u in _sliding(self.useful[tenant][skip:], width)]


def percentile(ascending: Sequence[float], fraction: float) -> float:
    """Return a percentile as the measurements on cards take it."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * fraction))]


def _sliding(row: list[int], width: int) -> list[int]:
    sums = [0, *accumulate(row)]
    return [end - begin for begin, end in zip(sums, sums[min(width, len(row)) :], strict=False)]


def _tenant(tenant: Tenant, keep: list[object]) -> dict[str, object]:
    values = {name: getattr(tenant, name) for name in tenant.__dataclass_fields__}
    values["kind"] = getattr(lib, f"MODEL_{tenant.kind.upper()}")
    values["arrivals"] = ffi.NULL
    values["arrivals_count"] = len(tenant.arrivals)
    if tenant.arrivals:
        keep.append(ffi.new("uint64_t[]", tenant.arrivals))
        values["arrivals"] = keep[-1]
    return values


@dataclass(frozen=True)
class Share:
    """What the policy gives a tenant, in fractions of the card."""

    share: float
    floor: float
    ceiling: float


def entitlements(scenario: Scenario) -> list[Share]:
    """Return the policy's shares while all tenants except idle ones always have work."""
    count = len(scenario.tenants)
    members = ffi.new("struct cgpu_policy_member[]", count)
    for member, tenant in zip(members, scenario.tenants, strict=True):
        for name in ("weight", "quota", "quota_min", "priority"):
            setattr(member, name, getattr(tenant, name))
        member.open = True
        member.active = tenant.kind != "idle"
    shares = ffi.new("struct cgpu_policy_share[]", count)
    status = lib.cgpu_policy_shares(scenario.policy, scenario.max_inst, members, count, shares)
    if status:
        raise ValueError(f"the policy refuses these tenants: error {-status}")
    ppm = lib.CGPU_PPM
    return [Share(s.share_ppm / ppm, s.floor_ppm / ppm, s.ceiling_ppm / ppm) for s in shares]


def decision_ns(count: int, periods: int = 1000) -> int:
    """Return the time of a period's decisions for ``count`` containers on this machine, ns."""
    return int(lib.cgpu_model_decision_ns(count, periods))


def run(scenario: Scenario, **changes: Any) -> Run:
    """Run a scenario, with fields replaced by ``changes``. Same scenario, same result."""
    scenario = replace(scenario, **changes)
    count = len(scenario.tenants)
    bins = scenario.duration_ns // scenario.bin_ns
    config = ffi.new("struct cgpu_model_config *")
    for name in ("controller", "reports"):
        setattr(config, name, getattr(lib, f"MODEL_{getattr(scenario, name).upper()}"))
    for name, _ in ffi.typeof("struct cgpu_model_config").fields:
        if name not in ("controller", "reports", "changes", "change"):
            setattr(config, name, getattr(scenario, name))
    config.changes = len(scenario.changes)
    for i, change in enumerate(scenario.changes):
        for name in change.__dataclass_fields__:
            setattr(config.change[i], name, getattr(change, name))
    arrivals: list[object] = []  # alive as long as the tenants that point at them
    tenants = ffi.new(
        "struct cgpu_model_tenant[]", [_tenant(t, arrivals) for t in scenario.tenants]
    )
    room = SAMPLES if any(t.kind == "server" for t in scenario.tenants) else 0
    samples = ffi.new("struct cgpu_model_sample[]", max(room, 1))
    useful, held, backlog = (ffi.new("uint32_t[]", count * bins) for _ in range(3))
    lost = ffi.new("uint32_t[]", scenario.cards * bins)
    used, slowest = (ffi.new("uint64_t[]", count) for _ in range(2))
    totals = ffi.new("struct cgpu_model_result[]", scenario.cards)
    status = lib.cgpu_model_run(
        config, tenants, count, useful, held, backlog, lost, used, slowest, totals, samples, room
    )
    if status:
        raise ValueError(f"the model cannot run this scenario: error {-status}")

    def rows(flat: Any, number: int) -> list[list[int]]:
        whole = ffi.unpack(flat, number * bins)
        return [whole[i * bins : (i + 1) * bins] for i in range(number)]

    fields = [name for name, _ in ffi.typeof("struct cgpu_model_result").fields]
    cards = [{name: getattr(totals[i], name) for name in fields} for i in range(scenario.cards)]
    seen = [
        (one.tenant, KINDS_OF_SAMPLES[one.kind], one.at_ns, one.ns)
        for one in samples[0 : totals[0].samples]
    ]
    return Run(
        scenario,
        rows(useful, count),
        rows(held, count),
        rows(backlog, count),
        rows(lost, scenario.cards),
        list(used),
        list(slowest),
        cards,
        seen,
    )
