# SPDX-License-Identifier: MIT
"""The modules build for kernels as people have them: clang's, and with newer parts brought back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pycgpu.install import module_build
from pycgpu.install.host import execute
from tests.vm import clang_kernel, kernels, modules

pytestmark = [pytest.mark.on_host, pytest.mark.kernel("6.1", by_default=True)]

RELEASE = "6.1.0-of-clang"
#: As Red Hat's 5.14 has them, and Debian's 6.1 has not.
BROUGHT_BACK = """
#include_next <linux/mm.h>
#ifndef BROUGHT_BACK
#define BROUGHT_BACK
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}
static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif
"""


def compiler(module: Path) -> str:
    """Return what says who compiled it."""
    shown = subprocess.run(
        ["readelf", "-p", ".comment", str(module)], capture_output=True, text=True, check=True
    )
    return shown.stdout


# A kernel's headers and three modules anew: minutes.
@pytest.mark.long
def test_a_kernel_of_clangs_gets_modules_of_clangs(tmp_path: Path) -> None:
    if module_build.missing_tools(tmp_path, RELEASE) or not shutil.which("clang"):
        pytest.skip("no package: clang")
    folder = tmp_path / "lib/modules" / RELEASE
    folder.mkdir(parents=True)
    (folder / "build").symlink_to(clang_kernel.headers("6.1"))
    assert module_build.clang_version(tmp_path, RELEASE)
    built = tmp_path / "built"
    built.mkdir()
    module_build.build(module_build.sources(), built, tmp_path, RELEASE, execute)
    found = {
        path.stem.partition("_")[2].partition("_")[0]: compiler(path) for path in built.iterdir()
    }
    assert sorted(found) == ["core", "km", "rm"]
    for name, told in found.items():
        assert "clang version" in told and "GCC" not in told, (name, told)


def test_what_a_distribution_has_brought_back_is_not_defined_twice(tmp_path: Path) -> None:
    """Its number says that it has none of it."""
    kernel = kernels.fetch("6.1")
    newer = tmp_path / "newer/linux/mm.h"
    newer.parent.mkdir(parents=True)
    newer.write_text(BROUGHT_BACK)
    work = tmp_path / "kmod"
    shutil.copytree(module_build.sources(), work, ignore=module_build.products)
    # In 6.1 these flags are `-nostdinc` and stand before the kernel's own folders.
    before = f"NOSTDINC_FLAGS=-nostdinc -I{newer.parents[1]}"
    modules.make(work, f"KDIR={kernel.headers}", *modules.toolchain(kernel), before)
    assert "#define CGPU_HAVE_VM_FLAGS_SET" in (work / "compat/have.h").read_text()
    assert len(list(work.glob("*.ko"))) == 2


def test_every_probe_is_asked_by_a_kbuild_file() -> None:
    kmod = module_build.sources()
    asked = {
        name
        for path in (kmod / "Kbuild", kmod / "sim" / "Kbuild")
        for name in path.read_text().partition("cgpu_probes :=")[2].partition("include")[0].split()
    } - {"\\"}
    assert asked == {path.stem for path in (kmod / "compat/probes").glob("*.c")}
    used = "".join(path.read_text() for path in kmod.rglob("*.[ch]") if "probes" not in path.parts)
    for name in asked:
        assert f"CGPU_HAVE_{name.upper()}" in used, name
