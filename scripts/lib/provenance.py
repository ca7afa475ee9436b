# SPDX-License-Identifier: MIT
"""
Print where a release's files come from: an in-toto statement with SLSA's provenance (v1).

``provenance.py DIRECTORY COMMIT REQUIREMENTS…``, for scripts/make-release. It names each file by
its digest, the commit, the compiler, and the pinned Python packages. It has no time and no name of
the machine, so that the same commit and tools give the same statement.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: What built: whoever publishes signs for where.
BUILDER = "urn:cgpu:scripts/make-release"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pinned(requirements: Sequence[Path]) -> list[str]:
    """Return the packages that files of requirements pin, as package URLs."""
    found = []
    for path in requirements:
        for line in path.read_text().splitlines():
            name, pin, version = line.partition("==")
            if pin and not line.startswith("#"):
                found.append(f"pkg:pypi/{name.strip().lower()}@{version.strip()}")
    return sorted(found)


def statement(
    directory: Path, commit: str, requirements: Sequence[Path], tools: dict[str, str]
) -> dict[str, object]:
    """Return the statement about all files of *directory*."""
    source = {"name": "cgpu", "digest": {"gitCommit": commit}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": path.name, "digest": {"sha256": digest(path)}}
            for path in sorted(directory.iterdir())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILDER,
                "externalParameters": {"commit": commit},
                "internalParameters": tools,
                "resolvedDependencies": [source, *({"uri": one} for one in pinned(requirements))],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def main() -> None:
    """Print the statement about what the command line names."""
    directory, commit, *requirements = sys.argv[1:]
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    tools = {
        "compiler": compiler.stdout.splitlines()[0],
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
    }
    made = statement(Path(directory), commit, [Path(one) for one in requirements], tools)
    print(json.dumps(made, indent=2, sort_keys=True))


if __name__ == "__main__":
    main()
