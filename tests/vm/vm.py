# SPDX-License-Identifier: MIT
"""
Run a command in a virtual machine that boots another kernel over this machine's own root.

The root file system is shared read-only over 9p with a tmpfs overlay, so the guest has the
host's programs, this repository and the same Python, and what it writes is gone at its end.
One directory, ``/run/vm`` in the guest, is shared for writing. QEMU emulates (TCG): neither
KVM nor root is needed.

``python3 -m tests.vm.vm --kernel 6.1 -- uname -a``
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.vm import kernels, packages, qemu, rootfs
from tests.vm.kernels import Kernel

REPOSITORY = Path(__file__).resolve().parents[2]
GUEST_INIT = Path(__file__).resolve().with_name("guest_init.sh")
SHARE = Path("/run/vm")

DEFAULT_TIMEOUT_S = 1200
# A guest says its first word when QEMU has used 5 to 20 s of a processor, a debug kernel's within
# 90 s; one that is silent for longer does not come up at all. Not by the clock, for on a busy
# machine that tells nothing; but one that waits for ever uses next to no time, and one that boots
# all that it gets: one that had lost a timer (6.1, QEMU 10.0) had used 16 s when it was 246 s old.
LIFE_CPU_S = 180
IDLE_S = 90
IDLE_CPU_S = 5
STARTS = 3
FIRST_WORD = "vm: init"
MONITOR_S = 5
# A counted guest's cycles are QEMU's nanoseconds.
COUNTED_KHZ = 1_000_000
# Emulated, `rep movsb` goes byte by byte: writing and reading 200 MiB took 3.1 s without fast
# strings, from 4.5. A walk has four levels, as on most hosts.
CPU = "max,-erms,-fsrm,-la57"
STATUS_NOT_FINISHED = 125
STATUS_TIMEOUT = 124

# Anything of these in the kernel's log fails the run, whatever the command returned.
PROBLEMS = re.compile(
    r"WARNING: |BUG: |Oops: |kernel BUG at|general protection fault|KASAN:|KCSAN:|UBSAN:"
    r"|possible (?:recursive locking|circular locking|irq lock inversion|memory leak)"
    r"|suspicious RCU usage|held lock freed|INFO: task .* blocked|rcu: INFO: |soft lockup"
    r"|unreferenced object|Kernel panic|Call Trace:|refcount_t: |list_(?:add|del) corruption"
    r"|scheduling while atomic|Unable to handle"
)
EXCERPT_LINES = 60

#: What a test writes to /dev/kmsg before it has the kernel's allocations fail.
STARVING = "tests: allocations fail on purpose"
# What the kernel then says of those whose callers have not asked it to be silent.
_WANTED = re.compile(
    r"^.*: (?:vmalloc error|page allocation failure).*$(?:\n.*)*?\n.*</TASK>.*$", re.MULTILINE
)


def without_wanted(log: str) -> str:
    """Return the kernel's *log* without reports of failures that a test has asked for."""
    return _WANTED.sub("", log) if STARVING in log else log


_EARLY_INIT = """\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# The sign of life that the harness waits for: FIRST_WORD.
echo "vm: init" >/dev/console
for module in /modules/*; do [ -e "$module" ] && insmod "$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /mnt/lower ||
    { echo "vm: cannot mount the host's root" >/dev/console; poweroff -f; }
mount -t tmpfs -o mode=755 tmpfs /mnt/upper
mkdir /mnt/upper/data /mnt/upper/work
mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper/data,workdir=/mnt/upper/work \\
    overlay /mnt/root
mount -t tmpfs -o mode=755 run /mnt/root/run
mkdir /mnt/root/run/vm
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none share /mnt/root/run/vm
mount --move /proc /mnt/root/proc
mount --move /sys /mnt/root/sys
mount --move /dev /mnt/root/dev
exec switch_root /mnt/root /bin/bash /run/vm/init
"""


class VMError(Exception):
    """The machine cannot be started; the message names what is missing and the remedy."""


