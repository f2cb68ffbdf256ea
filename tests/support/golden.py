"""The golden records of Debezium and the statements that led to them (see tests/golden/README.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden"
_STARTED = "-- connector started here"
_FAILED = "-- ^ failed on the source"


@dataclass(frozen=True, slots=True)
class GoldenRecord:
    """One record; schemas are resolved, None where Debezium wrote none."""

    topic: str
    key: Any
    key_schema: dict[str, Any] | None
    value: Any
    value_schema: dict[str, Any] | None
    is_tombstone: bool
    headers: tuple[tuple[str, str], ...]

    @property
    def table(self) -> str:
        """The last part of the topic's name."""
        return self.topic.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Statements before and after the connector was started, and its records in file order."""

    prefix: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    failing: frozenset[str]
    records: tuple[GoldenRecord, ...]

    @property
    def changes(self) -> tuple[GoldenRecord, ...]:
        """Only the records of tables: topics of three parts."""
        return tuple(record for record in self.records if record.topic.count(".") == 2)

    def schemas(self, table: str) -> tuple[list[dict[str, Any] | None], list[dict[str, Any]]]:
        """The distinct key and value schemas of a table's records, in order of first use."""
        keys: list[dict[str, Any] | None] = []
        values: list[dict[str, Any]] = []
        for record in self.changes:
            if record.table == table:
                if record.key_schema not in keys:
                    keys.append(record.key_schema)
                if record.value_schema is not None and record.value_schema not in values:
                    values.append(record.value_schema)
        return keys, values


def load(name: str, prefix: str) -> Scenario:
    """The scenario in the folder `name`, as the connector with that prefix saw it."""
    before, after, failing = statements(name)
    records = _records(FOLDER / name / f"records-{prefix}.jsonl")
    return Scenario(prefix, before, after, failing, records)


def statements(name: str) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """The statements of a scenario before and after the connector's start, and those the source refuses."""
    path = FOLDER / name / "scenario.sql"
    parts: list[list[str]] = [[], []]
    failing = set()
    part = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(_STARTED):
            part = 1
        elif line.startswith(_FAILED):
            failing.add(parts[part][-1])
        elif line and not line.startswith("--"):
            parts[part].append(line.removesuffix(";"))
    return tuple(parts[0]), tuple(parts[1]), frozenset(failing)


def _records(path: Path) -> tuple[GoldenRecord, ...]:
    schemas: dict[str, dict[str, Any]] = {}
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        if "schema" in document:
            schemas[document["schema_id"]] = document["schema"]
            continue
        records.append(
            GoldenRecord(
                document["topic"],
                document["key"],
                schemas.get(document["key_schema"]),
                document["value"],
                schemas.get(document["value_schema"]),
                document["value_null"],
                tuple(
                    (name, text)
                    for name, text in document["headers"]
                    if not name.startswith("__debezium.context")
                ),
            )
        )
    return tuple(records)
