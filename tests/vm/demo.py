# SPDX-License-Identifier: MIT
"""
The demo: two containers share one simulated Tesla T4 in a virtual machine.

On the host: builds the module, the simulated driver and a root for containers, boots a Debian
kernel over this machine's own root, and shows what the guest's side prints. In the guest: Alibaba
cGPU's own example, step by step, each step checked; the first that is not as said ends the demo
with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.telling import bars, check, console, no_room, printed, shell, tell, title, waits

MIB = 1 << 20
#: Where the guest finds what the host built: JSON, name to path.
MADE = "CGPU_DEMO_MADE"
MEASURE_S = 8
#: Percentage points that the emulated machine may be off over that time; 0.5 is seen.
SHARE_TOLERANCE = 2


# ---------------------------------------------------------------- in the guest


class Tenant:
    """A container of the demo."""

    def __init__(self, made: Mapping[str, Path], id: str, environment: Mapping[str, str]) -> None:
        from tests.vm import customer

        self.name = id
        programs = {customer.SIMCUDA: made["sim"] / "simcuda" / "simcuda"}
        mounts: dict[str, Path] = {}
        self.smi = "smi" in made
        if self.smi:
            programs[customer.SMI] = made["smi"] / "bin" / "nvidia-smi"
            mounts["/opt/nvidia"] = made["smi"] / "lib"
            # For what is typed at the shell, which does not say so.
            environment = {**environment, "LD_LIBRARY_PATH": "/opt/nvidia"}
        self.container = customer.RuntimeContainer(
            made["rootfs"],
            id,
            nodes=(),
            programs=programs,
            mounts=mounts,
            environment=environment,
        ).start()

    def card_size(self) -> tuple[str, int]:
        """What the container is told of its card: the line, and its MiB in total."""
        if self.smi:
            text = self.container.smi()
            line = next(line for line in text.splitlines() if "MiB /" in line)
            return line.strip(), int(re.findall(r"/ +(\d+)MiB", line)[0])
        answer = self.simcuda("info")
        mib = int(answer["total"]) // MIB
        return f"total {mib} MiB", mib

    def simcuda(self, *words: object, check: bool = True) -> dict[str, Any]:
        run = self.container.simcuda("--json", *words, check=check)
        told: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
        return told


class Story:
    """The demo's acts, in order."""

    def __init__(self, made: Mapping[str, Path]) -> None:
        from tests.vm import loaded
        from tests.vm.drivers import Km, Sim

        self.made = made
        self.modules = loaded.Modules()
        Sim(self.modules, made["sim"]).load(model="t4")
        self.km = Km(self.modules, made["km"], {"bridge": made["bridge"]}).load()
        self.tree = self.km.root

    def memory(self) -> dict[str, int]:
        lines = self.km.read("0/memory").splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}

    def show(self, *nodes: str) -> None:
        for node in nodes:
            shell(f"cat {self.tree}/{node}", self.km.read(node))

    def echo(self, value: object, node: str) -> None:
        shell(f"echo {value} > {self.tree}/{node}")
        self.km.write(node, f"{value}\n")

    def host(self) -> None:
        title("One card")
        driver = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        kernel = os.uname()
        console.print(
            f"  {kernel.sysname} {kernel.release}, cgpu_km {self.km.read('version')}", end=""
        )
        console.print(f"  {driver}", markup=False)
        console.print("  The driver is a simulation with the real one's interface; kernel, module,")
        console.print(
            "  containers and nvidia-smi are real."
            if "smi" in self.made
            else "  and containers are real. NVIDIA's packages could not be had, so the card's\n"
            "  size is asked through our own client instead of nvidia-smi."
        )
        shell(
            f"ls {self.tree} {self.tree}/0",
            " ".join(sorted(os.listdir(self.tree)))
            + "\n"
            + " ".join(sorted(os.listdir(self.tree / "0"))),
        )
        self.show("0/memory")
        check(self.memory()["total"] == 15109 * MIB, "a Tesla T4 with 15109 MiB")

    def start(self) -> tuple[Tenant, Tenant]:
        title("Two containers, as in the guide of Alibaba cGPU")
        tenants = []
        for name, gib, mib in (("gpu_test1", 6, 6043), ("gpu_test2", 8, 8058)):
            variables = {"ALIYUN_COM_GPU_MEM_CONTAINER": str(gib), "ALIYUN_COM_GPU_MEM_DEV": "15"}
            asked = " ".join(f"{key}={value}" for key, value in variables.items())
            waits(f"{name} asks by its environment: {asked}")
            one = Tenant(self.made, name, {**variables, "NVIDIA_VISIBLE_DEVICES": "all"})
            shell(f"runc exec {name} {'nvidia-smi' if one.smi else 'simcuda info'}")
            line, total_mib = one.card_size()
            printed(line)
            check(total_mib == mib, f"{gib} of 15 GB: {name} sees a card of {mib} MiB")
            tenants.append(one)
        shell(f"ls {self.tree}/0", " ".join(sorted(os.listdir(self.tree / "0"))))
        return tenants[0], tenants[1]

    def limits(self, one: Tenant, two: Tenant) -> None:
        title("Each is held to its share")
        shell(f"runc exec {one.name} simcuda fill")
        holder = one.container.popen("simcuda", "--json", "--hold", "fill")
        assert holder.stdout is not None
        filled = json.loads(holder.stdout.readline())
        printed(f"{filled['mib']} MiB, then status {filled['status']:#x} (NV_ERR_NO_MEMORY)")
        check(
            6042 <= filled["mib"] <= 6043 and filled["status"] == 0x51,
            f"{one.name} gets its 6043 MiB and then an ordinary out-of-memory error",
        )
        self.show(f"0/{one.name}/meminfo")
        shell(f"runc exec {two.name} simcuda fill")
        filled = two.simcuda("fill")
        printed(f"{filled['mib']} MiB")
        check(
            8057 <= int(str(filled["mib"])) <= 8058,
            f"{two.name} still gets all of its 8058 MiB: its neighbour took none of it",
        )
        holder.kill()
        holder.wait()
        # the program inside is not the one that runc's exec leaves behind
        one.container.exec("killall", "-9", "simcuda", check=False)
        wait_for(lambda: "PID" not in self.km.read(f"0/{one.name}/meminfo"), "the program's end")

    def resize(self, one: Tenant) -> None:
        title("Changed while it runs")
        self.echo(3 * 1024 * MIB, f"0/{one.name}/memsize")
        shell(f"runc exec {one.name} {'nvidia-smi' if one.smi else 'simcuda info'}")
        line, total_mib = one.card_size()
        printed(line)
        check(total_mib == 3072, f"{one.name} now has a card of 3072 MiB")
        node, much = f"0/{one.name}/memsize", 14 * 1024 * MIB
        no_room(self.tree / node, much, lambda: self.km.write(node, f"{much}\n"))

    def measure(self, one: Tenant, two: Tenant) -> tuple[float, float]:
        """
        Both run kernels of 1 ms as fast as they can; return the percent of the card each used.

        The programs count what they finished, which an emulated processor delays; the module's
        account goes by the card's own log of context switches.
        """
        from tests.vm.work import Work

        works = [Work(tenant.container, MEASURE_S) for tenant in (one, two)]
        for work in works:
            work.go()
        # Both have begun, and neither is near its end.
        time.sleep(MEASURE_S / 8)
        before = [self.used_ns(tenant) for tenant in (one, two)]
        time.sleep(3 / 4 * MEASURE_S)
        after = [self.used_ns(tenant) for tenant in (one, two)]
        for work in works:
            work.percent()
        used = [now - then for then, now in zip(before, after, strict=True)]
        first, second = (100 * part / max(1, sum(used)) for part in used)
        return first, second

    def used_ns(self, tenant: Tenant) -> int:
        lines = self.km.read(f"0/{tenant.name}/stat").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("used_ns "))

    def compute(self, one: Tenant, two: Tenant) -> None:
        title("Compute: who gets what of the card")
        table = Table("setting", one.name, two.name, "", box=None, padding=(0, 2))
        table.columns[0].no_wrap = True
        steps = (
            ("weights 1 : 2, policy 2 (weighted)", (1, 2), 2, 33.3),
            ("policy 1 (preemptive), live", (), 1, 50),
            ("weights 3 : 1, policy 2, live", (3, 1), 2, 75),
        )
        errors = []
        for label, weights, policy, due in steps:
            for tenant, weight in zip((one, two), weights, strict=False):
                self.echo(weight, f"0/{tenant.name}/weight")
            self.echo(policy, "0/policy")
            waits(f"both compute for {MEASURE_S} s of the emulated machine's time")
            got = self.measure(one, two)
            table.add_row(label, f"{got[0]:.1f} %", f"{got[1]:.1f} %", bars(*got))
            errors.append(abs(got[0] - due))
        console.print(table)
        self.show(f"0/{one.name}/stat")
        check(max(errors) < SHARE_TOLERANCE, "each gets its share, and a change holds at once")

    def end(self, one: Tenant, two: Tenant) -> None:
        title("The end")
        for tenant in (one, two):
            tenant.container.kill()
        wait_for(lambda: not os.listdir(self.tree / "container"), "the containers' removal")
        self.show("0/memory")
        memory = self.memory()
        check(
            memory["allocated"] == memory["used"] == 0,
            "all memory is back, nobody freed it by hand",
        )
        for tenant in (one, two):
            tenant.container.delete()
        self.modules.unload_all()
        check("cgpu_km" not in Path("/proc/modules").read_text(), "the module is unloaded")


