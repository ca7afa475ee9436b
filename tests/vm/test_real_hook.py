# SPDX-License-Identifier: MIT
"""The module on NVIDIA's own driver: what worked before works, what must not is refused."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm import loaded, rm
from tests.vm.drivers import Km, RealDriver
from tests.vm.loaded import until

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.vm(memory="3G", append="memmap=256M$0x40000000"),
]

REPOSITORY = Path(__file__).resolve().parents[2]


class Namespace:
    """A pid namespace whose first process sleeps: a container, as far as identity goes."""

    def __init__(self) -> None:
        self._init = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "1000000"]
        )
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        self.pid = int(until(lambda: children.read_text().split(), "the namespace")[0])

    def begin(self, code: str) -> subprocess.Popen[str]:
        """Begin Python code inside, with `rm` imported; stdin and stdout are pipes."""
        program = "from tests.vm import rm\n" + textwrap.dedent(code)
        return subprocess.Popen(
            ["nsenter", "-t", str(self.pid), "-p", "-m", sys.executable, "-c", program],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, code: str) -> str:
        """Run Python code inside and return what it prints; a failure raises."""
        child = self.begin(code)
        output, _ = child.communicate(timeout=120)
        assert child.returncode == 0, output
        return output

    def end(self) -> None:
        """Kill it."""
        self._init.kill()
        self._init.wait()


@pytest.fixture
def namespace() -> Iterator[Callable[[], Namespace]]:
    started: list[Namespace] = []

    def start() -> Namespace:
        started.append(Namespace())
        return started[-1]

    yield start
    for one in started:
        one.end()


@contextlib.contextmanager
def tenant(cgpu: Km, one: Namespace, id: str) -> Iterator[None]:
    """Register *one* for the lifetime of the block, which must leave nothing open."""
    cgpu.create(id, f"pid={one.pid}", "gpu=0,mem=1073741824")
    yield
    one.end()
    until(lambda: not (cgpu.root / "container" / id).exists(), f"the removal of {id}")


# What a program does up to the card, printed; the same text must come out with and without us.
WALK = """
    import struct
    for wrapped in (False, True):
        with rm.File(wrapped=wrapped) as control:
            print(control.check_version({version!r}))
            one, two = control.client(), control.client()
            print("ids", len(rm.gpu_ids(control, one)), rm.gpu_ids(control, one, 0x201))
            print("unknown control", hex(control.control(one, one, 0x7f0001, bytes(8))[0]))
            print("unknown object", hex(control.control(one, 0xcafe, 0x201, bytes(128))[0]))
            print("share", hex(control.share(one, one, two, 1, 1)))
            print("unknown class", hex(control.alloc(one, one, 0xcafe0001, 0xbeef)[1]))
            print("free of nothing", hex(control.free(one, one, 0xcafe0002)))
            print("free", hex(control.free(one, 0, one)), hex(control.free(two, 0, two)))
            print("freed", hex(control.control(one, one, 0x201, bytes(128))[0]))
            for size in (8, 33):
                try:
                    control.escape(rm.NV_ESC_RM_CONTROL, bytes(size))
                except OSError as error:
                    print("size", size, error.errno)
    for path in ("/dev/nvidia-uvm",):
        with rm.File(path) as memory:
            print("uvm", hex(memory.uvm_initialize()))
    """


def test_a_managed_program_gets_the_same_answers_as_any_other(
    real_driver: RealDriver, km: Callable[..., Km], namespace: Callable[[], Namespace]
) -> None:
    code = WALK.format(version=real_driver.version)
    without = namespace().run(code)
    cgpu = km()
    assert namespace().run(code) == without, "a process of the host"
    one = namespace()
    with tenant(cgpu, one, "one"):
        assert one.run(code) == without
        # The client that was freed, the control and the class that nobody knows, in both forms:
        # answered as the driver answers, and counted.
        assert cgpu.read("0/one/events").startswith("oom 0\nrefused 6\n")


def test_foreign_clients_and_privileged_classes_are_refused(
    real_driver: RealDriver, km: Callable[..., Km], namespace: Callable[[], Namespace]
) -> None:
    cgpu = km()
    one, two = namespace(), namespace()
    with tenant(cgpu, one, "one"), tenant(cgpu, two, "two"), rm.File() as control:
        control.check_version(real_driver.version)
        foreign = control.client()
        holder = one.begin(
            f"""
            import sys
            control = rm.File()
            control.check_version({real_driver.version!r})
            print(control.client(), flush=True)
            sys.stdin.readline()
            """
        )
        assert holder.stdout is not None and holder.stdin is not None
        neighbour = int(holder.stdout.readline())
        statuses = two.run(
            f"""
            with rm.File() as control:
                control.check_version({real_driver.version!r})
                own = control.client()
                for client in ({foreign}, {neighbour}):
                    print(hex(control.dup(own, own, 0xcafe0001, client, client)[1]))
                    print(hex(control.control(client, client, 0x201, bytes(128))[0]))
                for number in (0x3f, 0xc2, 0x82, 0x83):
                    print(hex(control.alloc(own, own, 0xcafe0002, number)[1]))
            """
        ).split()
        assert statuses == ["0x23"] * 4 + ["0x1b"] * 4
        holder.stdin.write("\n")
        holder.stdin.close()
        holder.wait()


def test_a_file_that_the_host_opened_is_refused_inside(
    real_driver: RealDriver, km: Callable[..., Km], namespace: Callable[[], Namespace]
) -> None:
    """It would be a way around the ledger; its process keeps everything else."""
    cgpu = km()
    one = namespace()
    early = one.begin(
        """
        import sys
        control = rm.File()
        print("open", flush=True)
        sys.stdin.readline()
        try:
            control.client()
        except OSError as error:
            print(error.errno, flush=True)
        """
    )
    assert early.stdout is not None and early.stdin is not None
    assert early.stdout.readline() == "open\n"
    with tenant(cgpu, one, "one"):
        early.stdin.write("\n")
        early.stdin.close()
        assert early.stdout.read() == "1\n"
        early.wait()


def test_the_module_refuses_to_go_while_a_container_exists(
    real_driver: RealDriver, km: Callable[..., Km], namespace: Callable[[], Namespace]
) -> None:
    cgpu = km()
    one = namespace()
    with tenant(cgpu, one, "one"):
        with pytest.raises(OSError):
            cgpu.unload()
        assert "cgpu_km" in loaded.loaded_modules()
    cgpu.unload()
    cgpu.load()


TRAFFIC = """
    import os, sys
    print("ready", flush=True)
    while os.read(0, 1) == b"g":
        for wrapped in (False, True):
            with rm.File(wrapped=wrapped) as control:
                control.check_version({version!r})
                for _ in range(20):
                    client = control.client()
                    assert rm.gpu_ids(control, client)
                    assert control.free(client, 0, client) == 0
        os.write(1, b".")
    """


@contextlib.contextmanager
def traffic(where: Namespace, version: str) -> Iterator[Callable[[], None]]:
    """A program that keeps the driver busy; call what is yielded to see that it still does."""
    child = where.begin(TRAFFIC.format(version=version))
    assert child.stdout is not None and child.stdin is not None
    output, input = child.stdout.fileno(), child.stdin.fileno()
    assert child.stdout.readline() == "ready\n"
    os.write(input, b"g" * 1000)

    def goes_on() -> None:
        assert os.read(output, 1) == b"."
        os.write(input, b"g")

    yield goes_on
    child.stdin.close()
    child.kill()
    child.wait()


def test_loading_and_unloading_under_traffic_disturbs_nobody(
    real_driver: RealDriver, km: Callable[..., Km], namespace: Callable[[], Namespace]
) -> None:
    cgpu = km()
    with traffic(namespace(), real_driver.version) as goes_on:
        for _ in range(10):
            goes_on()
            cgpu.unload()
            goes_on()
            cgpu.load()
        goes_on()


def test_the_driver_comes_and_goes_in_every_order(
    real_driver: RealDriver, km: Callable[..., Km], namespace: Callable[[], Namespace]
) -> None:
    real_driver.unload()
    cgpu = km(bridge=False)
    assert "0" not in os.listdir(cgpu.root)
    with pytest.raises(OSError):
        cgpu.create("early", f"pid={namespace().pid}", "gpu=0,mem=1073741824")
    for _ in range(3):
        real_driver.load()
        one = namespace()
        # The driver is hooked when it is first needed, if not before.
        with tenant(cgpu, one, "one"):
            one.run(WALK.format(version=real_driver.version))
        real_driver.unload()
        until(lambda: "0" not in os.listdir(cgpu.root), "the card's removal")
    real_driver.load()
    cgpu.unload()
    with rm.File() as control:
        assert control.check_version(real_driver.version) == real_driver.version
    cgpu.load(bridge=False)
    cgpu.unload()
    real_driver.unload()
    cgpu.load(bridge=False)
