# SPDX-License-Identifier: MIT
"""What the Markdown names exists: files, scripts, commands, the rooms of the tree."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer

from pycgpu.cli import smi_command
from pycgpu.cli.main import COMMANDS
from pycgpu.cli.smi import with_interval

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


def shown(command: str) -> list[str]:
    """The words of a command as a page shows it, up to where it is left open or ends."""
    # Behind two spaces a page explains; brackets and … stand for what may follow.
    typed = re.split(r"  +|…|\.\.\.| [|;&<>] ?|; |\[|\(|#", command)[0]
    with contextlib.suppress(ValueError):
        return shlex.split(typed)
    return []


def faults(words: list[str]) -> str | None:
    """What the program's own parser says of options and arguments that there are not."""
    name, *rest = words
    if name == "cgpu":
        if not rest or rest[0] not in COMMANDS:
            return None
        module, *rest = COMMANDS[rest[0]][0], *rest[1:]
        app = import_module(module).app
    else:
        app = smi_command.app
        rest = with_interval(rest)
    try:
        typer.main.get_command(app).make_context(name, rest)
    except (SystemExit, typer.Exit):
        return None
    except Exception as error:
        # A page may leave a value or an argument to the reader, but invents none.
        said = str(getattr(error, "message", error))
        wrong = ("No such option", "unexpected extra argument", "does not take a value")
        return said if any(words in said for words in wrong) else None
    return None


@pytest.mark.parametrize("page", [*PAGES, "docs/man"])
def test_a_command_line_that_a_page_shows_is_one_that_the_program_takes(page: str) -> None:
    if page == "docs/man":
        # The test of the test: what no page may show.
        for line in (
            "cgpu ps --all",
            "cgpu policy 0 weak 3",
            "cgpu-smi -x",
            "cgpu set a --size 3",
        ):
            assert faults(shown(line)) is not None, line
        return
    text = (REPOSITORY / page).read_text()
    lines = [
        line.removeprefix("$ ").removeprefix("# ").strip()
        for block in BLOCK.findall(text)
        for line in block.splitlines()
    ]
    lines += CODE.findall(BLOCK.sub("", text))
    wrong = {}
    for line in lines:
        typed = re.sub(r"^(sudo |/opt/cgpu/bin/)+", "", line)
        if re.match(r"(cgpu|cgpu-smi) (?!\d)", typed):
            words = shown(typed)
            said = faults(words) if words else None
            if said:
                wrong[line] = said
    assert wrong == {}


def script(name: str, *arguments: object) -> None:
    command = [sys.executable, str(REPOSITORY / "scripts/lib" / name), *map(str, arguments)]
    subprocess.run(command, check=True, cwd=REPOSITORY)


def test_the_manual_pages_are_those_of_the_commands(tmp_path: Path) -> None:
    script("manual.py", tmp_path)
    for page in ("cgpu.1", "cgpu-smi.1"):
        kept = (REPOSITORY / "docs/man" / page).read_text()
        assert kept == (tmp_path / page).read_text(), "run scripts/dev make-docs --man"
        # Troff would take a line that begins so for a request, and drop it.
        known = {"TH", "SH", "SS", "PP", "TP", "B", "I", "BR", '\\"'}
        requests = {line[1:].split(" ")[0] for line in kept.splitlines() if line[:1] in (".", "'")}
        assert requests <= known
    smi = (tmp_path / "cgpu-smi.1").read_text()
    for option in ("\\-\\-query\\-gpu", "\\-q\\fR", "\\-\\-compact"):
        assert option in smi


def test_a_page_of_the_site_links_to_what_the_site_has(tmp_path: Path) -> None:
    script("site.py", tmp_path / "site")
    pages = {path.name: path.read_text() for path in (tmp_path / "site").glob("*.md")}
    nav = re.findall(r": ([\w-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == sorted(pages), "mkdocs.yml names every page once"
    for name, text in pages.items():
        for link in LINK.findall(BLOCK.sub("", text)):
            if "://" not in link and not link.startswith("#"):
                assert (tmp_path / "site" / link.partition("#")[0]).is_file(), (name, link)


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
    foreign = {
        "CUDA_ERROR_OUT_OF_MEMORY",
        "NV_ERR_NOT_SUPPORTED",
        "Failed to initialize NVML: Insufficient Permissions",
        "Operation not permitted",
    }
    for row in set(rows) - foreign:
        pieces = [piece.strip(" ,:;(") for piece in row.split("…")]
        assert any(len(piece) >= 6 for piece in pieces), row
        for piece in pieces:
            assert piece in text, row
