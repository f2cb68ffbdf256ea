"""Names and prose of the repository use the words of `docs/glossary.md`, and none that it forbids."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.language.forbidden import WORDS, Finding, duplicate_names, findings_of_module, findings_of_text

ROOT = Path(__file__).parents[2]
OTHER_THAN_CODE = ("docker", "docs")
FOLDERS = (*OTHER_THAN_CODE, *sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
OF_THE_GLOSSARY = ("docs/glossary.md", "tests/language/")


@cache
def files() -> list[str]:
    paths = [
        path for folder in FOLDERS for ending in ("py", "md") for path in (ROOT / folder).rglob(f"*.{ending}")
    ]
    names = sorted(str(path.relative_to(ROOT)) for path in (*paths, *ROOT.glob("*.md")))
    return [name for name in names if not name.startswith(OF_THE_GLOSSARY)]


@cache
def findings() -> list[Finding]:
    """All findings but the exceptions."""
    return [
        found
        for name in files()
        for found in findings_of(name)
        if not any(exception(found) for exception in exceptions())
    ]


def findings_of(name: str) -> list[Finding]:
    text = (ROOT / name).read_text("utf-8")
    return findings_of_module(name, text) if name.endswith(".py") else findings_of_text(name, text)


class Allowed:
    """A line of `exceptions.txt`: path | word | text that the finding has | reason."""

    def __init__(self, line: str) -> None:
        self.path, self.word, self.text, self.reason = (part.strip() for part in line.split("|"))
        self.is_used = False

    def __call__(self, found: Finding) -> bool:
        matches = found.path == self.path and found.word == self.word and self.text in found.text
        self.is_used |= matches
        return matches


def lines_of(name: str) -> list[str]:
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@cache
def exceptions() -> list[Allowed]:
    return [Allowed(line) for line in lines_of("exceptions.txt")]


@cache
def limits() -> dict[str, int]:
    return {room: int(count) for room, count in (line.split() for line in lines_of("ratchet.txt"))}


def room_of(path: str) -> str:
    """The longest line of `ratchet.txt` that the path is in, else the path's first folder."""
    return max(
        (room for room in limits() if path == room or path.startswith(f"{room}/")),
        key=len,
        default=path.split("/", maxsplit=1)[0],
    )


def count_by_room(paths: list[str]) -> dict[str, int]:
    counts = dict.fromkeys(limits(), 0)
    for path in paths:
        counts[room_of(path)] = counts.get(room_of(path), 0) + 1
    return counts


def test_no_room_has_more_forbidden_words_than_the_ratchet_lets_it() -> None:
    for room, count in count_by_room([found.path for found in findings()]).items():
        found = [str(found) for found in findings() if room_of(found.path) == room]
        assert count <= limits().get(room, 0), "\n".join(
            [f"{room}: {count} findings; see docs/glossary.md", *found]
        )


def test_no_two_modules_have_one_file_name_but_those_the_ratchet_lets_pass() -> None:
    modules = [path for path in files() if path.endswith(".py")]
    allowed = {line.split("|")[0].strip() for line in lines_of("duplicates.txt")}
    found = {name: paths for name, paths in duplicate_names(modules).items() if name not in allowed}
    assert not found


def test_every_exception_is_needed_and_has_its_reason() -> None:
    findings()
    assert [
        exception.text for exception in exceptions() if not exception.is_used or not exception.reason
    ] == []


def test_the_glossary_names_every_forbidden_word_with_what_to_write() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8")
    assert [word.name for word in WORDS if f"| {word.name} |" not in glossary] == []
    assert [word.name for word in WORDS if f"| {word.write} |" not in glossary] == []


PLANTED = {
    "def held_rows(): pass": "held",
    "class HeldChunk: pass": "held",
    "def f(border): pass": "border",
    "self.anew = 1": "anew",
    "def take(self): pass": "take",
    "def _take_off(self): pass": "take",
    "async def take_up(self): pass": "take",
    "with a as log_place: pass": "place",
    "class TableBeats: pass": "beats",
    "import queue as cuts": "cut",
    'log.info("reader.met", position=1)': "met",
    'log.info("reader.seen", told=1)': "told",
    '"""The server tells its version."""': "told",
    "def f():\n    '''Begin anew.'''": "anew",
    "x = 1  # whoever asks": "whoever",
    'raise ValueError("the registry is away, wait for it")': "away",
    'raise ValueError(f"{x} stands in the log")': "stands",
    '"""A lock that is not to be had."""': "not to be had",
    '"""Says in words why."""': "in words",
    '"""The log goes on there."""': "go on",
    '"""It is read on from there."""': "read on",
    '"""It is tried again."""': "try again",
    '"""After the next cut is durable."""': "cut",
    '"""A place in the log."""': "place",
    '"""The file lies in the cache."""': "lies",
    '"""A row after the low of a window."""': "low, high",
    '"""As the contract says."""': "as the contract says",
    '"""It was refused for a reason."""': "for a reason",
    '"""Sent by the way of Kafka."""': "by the way of",
    '"""Its last sign of life."""': "sign of life",
    '"""The column holds text."""': "holds",
    "def find_beginning(): pass": "beginning",
}


@pytest.mark.parametrize("source", PLANTED)
def test_a_planted_word_is_found(source: str) -> None:
    assert [found.word for found in findings_of_module("a/module.py", source)] == [PLANTED[source]]


def test_every_word_is_planted_once_at_least() -> None:
    assert set(PLANTED.values()) == {word.name for word in WORDS}


CLEAN = (
    "def method(placeholder, metadata=None): pass",
    "def taken(self): pass",
    "heartbeats = has_heartbeat = withheld = displaced = 1",
    '"""Return what takes place on the server; `border` is code."""',
    "x = '''SELECT told FROM whoever WHERE held'''",
    'query("SELECT a FROM b WHERE met")',
    "x = 'held'",
    "# run tidemark repair --anew, then verify",
    '"""The flag stands for a standby; it goes on the wire; the connection is cut off."""',
    '"""Call `tell` with `border`."""',
)


@pytest.mark.parametrize("source", CLEAN)
def test_what_is_no_forbidden_word_is_not_found(source: str) -> None:
    assert findings_of_module("a/module.py", source) == []


def test_a_finding_has_the_line_and_the_words_around_it() -> None:
    (found,) = findings_of_module("a/module.py", '"""One.\n\nThe border\nof a transaction.\n"""')
    assert (found.line, found.text) == (3, "One. The border of a transaction.")
    (found,) = findings_of_text("a.md", "# One\n\nThe `border` is a border.")
    assert (found.line, found.text) == (3, "The `......` is a border.")


def test_the_names_of_modules_and_folders_are_checked() -> None:
    assert [found.word for found in findings_of_module("producer/held.py", "")] == ["held"]


def test_two_modules_with_one_file_name_are_found_but_not_those_of_protocols() -> None:
    paths = ["a/rows.py", "b/rows.py", "a/__init__.py", "b/__init__.py", "conftest.py", "a/conftest.py"]
    assert duplicate_names(paths) == {"rows.py": ["a/rows.py", "b/rows.py"]}


def test_the_longest_room_counts_a_path() -> None:
    assert room_of("nowhere/x.py") == "nowhere"
    assert re.fullmatch("producer(/stream)?", room_of("producer/stream/x.py"))