@dataclasses.dataclass(frozen=True)
class Result:
    """
    What a run in the VM left behind.

    Attributes:
        status: the command's exit status, 124 after a time-out, 125 if the guest died.
        output: what the command printed, stdout and stderr together.
        console: the kernel's console; after a panic the only witness.
        dmesg: the kernel's log when the command had ended, empty if the guest died.
        wall_s: from starting QEMU to its end.
    """

    status: int
    output: str
    console: str
    dmesg: str
    wall_s: float

    @property
    def died(self) -> bool:
        """The guest panicked, hung or was stopped before the command had ended."""
        return not self.dmesg

    def problems(self) -> str:
        """Return the part of the kernel's log that shows a fault, empty if there is none."""
        lines = without_wanted(self.dmesg or self.console).splitlines()
        for number, line in enumerate(lines):
            if PROBLEMS.search(line):
                return "\n".join(lines[max(0, number - 3) : number + EXCERPT_LINES])
        return ""

    def complaint(self) -> str:
        """Return why the run is not clean, empty if it is; the status is not considered."""
        if self.status == STATUS_TIMEOUT and self.died:
            return f"the VM did not finish in time; its console ends:\n{self.console[-4000:]}"
        if self.died:
            return f"the VM died; its console ends:\n{self.problems() or self.console[-4000:]}"
        if found := self.problems():
            return f"the kernel's log has a fault:\n{found}"
        return ""


def _archive(entries: Sequence[tuple[str, int, bytes]]) -> bytes:
    """Return a cpio archive in the format that the kernel unpacks (newc)."""
    out = bytearray()
    for inode, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        path = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def _initramfs(kernel: Kernel) -> Path:
    """Return the kernel's initramfs, which ends by starting bash on the host's root."""
    busybox = rootfs.busybox().read_bytes()
    key = kernels.digest(kernel.release.encode(), _EARLY_INIT.encode(), busybox)
    path = packages.cache_dir() / "initramfs" / f"{kernel.release}-{key}.gz"
    with packages.locked(f"initramfs-{kernel.release}"):
        if path.exists():
            return path
        directories = ("bin", "modules", "mnt", "mnt/lower", "mnt/upper", "mnt/root")
        entries = [(name, 0o040755, b"") for name in (*directories, "proc", "sys", "dev")]
        entries.append(("bin/busybox", 0o100755, busybox))
        entries.append(("init", 0o100755, _EARLY_INIT.encode()))
        for number, (name, data) in enumerate(kernels.early_modules(kernel)):
            entries.append((f"modules/{number:02}-{name}", 0o100644, data))
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_suffix(".new")
        scratch.write_bytes(gzip.compress(_archive(entries), 1))
        return scratch.rename(path)


