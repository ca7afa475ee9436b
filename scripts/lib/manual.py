# SPDX-License-Identifier: MIT
"""
The commands as their own parsers know them, as manual pages and as a page of the site.

``python scripts/lib/manual.py docs/man`` writes cgpu.1 and cgpu-smi.1.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import typer

from pycgpu import __version__
from pycgpu.cli import smi_command
from pycgpu.cli.main import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]


class Word(NamedTuple):
    """An option or argument: ``shown`` with its value, as it is typed."""

    shown: str
    help: str
    optional: bool
    option: bool


class Command(NamedTuple):
    name: str
    summary: str
    words: tuple[Word, ...]

    @property
    def synopsis(self) -> str:
        """The arguments, after the options."""
        named = [f"[{w.shown}]" if w.optional else w.shown for w in self.words if not w.option]
        return " ".join([self.name, "[OPTION…]", *named])


def every() -> list[Command]:
    """Return ``cgpu-smi`` and all commands of ``cgpu``, by name."""
    ours = [
        _read(f"cgpu {name}", import_module(module).app)
        for name, (module, _) in sorted(COMMANDS.items())
    ]
    return [_read("cgpu-smi", smi_command.app), *ours]


def _read(name: str, app: typer.Typer) -> Command:
    parsed: Any = typer.main.get_command(app)
    summary = (parsed.help or "").strip()
    words = [_word(one) for one in parsed.params if not getattr(one, "hidden", False)]
    return Command(name, summary, tuple(one for one in words if "--help" not in one.shown))


def _word(one: Any) -> Word:
    help = (one.help or "").strip()
    if one.param_type_name == "argument":
        metavar = (one.metavar or one.name.upper()).strip("[]")
        # A dash before it would be the program's own.
        return Word(metavar + "…" * (one.nargs == -1), help, not one.required, False)
    names = ", ".join(sorted(one.opts, key=len) + one.secondary_opts)
    if one.is_flag:
        return Word(names, help, True, True)
    return Word(f"{names} {one.metavar or one.name.upper()}", help, True, True)


# ---- troff


def _troff(text: str) -> str:
    """Escape what troff takes for itself."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _inline(text: str) -> str:
    """Turn a line of Markdown into troff."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    pieces = re.split(r"(`[^`]+`|\*\*[^*]+\*\*)", text)
    return "".join(
        f"\\fB{_troff(piece.strip('`*'))}\\fR"
        if piece[:1] in "`*" and len(piece) > 2
        else _troff(piece)
        for piece in pieces
    )


def _prose(markdown: str, without: str) -> list[str]:
    """
    Turn paragraphs and tables into troff.

    Args:
        without: the title of the first column of tables that are left out, as are samples.
    """
    lines: list[str] = []
    for block in re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S).split("\n\n"):
        block = block.strip("\n")
        if not block:
            continue
        if not block.startswith("|"):
            lines += [".PP", _inline(block.replace("\n", " "))]
            continue
        rows = [re.split(r"(?<!\\)\|", row.strip("|")) for row in block.split("\n")]
        if rows[0][0].strip() == without:
            continue
        for first, *rest in rows[2:]:
            told = "; ".join(cell.strip() for cell in rest if cell.strip())
            lines += [".TP", _inline(first.strip()), _inline(told.replace("\\|", "|"))]
    return lines


def _section(page: str, heading: str) -> str:
    text = (REPOSITORY / "docs" / page).read_text()
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"docs/{page} has no heading {heading}"
    return found[1]


def _words(command: Command) -> list[str]:
    lines = []
    for word in command.words:
        lines += [".TP", f"\\fB{_troff(word.shown)}\\fR", _troff(word.help)]
    return lines


def _head(name: str, summary: str) -> list[str]:
    return [
        '.\\" SPDX-License-Identifier: MIT',
        '.\\" Made by scripts/dev make-docs of the commands and docs/smi.md.',
        f'.TH {name.upper()} 1 "" "cgpu {__version__}" "User Commands"',
        ".SH NAME",
        f"{_troff(name)} \\- {_troff(summary)}",
        ".SH SYNOPSIS",
    ]


_TAIL = [
    ".SH EXIT STATUS",
    "0; 1 for what could not be done, with one line on standard error; 2 for a wrong option.",
    ".B cgpu run",
    "ends with the program's status, or with 125, 126 or 127 as other launchers do.",
    ".SH FILES",
    *(".TP", ".I /proc/cgpu_km", "the module's tree"),
    *(".TP", ".I /run/cgpu_km\\fR, \\fI/run/cgpu/tree.sock", "the agent's"),
    *(".TP", ".I /etc/cgpu/policy.toml\\fR, \\fI/etc/cgpu/cards.toml", "what the operator allows"),
]


def smi_page(command: Command) -> str:
    """Return cgpu-smi(1)."""
    return "\n".join(
        [
            *_head("cgpu-smi", "show GPUs, the containers that share them, and their processes"),
            f".B {_troff(command.synopsis)}",
            ".SH DESCRIPTION",
            _troff(command.summary),
            *_prose(_section("smi.md", "cgpu-smi"), "option"),
            ".SH OPTIONS",
            *_words(command),
            *_TAIL,
            ".SH SEE ALSO",
            ".BR cgpu (1),",
            ".BR nvidia\\-smi (1)",
            "",
        ]
    )


def cgpu_page(commands: list[Command]) -> str:
    """Return cgpu(1)."""
    lines = [
        *_head("cgpu", "share NVIDIA GPUs between containers"),
        ".B cgpu COMMAND [OPTION…]",
        ".SH DESCRIPTION",
        "Containers, limits, cards, and what belongs to them: one program, a command a task.",
        *_prose(_section("smi.md", "cgpu"), "command"),
        ".SH COMMANDS",
    ]
    for command in commands:
        lines += [f".SS {_troff(command.synopsis)}", _troff(command.summary.replace("\n", " "))]
        lines += _words(command)
    return "\n".join([*lines, *_TAIL, ".SH SEE ALSO", ".BR cgpu\\-smi (1)", ""])


# ---- Markdown


def markdown() -> str:
    """Return the site's page of commands and options."""
    lines = ["# Commands and options", ""]
    for command in every():
        lines += [f"## {command.name}", "", f"`{command.synopsis}`", "", command.summary, ""]
        if command.words:
            lines += ["| | |", "|---|---|"]
        for word in command.words:
            shown, told = (text.replace("|", "\\|") for text in (word.shown, word.help))
            lines.append(f"| `{shown}` | {told} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the manual pages into the directory that is named."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    smi, *ours = every()
    (directory / "cgpu-smi.1").write_text(smi_page(smi))
    (directory / "cgpu.1").write_text(cgpu_page(ours))


if __name__ == "__main__":
    main()
