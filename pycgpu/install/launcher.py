# SPDX-License-Identifier: MIT
"""
The programs that engines start, and those that users wait for, as texts: with as little of Python
as possible.

-I and -S leave out site-packages and the user's environment: 3 ms less a start, and nothing that
a tenant could set reaches a process of root's. The hook uses ``posix`` where others use ``os``: the
same functions, without the 1 ms that importing ``os`` takes. The runtime is a shell script first:
``start``, ``state``, ``kill`` and ``delete`` need nothing of ours, and a shell is there in a tenth
of the time.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from ..oci import runtime

#: Where they are, and what is beside them.
LIBRARY = "usr/lib/cgpu"
_NAME = "cgpu-container-runtime"
RUNTIME = f"{LIBRARY}/{_NAME}"
HOOK = f"{LIBRARY}/cgpu-hook"
_LOOP = "for runtime in "
#: Of a first line that every kernel reads whole; it takes what stands before a space alone.
_LONGEST = 127
#: Name, module, and the first word from which on it takes the short way; None: always.
TOOLS = (("cgpu", "start", "run"), ("cgpu-smi", "smi", None))


def _first_lines(interpreter: str) -> str:
    """Return the lines by which a program starts Python without its environment and ``site``."""
    first = f"#!{interpreter} -IS\n"
    if len(first) > _LONGEST or any(character.isspace() for character in interpreter):
        # To Python the second line is a string. shlex leaves no three quotes in a row.
        quoted = shlex.quote(interpreter)
        first = f"#!/bin/sh\n'''exec' {quoted} -IS \"$0\" \"$@\"\n' '''\n"
    return first


def tool_program(
    interpreter: str, packages: Sequence[str], module: str, word: str | None = None
) -> str:
    """
    Return one of :data:`TOOLS`, which waits for ``site`` where it does without.

    Args:
        interpreter: Python of the virtual environment, by its absolute path.
        packages: directories that hold pycgpu and what it needs.
        module, word: as :data:`TOOLS` has them.
    """
    short = f"sys.path += {list(packages)!r}\n"
    if word is not None:
        whole = "else:\n    import site\n\n    site.main()\n"
        short = f"if sys.argv[1:2] == [{word!r}]:\n    {short}{whole}"
    return (
        f"{_first_lines(interpreter)}import sys\n\n{short}"
        f"from pycgpu.cli.{module} import app\n\nsys.exit(app())\n"
    )


def write_tools(directory: str) -> None:
    """Write :data:`TOOLS` in the place of what pip has made in *directory*."""
    paths = sysconfig.get_paths()
    packages = list(dict.fromkeys((paths["purelib"], paths["platlib"])))
    for name, module, word in TOOLS:
        path = Path(directory) / name
        path.write_text(tool_program(sys.executable, packages, module, word))
        path.chmod(0o755)


def hook_program(interpreter: str, package: str, words: Sequence[str] = ()) -> str:
    """
    Return the hook's program.

    Args:
        interpreter: Python, by its absolute path.
        package: the directory that holds pycgpu.
        words: options before those of the command line.
    """
    # What an interpreter cleans up at its end, the kernel does for a process of this length.
    return (
        f"{_first_lines(interpreter)}"
        "import posix, sys\n"
        f"sys.path.append({package!r})\n"
        "from pycgpu.oci.hook import main\n"
        f"posix._exit(main([*{list(words)!r}, *sys.argv[1:]]))\n"
    )


def runtime_program(
    interpreter: str,
    package: str,
    hook: Sequence[str],
    runtimes: Sequence[str],
    root: str | None = None,
    behind: str = runtime.BEHIND,
    **places: str,
) -> str:
    """
    Return the runtime's program.

    Args:
        interpreter, package: as of :func:`hook_program`.
        hook, runtimes, root, behind, places (dev, proc): as of
            :func:`pycgpu.oci.runtime.main`.
    """
    elsewhere = "".join(f", {name}={path!r}" for name, path in places.items())
    code = (
        f"import sys; sys.path.append({package!r}); from pycgpu.oci.runtime import main;"
        f" sys.exit(main(sys.argv[2:], own=sys.argv[1], hook={tuple(hook)!r},"
        f" runtimes={tuple(runtimes)!r}, root={root!r}, behind={behind!r}{elsewhere}))"
    )
    paths = " ".join(shlex.quote(path) for path in runtime.candidates(tuple(runtimes)))
    return f"""\
#!/bin/sh
prepared() {{
	exec {shlex.quote(interpreter)} -ISc {shlex.quote(code)} "$0" "$@"
}}
# Whatever could be a bundle's command goes to Python, which reads the line as runc does.
for word do
	case $word in
	{" | ".join(runtime.STARTS)}) prepared "$@" ;;
	esac
done
# In the place of runc behind the toolkit: not to that again.
case $0 in {shlex.quote(behind)}/*) prepared "$@" ;; esac
{_LOOP}{paths}; do
	if [ -x "$runtime" ] && ! [ "$runtime" -ef "$0" ]; then
		exec "$runtime" "$@"
	fi
done
prepared "$@"
"""


def behind(text: str) -> list[str]:
    """Return what a runtime's program starts, the first that exists."""
    lines = (line for line in text.splitlines() if line.startswith(_LOOP))
    return shlex.split(next(lines, _LOOP).removeprefix(_LOOP).removesuffix("; do"))


def is_ours(path: str) -> bool:
    """Tell whether a program is one of ours, also of an earlier registration."""
    return path.startswith(f"/{LIBRARY}/") and path.endswith(f"/{_NAME}")


def runtime_of(engine: str) -> str:
    """
    Return the program of an engine that names what its containers are started with.

    What stands behind is part of the program, and two engines may name two.
    """
    return f"{LIBRARY}/{engine}/{_NAME}"
