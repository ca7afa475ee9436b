# SPDX-License-Identifier: MIT
"""What the Markdown names exists: files, scripts, commands, the rooms of the tree."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from pycgpu.cli.main import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
ROOMS = ("kmod", "pycgpu", "cli", "tests", "scripts", "docs", ".ci", "LICENSES")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def tracked() -> frozenset[str]:
    """Every file of the tree, and every folder above one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    # An archive has no history, but nothing else either.
    names = (
        listed.stdout.split("\0")
        if not listed.returncode
        else [str(path.relative_to(REPOSITORY)) for path in REPOSITORY.rglob("*")]
    )
    there = {Path(name) for name in names if name and (REPOSITORY / name).exists()}
    return frozenset(str(one) for path in there for one in (path, *path.parents))


PAGES = sorted(
    name
    for name in tracked()
    if name.endswith(".md") and not name.startswith(("LICENSES/", "tests/gpu/results/"))
)


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub and GitLab make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_to_a_file_and_to_a_heading(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    dead = []
    for link in LINK.findall(BLOCK.sub("", text)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (REPOSITORY / page).parent / name if name else REPOSITORY / page
        if not target.exists():
            dead.append(link)
        elif anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", target.read_text()), re.MULTILINE)
            if anchor not in map(slug, headings):
                dead.append(link)
    assert dead == []


def paths_in(text: str) -> set[str]:
    """The words of code that are a path from the top of the tree."""
    words = {word.rstrip(".,:;)") for code in CODE.findall(text) for word in code.split()}
    words |= set(re.findall(r"(?:^|\s)(scripts/[\w./-]+)", text))
    return {
        word.split(":")[0].rstrip("/")
        for word in words
        if word.split("/")[0] in ROOMS and "/" in word and not re.search(r"[<>*{$…]", word)
    }


@pytest.mark.parametrize("page", PAGES)
def test_a_path_that_a_page_names_is_in_the_tree(page: str) -> None:
    named = paths_in((REPOSITORY / page).read_text())
    # A commit's subject begins with the folder that it is about.
    assert {name for name in named if name not in tracked() and name != "kmod/ledger"} == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_command_that_a_page_names_is_one(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    code = "\n".join([*CODE.findall(text), *BLOCK.findall(text)])
    named = set(re.findall(r"(?:^|sudo |[`;&|] )cgpu ([a-z][a-z-]*)", code, re.MULTILINE))
    assert named - set(COMMANDS) == set()


def test_the_readme_shows_every_room_of_the_tree_and_no_other() -> None:
    text = (REPOSITORY / "README.md").read_text()
    drawn = re.search(r"## The tree\n+```\n(.*?)```", text, re.DOTALL)
    assert drawn
    shown, top = set(), ""
    for indent, name in re.findall(r"^( *)([\w.-]+)/ ", drawn[1], re.MULTILINE):
        depth = len(indent) // 2
        top = "/".join([*top.split("/")[:depth], name]) if depth else name
        shown.add(top)
    folders = {name for name in tracked() if (REPOSITORY / name).is_dir() and name != "."}
    hidden = {name for name in folders if name.startswith(".") or name == "LICENSES"}
    wanted = {name for name in folders - hidden if "/" not in name}
    wanted |= {name for name in folders if re.fullmatch(r"kmod/[^/]+|kmod/core/[^/]+", name)}
    wanted |= {name for name in folders if re.fullmatch(r"pycgpu/[^/]+", name)}
    assert shown == wanted


def test_every_text_that_troubleshooting_explains_is_one_that_is_printed() -> None:
    sources = [
        REPOSITORY / name
        for name in tracked()
        if name.startswith(("pycgpu/", "cli/", "kmod/")) and name.endswith((".py", ".c", ".h"))
    ]
    text = "\n".join(path.read_text() for path in sources if path.is_file())
    # Long messages are written in pieces.
    text = re.sub(r'"\s*f?"', "", text)
    rows = re.findall(r"^\| `([^`]+)`", (REPOSITORY / "docs/troubleshooting.md").read_text(), re.M)
    assert len(rows) > 20
    # The programs' own, not ours.
    foreign = {"CUDA_ERROR_OUT_OF_MEMORY", "NV_ERR_NOT_SUPPORTED"}
    for row in set(rows) - foreign:
        pieces = [piece.strip(" ,:;(") for piece in row.split("…")]
        assert any(len(piece) >= 6 for piece in pieces), row
        for piece in pieces:
            assert piece in text, row
