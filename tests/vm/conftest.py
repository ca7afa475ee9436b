# SPDX-License-Identifier: MIT
"""
Tests on real kernels. The same files run in the VM, which ``pytest tests/vm`` boots for them,
and with ``--here`` on this machine. README.md beside this file says how to write one.
"""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pycgpu.request import permit
from tests.vm import guest, kernels, loaded, modules, relay, user_door
from tests.vm.container import Container
from tests.vm.driver import VERSIONS
from tests.vm.drivers import Km, RealDriver, Sim
from tests.vm.typed import Typed
from tests.vm.user_door import Door


def _inside(config: pytest.Config) -> bool:
    return bool(config.getoption("--here")) or "CGPU_GUEST" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "kernel(*series, by_default=False): the kernels that the test is for; by_default: unless "
        "--kernel asks for others, and none named is all; the nearest to a test holds",
        "vm(memory=, smp=, append=, cgroup=, counted=, timeout_s=): the machine that it needs",
        "needs(*names): what must be built for it, beyond what its fixtures say",
        "engine: of the ring of scripts/test-engines, which takes long",
        "long: only with --long",
        "on_host: the test runs on the host, not in a VM",
    ):
        config.addinivalue_line("markers", line)
    if not _inside(config):
        config.pluginmanager.register(relay.Relay(config), "cgpu-relay")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    definition = metafunc.definition
    if not _inside(metafunc.config) and not definition.get_closest_marker("on_host"):
        chosen = relay.kernels_for(metafunc.config, definition)
        metafunc.parametrize("vm_kernel", chosen, indirect=True, scope="session", ids=chosen)
    if "real_driver" in metafunc.fixturenames:
        branches = metafunc.config.getoption("--driver") or list(VERSIONS)
        metafunc.parametrize("real_driver", branches, indirect=True, ids=branches)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _inside(config):
        return
    # A test that is for none of the kernels asked for is not one of this run's.
    here = Path(__file__).parent
    dropped = [
        item
        for item in items
        if here in item.path.parents
        and (
            (item.get_closest_marker("long") and not config.getoption("--long"))
            or (item.get_closest_marker("engine") and not config.getoption("--engines"))
            or not (item.get_closest_marker("on_host") or isinstance(relay.kernel_of(item), str))
        )
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


@pytest.fixture(scope="session")
def installed_host(
    made: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Typed]:
    """A host with Docker after one plain installation, for the documents' own commands."""
    with Typed(made, tmp_path_factory.mktemp("typed")).ready() as host:
        yield host


@pytest.fixture
def loaded_modules() -> Iterator[loaded.Modules]:
    """Loads modules; at the test's end each must unload, last loaded first."""
    stack = loaded.Modules()
    yield stack
    try:
        stack.unload_all()
    finally:
        loaded.remove_nodes()


@pytest.fixture
def sim(made: Callable[[str], Path], loaded_modules: loaded.Modules) -> Callable[..., Sim]:
    """``sim(cards="T4")`` loads the simulated driver with these parameters; unloaded after."""
    return lambda **parameters: Sim(loaded_modules, made("sim")).load(**parameters)


@pytest.fixture(scope="module")
def opened(made: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The user door over one simulated T4; the first tenant starts its agent."""
    with user_door.opened(made, tmp_path_factory.mktemp("door")) as door:
        yield door
        door.close()


@pytest.fixture
def door(opened: Door) -> Iterator[Door]:
    """The door without tenants, before and after."""
    yield opened
    opened.end()
    user_door.emptied()


@pytest.fixture
def real_driver(
    request: pytest.FixtureRequest,
    made: Callable[[str], Path],
    loaded_modules: loaded.Modules,
) -> RealDriver:
    """NVIDIA's own driver of one branch, loaded over a PCI function without a card."""
    branch = request.param
    driver = RealDriver(loaded_modules, branch, made(f"driver:{branch}"), made("fakepci"))
    return driver.load()


@pytest.fixture
def km(made: Callable[[str], Path], loaded_modules: loaded.Modules) -> Callable[..., Km]:
    """``km(**parameters)`` loads cgpu_km.ko and its bridge; unloaded after."""
    bridges: dict[str, Path] = made.ready  # type: ignore[attr-defined]
    return lambda **parameters: Km(loaded_modules, made("km"), bridges).load(**parameters)


@pytest.fixture
def pid_namespace() -> Iterator[int]:
    """The first process of a pid namespace of its own."""
    unshare = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "1000000"]
    )
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    yield int(loaded.until(lambda: children.read_text().split(), "the namespace")[0])
    unshare.kill()
    unshare.wait()


@pytest.fixture
def nvidia_smi(made: Callable[[str], Path]) -> Path:
    """The directory with ``bin/nvidia-smi`` and the libraries that it loads, in ``lib``."""
    return made("smi")


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


@pytest.fixture
def node_policy() -> Iterator[Callable[[str], None]]:
    """``node_policy(text)`` makes *text* the node's policy file; removed after."""
    path = Path(permit.PATH)

    def write(text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    path.unlink(missing_ok=True)
