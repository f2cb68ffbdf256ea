"""The comparison itself: it sees what differs, and excuses nothing that is not in the list."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.conformance.compare import Comparison
from tests.conformance.differences import DIFFERENCES
from tests.conformance.generator import Generator
from tests.support.topics import Record

POSITION = "0000.0000000001.000000000100.0000000001"


def record(prefix: str, *, version: Any = None, **row: Any) -> Record:
    columns = [{"type": "int32", "optional": True, "field": name} for name in row]
    schema = {
        "type": "struct",
        "name": f"{prefix}.conf.t.Envelope",
        "fields": [{"type": "struct", "fields": columns, "field": "after"}],
    }
    payload = {
        "before": None,
        "after": row,
        "source": {"name": prefix, "sequence": version},
        "op": "c",
        "ts_ms": 1,
    }
    return Record("t", 0, 0, None, {"schema": schema, "payload": payload}, {})


def problems(left: list[Record], right: list[Record]) -> list[str]:
    comparison = Comparison("left", "right")
    comparison.topic("t", left, right)
    return comparison.problems


def test_equal_records_have_no_problem() -> None:
    assert problems([record("left", a=1)], [record("right", version=POSITION, a=1)]) == []


def test_another_value_name_schema_header_or_number_of_records_is_a_problem() -> None:
    left, right = record("left", a=1), record("right", version=POSITION, a=1)
    assert len(problems([left], [record("right", version=POSITION, a=2)])) == 1
    assert problems([left], [record("right", version=POSITION, b=1)])
    other = copy.deepcopy(right)
    other.value["schema"]["fields"][0]["fields"][0]["optional"] = False
    assert len(problems([left], [other])) == 1
    other = copy.deepcopy(right)
    other.headers["x"] = "y"
    assert len(problems([left], [other])) == 1
    assert len(problems([left, left], [right])) == 1


def test_the_same_seed_gives_the_same_statements() -> None:
    one, other = (list(Generator(7, 5, 200).statements()) for _ in range(2))
    assert one == other
    assert one != list(Generator(8, 5, 200).statements())
    assert {statement.split()[0] for statement in one} >= {"CREATE", "INSERT", "UPDATE", "DELETE", "ALTER"}


def test_every_intended_difference_stands_in_the_docs_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text(encoding="utf-8")
    compared = text.partition("\n## ")[0]  # what follows is of records this suite does not compare
    rows = [line for line in compared.splitlines() if line.startswith("| ") and not line.startswith("| What")]
    assert rows == [f"| {item.name} | {item.reason} |" for item in DIFFERENCES]
