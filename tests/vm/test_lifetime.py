# SPDX-License-Identifier: MIT
"""Containers come and go, thousands of them: nothing is left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.install import doctor
from tests.vm.loaded import loaded_modules, until

pytestmark = [pytest.mark.needs("programs"), pytest.mark.kernel("6.1", by_default=True)]

CYCLES = 1000
#: Kernel memory that may be in use for other reasons after that many cycles: a leak of one
#: page a cycle would be twice that.
NOISE_BYTES = CYCLES * 2048
#: that are killed in their first calls, one every 10 ms
NAMESPACES = 10


def kernel_memory_bytes() -> int:
    """Slab that cannot be reclaimed, and vmalloc, after everything deferred has been freed."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    text = Path("/proc/meminfo").read_text()
    return 1024 * sum(
        int(re.findall(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[0])
        for name in ("SUnreclaim", "VmallocUsed", "PageTables")
    )


def free_bytes(programs: Path) -> int:
    run = subprocess.run([programs / "simcuda", "info"], capture_output=True, text=True, check=True)
    return int(re.findall(r"^free (\d+)", run.stdout, re.MULTILINE)[0])


def test_a_thousand_containers_killed_at_work_leave_nothing(sim: Any, km: Any, made: Any) -> None:
    driver = sim(model="t4")
    cgpu = km()
    churn = made("programs") / "churn"
    cgpu.write("0/max_inst", "64\n")
    # The first ones allocate what is kept: caches of the kernel and of the driver.
    subprocess.run([churn, "50"], check=True, stdout=subprocess.DEVNULL)
    until(lambda: not os.listdir(cgpu.root / "container"), "the removal of all")
    free_before = free_bytes(driver.programs)
    before_bytes = kernel_memory_bytes()

    run = subprocess.run([churn, str(CYCLES)], capture_output=True, text=True, check=True)
    assert run.stdout == f"made {CYCLES}\n"
    until(lambda: not os.listdir(cgpu.root / "container"), "the removal of all")

    assert "allocated 0\nused 0\n" in cgpu.read("0/memory")
    assert cgpu.read("0/free_weight") == "64\n"
    assert free_bytes(driver.programs) == free_before
    until(
        lambda: kernel_memory_bytes() - before_bytes < NOISE_BYTES,
        "the return of the kernel's memory",
    )


@pytest.mark.vm(smp=2)
@pytest.mark.kernel(by_default=True)
def test_loading_and_unloading_under_traffic_disturbs_no_host_process(
    sim: Any, km: Any, made: Any
) -> None:
    driver = sim(model="t4")
    cgpu = km()
    busy = subprocess.Popen(
        ["sh", "-c", f"while {driver.programs}/simcuda free 3M; do :; done"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(20):
            cgpu.unload()
            cgpu.load()
            assert busy.poll() is None, "a call of the host failed"
    finally:
        os.killpg(busy.pid, 15)
        busy.wait()


#: Where the simulated driver is told to hold a call, and `hold` to let it go.
PAUSE = Path("/sys/module/nvidia/parameters/pause")
HOLD = Path("/sys/module/hold/parameters/state")


@pytest.mark.needs("km")
@pytest.mark.kernel(by_default=True)
def test_nobody_opens_the_tree_of_a_core_that_has_not_started(
    sim: Any, made: Any, loaded_modules: Any
) -> None:
    """One that does not know the driver takes the tree with it."""
    driver = sim(cards="t4", branch=999)
    core = next(made("km").glob("cgpu_core_*.ko"))
    root = Path("/proc/cgpu_km")
    loaded_modules.load(made("km") / "cgpu_km.ko")
    PAUSE.write_text("open ff\n")
    loading = subprocess.Popen(["insmod", core], stderr=subprocess.PIPE, text=True)
    until(lambda: PAUSE.read_text() == "held\n", "the core's look at the driver")
    events = os.open(root / "events", os.O_RDONLY)
    opened: list[int] = []
    refused = ""
    try:
        opened.append(os.open(root / "version", os.O_RDONLY))
    except OSError as error:
        refused = errno.errorcode[error.errno or 0]
    PAUSE.write_text("\n")
    assert "not supported" in loading.communicate()[1]
    for descriptor in [*opened, events]:
        os.close(descriptor)
    assert refused == "ENODEV"
    assert set(os.listdir(root)) == {"events", "upgrade"}
    driver.unload()
    loaded_modules.load(core)
    assert root.joinpath("api_version").read_text() == "1\n"


@pytest.mark.needs("hold")
@pytest.mark.vm(append="slub_debug=P,proc_dir_entry")  # what was freed is no name of a file
def test_a_card_goes_while_its_last_container_does(
    sim: Any, km: Any, made: Any, loaded_modules: Any, pid_namespace: int
) -> None:
    """The container has left the card, and its directories are still there."""
    driver = sim(model="t4")
    cgpu = km(bridge=False)
    cgpu.create("one", f"pid={pid_namespace}", "gpu=0,mem=1073741824")
    loaded_modules.load(made("hold"), at="cgpu_tree_remove_container")
    ending = threading.Thread(target=cgpu.destroy, args=("one",))
    ending.start()
    until(lambda: HOLD.read_text() == "held\n", "the end of the container's directories")
    driver.unload()
    assert not cgpu.root.joinpath("0").exists()
    HOLD.write_text("\n")
    until(lambda: not ending.is_alive(), "the end of the container")
    assert os.listdir(cgpu.root / "container") == []
    loaded_modules.unload("hold")


def test_cards_of_a_driver_that_was_loaded_anew_are_there_for_whoever_asks_first(
    sim: Any, km: Any
) -> None:
    """`cgpu-smi -L` printed nothing, and doctor asked whether there was a GPU."""
    driver = sim(model="t4")
    km(bridge=False)
    driver.unload()
    sim(model="t4")
    tree = Path("/proc/cgpu_km")
    assert not (tree / "0").exists()
    found = [one for one in doctor.examine(root=str(tree)) if one.subject == "cards"]
    assert [one.text for one in found] == ["1 under control"]
    assert (tree / "0/uuid").exists()


def _first_process(unshare: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    return int(until(lambda: children.read_text().split(), "the namespace")[0])


@pytest.fixture
def jump() -> Iterator[None]:
    """A probe that the kernel can make a jump of, which it does for none at a function's begin."""
    folder = Path("/sys/kernel/tracing")
    if folder.exists() and not (folder / "README").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", folder], check=True)
    if not (folder / "kprobe_events").exists():
        # 6.1-debug, 6.1-kcsan: nothing traces functions, and any probe can become a jump
        yield
        return
    for offset in range(5, 32):
        with contextlib.suppress(OSError):  # in the middle of an instruction
            (folder / "kprobe_events").write_text(f"p:jump vfs_statx+{offset}\n")
            break
    (folder / "events/kprobes/jump/enable").write_text("1\n")
    yield
    (folder / "events/kprobes/jump/enable").write_text("0\n")
    (folder / "kprobe_events").write_text("")


def test_who_is_killed_in_its_first_call_leaves_the_kernels_probes_to_others(
    sim: Any, km: Any, jump: None
) -> None:
    """
    The first call needs probes. Before 6.9 the kernel, while it makes jumps of some, waits for
    tasks that exit, and the first process of a namespace exits when all others have.
    """
    simcuda = sim(model="t4").programs / "simcuda"
    cgpu = km()
    stop = threading.Event()

    def keep_the_probes_busy() -> None:
        switch = Path("/proc/sys/debug/kprobes-optimization")
        while not stop.is_set():
            switch.write_text("0\n")
            switch.write_text("1\n")
            # some are made jumps of after five ticks
            stop.wait(0.1)

    busy = threading.Thread(target=keep_the_probes_busy)
    busy.start()
    try:
        for _ in range(10):
            # as on a new host: no call needed a probe yet
            cgpu.unload()
            cgpu.load()
            script = f"read line; {simcuda} info & {simcuda} info & wait"
            namespaces = [
                subprocess.Popen(
                    ["unshare", "--pid", "--fork", "sh", "-c", script],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    text=True,
                )
                for _ in range(NAMESPACES)
            ]
            first = [_first_process(namespace) for namespace in namespaces]
            for number, pid in enumerate(first):
                cgpu.create(f"c{number}", f"pid={pid}", f"gpu=0,mem={256 << 20}")
            for namespace in namespaces:
                assert namespace.stdin
                namespace.stdin.write("\n")
                namespace.stdin.flush()
            # at any step of the first calls
            for pid in first:
                time.sleep(0.01)
                os.kill(pid, signal.SIGKILL)
            until(lambda: all(n.poll() is not None for n in namespaces), "their end")  # noqa: B023
            until(lambda: not os.listdir(cgpu.root / "container"), "the containers' end")
    finally:
        stop.set()
    until(lambda: not busy.is_alive(), "the return of the kernel's probes")


FTRACE = Path("/proc/sys/kernel/ftrace_enabled")


@pytest.mark.kernel("6.1")
def test_ftrace_stays_on_while_the_module_is_loaded(sim: Any, km: Any, pid_namespace: int) -> None:
    driver = sim(model="t4")
    cgpu = km()
    with pytest.raises(OSError, match="busy"):
        FTRACE.write_text("0")
    cgpu.create("one", f"pid={pid_namespace}", "gpu=0,mem=1073741824")
    info = ["nsenter", "-t", str(pid_namespace), "-p", "-m", driver.programs / "simcuda", "info"]
    subprocess.run(info, check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(OSError, match="busy"):
        FTRACE.write_text("0")
    subprocess.run(info, check=True, stdout=subprocess.DEVNULL)
    os.kill(pid_namespace, signal.SIGKILL)
    until(lambda: not os.listdir(cgpu.root / "container"), "the container's removal")
    cgpu.unload()
    FTRACE.write_text("0")
    FTRACE.write_text("1")


@pytest.mark.kernel("6.1")
def test_the_module_is_not_loaded_while_ftrace_is_off(sim: Any, km: Any) -> None:
    sim(model="t4")
    FTRACE.write_text("0")
    try:
        with pytest.raises(OSError, match="busy"):
            km()
        said = subprocess.check_output(["dmesg"], text=True)
        assert "cannot be followed while ftrace is off" in said
        assert "cgpu_km" not in loaded_modules()
    finally:
        FTRACE.write_text("1")
    km()


#: a file of one's own by the name that the driver's control file has
PRETEND = "mount --bind /proc/self/comm /dev/nvidiactl && exec "


def test_nobodys_own_file_is_taken_for_the_drivers(sim: Any, km: Any, pid_namespace: int) -> None:
    """Loaded first, the module looks for cards when root opens ``inst_ctl``."""
    cgpu = km(bridge=False)
    sim(model="t4")
    until(lambda: "attached to NVIDIA driver" in subprocess.getoutput("dmesg"), "the driver")
    user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    read = PRETEND + f"cat {cgpu.root}/inst_ctl"
    subprocess.run([*user, "unshare", "-Urm", "sh", "-c", read], check=True, capture_output=True)
    assert not (cgpu.root / "0").exists()
    create = f"create one pid={pid_namespace} gpu=0,mem=1073741824"
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", PRETEND + f"sh -c 'echo {create} >{cgpu.root}/inst_ctl'"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode and not os.listdir(cgpu.root / "container")
    cgpu.create("one", f"pid={pid_namespace}", "gpu=0,mem=1073741824")
    assert cgpu.read("0/one/memsize") == "1073741824\n"
