"""Changelogs in tests: read as a consumer of them reads them, and folded to the rows that they say are there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kafkaio.committed_reader import OPEN_END, SOON, CommittedReader, CommittedRecord
from kafkaio.slices import EARLIEST
from schemas.errors import StateError
from schemas.settings import KafkaSettings
from spark_jobs.sinks.files.manifest import Manifests

Event = Mapping[str, Any]
OWN = ("_tm_op", "_tm_position", "_tm_source", "_tm_sweep")


def folded(events: Iterable[Event], keys: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows that a changelog says are there, by source table and key: of each the highest position counts, in any order."""
    newest: dict[tuple[Any, ...], tuple[str, int, Event]] = {}
    floors: dict[str, str] = {}
    sweeps: list[tuple[str, str, list[str], set[tuple[str, ...]]]] = []
    for event in events:
        op, position, source = (event[name] for name in OWN[:3])
        if op == "floor":
            floors[source] = max(position, floors.get(source, ""))
        elif op == "sweep":
            detail = json.loads(event["_tm_sweep"])
            sweeps.append((source, detail["below"], detail["columns"], set(map(tuple, detail["values"]))))
        else:
            key = (source, *(event[name] for name in keys))
            rank = (position, int(op in ("+I", "+U")))
            if key not in newest or rank > newest[key][:2]:
                newest[key] = (*rank, event)
    found = {}
    for key, (position, is_there, event) in newest.items():
        row = {name: value for name, value in event.items() if name not in OWN}
        swept = any(
            source == key[0] and position < below and tuple(str(row[name]) for name in columns) in values
            for source, below, columns, values in sweeps
        )
        if is_there and position >= floors.get(key[0], "") and not swept:
            found[key] = row
    return found


def events_of_files(target: Path) -> list[dict[str, Any]]:
    """All events of a changelog in files, in the order of its manifests: Parquet, or lines of `changelog-json`."""
    found: list[dict[str, Any]] = []
    for manifest in Manifests(target).all():
        for path in (target / name for part in manifest.parts for name in (file.path for file in part.files)):
            if manifest.format == "parquet":
                found += pq.ParquetFile(path).read().to_pylist()
            else:
                found += [of_text(line) for line in path.read_text("utf-8").splitlines()]
    return found


def of_text(text: str) -> dict[str, Any]:
    """An event of its line, or of its message, in `changelog-json`."""
    document = json.loads(text, parse_float=Decimal)
    if "data" not in document:
        sweep = json.dumps(document["_tm_sweep"]) if "_tm_sweep" in document else None
        return {name: document.get(name) for name in OWN[:3]} | {"_tm_sweep": sweep}
    return document["data"] | {"_tm_op": document["op"]} | {name: document[name] for name in OWN[1:3]}


_SHOWN_S = 3.0
"""Kafka answers a commit before it writes the markers that show it."""


def messages(bootstrap_servers: str, topic: str) -> list[tuple[str | None, str | None]]:
    """Key and value of the committed messages of a topic, partition by partition; none of a topic that is not there."""
    with CommittedReader(KafkaSettings(bootstrap_servers=bootstrap_servers), "changelogs", SOON) as reader:
        partitions = reader.partitions(topic)
        reader.begin(dict.fromkeys(partitions, EARLIEST))
        records: list[CommittedRecord] = []
        with suppress(StateError):  # a dead writer has left a transaction open; one that is committed is shown before that
            records.extend(reader.read_to(dict.fromkeys(partitions, OPEN_END), _SHOWN_S))
    return [(_text(record.key), _text(record.value)) for record in sorted(records, key=lambda record: record.partition)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def events_of_topic(bootstrap_servers: str, topic: str) -> list[dict[str, Any]]:
    """All events of a changelog in a topic, of `changelog-json`."""
    return [of_text(value if value is not None else key or "") for key, value in messages(bootstrap_servers, topic)]


def row_kinds(form: str, value: str) -> list[tuple[str, dict[str, Any]]]:
    """The kinds and rows that a message of a mirror says, in a format. Canal's rows are of texts."""
    document = json.loads(value, parse_float=Decimal)
    if form == "changelog-json":
        return [(document["op"], document["data"])]
    if form == "debezium-json":
        before, after, kind = document["before"], document["after"], document["op"]
    else:
        kind = {"insert": "c", "update": "u", "delete": "d"}[document["type"].lower()]
        data, old = (part[0] if isinstance(part, list) else part for part in (document["data"], document["old"]))
        before, after = data | (old or {}), data
    return {"c": [("+I", after)], "u": [("-U", before), ("+U", after)], "d": [("-D", before)]}[kind]


def folded_in_order(sent: Iterable[tuple[str | None, str | None]], form: str = "changelog-json") -> dict[str, dict[str, Any]]:
    """The rows that the messages of a mirror say are there, by message key. What each retracts must be the row folded so far.

    A column that a message does not have is NULL. Rows have `_tm_position` and `_tm_source` of their message.
    """
    rows: dict[str, dict[str, Any]] = {}
    retracted: set[str] = set()
    for key, value in sent:
        assert key is not None
        assert value is not None
        document = json.loads(value)
        for kind, row in row_kinds(form, value):
            if kind in ("-U", "-D"):
                there = {name: value for name, value in rows.pop(key).items() if name not in OWN}
                names = there.keys() | row.keys()
                assert all(there.get(name) == row.get(name) for name in names), f"{kind} of {row}, and the row is {there}"
                retracted |= {key} if kind == "-U" else set()
            else:
                assert key not in rows, f"{kind} of {row}, and {rows[key]} is there"
                assert (kind == "+U") == (key in retracted)
                retracted.discard(key)
                rows[key] = {**row, "_tm_position": document["_tm_position"], "_tm_source": document["_tm_source"]}
    assert not retracted
    return rows
