# SPDX-License-Identifier: MIT
"""What pyproject.toml cannot say: the C parts, and two folders that live elsewhere in the tree."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

# The top-level folders appear inside the package: pycgpu.cli the commands, pycgpu.kmod the
# module's sources, from which DKMS builds on the machine where the wheel is installed.
MAPPED = {"pycgpu.cli": "cli", "pycgpu.kmod": "kmod"}

packages = find_packages(include=["pycgpu", "pycgpu.*"])
for name, folder in MAPPED.items():
    packages.append(name)
    packages += [f"{name}.{inner}" for inner in find_packages(str(HERE / folder))]

# On an index's page links to files of this repository lead nowhere: their texts are the paths.
description = re.sub(
    r"!?\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", (HERE / "README.md").read_text(encoding="utf-8")
)

setup(
    long_description=description,
    long_description_content_type="text/markdown",
    # What cffi makes keeps to the stable ABI of the oldest Python that is asked for.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    packages=packages,
    package_dir=MAPPED,
    package_data={
        "pycgpu": ["py.typed", "**/*.pyi"],
        "pycgpu.batch": ["*.c"],
        "pycgpu.web": ["index.html", "uPlot.*"],
        "pycgpu.kmod": [
            "Kbuild",
            "Makefile",
            "dkms.conf",
            "VERSION",
            "core/*.[ch]",
            "core/*/*.[ch]",
            "bridge/Kbuild",
            "bridge/Makefile",
            "bridge/*.[ch]",
            "compat/*",
            "compat/probes/*.c",
            "door/*.[ch]",
            "linux/*.[ch]",
        ],
    },
    # kbuild leaves generated sources beside ours in a tree that has been built in place.
    exclude_package_data={
        "pycgpu.kmod": ["*.mod.c", "*/*.mod.c", "**/*.o", "**/.*.cmd", "compat/have.h"]
    },
    # Where man looks for a program of this environment; scripts/install links them for all.
    data_files=[("share/man/man1", ["docs/man/cgpu.1", "docs/man/cgpu-smi.1"])],
    # Else everything that MANIFEST.in names would be installed, the simulated driver too.
    include_package_data=False,
    cffi_modules=[
        f"{path.relative_to(HERE)}:ffibuilder"
        for path in sorted(HERE.glob("pycgpu/**/_*_build.py"))
    ],
    zip_safe=False,
)
