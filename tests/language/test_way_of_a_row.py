"""docs/way-of-*.md name functions that exist, in order, and count the returns to a room already left."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \| [A-Z][^.]+\. \|$", re.MULTILINE)
COUNTED = re.compile(r"^(\d+) steps in (\d+) files; the way returns to a room already left (\d+) times\.", re.MULTILINE)
WAYS = sorted(path.stem for path in (ROOT / "docs").glob("way-of-*.md"))


def text_of(way: str) -> str:
    return (ROOT / "docs" / f"{way}.md").read_text("utf-8")


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_a_row_of_functions_that_exist(way: str) -> None:
    steps = STEP.findall(text_of(way))

    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    assert len(steps) == text_of(way).count("\n| ") - 1  # all rows of the table but its head
    for _, file, name in steps:
        assert name in functions(ROOT / file), f"{file} has no {name}"


def test_the_way_of_a_row_is_at_most_fifteen_steps() -> None:
    assert 10 <= len(STEP.findall(text_of("way-of-a-row"))) <= 15


@pytest.mark.parametrize("way", [way for way in WAYS if way != "way-of-a-row"])
def test_a_way_counts_its_steps_files_and_returns(way: str) -> None:
    files = [file for _, file, _ in STEP.findall(text_of(way))]
    counted = COUNTED.search(text_of(way))
    assert counted is not None
    assert tuple(map(int, counted.groups())) == (len(files), len(set(files)), returns(files))


def returns(files: list[str]) -> int:
    """How often a way enters a folder that it was in before, from another one."""
    rooms = [file.rpartition("/")[0] for file in files]
    return sum(room != rooms[at - 1] and room in rooms[:at] for at, room in enumerate(rooms) if at)


def functions(file: Path) -> set[str]:
    """Names of a module's functions and methods, methods with their class."""
    tree = ast.parse(file.read_text("utf-8"))
    methods = {
        f"{one.name}.{inner.name}"
        for one in tree.body
        if isinstance(one, ast.ClassDef)
        for inner in one.body
        if isinstance(inner, ast.FunctionDef)
    }
    return methods | {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
