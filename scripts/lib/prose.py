# SPDX-License-Identifier: MIT
"""
Hold pages, manual pages and messages to the length of a sentence and to a vocabulary.

``python scripts/lib/prose.py`` prints the faults of each page that has more than ``prose.toml``
allows, and lowers the allowance of a page that has fewer: it may only fall. With names of pages
it prints all faults of these.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = Path(__file__).with_name("prose.toml")
#: what is held to them as one: the messages of a folder's sources
MESSAGES = ("pycgpu", "cli", "kmod", "scripts", ".ci")
#: calls whose texts a user reads
TELLS = {"Finding", "print", "say", "error", "warning", "info", "line", "fail", "echo"}


class Text(NamedTuple):
    """A paragraph, list item, cell or message."""

    line: int
    words: str
    is_heading: bool = False


class Rules:
    """What ``prose.toml`` says."""

    def __init__(self, path: Path = RULES) -> None:
        found = tomllib.loads(path.read_text())
        self.most_words: int = found["most_words"]
        self.allowed: dict[str, int] = found["allowed"]
        self.starts = re.compile(rf"(?:{'|'.join(found['starts'])})\b")
        self.words = [
            (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), remedy)
            for pattern, remedy in found["words"].items()
        ]
        self.names = [
            (re.compile(rf"(?<![\w/.\[-]){word}(?![\w/.-])"), right)
            for word, right in found["names"].items()
        ]

    def faults(self, text: Text) -> Iterator[str]:
        """Return what is against the rules in a text."""
        for sentence in sentences(text.words):
            count = len(sentence.split())
            shown = sentence if count < 12 else " ".join(sentence.split()[:10]) + " …"
            if count > self.most_words:
                yield f"{count} words, at most {self.most_words}: {shown}"
            may_start_so = text.is_heading or sentence.endswith("?")
            if not may_start_so and (start := self.starts.match(sentence)):
                yield f"name the subject instead of {start[0]!r}: {shown}"
            for pattern, remedy in self.words:
                if found := pattern.search(sentence):
                    yield f"{found[0]!r}: {remedy}: {shown}"
            for pattern, right in self.names:
                if found := pattern.search(sentence):
                    yield f"{found[0]!r} is written {right}: {shown}"


def plain(text: str) -> str:
    """A line without its marks: code is one word, a link is its text."""
    text = re.sub(r"``.+?``|`[^`]+`", "`code`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<!--.*?-->|https?://\S+", "", text)
    return re.sub(r"\*\*|(?<!\w)\*|\*(?!\w)", "", text).strip()


def sentences(text: str) -> list[str]:
    """Split where a sentence ends: at a full stop, and at what ends like one."""
    # What an abbreviation's point would end goes on.
    text = re.sub(r"\b(e\.g|i\.e|etc|vs|No)\.", r"\1", text)
    return [one for one in re.split(r"(?<=[.!?])[)\"”]*\s+(?=[\"“(A-Z0-9`*])", text) if one.strip()]


def markdown(page: str) -> Iterator[Text]:
    """The texts of a page, without its code."""
    paragraph: list[str] = []
    start, is_code = 0, False
    for number, line in enumerate([*page.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+(.*)", line)
        ends = (
            is_code or not line.strip() or item or line.lstrip().startswith(("#", "|", "```", "<"))
        )
        if ends and paragraph:
            yield Text(start, plain(" ".join(paragraph)))
            paragraph = []
        if is_code or line.lstrip().startswith("```") or (line.startswith("    ") and not item):
            continue
        if heading := re.match(r"#+ (.*)", line):
            yield Text(number, plain(heading[1]), True)
        elif line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield Text(number, plain(cell))
        elif item:
            paragraph, start = [item[1]], number
        elif not ends:
            start = start if paragraph else number
            paragraph.append(line.strip())


def manual(page: str) -> Iterator[Text]:
    """The texts of a manual page."""
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("."):
            bare = re.sub(r"\\fB(.+?)\\fR", r"`\1`", line)
            bare = re.sub(r"\\f[BIR]|\\&", "", bare).replace("\\-", "-").replace("\\e", "\\")
            yield Text(number, plain(bare))


def messages_of_python(source: str) -> Iterator[Text]:
    """What a file's exceptions, findings and lines for a user say."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            told = node.exc.args[:1]
        elif isinstance(node, ast.Call) and _name(node.func) in TELLS:
            told = node.args
        else:
            continue
        for value in told:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield Text(value.lineno, plain(value.value))
            elif isinstance(value, ast.JoinedStr):
                pieces = (
                    str(one.value) if isinstance(one, ast.Constant) else "X" for one in value.values
                )
                yield Text(value.lineno, plain("".join(pieces)))