def guest_path() -> str:
    """Return a PATH for the guest with this interpreter first; version managers' shims are slow."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return f"{Path(sys.executable).parent}:{system}"


def _clock(counted: bool) -> str:
    """
    Return what makes the guest count this machine's cycles, if this machine trusts them.

    A guest that measures their rate itself, while QEMU waits for a processor, takes what it finds:
    one's clock was seen to run three times, another's five times as fast as this machine's.
    """
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not source.exists() or source.read_text().strip() not in ("tsc", "kvm-clock"):
        return ""
    # A loop's pass takes two cycles, by the kernel's own arithmetic.
    rate = re.search(r"^bogomips\s*: ([\d.]+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    khz = COUNTED_KHZ if counted else float(rate[1]) * 500 if rate else 0
    return f"tsc=reliable tsc_early_khz={khz:.0f}" if khz else "tsc=reliable"


class VM:
    """
    One virtual machine: start, wait, result. A context manager stops it.

    Args:
        kernel: series, release or path, see :func:`tests.vm.kernels.fetch`.
        smp: number of processors; two at least where the kernel looks for races.
        memory: as QEMU takes it; what the guest writes lives there too.
        append: further kernel parameters.
        cgroup: 2, or 1 for the old hierarchies.
        network: a card through which the guest reaches this machine as 10.0.2.2; its driver
            virtio_net is the guest's to load.
        counted: its clock goes by instructions, a nanosecond each: what takes so many takes as
            many in every run, whatever else this machine does. One processor.
        timeout_s: the machine is stopped when that long, times the kernel's slowness, has passed
            since it was started or last given more time.
        life_cpu_s: how long it may run without a word before it is started again,
        idle_s: and for how long it may then use less than IDLE_CPU_S of a processor.

    Attributes:
        restarts: second starts of this machine, for lack of a sign of life.
        cpu_s: what its emulator had used of processors when last looked at.
    """

    def __init__(
        self,
        kernel: str | Kernel,
        *,
        smp: int = 1,
        memory: str = "2G",
        append: str = "",
        cgroup: int = 2,
        network: bool = False,
        counted: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        life_cpu_s: float = LIFE_CPU_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self.kernel = kernels.fetch(kernel) if isinstance(kernel, str) else kernel
        self.smp = max(smp, 2) if self.kernel.slowness > 1 else smp
        self.memory = memory
        self.append = append
        self.cgroup = cgroup
        self.network = network
        self.counted = counted
        self.timeout_s = timeout_s * self.kernel.slowness
        self.life_cpu_s = life_cpu_s
        self.idle_s = idle_s
        self.share = Path(tempfile.mkdtemp(prefix="cgpu-vm-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.cpu_s = 0.0
        self._started_s = 0.0
        self._counted_from_s = 0.0
        self._idle_since_s = self._idle_cpu_s = 0.0
        self._terminal = False
        self._silent_at: list[str] = []

    def __enter__(self) -> VM:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.share, ignore_errors=True)

    def _write_init(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, terminal: bool
    ) -> None:
        exported = {
            "PATH": guest_path(),
            "HOME": str(Path.home()),
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb") if terminal else "dumb",
            "CGPU_CACHE": str(packages.cache_dir()),
            "CGPU_GUEST": self.kernel.series,
            "CGPU_SLOWNESS": str(self.kernel.slowness),
            # What Python would write goes to the guest's memory and is lost.
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
        modules = self.kernel.modules if self.kernel.modules.exists() else ""
        lines += [
            f"VM_MODULES={shlex.quote(str(modules))}",
            f"VM_CGROUP={self.cgroup}",
            f"VM_TERMINAL={int(terminal)}",
            f"VM_CWD={shlex.quote(str(cwd))}",
            f"VM_COMMAND=({shlex.join(command)})",
        ]
        if terminal:
            size = shutil.get_terminal_size()
            lines.append(f"VM_SIZE='rows {size.lines} cols {size.columns}'")
        init = "\n".join(["#!/bin/bash", *lines, GUEST_INIT.read_text()])
        (self.share / "init").write_text(init)

    def _qemu(self, terminal: bool, talkative: bool) -> list[str]:
        try:
            program = qemu.command()
        except qemu.QemuNotFound as error:
            raise VMError(str(error)) from error
        # norandmaps: what is translated serves the next process of the same program, which starts
        # in half the time. tsc: else every look at the clock is a call into QEMU.
        words = "earlyprintk=serial,ttyS1" if talkative else "quiet"
        parameters = (
            f"console=ttyS1 {words} panic=-1 oops=panic panic_on_warn=1 mitigations=off "
            f"apparmor=0 norandmaps {_clock(self.counted)} {self.kernel.append} {self.append}"
        )
        accel = ["-accel", "tcg,thread=multi"]
        if self.counted:
            accel = ["-accel", "tcg,thread=single", "-icount", "shift=0"]
        shared = "security_model=none,multidevs=remap"
        front = ["-chardev", "stdio,id=front,signal=off"] if terminal else []
        serial = "chardev:front" if terminal else "null"
        return [
            *(*program, *accel, "-cpu", CPU, "-M", self.kernel.machine),
            "-no-user-config",
            *("-m", self.memory, "-smp", str(self.smp), "-nodefaults", "-display", "none"),
            *("-no-reboot", "-device", "virtio-rng-pci", *front, "-serial", serial),
            *("-serial", f"file:{self.share}/console"),
            *("-monitor", f"unix:{self.share}/monitor,server=on,wait=off"),
            *("-kernel", str(self.kernel.image)),
            *("-initrd", str(_initramfs(self.kernel)), "-append", parameters),
            *("-fsdev", f"local,id=root,path=/,readonly=on,{shared}"),
            *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
            *("-fsdev", f"local,id=share,path={self.share},{shared}"),
            *("-device", "virtio-9p-pci,fsdev=share,mount_tag=share"),
            # Without the card's boot program, which is a package of its own.
            *(("-netdev", "user,id=net") if self.network else ()),
            *(("-device", "virtio-net-pci,netdev=net,romfile=") if self.network else ()),
        ]

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path = REPOSITORY,
        terminal: bool = False,
    ) -> None:
        """
        Boot and begin *command* as root in the guest, with *cwd* as it is here.

        Returns when the guest has said its first word. One that stays silent, or ends before it,
        is started again, twice at most, and then says all that it has to say.

        Raises:
            VMError: it was silent each time; what its processors were at, or what QEMU ended
                with, is in the message.
        """
        self.begin(command, environment=environment, cwd=cwd, terminal=terminal)
        while not self.settled():
            time.sleep(0.02)

    def begin(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path = REPOSITORY,
        terminal: bool = False,
    ) -> None:
        """Begin as :meth:`start` does and wait for nothing; :meth:`settled` is asked for more."""
        self._write_init(command, environment or {}, cwd, terminal)
        self._terminal = terminal
        self._silent_at.clear()
        self._launch(talkative=False)

    def settled(self) -> bool:
        """
        Tell whether the guest has said its first word; one that never will is started again.

        Raises:
            VMError: it was silent each time.
        """
        lives = self._lives()
        if lives is not False:
            return bool(lives)
        self._silent_at.append(self._whereabouts())
        self.stop()
        print(f"vm: no sign of life, {self._silent_at[-1]}", file=sys.stderr)
        if len(self._silent_at) < STARTS:
            self._launch(talkative=True)
            return False
        raise VMError(
            f"{self.kernel.release}: {STARTS} times no sign of life: "
            f"{'; then '.join(self._silent_at)}; "
            f"the console ends: {self._read('console')[-2000:]}"
        )

    def _launch(self, talkative: bool) -> None:
        terminal = self._terminal
        self.restarts += talkative
        self.cpu_s = 0.0
        (self.share / "console").unlink(missing_ok=True)
        self._started_s = self._counted_from_s = self._idle_since_s = time.monotonic()
        self._idle_cpu_s = 0.0
        self._process = subprocess.Popen(
            self._qemu(terminal, talkative),
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=None if terminal else (self.share / "qemu").open("wb"),
            stderr=subprocess.STDOUT if not terminal else None,
        )

    def _lives(self) -> bool | None:
        """Whether the guest has said its first word; None: it may yet, if QEMU works at it."""
        # Asked before its words are read: one that has ended has said them all.
        running = self.running
        if FIRST_WORD in self._read("console"):
            return True
        now_s = time.monotonic()
        if self.cpu_s > self._idle_cpu_s + IDLE_CPU_S:
            self._idle_since_s, self._idle_cpu_s = now_s, self.cpu_s
        idles = now_s > self._idle_since_s + self.idle_s
        return None if running and self.cpu_s <= self.life_cpu_s and not idles else False

    def _whereabouts(self) -> str:
        """Return what a guest without a sign of life is at, or what its QEMU ended with."""
        assert self._process is not None
        if self.running:
            return f"the guest's processors at {self.processors()}"
        return f"QEMU ended with status {self._process.returncode}: {self._read('qemu').strip()}"

    def _count(self) -> None:
        # A process that has ended says so until it is waited for.
        assert self._process is not None
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except FileNotFoundError:
            return
        user, system = stat.rpartition(")")[2].split()[11:13]
        self.cpu_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def processors(self) -> str:
        """Return the addresses that the guest's processors are at, as QEMU's monitor tells."""
        text = b""
        try:
            with socket.socket(socket.AF_UNIX) as monitor:
                monitor.settimeout(MONITOR_S)
                monitor.connect(str(self.share / "monitor"))
                monitor.sendall(b"info registers -a\n")
                # A prompt before the answer, and one after it.
                while text.count(b"(qemu) ") < 2 and (part := monitor.recv(65536)):
                    text += part
        except OSError as error:
            return f"(no answer from QEMU: {error})"
        return " ".join(re.findall(r"[ER]IP=\w+", text.decode(errors="replace")))

    @property
    def running(self) -> bool:
        """The machine has been started and has not ended."""
        if self._process is None:
            return False
        self._count()
        return self._process.poll() is None

    @property
    def overdue(self) -> bool:
        """The machine has run for longer than it was given."""
        return self._left_s() < 0

    def give_time(self) -> None:
        """Count the machine's time anew from here."""
        self._counted_from_s = time.monotonic()

    def _left_s(self) -> float:
        return self._counted_from_s + self.timeout_s - time.monotonic()

    def output(self) -> str:
        """Return what the command has printed so far."""
        return self._read("output")

    def _read(self, name: str) -> str:
        path = self.share / name
        return path.read_text(errors="replace").replace("\r", "") if path.exists() else ""

    def wait(self) -> Result:
        """Wait for the machine to end, or stop it when its time is over."""
        assert self._process is not None, "start() comes first"
        overdue = False
        try:
            self._process.wait(max(0.0, self._left_s()))
        except subprocess.TimeoutExpired:
            overdue = True
        finally:
            self.stop()
        wall_s = time.monotonic() - self._started_s
        status = self._read("status").strip()
        ended = bool(status)
        return Result(
            status=int(status) if ended else STATUS_TIMEOUT if overdue else STATUS_NOT_FINISHED,
            output=self._read("output"),
            console=self._read("console"),
            dmesg=self._read("dmesg") if ended else "",
            wall_s=wall_s,
        )

    def stop(self) -> None:
        """End the machine at once, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(command: Sequence[str], kernel: str, **options: object) -> Result:
    """Boot, run one command, return its result; *options* are those of :class:`VM`."""
    with VM(kernel, **options) as machine:  # type: ignore[arg-type]
        machine.start(command)
        return machine.wait()


def _follow(machine: VM) -> None:
    """Print the command's output as it comes."""
    shown = 0
    while True:
        running = machine.running and not machine.overdue
        text = machine.output()
        sys.stdout.write(text[shown:])
        sys.stdout.flush()
        shown = len(text)
        if not running:
            return
        time.sleep(0.05)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m tests.vm.vm", description=__doc__)
    parser.add_argument("--kernel", default="6.1", help="series, release or path of a build")
    parser.add_argument("--smp", type=int, default=2)
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--append", default="", help="further kernel parameters")
    parser.add_argument("--cgroup", type=int, choices=(1, 2), default=2)
    parser.add_argument("--counted", action="store_true", help="time goes by instructions")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_S, help="seconds")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--shell", action="store_true", help="an interactive shell in the VM")
    parser.add_argument("--dmesg", action="store_true", help="print the kernel's log at the end")
    parser.add_argument("--keep-going", action="store_true", help="do not panic at a warning")
    parser.add_argument("command", nargs="*", default=[])
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status is the command's, 1 if only the log has a fault."""
    options = _parser().parse_args(arguments)
    if not options.command and not options.shell:
        print("vm: no command; give one after --, or --shell", file=sys.stderr)
        return 2
    append = options.append
    if options.keep_going:
        append += " panic_on_warn=0 oops=nopanic"
    environment = dict(item.split("=", 1) for item in options.env)
    try:
        with VM(
            options.kernel,
            smp=options.smp,
            memory=options.memory,
            append=append,
            cgroup=options.cgroup,
            counted=options.counted,
            timeout_s=float("inf") if options.shell else options.timeout,
        ) as machine:
            command = options.command or ["/bin/bash"]
            cwd = Path.cwd()
            machine.start(command, environment=environment, cwd=cwd, terminal=options.shell)
            if options.shell:
                return _interactive(machine)
            _follow(machine)
            result = machine.wait()
    except (VMError, packages.PackageNotFound, packages.FetchError) as error:
        print(f"vm: {error}", file=sys.stderr)
        return STATUS_NOT_FINISHED
    if options.dmesg:
        print(result.dmesg or result.console, file=sys.stderr)
    if complaint := result.complaint():
        print(f"vm: {complaint}", file=sys.stderr)
        return result.status or 1
    return result.status


def _interactive(machine: VM) -> int:
    import termios
    import tty

    saved = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        if saved:
            tty.setraw(sys.stdin)
        assert machine._process is not None
        machine._process.wait()
    finally:
        if saved:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)
    result = machine.wait()
    if complaint := result.complaint():
        print(f"vm: {complaint}", file=sys.stderr)
    return result.status


if __name__ == "__main__":
    sys.exit(main())
