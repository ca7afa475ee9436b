# SPDX-License-Identifier: MIT
"""
The texts of the programs that engines start, and of those that users wait for. They load as little
of Python as possible.

-I and -S leave out site-packages and the user's environment. That saves 3 ms a start, and a
tenant's environment does not reach a process of root. The hook uses ``posix`` instead of ``os``,
because it has the same functions without the 1 ms that importing ``os`` takes. The runtime begins
as a shell script: ``start``, ``state``, ``kill`` and ``delete`` need no code of ours, and a shell
starts in a tenth of the time.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from ..oci import runtime

#: The directory of the programs and their files.
LIBRARY = "usr/lib/cgpu"
_NAME = "cgpu-container-runtime"
RUNTIME = f"{LIBRARY}/{_NAME}"
HOOK = f"{LIBRARY}/cgpu-hook"
_LOOP = "for runtime in "
#: The length of a ``#!`` line that every kernel reads whole. A space would end its path.
_LONGEST = 127
#: Name, module, and the first word that makes a tool take the fast path; None: always.
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
    Return the program of one of :data:`TOOLS`, which loads ``site`` only if it needs it.

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
    """Replace the scripts that pip has made in *directory* by :data:`TOOLS`."""
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
    # _exit skips the interpreter's clean-up: the kernel cleans up after so short a process.
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
    """Return the programs of which a runtime's program starts the first that exists."""
    lines = (line for line in text.splitlines() if line.startswith(_LOOP))
    return shlex.split(next(lines, _LOOP).removeprefix(_LOOP).removesuffix("; do"))


def is_ours(path: str) -> bool:
    """Tell whether a program is one of ours, also of an earlier registration."""
    return path.startswith(f"/{LIBRARY}/") and path.endswith(f"/{_NAME}")


def runtime_of(engine: str) -> str:
    """
    Return the path of the runtime for an engine that names the programs behind it.

    Each such engine has a file of its own, because the programs behind it are part of its text.
    """
    return f"{LIBRARY}/{engine}/{_NAME}"
