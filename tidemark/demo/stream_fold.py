"""What a consumer makes of the changelogs of the demo: topics enter, the rows that are there at the end leave, with positions.

Of each identity the highest position counts; a floor takes what its table had below it (docs/sinks/formats.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.slices import EARLIEST
from schemas.identity import TableName
from tidemark.verify.sink_reader import POSITION_COLUMN
from tidemark.verify.sink_types import open_reader

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings, Settings

Identity = tuple[tuple[str, str], ...]
"""Names and values of an identity, sorted, as texts."""


def differences(settings: Settings, mirror: str, topics: Mapping[str, TableName]) -> tuple[int, int]:
    """Return how many rows folded topics have, and how many are not those of the same targets of a mirror, with their positions."""
    reader, rows, differing = open_reader(settings.of_sink(mirror)), 0, 0
    for topic, target in topics.items():
        found = folded(_messages(settings.kafka, topic))
        names = [name for name, _ in next(iter(found), ())]
        wanted: dict[Identity, str] = {}
        for batch in reader.rows(target).scan([*names, POSITION_COLUMN]):
            for row in batch.to_pylist():
                wanted[_identity({name: row[name] for name in names})] = row[POSITION_COLUMN]
        rows += len(found)
        differing += len(found.items() ^ wanted.items())
    return rows, differing


def folded(messages: Iterator[tuple[dict[str, Any], dict[str, Any] | None]]) -> dict[Identity, str]:
    """Return the position of each identity that is there after these keys and values."""
    newest: dict[Identity, tuple[str, bool, str]] = {}
    floors: dict[str, str] = {}
    for key, value in messages:
        if value is None:
            if key["_tm_op"] == "floor":
                floors[key["_tm_source"]] = max(key["_tm_position"], floors.get(key["_tm_source"], ""))
            continue
        event = (value["_tm_position"], value["op"] in ("+I", "+U"), value["_tm_source"])
        identity = _identity(key)
        newest[identity] = max(event, newest.get(identity, event))
    return {
        identity: position
        for identity, (position, is_there, source) in newest.items()
        if is_there and position >= floors.get(source, "")
    }


def _identity(values: Mapping[str, Any]) -> Identity:
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def _messages(kafka: KafkaSettings, topic: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield key and value of the committed messages that a topic has now."""
    with CommittedReader(kafka, "demo-fold", SOON) as reader:
        reader.begin(dict.fromkeys(reader.partitions(topic), EARLIEST))
        for record in reader.read_to(reader.ends(reader.reached)):
            yield json.loads(record.key or b"null"), None if record.value is None else json.loads(record.value)
