# SPDX-License-Identifier: MIT
"""The check of prose finds what it is for, passes plain sentences, and allows less each time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LONG = "Words " + " ".join(["word"] * 24)


class Tree:
    """A tree with the check and a few pages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "scripts/lib").mkdir(parents=True)
        (path / "docs/man").mkdir(parents=True)
        for folder in ("pycgpu", "cli", "kmod", "scripts", ".ci"):
            (path / folder).mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / "scripts/lib/prose.py", path / "scripts/lib")
        rules = (REPOSITORY / "scripts/lib/prose.toml").read_text()
        self.rules = path / "scripts/lib/prose.toml"
        self.rules.write_text(rules[: rules.index("[allowed]")] + "[allowed]\n")

    def check(self) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(self.path / "scripts/lib/prose.py")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    def page(self, text: str) -> tuple[int, str]:
        (self.path / "README.md").write_text(text)
        return self.check()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "Who wakes has a claim to its share of the last second.",
        "It works. Whose budget is spent is shut until a part of it comes back.",
        "- What is nobody's attack fails the call alone.",
        "| a cell | There is no card. |",
        "One that always works has its part.",
        "It is read as any process's.",
        "It is refused, for it names no card.",
        "A period is 40 ms beside nobody.",
        "The user door answers it.",
        "Pytorch sees 4 GiB.",
        f"{LONG} word.",
        f"A line\nthat goes on {LONG}.",
        f"| cell | {LONG} word |",
    ],
)
def test_a_fault_of_a_page_is_found_and_its_line_named(tree: Tree, text: str) -> None:
    code, said = tree.page(f"# Heading\n\n{text}\n")
    assert code == 1
    assert re.match(r"README\.md:3: ", said), said


@pytest.mark.parametrize(
    "text",
    [
        "A container that wakes may use what is left of its budget for the last second.",
        "What does an error mean?",
        "# What it does",
        f"{LONG}.",
        f"{LONG}. {LONG}.",
        f"- {LONG}\n- {LONG}",
        f"| {LONG} | {LONG} |",
        f"```\nWho wakes {LONG} word\n```",
        f"    Who wakes {LONG} word",
        f"A `call {LONG} word` is one word.",
        f"[{LONG[:40]}](who-wakes.md)",
    ],
)
def test_a_plain_sentence_passes(tree: Tree, text: str) -> None:
    assert tree.page(f"{text}\n") == (0, "")


def test_messages_and_manual_pages_are_held_too(tree: Tree) -> None:
    (tree.path / "docs/man/cgpu.1").write_text(".TH CGPU 1\nWho wakes has a claim.\n")
    (tree.path / "cli/a.py").write_text('x = 1\nraise ValueError(f"{x}: nobody\'s card")\n')
    (tree.path / "cli/b.py").write_text('print(f"{1}: nobody\'s card")\n')
    (tree.path / "scripts/a").write_text('die "$name: nobody\'s card"\n')
    (tree.path / "kmod/a.c").write_text('\n\tpr_err("cgpu: "\n\t       "it is nobody\'s\\n");\n')
    code, said = tree.check()
    assert code == 1
    for place in ("docs/man/cgpu.1:2", "cli/a.py:2", "cli/b.py:1", "scripts/a:1", "kmod/a.c:2"):
        assert f"\n{place}: " in f"\n{said}", said


def test_what_is_allowed_falls_with_the_faults_and_does_not_rise(tree: Tree) -> None:
    two = "Who wakes has a claim.\n\nWho sleeps has none.\n"
    tree.rules.write_text(tree.rules.read_text() + '"README.md" = 2\n')
    assert tree.page(two) == (0, "")
    code, said = tree.page(two + "\nWho knows.\n")
    assert code == 1 and "3 faults, 2 allowed" in said
    assert tree.page("Who wakes has a claim.\n")[0] == 0
    assert '"README.md" = 1\n' in tree.rules.read_text()
    assert tree.page(two)[0] == 1
    assert tree.page("A container wakes.\n")[0] == 0
    assert "README.md" not in tree.rules.read_text()


def test_the_list_of_exceptions_has_no_page_that_is_held_to_all_of_it() -> None:
    rules = (REPOSITORY / "scripts/lib/prose.toml").read_text()
    for page in HELD:
        assert f'"{page}"' not in rules


def test_a_release_says_what_a_user_gets_in_forty_lines() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    releases = re.split(r"^## \[", text, flags=re.MULTILINE)[1:]
    assert releases
    for release in releases:
        assert len(release.strip().splitlines()) <= 40
        kinds = set(re.findall(r"^### (.*)", release, re.MULTILINE))
        known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
        assert kinds and kinds <= known


#: the pages that are read first
HELD = (
    *("README.md", "CHANGELOG.md", "docs/limits.md", "docs/measurements.md"),
    *("docs/threat-model.md", "docs/quickstart.md", "docs/faq.md", "docs/glossary.md"),
    *("docs/policies.md", "docs/agent.md", "docs/install.md", "docs/requests.md"),
    *("docs/tree.md", "docs/batch.md", "docs/smi.md", "docs/usage.md", "docs/upgrade.md"),
    *("docs/kubernetes.md", "docs/troubleshooting.md", "docs/man/cgpu.1", "docs/man/cgpu-smi.1"),
)
