# SPDX-License-Identifier: MIT
"""
What a run found, as JSON and Markdown; ``python -m tests.gpu.report RESULT.json`` makes a plot.

Every check is ``{section, name, value, unit, bound, pass}``; a bound of None is a figure that is
reported and not judged.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Report:
    """Checks so far; each is printed and written when it comes: a run may be cut."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.facts = facts()
        self.checks: list[dict[str, Any]] = []
        self.tables: list[dict[str, Any]] = []
        self.stem: str | None = None
        #: what is measured now: by it a result is kept
        self.section = ""

    def table(self, title: str, columns: list[str], rows: list[list[Any]]) -> None:
        """Record figures that are read side by side, none of them judged."""
        for row in rows:
            self.row(title, columns, row)

    def row(self, title: str, columns: list[str], row: list[Any]) -> None:
        """Record a row of a table, which is under way if the last row was of that title."""
        head = {"section": self.section, "title": title, "columns": columns}
        if not self.tables or {**self.tables[-1], **head} != self.tables[-1]:
            self.tables.append({**head, "rows": []})
            print("\n".join(table_lines(self.tables[-1])), flush=True)
        self.tables[-1]["rows"].append(row)
        print(row_line(row), flush=True)
        self.write()

    def check(
        self,
        name: str,
        value: float | str,
        unit: str = "",
        bound: float | str | None = None,
        ok: bool | None = None,
    ) -> None:
        """Record one figure; ``ok`` None: it is not judged."""
        if isinstance(value, float):
            value = round(value, 4)
        self.checks.append(
            {
                "section": self.section,
                "name": name,
                "value": value,
                "unit": unit,
                "bound": bound,
                "pass": ok,
            }
        )
        mark = {None: "    ", True: "ok  ", False: "FAIL"}[ok]
        print(f"{mark} {name}: {value} {unit} (bound {bound})", flush=True)
        self.write()

    def equal(self, name: str, value: Any, wanted: Any, unit: str = "") -> None:
        self.check(name, value, unit, wanted, value == wanted)

    def near(self, name: str, value: float, wanted: float, within: float, unit: str = "%") -> None:
        self.check(name, value, unit, f"{wanted:.2f} ± {within}", abs(value - wanted) <= within)

    def least(self, name: str, value: float, bound: float, unit: str = "%") -> None:
        self.check(name, value, unit, f">= {bound}", value >= bound)

    def most(self, name: str, value: float, bound: float, unit: str = "%") -> None:
        self.check(name, value, unit, f"<= {bound}", value <= bound)

    @property
    def failed(self) -> list[str]:
        return [one["name"] for one in self.checks if one["pass"] is False]

    def write(self) -> None:
        """Write the files, over those of this run; their name tells date, card, driver, number."""
        found = {**self.facts, "checks": self.checks, "tables": self.tables}
        if self.stem is None:
            self.stem = stem(found, self.out)
        for kind, text in (("json", json.dumps(found, indent=1) + "\n"), ("md", markdown(found))):
            # A reader, or an end amid it, finds the one before or this one.
            part = self.out / f"{self.stem}.{kind}.part"
            part.write_text(text)
            part.rename(self.out / f"{self.stem}.{kind}")


def stem(found: dict[str, Any], out: Path) -> str:
    """Return the name of this run's files, with the first number that no other run there has."""
    cards = f"{found['cards']}x-" if found["cards"] > 1 else ""
    head = f"{found['date']}-{cards}{found['card'].replace(' ', '-')}-{found['driver']}"
    taken = [int(path.stem.rpartition("-")[2]) for path in out.glob(f"{head}-[0-9][0-9].json")]
    return f"{head}-{max(taken, default=0) + 1:02}"


def facts() -> dict[str, Any]:
    """Card, driver, kernel and date of this run."""
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    name, driver = listed[0].split(", ")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE
    ).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "card": name,
        "cards": len(listed),
        "driver": driver,
        "kernel": os.uname().release,
        "commit": commit or os.environ.get("CGPU_COMMIT", "unknown"),
    }


def markdown(found: dict[str, Any]) -> str:
    """The result as a page."""
    cards = f"{found['cards']} × " if found["cards"] > 1 else ""
    lines = [
        f"# {cards}{found['card']}, driver {found['driver']}, {found['date']}",
        "",
        f"Commit {found['commit']}, Linux {found['kernel']}. A bound of – is a figure that is "
        "reported and not judged.",
        "",
        "| check | value | unit | bound | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in found["checks"]:
        mark = {None: "", True: "pass", False: "**fail**"}[one["pass"]]
        value = str(one["value"]).replace("|", "/").replace("\n", " ")
        bound = "–" if one["bound"] is None else one["bound"]
        lines.append(f"| {one['name']} | {value} | {one['unit']} | {bound} | {mark} |")
    for one in found["tables"]:
        lines += ["", *table_lines(one)]
    return "\n".join(lines) + "\n"


def table_lines(found: dict[str, Any]) -> list[str]:
    """One table as Markdown."""
    lines = [f"## {found['title']}", "", f"| {' | '.join(found['columns'])} |"]
    lines.append("| --- " * len(found["columns"]) + "|")
    return [*lines, *(row_line(row) for row in found["rows"])]


def row_line(row: list[Any]) -> str:
    """One row of it."""
    cells = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row)
    return f"| {' | '.join(cells)} |"


def plot(found: dict[str, Any], path: Path) -> None:
    """Deviations of the judged shares from what was promised."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (one["name"], one["value"] - float(str(one["bound"]).split(" ± ")[0]))
        for one in found["checks"]
        if str(one["bound"]).endswith("± 0.5") and isinstance(one["value"], int | float)
    ]
    if not bars:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.28 * len(bars) + 1))
    axes.barh([name for name, _ in bars], [value for _, value in bars], color="#4477aa")
    axes.axvspan(-0.5, 0.5, color="#bbbbbb", alpha=0.4)
    axes.invert_yaxis()
    axes.set_xlabel("points from the promised share")
    axes.set_title(f"{found['card']}, driver {found['driver']}, {found['date']}")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        plot(json.loads(Path(name).read_text()), Path(name).with_suffix(".svg"))
