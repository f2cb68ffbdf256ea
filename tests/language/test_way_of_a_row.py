"""docs/way-of-a-row.md names functions that exist, in at most 15 steps."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \| [A-Z][^.]+\. \|$", re.MULTILINE)


def test_the_way_of_a_row_is_at_most_fifteen_functions_that_exist() -> None:
    text = (ROOT / "docs" / "way-of-a-row.md").read_text("utf-8")
    steps = STEP.findall(text)

    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    assert len(steps) == text.count("\n| ") - 1  # all rows of the table but its head
    assert 10 <= len(steps) <= 15
    for _, file, name in steps:
        assert name in functions(ROOT / file), f"{file} has no {name}"


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