def wait_for(condition: object, what: str) -> None:
    from tests.vm.loaded import until

    until(condition, what)  # type: ignore[arg-type]


@contextmanager
def installed() -> Iterator[None]:
    """The runtime and its hook, as `cgpu install-runtime` leaves them."""
    from pycgpu.install import registration

    options = registration.Options(engines=(), runtimes=("/usr/sbin/runc", "runc"))
    registration.apply(registration.plan(options))
    try:
        yield
    finally:
        registration.undo(registration.plan_undo())


def inside(interactive: bool) -> int:
    """The guest's side."""
    made = {name: Path(path) for name, path in json.loads(os.environ[MADE]).items()}

    def acts() -> None:
        story = Story(made)
        story.host()
        one, two = story.start()
        if interactive:
            console.print(f"\n  The containers run; the tree is {story.tree}. Try:\n")
            for command, shows in invitation(story.tree, "smi" in made):
                # A terminal that is narrow must not break what is to be pasted.
                console.print(f"{command}  # {shows}", style="bold", soft_wrap=True, markup=False)
            console.print("\n  `exit` ends the demo.\n")
            raise SystemExit(subprocess.call(["bash", "-i"], env=shell_environment()))
        story.limits(one, two)
        story.resize(one)
        story.compute(one, two)
        story.end(one, two)

    with installed():
        return tell(acts)


