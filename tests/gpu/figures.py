# SPDX-License-Identifier: MIT
"""Which figures of a run ``docs/measurements.md`` shows, in the order of its tables."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A line of a table: the checks of a section whose names match."""

    label: str
    section: str
    checks: str
    #: show a share by how far it is from its due
    is_distance: bool = False
    #: of a machine with two such cards
    is_pair: bool = False
    #: further figures of the line, in the order of its label
    beside: tuple[str, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """What each figure of the line is chosen by."""
        return self.checks, *self.beside


def shares(policy: str, label: str) -> Row:
    """What tenants under a policy get, and what they do together."""
    return Row(
        *(f"{label}: a share is off by, points / together, %", "weights", rf"^{policy}: tenant"),
        is_distance=True,
        beside=(rf"^{policy}: sum",),
    )


def by_turns(section: str, start: str, label: str) -> Row:
    """The default against the driver's own sharing, measured by turns."""
    whats = ("token (?:mean|p50)", "request p99", "trainer")
    first, *rest = (rf"^{start}, default against.*: {what}$" for what in whats)
    return Row(f"{label}: token / request p99 / trainer, %", section, first, beside=(*rest,))


TABLES: dict[str, tuple[Row, ...]] = {
    "serving": (
        Row("token p50, % of alone", "serving", r"alone: token p50$"),
        Row("token p99, % of alone", "serving", r"default against alone: token p99$"),
        Row("request p99, % of alone", "serving", r"alone: request p99$"),
        Row("wait for a request's first token, p99, ms", "serving", r"first token, p99$"),
        Row("trainer, % of the driver's own sharing", "serving", r"trainer against"),
        Row("`online`: token p99, % of alone", "serving", r"online against alone"),
        Row("server that always has a request: its part, %", "serving", r"always a request"),
        Row("beside long CUDA graphs: token p50, % of alone", "steps", r"token p50"),
        Row("the same: request p50 and p99, % of the driver's own", "steps", r"request p"),
        Row("beside ResNet-50, a notebook: % of the driver's own", "pausing", r"driver's own"),
        Row(
            "1 ms of work beside one that always works, p99, ms: driver's own / "
            "weighted-conserving / weighted, windows of 5 ms",
            *("latency", r"native: p99"),
            beside=(r"tenant: p99", r"tenant, weighted: p99"),
        ),
    ),
    "turns": (
        by_turns("decoding", "decoding, eager", "PyTorch without a graph"),
        by_turns("transformer", "decoding, transformer", "Llama, 0.9 billion weights"),
        Row("two servers beside one trainer: times, %", "trainers", r"^2 servers.*by turns"),
        Row("twelve servers beside two trainers: times, %", "trainers", r"^12 servers.*by turns"),
        Row("four servers: times, %", "several", r"^four servers.*by turns"),
        Row("two servers 1:3: part of the second, %", "several", r"^two servers 1:3.*time$"),
        Row("`online`: a trainer of lower priority, %", "trainers", r"no floor: the trainer"),
        Row("the same with `quota_min` 40, %", "trainers", r"floor 40: the trainer"),
    ),
    "shares": (
        Row("a lone tenant, % of native", "alone", r"^lone"),
        shares(r"(weighted-conserving|weak) [\d:]+", "weighted-conserving, weak"),
        shares(r"weighted [\d:]+(, unit 12 ms)?", "weighted"),
        Row("average, fixed, mixed, burst: off by, points", "weights", r"max_inst|quota 30", True),
        Row("the driver's own sharing: together, %", "weights", r"driver's own"),
        Row(
            *("two ResNet-50: off by, points / together, %", "resnet", r"tenant", True),
            beside=(r"sum of",),
        ),
        Row("eight and twelve: off by, points", "crowd", r"worst error"),
        Row("eight with quotas of 5 to 20: off by, points", "crowd", r"mixed, (quota|one)", True),
        Row(
            *("eight / twelve by slices: together, %", "crowd"),
            r"^eight, weighted-conserving: sum",
            beside=(r"^twelve, weighted-conserving: sum",),
        ),
        Row("one beside eight processes, windows: its share, %", "many", r"weighted: share"),
        Row("two cards: off by, points", "cards", r"tenant [ab][01]$", True, True),
        Row(
            *("two cards, weighted / conserving: together, %", "cards", r"(free|divided): sum"),
            is_pair=True,
            beside=(r"conserving: sum",),
        ),
        Row("two NCCL jobs of two cards, each, % of alone", "gang", r"^two jobs", is_pair=True),
    ),
    "quotas": (
        Row("quota 10, %", "quotas", r"^quota 10 of"),
        Row("quota 33, also CUDA graphs, %", "quotas", r"^quota 33( of|, CUDA)"),
        Row("quota 50, %", "quotas", r"^quota 50 of"),
        Row("quota 33, kernels of 300 ms, %", "quotas", r"kernels of 300"),
        Row("neighbour of an idle quota of 30, %", "used", r"idle: busy"),
        Row("used of the card's time, %", "used", r"used of the card"),
        Row("`cgpu usage`: time, % of what the card counted", "accounting", r"card counted"),
        Row("`cgpu usage`: energy, hours, memory, %", "accounting", r"containers and|-hours"),
    ),
    "costs": (
        Row("taken of 4 GiB before it is refused, MiB", "memory", r"taken before"),
        Row("PyTorch, CuPy, of 8 GiB: the same", "frameworks", r"(torch|cupy): taken"),
        Row("charged after all have ended, bytes", "memory", r"charged after"),
        *(
            Row(label, "overhead", rf"{what}: native", beside=(rf"{what}: tenant",))
            for label, what in (
                ("CUDA context, native / a tenant, ms", "context"),
                ("cudaMalloc of 64 MiB, native / a tenant, µs", "malloc"),
                ("`nvidia-smi -L`, native / under `cgpu run`, ms", "end"),
            )
        ),
        Row("a gate call, mean, µs", "weights", r"^gate call, average"),
        Row(
            *("8 GiB parked / back / from a call to its result, s (huge pages)", "parking"),
            r"GiB: out",
            beside=(r"GiB: back", r"GiB: from the call to"),
        ),
        Row("20 parked: looking after them, % of a processor", "parking", r"looking after"),
        Row("agent: a server beside a trainer", "serving", r"default: agent's CPU"),
        Row("agent: the same without requests", "serving", r"no request: agent's"),
        Row("agent: weighted-conserving 1:1", "weights", r"conserving 1:1: agent's CPU with"),
        Row("agent: weighted 1:1, windows of 5 ms", "weights", r"^weighted 1:1: agent's CPU with"),
        Row("agent: its own code in these", "weights", r"its own code"),
        Row("agent: a lone quota of 50", "quotas", r"agent's CPU with"),
        Row("agent: an idle quota under burst", "used", r"agent's CPU with"),
    ),
    "faults": (
        Row("neighbour after a fault, an out-of-memory, a kill, %", "faults", r"^neighbour"),
        Row("quota 20 after the agent's SIGKILL, %", "faults", r"by the next one"),
        Row("churn: the longest time without progress, ms", "churn", r"without progress"),
        Row("neighbour of an attacker on the scheduler, %", "attacks", r"^attack.*neighbour"),
        Row("beside a tenant that forges GP_PUT, %", "adversaries", r"an adversary"),
        Row("quota 10, groups and contexts of every kind, %", "escapes", r"^quota 10"),
        Row("memory taken by uncharged ways, MiB", "escapes", r"taken of the card"),
        Row("files handed over are found within, s", "escapes", r"found after"),
        Row("programs that need a refused call", "allowed", r"not end well"),
        Row("NVML getters that a tenant is refused", "getters", r"answered natively"),
        Row("pools, cuda-checkpoint: status", "pools", r": status"),
        Row("compute-sanitizer, cuda-gdb, CUPTI trace: status", "tools", r": status"),
        Row("CUPTI trace: refused", "tools", r"cupti: what was"),
    ),
    "peers": (
        Row(
            *("MPS 50 : 50 / without percentages: together, %", "peers", r"MPS 50 .*sum"),
            beside=(r"without percentages",),
        ),
        Row("1 ms of work beside a client of MPS, p99, ms", "peers", r"MPS: p99"),
        Row("HAMi-core, alone with 33 %: has, %", "peers", r"lone program"),
        Row("MPS server in a container: told in `events`", "mps", r"container: refused|=log: ev"),
    ),
}
