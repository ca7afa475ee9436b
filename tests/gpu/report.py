# SPDX-License-Identifier: MIT
"""What a run found, as JSON, Markdown and a plot.

Every check is ``{name, value, unit, bound, pass}``; a bound of None is a figure that is reported
and not judged.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Report:
    """Checks so far; each is printed when it comes."""

    def __init__(self) -> None:
        self.checks: list[dict[str, Any]] = []

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
        self.checks.append({"name": name, "value": value, "unit": unit, "bound": bound, "pass": ok})
        mark = {None: "    ", True: "ok  ", False: "FAIL"}[ok]
        print(f"{mark} {name}: {value} {unit} (bound {bound})", flush=True)

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

    def write(self, out: Path) -> None:
        """Write the three files; their names tell date, card and driver."""
        found = {**facts(), "checks": self.checks}
        cards = f"{found['cards']}x-" if found["cards"] > 1 else ""
        stem = f"{found['date']}-{cards}{found['card'].replace(' ', '-')}-{found['driver']}"
        (out / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n")
        (out / f"{stem}.md").write_text(markdown(found))
        with contextlib.suppress(ImportError):
            plot(found, out / f"{stem}.svg")


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
    return "\n".join(lines) + "\n"


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
