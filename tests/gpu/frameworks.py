# SPDX-License-Identifier: MIT
"""Frameworks as they are, in a tenant: each has an allocator of its own, and none may pass it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from typing import Any

from tests.gpu.tenants import MIB, PROGRAMS, Bench, all_returned, last_json, outcome

LIMIT_BYTES = 8 << 30
TIMEOUT_S = 120


def run(name: str, *options: str) -> dict[str, Any]:
    """What the framework's program tells as a tenant; its last words if it tells nothing."""
    command = [sys.executable, PROGRAMS / "frameworks.py", name]
    status, text = outcome(f"f-{name}", command, *options, timeout_s=TIMEOUT_S)
    return {"status": status, "said": text[-300:], **last_json(text)}


def frameworks(bench: Bench) -> None:
    """Sizes, refusal and going on, by each framework that is installed."""
    report = bench.report
    limit = ("--mem", str(LIMIT_BYTES))
    for name, least in (("torch", 0.85), ("cupy", 0.85), ("jax", 0.7)):
        if importlib.util.find_spec(name) is None:
            report.check(f"{name}: not installed", "")
            continue
        got = run(name, *limit)
        # XLA rounds its part of the card down.
        report.near(f"{name}: total", got.get("total", 0) / MIB, LIMIT_BYTES / MIB, 4, "MiB")
        taken = got.get("got", 0)
        report.check(
            f"{name}: taken before it is refused",
            taken / MIB,
            "MiB",
            f"{least:.0%} .. 100 % of 8192",
            least * LIMIT_BYTES <= taken <= LIMIT_BYTES and bool(got.get("error")),
        )
        report.equal(f"{name}: computes afterwards", got.get("after", got["said"]), 42)
    for name in ("triton", "share", "nvml"):
        module = {"triton": "triton", "share": "torch", "nvml": "pynvml"}[name]
        if importlib.util.find_spec(module) is None:
            report.check(f"{name}: {module} is not installed", "")
            continue
        got = run(name, *limit)
        report.equal(f"{name}: total", got.get("total"), LIMIT_BYTES, "bytes")
        report.equal(f"{name}: result", got.get("after", got["said"]), 42)
        if name == "nvml":
            report.equal("nvml: processes that a tenant is shown", got.get("processes"), 1)
            used = got.get("used", 0)
            report.check(
                "nvml: used memory that a tenant is shown",
                used / MIB,
                "MiB",
                "256 .. 1024",
                256 * MIB <= used <= 1024 * MIB,
            )
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is not None:
        program = [sanitizer, "--error-exitcode", "9", str(bench.bin / "memory"), "speed"]
        alone = subprocess.run(program, capture_output=True, text=True, check=False)
        # The card's mode of its MMU, which it asks for, stays what it is.
        status, text = outcome("f-sanitizer", program, *limit, timeout_s=TIMEOUT_S)
        report.equal("compute-sanitizer: status", status, alone.returncode)
        report.check("compute-sanitizer: last words", text.strip().splitlines()[-1][-100:])
    all_returned(bench)
