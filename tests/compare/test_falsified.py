"""Golden records of Debezium beside themselves, one thing falsified each time: the comparison has to notice it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.falsify import falsify
from tests.conformance.listed_events import truth_of
from tests.conformance.recorded import Recorded
from tests.conformance.scenarios import Scenario
from tests.support import golden
from tests.support.golden import GoldenRecord
from tests.support.topics import Record

SCENARIOS = (("types", "types_def", 1_000), ("keys", "keys_def", 600), ("masking_hash", "mhash_only", 100))


def part(payload: Any, schema: Any, prefix: str, other: str) -> Any:
    """A key or value of one prefix as that of another."""
    if payload is None:
        return None
    text = json.dumps({"schema": schema, "payload": payload})
    return json.loads(text.replace(f'"{prefix}.', f'"{other}.').replace(f'"name": "{prefix}"', f'"name": "{other}"'))


def record(golden_record: GoldenRecord, number: int, prefix: str, other: str, begins: dict[str, int]) -> Record:
    """A record of either side; `begins` are where transactions begin."""
    value = None if golden_record.is_tombstone else part(golden_record.value, golden_record.value_schema, prefix, other)
    key = part(golden_record.key, golden_record.key_schema, prefix, other)
    if value is not None and other.startswith("t_"):
        source = value["payload"]["source"]
        is_row = value["payload"]["op"] in ("c", "u", "d")
        file = int(source["file"].rpartition(".")[2])
        begin = begins.setdefault(source["gtid"], source["pos"]) if is_row else source["pos"]
        ordinal = (source["pos"] - begin + source["row"] + 1) * is_row
        source["sequence"] = f"0000.{file:010d}.{begin:012d}.{ordinal:010d}"
    return Record(golden_record.table, 0, number, key, value, dict(golden_record.headers))


def recorded(name: str, prefix: str) -> Recorded:
    """The records of tables of a golden scenario as those of both sides."""
    scenario = Scenario(name, (name,))
    sides: dict[str, tuple[list[Record], list[Record]]] = {}
    begins: dict[str, int] = {}
    for number, golden_record in enumerate(golden.load(name, prefix).changes):
        for side, other in enumerate((f"d_{name}", f"t_{name}")):
            sides.setdefault(golden_record.topic, ([], []))[side].append(record(golden_record, number, prefix, other, begins))
    return Recorded(scenario, sides)


@pytest.mark.parametrize(("name", "prefix", "least"), SCENARIOS)
def test_every_falsification_of_a_golden_record_is_noticed(name: str, prefix: str, least: int) -> None:
    found = recorded(name, prefix)
    truth = truth_of([[item for sides in found.topics.values() for item in sides[1]]], [])
    comparison = found.compared(truth)
    assert comparison.problems == []
    outcome = falsify(found, truth)
    assert outcome.missed == []
    assert outcome.tried >= least
