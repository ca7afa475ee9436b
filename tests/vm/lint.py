# SPDX-License-Identifier: MIT
"""
The kernel's own checkers over our C: checkpatch, kernel-doc, and sparse beside a build.

``python3 -m tests.vm.lint [checkpatch] [kernel-doc] [sparse]`` prints what they find. The scripts
and the headers are fetched once; a file that passed is not read again until it changes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.vm import kernels, modules, packages
from tests.vm.modules import REPOSITORY

SERIES = "6.1"
# The code of the product and its simulated driver; programs of tests are not in the kernel's style.
SOURCES = ("kmod/**/*.[ch]", "pycgpu/**/*.[ch]")

# Rules of checkpatch that do not hold here, and why.
EXCEPTIONS = {
    "AVOID_EXTERNS": "cgpu_rm.c declares the one symbol that it imports from NVIDIA's driver",
    "BIT_MACRO": "NVIDIA's headers write shifts, and user space has no BIT()",
    "BRACKET_SPACE": "a designated initialiser in a macro is no index",
    "CAMELCASE": "NVIDIA's names keep NVIDIA's spelling",
    "COMPARISON_TO_NULL": "!= NULL makes a bool, or a number to add",
    "CONSTANT_COMPARISON": "LINUX_VERSION_CODE stands on the left as everywhere",
    "CONST_STRUCT": "a hook's copy of file_operations is filled at run time",
    "EMBEDDED_FUNCTION_NAME": "words of a message that are a function's name too",
    "LINUX_VERSION_CODE": "an out-of-tree module runs on several kernels (compat.h alone asks)",
    "EXPORT_SYMBOL": "what the simulated driver exports stands in one place",
    "LINE_SPACING": "a struct and the assertion of its size stand together",
    "LONG_LINE_STRING": "a message is not broken: it is searched for",
    "MACRO_ARG_REUSE": "arguments are constants and names",
    "MULTIPLE_ASSIGNMENTS": "a = b = 0 says that they begin alike",
    "OPEN_ENDED_LINE": "of two bad breaks the better one",
    "PREFER_KERNEL_TYPES": "kmod/core and the agent are C99, not kernel alone",
    "QUOTED_WHITESPACE_BEFORE_NEWLINE": "a set of characters is no message",
    "SPACING": "clang-format's, which knows 1e-9 for a number",
    "SPLIT_STRING": "a usage text of several lines",
    "SUSPECT_COMMA_SEMICOLON": "a declaration of several lines",
    "TABSTOP": "as TRAILING_STATEMENTS",
    "TRAILING_STATEMENTS": "one line a struct in tables of NVIDIA's layouts",
    "UNCOMMENTED_DEFINITION": "what a lock guards stands where the struct is described",
    "UNNECESSARY_PARENTHESES": "what the compiler does not need, a reader may",
    "UNNECESSARY_ELSE": "three cases of one kind stand as one chain",
    "UNSPECIFIED_INT": "unsigned is C",
    "VOLATILE": "a ring's pointers in mapped memory, in user space",
    # The kernel's parsers are not to be had in user space.
    "CONSIDER_KSTRTO": "see above",
    "NAKED_SSCANF": "see above",
    "SSCANF_TO_KSTRTO": "see above",
    "PREFER_DEFINED_ATTRIBUTE_MACRO": "likewise __printf",
    "ARRAY_SIZE": "likewise ARRAY_SIZE",
}  # fmt: skip


def _sources() -> list[Path]:
    """Return the C files that git tracks or would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *SOURCES],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(
        {path for name in listed.split("\0") if name and (path := REPOSITORY / name).exists()}
    )


