"""A mirror in memory out of a producer's topics, by the merge rule alone: what a sink holds, without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from schemas.markers import MARKER_KEY, CompleteMarker, Marker, parse_marker
from schemas.memory_table import Batch, MemoryTable, Progress
from schemas.merge_rule import Entry
from schemas.topics import change_topic, snapshot_topic
from tests.support.topics import Record, read_topics

ALL = 1 << 60


class Mirror:
    """One table's topics as they are now (format JSON), merged in batches that the seed cuts."""

    def __init__(self, changes: list[Record], snapshots: list[Record], seed: int = 0) -> None:
        self.markers = [parse_marker(r.value) for r in snapshots if r.key == MARKER_KEY]
        self.sweeps = [m for m in self.markers if isinstance(m, CompleteMarker) and m.sweep is not None]
        parts: dict[tuple[str, int], list[tuple[int, Entry | Marker]]] = {}
        for record in changes:
            if record.value is not None:
                parts.setdefault(("c", record.partition), []).append((record.offset, _entry(record, None)))
        for record in snapshots:
            one = parse_marker(record.value) if record.key == MARKER_KEY else _entry(record, record.partition)
            parts.setdefault(("s", record.partition), []).append((record.offset, one))
        self.table, self.progress = MemoryTable(), Progress()
        rng = random.Random(seed)
        ends: dict[int, int] = {}
        while any(parts.values()):
            taken: list[Entry | Marker] = []
            for (kind, number), records in parts.items():
                count = rng.choice((0, 1, 20, 400)) if seed else len(records)
                for offset, one in records[:count]:
                    taken.append(one)
                    if kind == "c":
                        ends[number] = offset + 1
                del records[:count]
                if not records and kind == "c":
                    ends[number] = ALL
            ends |= {} if any(kind == "c" and left for (kind, _), left in parts.items()) else dict.fromkeys(range(64), ALL)
            entries = tuple(one for one in taken if isinstance(one, Entry))
            markers = tuple(one for one in taken if isinstance(one, Marker))
            self.progress = self.table.apply(Batch(entries, markers, dict(ends)), self.progress)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [entry.row for entry in self.table.rows.values()]

    @property
    def waits(self) -> bool:
        """Whether a sweep was read that waits for the horizon."""
        return bool(self.progress.state.completions)


def read_mirrors(
    servers: str, name: str, tables: Iterable[tuple[str, str]], seed: int = 0
) -> dict[tuple[str, str], Mirror]:
    """The mirrors of captured tables."""
    return {table: Mirror(*both, seed) for table, both in read_records(servers, name, tables).items()}


def read_records(servers: str, name: str, tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[list[Record], list[Record]]]:
    """The changes and the snapshots of captured tables, of which mirrors are made."""
    topics = {table: (change_topic(name, *table), snapshot_topic(name, *table)) for table in tables}
    found = read_topics(servers, [topic for both in topics.values() for topic in both], raw=True)
    return {table: (found[changes], found[snapshots]) for table, (changes, snapshots) in topics.items()}


def _entry(record: Record, partition: int | None) -> Entry:
    value = json.loads(record.value)
    return Entry(record.key, value["source"]["sequence"], value["op"] == "d", value["after"], partition)
