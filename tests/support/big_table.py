"""A table of 3,000 rows that changes while it is read, and the rows that its records leave."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from typing import Any

from schemas import topics
from schemas.markers import MARKER_KEY
from tests.support.producers import Running, Source
from tests.support.topics import Record, read_topics

BIG = "big"
ROWS = 3000
_BLOCK = 500


def make_big(source: Source) -> None:
    """Make the table and fill it."""
    source.execute(f"CREATE TABLE {BIG} (id INT PRIMARY KEY, v INT NOT NULL)")
    for first in range(0, ROWS, _BLOCK):
        rows = ",".join(f"({key}, {key})" for key in range(first, first + _BLOCK))
        source.execute(f"INSERT INTO {BIG} VALUES {rows}")


class Load(threading.Thread):
    """Changes rows of the table at random until stopped."""

    def __init__(self, source: Source, seed: int) -> None:
        super().__init__(daemon=True)
        self.source, self.random = source, random.Random(seed)
        self.stopped = threading.Event()
        self.start()

    def run(self) -> None:
        with self.source.server.connect(database=self.source.schema) as connection, connection.cursor() as cursor:
            while not self.stopped.wait(0.006):
                key, value = self.random.randrange(ROWS + 1000), self.random.randrange(10**6)
                cursor.execute(
                    self.random.choice(
                        (
                            f"UPDATE {BIG} SET v = {value} WHERE id BETWEEN {key} AND {key + 5}",
                            f"DELETE FROM {BIG} WHERE id = {key}",
                            f"REPLACE INTO {BIG} VALUES ({key}, {value})",
                        )
                    )
                )

    def stop(self) -> None:
        self.stopped.set()
        self.join()


def is_done(run: Running) -> bool:
    """Whether every table that a snapshot was asked of is read."""
    progress = run.producer.coordinator.progress()
    return bool(progress) and all(table.state == "done" for table in progress)


def rows_read(run: Running) -> int:
    """How many rows snapshots have read so far."""
    return sum(table.rows for table in run.producer.coordinator.progress())


def published(source: Source, table: str = BIG) -> list[Record]:
    """Records of both topics of a table that have rows, in the order of their positions."""
    names = [make(source.name, source.schema, table) for make in (topics.change_topic, topics.snapshot_topic)]
    found = [record for part in read_topics(source.bootstrap_servers, names).values() for record in part]
    rows = [record for record in found if record.key != MARKER_KEY and record.value is not None]
    return sorted(rows, key=lambda record: record.value["source"]["sequence"])


def stored(source: Source, table: str = BIG) -> dict[int, dict[str, Any]]:
    """The rows of a table by their `id`."""
    with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM `{table}`")
        names = [column[0] for column in cursor.description]
        return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


def folded_by_consumer(source: Source, table: str = BIG) -> dict[int, dict[str, Any]]:
    """The rows that an ordinary consumer of the change topic has: the last record of a key wins."""
    rows: dict[int, dict[str, Any]] = {}
    for record in source.records(table):  # a key is in one partition: their order does not matter
        if record.value is None or record.value["after"] is None:
            rows.pop(record.key["id"], None)
        else:
            rows[record.key["id"]] = record.value["after"]
    return rows


def folded_by_rule(records: Iterable[Record]) -> dict[int, dict[str, Any]]:
    """Per key the highest position wins; deletes leave a tombstone as high as they stand."""
    best: dict[int, tuple[str, dict[str, Any] | None]] = {}
    for record in records:
        position, image = record.value["source"]["sequence"], record.value["after"]
        key = record.key["id"]
        if key not in best or position >= best[key][0]:
            best[key] = (position, image)
    return {key: image for key, (_, image) in best.items() if image is not None}
