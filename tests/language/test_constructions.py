"""The constructions that STYLE.md wants to go become fewer: each has a bound, which only falls."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.language.constructions import IN_NAMES, IN_PROSE, Construction, constructions_of
from tests.language.test_glossary import ROOT, files, lines_of


@cache
def occurrences() -> tuple[Construction, ...]:
    return tuple(one for path in files() for one in constructions_of(path, (ROOT / path).read_text("utf-8")))


def counts() -> Counter[str]:
    return Counter(one.name for one in occurrences())


def bounds() -> dict[str, int]:
    """The lines of `constructions.txt`: a name and the largest count."""
    split = (line.rsplit(" ", 1) for line in lines_of("constructions.txt"))
    return {name: int(count) for name, count in split}


@pytest.mark.parametrize("name", [*IN_PROSE, *IN_NAMES])
def test_no_construction_occurs_more_often_than_its_bound(name: str) -> None:
    assert counts()[name] <= bounds()[name], f"{name}: `python -m tests.language --constructions` prints each; STYLE.md says what to write"


def test_each_construction_is_counted_in_docstrings_messages_comments_and_names() -> None:
    text = '''
def look(self):
    """Return what was merged."""
    found = 1  # where it is none
    raise ValueError("the rows are those of a batch")
'''
    names = Counter(one.name for one in constructions_of("a.py", text))
    assert names == {"look": 1, "found": 1, "Return what": 1, "what": 1, "where": 1, "is none": 1, "that of": 1}
    assert [one.line for one in constructions_of("a.md", "One.\n\nIt is read where `where` is.\n\n    where\n")] == [3]
