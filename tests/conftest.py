# SPDX-License-Identifier: MIT
"""What holds for every ring: options, hypothesis profiles, and skips that must be accounted for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

# A test may be skipped for these reasons and no other: a skip that nobody expected is a test
# that has silently stopped testing. Each pattern is matched against the beginning of the reason.
ALLOWED_SKIPS = (
    (r"no package: ", "the distribution's archive does not have what the test needs"),
    (r"no source: ", "NVIDIA's source is in no archive; whoever has a clone of it says where"),
    (r"no recording of ", "what a driver answered is kept of the branches that Debian has"),
    (r"no NVIDIA GPU", "the gpu ring needs a card and NVIDIA's driver"),
    (r"memory.stat tells nothing of vmalloc", "Linux before 5.17 does not, 5.10 among those tried"),
    (r"this kernel has no memfd_secret", "Linux before 5.14 has not"),
    (r"calls that this kernel has taken up can be restarted", "Linux before 5.19 always does"),
    (r"needs root", "devices, namespaces and cgroups cannot be made by a user"),
)

# In an emulated machine hypothesis takes seconds to import: it is there for those who use it.
if "CGPU_GUEST" not in os.environ or "CGPU_HYPOTHESIS" in os.environ:
    import hypothesis

    hypothesis.settings.register_profile(
        "quick", max_examples=100, deadline=None, print_blob=True, derandomize=True
    )
    hypothesis.settings.register_profile(
        "thorough", max_examples=5000, deadline=None, print_blob=True
    )
    hypothesis.settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cgpu")
    group.addoption(
        "--kernel",
        action="append",
        metavar="SERIES",
        help="kernel for tests/vm: 6.1, a full release or a built tree; repeatable "
        "(default: 6.1 and 6.12)",
    )
    group.addoption(
        "--driver",
        action="append",
        metavar="BRANCH",
        help="NVIDIA's own driver for tests/vm: 535, 550, 550-closed, 580, 590, 595; "
        "repeatable (default: the open ones)",
    )
    group.addoption(
        "--cgroup",
        type=int,
        choices=(1, 2),
        metavar="VERSION",
        help="hierarchy of cgroups for tests/vm: 1 or 2 (default: what a test needs, else 2)",
    )
    group.addoption(
        "--here",
        action="store_true",
        help="run tests/vm on this machine and its own kernel instead of in a VM",
    )
    group.addoption(
        "--vm-jobs",
        type=int,
        default=1,
        metavar="N",
        help="processors of virtual machines to run at once (most have one)",
    )
    group.addoption(
        "--long",
        action="store_true",
        help="with the tests of tests/vm that take long: DKMS to and fro, more of Podman",
    )
    group.addoption(
        "--engines",
        action="store_true",
        help="also the tests of tests/vm that are marked engine: Slurm, Ray, Spark",
    )
    group.addoption(
        "--upgrades",
        type=int,
        default=10,
        metavar="N",
        help="how often the core is replaced, and the agent ended, under load; with 50 an upgrade"
        " is killed at each of its steps (default: 10)",
    )
    group.addoption(
        "--park-steps",
        type=int,
        default=150,
        metavar="N",
        help="steps of containers that allocate, park, resume and end by chance at each door"
        " (default: 150; before a release 10000)",
    )
    group.addoption(
        "--packages-required",
        action="store_true",
        help="a skip for lack of a package is a failure: where everything can be installed",
    )
    group.addoption(
        "--fuzz-seconds",
        type=int,
        default=20,
        metavar="N",
        help="how long tests/vm/test_fuzz.py throws calls at the driver (default: 20)",
    )
    group.addoption(
        "--fuzz-seed",
        type=int,
        default=1,
        metavar="N",
        help="what they are (default: 1); also of the next",
    )
    group.addoption(
        "--fuzz-guided",
        choices=("yes", "no"),
        default="yes",
        help="whether its calls follow the code that they reach, where a kernel has KCOV",
    )
    group.addoption(
        "--fuzz-steps",
        type=int,
        default=1_000_000,
        metavar="N",
        help="calls that tests/core/test_sanitizers.py makes of the core, twice (default: 10^6)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        # what waits for a machine ends with the machine, which has a limit of its own
        if any(item.path.is_relative_to(tests / ring) for ring in ("vm", "cluster")):
            item.add_marker(pytest.mark.timeout(0))


def _reason(longrepr: object) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ")


def allowed(reason: str, config: pytest.Config) -> bool:
    """Tell whether a skip for this reason is none to complain about."""
    if config.getoption("--packages-required") and reason.startswith("no package: "):
        return False
    return any(re.match(pattern, reason) for pattern, _ in ALLOWED_SKIPS)


def complaint(reason: str) -> str:
    """Return what to say of a skip that is not allowed."""
    return (
        f"skipped for a reason that is not in ALLOWED_SKIPS (tests/conftest.py): {reason!r}.\n"
        "Make the test able to run, or add the reason there and say why it is acceptable."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn a skip without an allowed reason into a failure."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = _reason(report.longrepr)
        if not allowed(reason, item.config):
            report.outcome = "failed"
            report.longrepr = complaint(reason)
    return report  # type: ignore[return-value]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a whole file that skips itself."""
    report: pytest.CollectReport = yield  # type: ignore[assignment]
    if report.skipped:
        reason = _reason(report.longrepr)
        if not allowed(reason, collector.config):
            report.outcome = "failed"
            report.longrepr = complaint(reason)
    return report  # type: ignore[return-value]
