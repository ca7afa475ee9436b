# SPDX-License-Identifier: MIT
"""What scripts/make-release says of where its files come from."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = REPOSITORY / "scripts/lib/provenance.py"
COMMIT = "1" * 40


def test_each_file_the_commit_and_the_pinned_packages_are_named(tmp_path: Path) -> None:
    files = tmp_path / "dist"
    files.mkdir()
    for name in ("b.tgz", "a.deb"):
        (files / name).write_text(name)
    requirements = tmp_path / "requirements"
    requirements.write_text("# SPDX\nPygments==2.21.0\ncffi==2.1.1\n")
    command = [sys.executable, str(PROGRAM), str(files), COMMIT, str(requirements)]
    told = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert told[0].stdout == told[1].stdout
    made = json.loads(told[0].stdout)
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert made["subject"] == [
        {"name": name, "digest": {"sha256": hashlib.sha256(name.encode()).hexdigest()}}
        for name in ("a.deb", "b.tgz")
    ]
    source, *packages = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": COMMIT}
    assert packages == [{"uri": "pkg:pypi/cffi@2.1.1"}, {"uri": "pkg:pypi/pygments@2.21.0"}]
