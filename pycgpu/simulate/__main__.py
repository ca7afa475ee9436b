# SPDX-License-Identifier: MIT
"""``python3 -m pycgpu.simulate``: run a scenario, check what is promised, compare, measure."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

from rich.console import Console
from rich.table import Table

from pycgpu.request.model import POLICIES

from . import chart, check, compare
from .scenario import MS, Kind, Reports, Scenario, Tenant, decision_ns, entitlements, run

KINDS = get_args(Kind)
#: A server's request, if nothing is said of it: 32 tokens of 1.52 ms.
TOKENS = {"steps": 32, "step_ns": 1_470_000, "host_ns": 40_000}
DEFAULT = ("backlogged,weight=1", "backlogged,weight=2", "bursty,on=20,off=60")


#: The numbers of a tenant: the field, its unit, the least and the greatest value.
NUMBERS = {
    "weight": ("weight", 1, 0, 10_000),
    "quota": ("quota", 1, 0, 100),
    "quota_min": ("quota_min", 1, 0, 100),
    "priority": ("priority", 1, 0, 15),
    "groups": ("groups", 1, 1, 16),
    "on": ("on_ns", MS, 1, 3_600_000),
    "off": ("off_ns", MS, 0, 3_600_000),
    "steps": ("steps", 1, 1, 100_000),
    "step_us": ("step_ns", 1000, 1, 10_000_000),
    "host_us": ("host_ns", 1000, 1, 10_000_000),
    "fetched_us": ("fetched_ns", 1000, 0, 10_000_000),
    "stubborn": ("stubborn_ns", MS, 0, 1000),
}
TENANTS_MAX = 64


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r}: want a whole number from {low} to {high}")

    return parse


def seconds(text: str) -> float:
    """Parse a duration: what a run is worth looking at, and what memory can hold."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if 0.5 <= value <= 3600:
        return value
    raise argparse.ArgumentTypeError(f"{text!r}: want a number of seconds from 0.5 to 3600")


def tenant(text: str) -> Tenant:
    """Parse ``kind[,name=value]…``; ``on``, ``off`` and ``stubborn`` are in ms.

    A server's ``off`` is from one request to the next; 0: there always is one.
    """
    kind, *pairs = text.split(",")
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(f"{kind!r}: a tenant is one of {', '.join(KINDS)}")
    values: dict[str, int] = {}
    for pair in pairs:
        name, _, number = pair.partition("=")
        if name not in NUMBERS:
            raise argparse.ArgumentTypeError(
                f"{pair!r}: want name=number, name one of {', '.join(NUMBERS)}"
            )
        field, scale, low, high = NUMBERS[name]
        if field in values:
            raise argparse.ArgumentTypeError(f"{pair!r}: {name} is said twice")
        try:
            values[field] = whole(low, high)(number) * scale
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{name}={error}") from None
    if 0 < values.get("quota", 0) < values.get("quota_min", 0):
        raise argparse.ArgumentTypeError(f"{text!r}: quota_min is above quota")
    if kind == "bursty":
        values = {"on_ns": 20 * MS, "off_ns": 60 * MS, **values}
        if not values["off_ns"]:
            raise argparse.ArgumentTypeError("off=0: want a whole number from 1 to 3600000")
    if kind == "server":
        values = {"off_ns": 250 * MS, **TOKENS, **values}
    return Tenant(kind=cast(Kind, kind), **cast(dict[str, Any], values))


def policy(text: str) -> int:
    """Parse a policy's number or name."""
    if text in POLICIES:
        return POLICIES.index(text)
    if text.isdigit() and int(text) < len(POLICIES):
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r}: a policy is a number from 0 to {len(POLICIES) - 1} or one of "
        f"{', '.join(POLICIES)}"
    )