def invitation(tree: Path, smi: bool) -> tuple[tuple[str, str], ...]:
    """
    Return commands for who is given a shell, each with what it shows.

    runc hands a program its input: what is pasted after it would go there.
    """
    ask = "nvidia-smi" if smi else "simcuda info"
    return (
        (f"runc exec gpu_test1 {ask} </dev/null", "its card: 6043 MiB"),
        (
            "runc exec gpu_test2 simcuda fill </dev/null",
            "takes all that it is given: 8058 MiB",
        ),
        (f"echo 3221225472 > {tree}/0/gpu_test1/memsize", "now its card has 3072 MiB: ask again"),
        (
            "for n in 1 2; do runc exec -d gpu_test$n simcuda launch 120 1 >/dev/null; done",
            "both compute for two minutes",
        ),
        (f"echo 2 > {tree}/0/policy; echo 3 > {tree}/0/gpu_test1/weight", "3 : 1 from now on"),
        ("cgpu-smi -w", "who has what, live: Used goes to 75 and 25 %; q leaves it"),
    )


def shell_environment() -> dict[str, str]:
    """What the shell runs with: our commands on its path."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


# ----------------------------------------------------------------- on the host


def build(kernel_name: str) -> dict[str, str]:
    """Build what the guest needs; without NVIDIA's packages everything but nvidia-smi."""
    from tests.vm import kernels, modules, packages

    kernel = kernels.fetch(kernel_name)
    made = modules.prepare(kernel, ["km", "sim", "bridge", "rootfs"])
    try:
        made |= modules.prepare(kernel, ["smi"])
    except packages.PackageNotFound as error:
        console.print(f"  NVIDIA's nvidia-smi cannot be had here: {error}", markup=False)
    return made


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show *what* takes a while; on a terminal it moves, and tells how long it has taken."""
    if not console.is_terminal:
        console.print(f"  {what} …")
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        progress.add_task(what, total=None)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--kernel", help="6.1, 6.12, newest or a release (Debian: 6.1)")
    parser.add_argument("--shell", action="store_true", help="stop with both containers running")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options.shell)

    from tests.vm import kernels, modules, packages, vm

    console.print(Panel.fit("cgpu: many containers, one GPU", style="bold"))
    try:
        kernel = options.kernel or kernels.default_series()[0]
        with waiting("building the module and the simulated driver"):
            made = build(kernel)
    except (packages.PackageNotFound, packages.FetchError, modules.BuildError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    console.print(f"  booting the distribution's {kernel} kernel in QEMU: 20 to 60 s …")
    words = ["--kernel", kernel, "--timeout", "900", "--env", f"{MADE}={json.dumps(made)}"]
    if not options.shell:
        # Shares are then the same on a busy machine: what takes so many instructions takes as long.
        words += ["--counted", "--smp", "1"]
    if console.is_terminal:
        # In the guest the output is no terminal: it is told what this one can.
        words += ["--env", "FORCE_COLOR=1", "--env", f"COLUMNS={console.width}"]
        words += ["--env", f"TERM={os.environ.get('TERM', 'xterm')}"]
    words += ["--shell"] if options.shell else []
    words += ["--", sys.executable, "-m", "tests.vm.demo", "--inside"]
    return vm.main(words + (["--shell"] if options.shell else []))


if __name__ == "__main__":
    sys.exit(main())