def _unpassed(what: str, command: Sequence[str], run: Callable[[Path], str]) -> list[str]:
    """
    Run a checker on each file that has not passed since it changed; return what it said.

    Args:
        what: the checker's name.
        command: what is run, whose first word is the checker's path.
        run: from a file to complaints, empty if it passes.
    """
    key = kernels.digest(Path(command[0]).read_bytes(), *(word.encode() for word in command[1:]))
    passed_file = packages.cache_dir() / f"passed-{what}-{key}"
    passed = set(passed_file.read_text().split()) if passed_file.exists() else set()
    # Of no checkout in particular: those beside each other know of what passed in one of them.
    files = {
        path: kernels.digest(str(path.relative_to(REPOSITORY)).encode(), path.read_bytes())
        for path in _sources()
    }

    def judge(path: Path) -> str:
        said = run(path)
        if not said:
            # At once, so that a run that is broken off was not for nothing.
            with passed_file.open("a") as file:
                file.write(f"\n{files[path]}")
        return said

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(
            pool.map(judge, [path for path, digest in files.items() if digest not in passed])
        )
    return [text for text in said if text]


def _perl(what: str, *options: str) -> list[str]:
    """Return what one of the kernel's scripts says of the files."""
    scripts = kernels.style_scripts(SERIES)
    command = (str(scripts / what), *options)

    def run(path: Path) -> str:
        # Beside the scripts: checkpatch.pl leaves a cache where it is run.
        said = subprocess.run(
            ["perl", *command, str(path)], cwd=scripts, capture_output=True, text=True, check=False
        )
        # checkpatch.pl without a kernel's tree mutters on stderr, kernel-doc speaks there.
        text = said.stdout if what == "checkpatch.pl" and said.returncode < 2 else said.stderr
        return text.strip().replace(f"{REPOSITORY}/", "")

    return _unpassed(what, command, run)


def checkpatch() -> list[str]:
    """Return what checkpatch.pl says of the files, but for :data:`EXCEPTIONS`."""
    return _perl(
        "checkpatch.pl",
        *("--no-tree", "--strict", "--terse", "--show-types", "--no-summary"),
        *("--max-line-length=100", f"--ignore={','.join(EXCEPTIONS)}", "-f"),
    )


def kernel_doc() -> list[str]:
    """Return what the kernel's documentation script says of ``/**`` comments."""
    return _perl("kernel-doc", "-none")


def sparse() -> list[str]:
    """Return what sparse says while the modules are built for :data:`SERIES`."""
    kernel = kernels.fetch(SERIES)
    sources = modules.Sources([modules.KMOD])
    try:
        with modules.Build("sparse", kernel.tag, sources.digest()) as build:
            if build.complete:
                return []
            sources.write(build.root)
            kmod = build.root / "kmod"
            _name_includes(kmod)
            checked = ("C=2", "CF=-Wsparse-error -D__VERSION__='\"\"'", "KBUILD_MODPOST_WARN=1")
            build_for = (f"KDIR={kernel.headers}", *modules.toolchain(kernel))
            modules.make(kmod, *checked, *build_for)
            modules.make(kmod / "bridge", *checked, *build_for)
            modules.make(kmod / "sim", "modules", *checked, *build_for)
    except modules.BuildError as error:
        found = re.findall(r"^\S+:\d+:\d+: (?:warning|error): .*$", str(error), re.MULTILINE)
        return found or [str(error)]
    return []


def _name_includes(kmod: Path) -> None:
    """Sparse does not know -iquote: in this copy our headers are named by their whole paths."""
    rooms = "|".join(path.name for path in kmod.iterdir() if path.is_dir())
    for path in kmod.rglob("*.[ch]"):
        text = path.read_text()
        path.write_text(
            re.sub(rf'^(#\s*include ")(?=(?:{rooms})/)', rf"\1{kmod}/", text, flags=re.M)
        )


CHECKS = {"checkpatch": checkpatch, "kernel-doc": kernel_doc, "sparse": sparse}


def main() -> int:
    """Run the checks named on the command line, or all of them."""
    wanted = sys.argv[1:] or list(CHECKS)
    if unknown := [name for name in wanted if name not in CHECKS]:
        print(f"lint: no check {unknown[0]!r}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    failed = False
    for name in wanted:
        try:
            found = CHECKS[name]()
        except (packages.PackageNotFound, packages.FetchError) as error:
            found = [str(error)]
        for text in found:
            failed = True
            print(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
