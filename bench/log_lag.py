"""How long rows are on their way: from the statement that writes them to where they arrive.

That is a consumer of committed records, with the client's defaults but `isolation.level`, or a table of another server, which is
asked every 3 ms. The key and the time of each row are noted; the time of the statement is in column `d` of the row, and is read
from the source afterwards. All clocks are of this machine.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Protocol, Self

from confluent_kafka import Consumer, TopicPartition

from bench.arrivals import Arrivals
from bench.scene import BenchError
from bench.stage import Stage
from devservers import Database

_NUMBER = re.compile(rb"-?\d+")


def id_of(key: bytes) -> int:
    """Return the number in a key: Confluent's Avro form with one long, or JSON."""
    if key[:1] == b"{":
        found = _NUMBER.search(key)
        if found is None:
            message = f"no number in the key {key!r}"
            raise BenchError(message)
        return int(found.group())
    zigzag = shift = 0
    for byte in key[5:]:
        zigzag |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return zigzag >> 1 ^ -(zigzag & 1)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the ordered values are (nearest rank)."""
    return ordered[min(len(ordered) - 1, max(0, -(-int(len(ordered) * share * 1000) // 1000) - 1))]


def lags(sent_s: Mapping[int, float], seen_s: Mapping[int, float], begin_s: float, end_s: float) -> dict[str, float]:
    """Return percentiles in milliseconds of the rows sent from `begin_s` to `end_s`; `BenchError` where one was not seen."""
    chosen = {key for key, at in sent_s.items() if begin_s <= at < end_s}
    if missing := chosen - seen_s.keys():
        message = f"{len(missing)} of {len(chosen)} rows of the load did not arrive"
        raise BenchError(message)
    if not chosen:
        message = "the load wrote no rows"
        raise BenchError(message)
    ordered = sorted((seen_s[key] - sent_s[key]) * 1000 for key in chosen)
    found = {f"p{share}_ms": percentile(ordered, share / 100) for share in (50, 99)}
    return {**found, "max_ms": ordered[-1], "lag_rows": len(ordered)}


class Arriving(Protocol):
    """Where rows arrive. It is read by one thread."""

    def next_keys(self) -> Iterable[int]:
        """Return the keys of the rows that have arrived since the last call, after a short wait at most."""

    def close(self) -> None:
        """Give the connection up."""


class InTopic:
    """Rows that arrive in a topic of Kafka, from its end on."""

    def __init__(self, stage: Stage, topic: str) -> None:
        servers = stage.scene.kafka.bootstrap_servers
        ends = Arrivals(servers, []).ends_of(topic)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bench-lag",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, offset) for number, offset in ends.items()])

    def next_keys(self) -> Iterable[int]:
        """Return the key of the next record."""
        message: Any = self._consumer.poll(0.1)
        return [id_of(message.key())] if message is not None and message.error() is None and message.key() else []

    def close(self) -> None:
        """Give the connection up."""
        self._consumer.close()


class InServer:
    """Rows that arrive in a table of another server, whose keys grow; the rows of a probe have ever smaller ones."""

    _EVERY_S: Final = 0.003

    def __init__(self, server: Database, table: str) -> None:
        self._connection = server.connect(autocommit=True)
        self._asked = f"SELECT id FROM {table} WHERE id > %s OR id < %s"
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT COALESCE(MAX(id), 0), COALESCE(MIN(id), 0) FROM {table}")
            self._most, self._least = cursor.fetchone()

    def next_keys(self) -> Iterable[int]:
        """Return the keys of the rows that are committed since the last call."""
        with self._connection.cursor() as cursor:
            cursor.execute(self._asked, (self._most, self._least))
            found = [key for (key,) in cursor.fetchall()]
        if not found:
            time.sleep(self._EVERY_S)
        self._most, self._least = max([self._most, *found]), min([self._least, *found])
        return found

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()


class LagReader:
    """A thread that notes when rows of a table of the stage arrive, until the end of the block, which closes `arriving`."""

    def __init__(self, stage: Stage, table: str, arriving: Arriving) -> None:
        self._stage, self._table, self._arriving = stage, table, arriving
        self.seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag-reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._arriving.close()

    def wait_until_current(self, seconds: float = 300.0) -> None:
        """Insert a row now and then until one has arrived that was inserted less than a second ago."""
        deadline = time.monotonic() + seconds
        while True:
            key = self._stage.probe(self._table)
            if self._arrives(key, 1.0):
                return
            if time.monotonic() > deadline:
                message = f"no row of {self._table} arrives within a second"
                raise BenchError(message)

    def lags(self, first: int, begin_s: float, end_s: float, wait_s: float = 60.0) -> dict[str, float]:
        """Wait for the last row; return percentiles of those whose statements began in this time, keys from `first` on."""
        sent = self._sent(first)
        if sent:
            self._arrives(max(sent), wait_s)
        return lags(sent, self.seen, begin_s, end_s)

    def _arrives(self, key: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while key not in self.seen:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _sent(self, first: int) -> dict[int, float]:
        with self._stage.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT id, d FROM {self._table} WHERE id >= %s", (first,))
            rows: Sequence[tuple[int, datetime]] = cursor.fetchall()
        return {key: at.replace(tzinfo=UTC).timestamp() for key, at in rows}

    def _run(self) -> None:
        while not self._stop.is_set():
            for key in self._arriving.next_keys():
                self.seen.setdefault(key, time.time())
