# SPDX-License-Identifier: MIT
"""
Tests on real kernels. The same files run in the VM, which ``pytest tests/vm`` boots for them,
and with ``--here`` on this machine. README.md beside this file says how to write one.
"""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm import guest, kernels, loaded, modules, relay
from tests.vm.container import Container


def _inside(config: pytest.Config) -> bool:
    return bool(config.getoption("--here")) or "CGPU_GUEST" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "kernel(*series): the kernels that the test is for, instead of all",
        "vm(memory=, smp=, append=, cgroup=, timeout_s=): the machine that the test needs",
        "needs(*names): what must be built for it, beyond what its fixtures say",
        "on_host: the test runs on the host, not in a VM",
    ):
        config.addinivalue_line("markers", line)
    if not _inside(config):
        config.pluginmanager.register(relay.Relay(config), "cgpu-relay")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    definition = metafunc.definition
    if _inside(metafunc.config) or definition.get_closest_marker("on_host"):
        return
    restricted = [name for mark in definition.iter_markers("kernel") for name in mark.args]
    chosen = relay.kernels_for(metafunc.config, restricted)
    metafunc.parametrize("vm_kernel", chosen, indirect=True, scope="session", ids=chosen)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _inside(config):
        return
    # A test that is for none of the kernels asked for is not one of this run's.
    here = Path(__file__).parent
    dropped = [
        item
        for item in items
        if here in item.path.parents
        and not item.get_closest_marker("on_host")
        and not isinstance(relay.kernel_of(item), str)
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


@pytest.fixture(autouse=True)
def vm_kernel() -> str:
    """The kernel's series as it was asked for, or this machine's release."""
    return os.environ.get("CGPU_GUEST") or platform.release()


@pytest.fixture(scope="session")
def made() -> Callable[[str], Path]:
    """The path of something that was built for the tests, see :func:`tests.vm.modules.prepare`."""
    ready = guest.made()
    headers = Path(f"/lib/modules/{platform.release()}/build")
    nowhere = Path("/nonexistent")
    running = kernels.Kernel("running", platform.release(), nowhere, nowhere, headers)

    def path(name: str) -> Path:
        if name not in ready:
            if "CGPU_GUEST" in os.environ:
                raise AssertionError(
                    f"{name!r} was not built for this test: ask for its fixture in the test's "
                    "arguments or mark the test with needs()"
                )
            built = modules.prepare(running, [name])
            ready.update({key: Path(value) for key, value in built.items()})
        return ready[name]

    path.ready = ready  # type: ignore[attr-defined]
    return path


@pytest.fixture
def loaded_modules() -> Iterator[loaded.Modules]:
    """Loads modules; at the test's end each must unload, last loaded first."""
    stack = loaded.Modules()
    yield stack
    try:
        stack.unload_all()
    finally:
        loaded.remove_nodes()


class Sim:
    """The simulated driver, once loaded: its programs and the way to unload it."""

    def __init__(self, stack: loaded.Modules, directory: Path) -> None:
        self._stack = stack
        self.directory = directory
        self.programs = directory / "simcuda"

    def load(self, **parameters: object) -> Sim:
        """Load nvidia.ko with parameters, and nvidia-uvm.ko; make the device nodes."""
        self._stack.load(self.directory / "nvidia.ko", **parameters)
        self._stack.load(self.directory / "nvidia-uvm.ko")
        loaded.make_nodes()
        return self

    def unload(self) -> None:
        """Unload both, as on a driver's upgrade."""
        self._stack.unload("nvidia_uvm")
        self._stack.unload("nvidia")
        loaded.remove_nodes()


@pytest.fixture
def sim(made: Callable[[str], Path], loaded_modules: loaded.Modules) -> Callable[..., Sim]:
    """``sim(cards="T4")`` loads the simulated driver with these parameters; unloaded after."""
    return lambda **parameters: Sim(loaded_modules, made("sim")).load(**parameters)


class Km:
    """cgpu_km, once loaded."""

    root = Path("/proc/cgpu_km")

    def __init__(self, stack: loaded.Modules, directory: Path, bridge: Path | None) -> None:
        self._stack = stack
        self.directory = directory
        self._bridge = bridge

    def load(self, bridge: bool = True, **parameters: object) -> Km:
        """Load cgpu_km.ko with parameters, and the bridge if one was built for the driver."""
        self._stack.load(self.directory / "cgpu_km.ko", **parameters)
        if bridge and self._bridge and "nvidia" in loaded.loaded_modules():
            self._stack.load(self._bridge)
        return self

    def unload(self) -> None:
        """Unload bridge and module; OSError while containers exist."""
        if "cgpu_rm" in loaded.loaded_modules():
            self._stack.unload("cgpu_rm")
        self._stack.unload("cgpu_km")

    def write(self, node: str, text: str) -> None:
        """Write *text* to a node below the root by one write(2); OSError as the kernel says."""
        descriptor = os.open(self.root / node, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def read(self, node: str) -> str:
        """Return a node's text."""
        return (self.root / node).read_text()

    def create(self, id: str, *clauses: str) -> None:
        """Create a container: ``km.create("a", "pid=1", "gpu=0,mem=max")``."""
        self.write("inst_ctl", " ".join(["create", id, *clauses]) + "\n")

    def destroy(self, id: str) -> None:
        """Destroy a container."""
        self.write("inst_ctl", f"destroy {id}\n")


@pytest.fixture
def km(made: Callable[[str], Path], loaded_modules: loaded.Modules) -> Callable[..., Km]:
    """``km(**parameters)`` loads cgpu_km.ko and its bridge; unloaded after."""
    branch = loaded.real_branch()
    ready: dict[str, Path] = made.ready  # type: ignore[attr-defined]
    bridge = ready.get(f"bridge:{branch}" if branch else "bridge")
    return lambda **parameters: Km(loaded_modules, made("km"), bridge).load(**parameters)


@pytest.fixture
def container(made: Callable[[str], Path]) -> Iterator[Callable[..., Container]]:
    """``container(programs={"/bin/x": path})`` starts a real container; deleted after."""
    running: list[Container] = []
    numbers = itertools.count(1)

    def start(id: str = "", **options: object) -> Container:
        name = id or f"c{next(numbers)}-{os.getpid()}"
        one = Container(made("rootfs"), name, **options)  # type: ignore[arg-type]
        running.append(one)
        return one.start()

    yield start
    for one in reversed(running):
        one.delete()