def _name(function: ast.expr) -> str:
    """What a call names: the last part of it."""
    return getattr(function, "attr", None) or getattr(function, "id", "")


def messages_of_c(source: str) -> Iterator[Text]:
    """What a file writes to the kernel's log."""
    for found in re.finditer(r'\bpr_(?:err|warn|notice|info)\w*\(((?:\s*"[^"]*")+)', source):
        line = source.count("\n", 0, found.start()) + 1
        yield Text(line, "".join(re.findall(r'"([^"]*)"', found[1])).replace("\\n", ""))


def messages_of_shell(source: str) -> Iterator[Text]:
    """What a script tells whoever started it."""
    for found in re.finditer(r'\b(?:say|die) "([^"]*)"', source):
        shown = re.sub(r"\$\([^)]*\)|\$\{[^}]*\}|\$\w+", "X", found[1].replace("\\\n", " "))
        yield Text(source.count("\n", 0, found.start()) + 1, plain(" ".join(shown.split())))


#: by the end of a file's name; a script's has none
READERS = {
    ".py": messages_of_python,
    ".c": messages_of_c,
    ".sh": messages_of_shell,
    "": messages_of_shell,
}


def pages() -> dict[str, list[tuple[str, Text]]]:
    """What is held to the rules, a page or a folder's messages: each text with its file."""
    found: dict[str, list[tuple[str, Text]]] = {}
    for path in [*sorted(REPOSITORY.glob("*.md")), *sorted(REPOSITORY.glob("docs/*.md"))]:
        name = str(path.relative_to(REPOSITORY))
        found[name] = [(name, text) for text in markdown(path.read_text())]
    for path in sorted(REPOSITORY.glob("docs/man/*.1")):
        name = str(path.relative_to(REPOSITORY))
        found[name] = [(name, text) for text in manual(path.read_text())]
    for folder in MESSAGES:
        texts = found.setdefault(f"{folder}/ (messages)", [])
        for path in sorted((REPOSITORY / folder).rglob("*")):
            read = READERS.get(path.suffix)
            if read and path.is_file() and not {"sim", "lib"} & set(path.parts):
                name = str(path.relative_to(REPOSITORY))
                texts += [(name, text) for text in read(path.read_text())]
    return found


def lower(path: Path, page: str, count: int) -> None:
    """Lower what a page is allowed; a page that has no fault goes."""
    line = f'"{page}" = {count}\n' if count else ""
    path.write_text(re.sub(rf'^"{re.escape(page)}" = \d+\n', line, path.read_text(), flags=re.M))
    print(f"{page}: {count} faults, and no more from now on: commit {path.name}")


def main(named: list[str]) -> int:
    """Print the faults; return 1 where there are more than are allowed."""
    rules = Rules()
    is_wrong = False
    found = pages()
    for page, texts in {**{gone: [] for gone in rules.allowed}, **found}.items():
        faults = [f"{file}:{one.line}: {said}" for file, one in texts for said in rules.faults(one)]
        allowed = rules.allowed.get(page, 0)
        if named:
            print("".join(f"{one}\n" for one in faults if page in named), end="")
        elif len(faults) > allowed:
            is_wrong = True
            print(*faults, sep="\n")
            print(f"{page}: {len(faults)} faults, {allowed} allowed by scripts/lib/{RULES.name}")
        elif len(faults) < allowed:
            lower(RULES, page, len(faults))
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