def show(arguments: argparse.Namespace, console: Console) -> int:
    """Run one scenario; print its shares, and a chart of them over time."""
    scenario = Scenario(
        tuple(arguments.tenant or map(tenant, DEFAULT)),
        policy=arguments.policy,
        max_inst=arguments.max_inst,
        timeslice_us=arguments.timeslice_us,
        duration_ns=round(arguments.seconds * 1000) * MS,
        reports=arguments.reports,
        seed=arguments.seed,
    )
    given = entitlements(scenario)
    result = run(scenario)
    card = result.cards[0]
    table = Table(title=f"policy {scenario.policy} {POLICIES[scenario.policy]} (simulated)")
    for name in ("tenant", "kind", "weight", "quota", "entitled", "ceiling", "got"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for i, t in enumerate(scenario.tenants):
        table.add_row(
            str(i),
            t.kind,
            str(t.weight),
            f"{t.quota} %" if t.quota else "",
            f"{100 * given[i].share:.1f} %",
            f"{100 * given[i].ceiling:.1f} %",
            f"{100 * result.work(i):.1f} %",
        )
    console.print(table)
    chart.text(result, console)
    for i in {i for i, *_ in result.samples}:
        shown = (
            f"{kind} {result.percentile(i, kind, 0.5):.2f} / {result.percentile(i, kind, 0.99):.2f}"
            for kind in ("step", "request", "wait")
            if result.times(i, kind)
        )
        console.print(f"tenant {i}, p50 / p99 ms: {', '.join(shown)}")
    seconds = scenario.duration_ns / 1e9
    console.print(
        f"together {100 * result.efficiency():.1f} % of one alone, period "
        f"{card['period_ns'] / MS:.1f} ms, {card['gate_calls'] / seconds:.0f} gate and "
        f"{card['slice_calls'] / seconds:.1f} slice calls a second"
    )
    if arguments.svg:
        with open(arguments.svg, "w", encoding="utf-8") as file:
            file.write(chart.svg(result))
    return 0


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def verify(arguments: argparse.Namespace, console: Console) -> int:
    """Check every policy against its matrix. Exit status 1 if a bound is broken."""
    rows = [check.check(number, arguments.controller) for number in range(len(POLICIES))]
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        table = Table(title="what is promised, in the model")
        for name in list(rows[0])[1:-1]:
            title = name.replace("_", " ")
            table.add_column(title, justify="left" if name == "name" else "right")
        for row in rows:
            table.add_row(*map(_cell, list(row.values())[1:-1]))
        # numbers cut short would say nothing: a narrow terminal wraps the lines
        console.width = max(console.width, 158)
        console.print(table)
    for row in rows:
        for name, measures in row["broken"].items():
            print(
                f"policy {row['policy']} {row['name']}, {name}: out of bounds: "
                f"{', '.join(measures)}",
                file=sys.stderr,
            )
    return 1 if any(row["broken"] for row in rows) else 0


def _arguments(argv: list[str] | None) -> tuple[Parser, argparse.Namespace]:
    parser = Parser(prog="python3 -m pycgpu.simulate", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    checking = commands.add_parser("check", help="hold the engine to its promises")
    checking.add_argument("--json", action="store_true", help="print a list, one object a policy")
    checking.add_argument(
        "--controller",
        choices=("engine", "recent"),
        default="engine",
        help="the scheduler that is checked: kmod/core/sched (default), or pycgpu/simulate/recent",
    )
    commands.add_parser("compare", help="slices, windows and the engine side by side (Markdown)")
    drawing = commands.add_parser(
        "pictures", help="one SVG for each policy, as in docs/policies.md"
    )
    drawing.add_argument("folder", type=Path)
    commands.add_parser("benchmark", help="time of a period's decisions on this machine")
    parser.add_argument("--policy", type=policy, default=POLICIES.index("weighted-conserving"))
    parser.add_argument(
        "--tenant",
        type=tenant,
        action="append",
        metavar="KIND[,NAME=NUMBER]…",
        help=f"{', '.join(KINDS)}; repeatable; {', '.join(NUMBERS)}",
    )
    parser.add_argument("--max-inst", type=whole(1, 64), default=20)
    parser.add_argument("--timeslice-us", type=whole(1000, 1_000_000), default=5000)
    parser.add_argument("--seconds", type=seconds, default=10)
    parser.add_argument("--seed", type=whole(0, 2**32 - 1), default=1)
    parser.add_argument(
        "--reports",
        choices=get_args(Reports),
        default=Scenario.reports,
        help="what tells who has work: each channel's USERD and the log of context switches, "
        "as on a real card (default); nothing",
    )
    parser.add_argument("--svg", metavar="FILE", help="write the chart there too")
    arguments = parser.parse_args(argv)
    if arguments.command:
        for name, value in vars(parser.parse_args([])).items():
            if name != "command" and getattr(arguments, name) != value:
                option = name.replace("_", "-")
                parser.error(f"--{option} is for a scenario, {arguments.command} has its own")
    if arguments.tenant and len(arguments.tenant) > TENANTS_MAX:
        parser.error(f"{len(arguments.tenant)} tenants: a card has room for {TENANTS_MAX}")
    return parser, arguments


def _command(arguments: argparse.Namespace) -> int:
    console = Console()
    if arguments.command == "check":
        return verify(arguments, console)
    if arguments.command == "compare":
        print(compare.markdown())
        return 0
    if arguments.command == "pictures":
        chart.pictures(arguments.folder)
        return 0
    if arguments.command == "benchmark":
        for count in (1, 2, 8, 25, 64):
            print(f"{count} containers: {decision_ns(count) / 1000:.2f} us a period")
        return 0
    return show(arguments, console)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run it."""
    parser, arguments = _arguments(argv)
    if sys.stdout is None:
        parser.error("standard output is closed: nothing would be seen")
    try:
        status = _command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read has seen enough; the interpreter must not try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        parser.error(f"{error.filename or 'standard output'}: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))
    return status


if __name__ == "__main__":
    sys.exit(main())
