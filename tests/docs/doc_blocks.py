"""The pages of the documentation, as blocks: what a reader may paste, and how a test is to run it.

A block is fenced, or indented by four spaces after an empty line (by eight in a list). Its language is that of the fence, or is seen by its first word.
A comment before it changes what is done: `<!-- docs: shown: a diagram -->` (not run, for this reason), `<!-- docs: exit=1 stop=merge -->`
(run with options). In front of the page's first heading it holds for the page: `<!-- docs: page test=tests/x.py -->` (that test
runs every block), `<!-- docs: page inline -->` (commands inside sentences are run, too). `<!-- docs: output -->` is before text that the
last command prints: its lines are compared. A block that is neither run nor explained is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md"))]
EXECUTED: Final = frozenset({"shell", "sql", "yaml", "python", "json", "promql"})
OPTIONS: Final = frozenset({"exit", "stop", "file", "on", "setup", "engine", "test", "wait", "output"})
_FENCE: Final = re.compile(r"^( *)```(\w*)$")
_MARK: Final = re.compile(r"^ *<!-- docs: (.*) -->$")
_AT_THE_END: Final = re.compile(r"<!-- docs: (.*) -->$")
_SHELL: Final = re.compile(r"(tidemark|make|pip|curl|docker|python|kill|export|mkdocs|\.venv/bin/python|[A-Z_]+=\S+) ")
_SQL: Final = re.compile(r"(SET|CREATE|GRANT|SELECT|INSERT|UPDATE|DELETE|ALTER|SHOW|CALL|REVOKE) ")
_INLINE: Final = re.compile(r"`((?:tidemark [a-z]|curl |SET GLOBAL )[^`]*)`")
_LANGUAGES: Final[Mapping[str, str]] = {"bash": "shell", "sh": "shell", "yml": "yaml"}


class UnmarkedBlockError(AssertionError):
    """A block of a page of which nobody knows what to do with it."""


@dataclass(frozen=True)
class Block:
    """One block: where it begins, its language ("" if unknown), its text, and what its comment says.

    `shown` is the reason why it is not run; `options` are those of the comment.
    """

    page: str
    line: int
    language: str
    text: str
    shown: str
    options: Mapping[str, str]

    @property
    def where(self) -> str:
        """Page and line, as an editor opens them."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One page: its path from the root, the options that hold for all of it, and its blocks."""

    name: str
    options: Mapping[str, str]
    blocks: tuple[Block, ...]


def page_of(path: Path, root: Path = ROOT) -> Page:
    """Return a page. Raises UnmarkedBlockError for a block that is neither run nor explained, or an unknown option."""
    lines = path.read_text("utf-8").splitlines()
    name = str(path.relative_to(root))
    options = _page_options(name, lines)
    blocks = list(_blocks(name, lines))
    if "inline" in options:
        blocks = sorted([*blocks, *_inline(name, lines)], key=lambda block: block.line)
    if "test" not in options:
        for block in blocks:
            if not block.shown and block.language not in EXECUTED and "output" not in block.options:
                raise UnmarkedBlockError(f"{block.where}: language {block.language!r} is not run; say why: <!-- docs: shown: ... -->")
    return Page(name, options, tuple(blocks))


def _page_options(name: str, lines: list[str]) -> dict[str, str]:
    found = [mark[1] for line in lines if (mark := _MARK.match(line)) and mark[1].startswith("page ")]
    return _options(name, found[0].removeprefix("page ")) if found else {}


def _options(where: str, text: str) -> dict[str, str]:
    options = {key: value for key, _, value in (part.partition("=") for part in text.split())}
    unknown = options.keys() - OPTIONS - {"inline"}
    if unknown:
        raise UnmarkedBlockError(f"{where}: <!-- docs: {text} -->: there is no option {sorted(unknown)}")
    return options


def _blocks(name: str, lines: list[str]) -> Iterator[Block]:
    number, mark, blank, in_list = 0, "", True, False
    while number < len(lines):
        line = lines[number]
        fence, begin = _FENCE.match(line), number
        if fence:
            number = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
            indent = len(fence[1])
            text = "\n".join(each[indent:] for each in lines[begin + 1 : number])
            yield _block(name, begin + 1, _LANGUAGES.get(fence[2], fence[2]), text, mark)
            number, mark = number + 1, ""
        elif line.startswith(" " * (8 if in_list else 4)) and blank:
            indent = 8 if in_list else 4
            number = _end_of_indented(lines, number, " " * indent)
            text = "\n".join(each[indent:] for each in lines[begin:number])
            yield _block(name, begin + 1, language_of(text), text, mark)
            mark = ""
        else:
            marked = _MARK.match(line)
            mark = marked[1] if marked else mark
            if line and not line.startswith(" "):
                in_list = bool(re.match(r"(\*|-|\d+\.) ", line))
            number += 1
        blank = not line or _MARK.match(line) is not None


def _end_of_indented(lines: list[str], number: int, indent: str) -> int:
    end = number
    while number < len(lines) and (lines[number].startswith(indent) or not lines[number]):
        number += 1
        end = number if lines[number - 1] else end
    return end


def language_of(text: str) -> str:
    """Return the language of an indented block, by its first word that is no comment; "" if it is none of ours."""
    first = next((line for line in text.splitlines() if line and not line.startswith(("#", "--"))), "")
    if _SHELL.match(first + " "):
        return "shell"
    return "sql" if _SQL.match(first) else ""


def _block(name: str, line: int, language: str, text: str, mark: str) -> Block:
    if mark.startswith("page "):
        mark = ""
    if mark.startswith("shown"):
        reason = mark.removeprefix("shown").lstrip(":").strip()
        if not reason:
            raise UnmarkedBlockError(f"{name}:{line}: shown needs a reason: <!-- docs: shown: a diagram -->")
        return Block(name, line, language, text, reason, {})
    return Block(name, line, language, text, "", _options(f"{name}:{line}", mark))


def _inline(name: str, lines: list[str]) -> Iterator[Block]:
    fenced, seen = False, set[str]()
    for number, line in enumerate(lines, 1):
        fenced ^= line.strip().startswith("```")
        if not fenced and not line.startswith("    "):
            mark = _AT_THE_END.search(line)
            for text in dict.fromkeys(_INLINE.findall(line)).keys() - seen:
                seen.add(text)
                yield _block(name, number, language_of(text), text, mark[1] if mark else "")
