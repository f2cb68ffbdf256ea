"""The watermark race: a binlog position is ahead of what a SELECT sees; behind the barrier it is not.

Four writers commit as fast as the server syncs its log (`sync_binlog=1`). Samplers take a low watermark,
then read. Afterwards the log reports which transactions stood at or before each low watermark: a sample that misses one
is stale. The functions sampled are the product's own. Each mutant takes away one thing they rest on, and
must show stale reads: then the clean samples prove something.
"""

from __future__ import annotations

import datetime as dt
import struct
import threading
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, start_database
from mysqlio.connection import connect
from mysqlio.information_schema import read_table_schema
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position
from mysqlio.signal_table import SignalTable
from producer.binlog import events
from producer.snapshot import watermark
from producer.snapshot.planner import largest_key
from producer.snapshot.watermark import LowWatermark, WindowRow, choose_low_watermark, end_of_binlog
from producer.source.dump import BinlogStream, StreamStart
from schemas.columns import TableSchema
from schemas.errors import SourceError
from schemas.position import Position, file_number
from schemas.settings import SourceSettings, from_mapping

WRITERS = (1, 2, 3, 4)
SAMPLERS = 2
ROUND_S = 0.5
"""Hundreds of samples are stale within a second where the race shows."""
MAX_ROUNDS = 60
ENOUGH_SAMPLES = 300
SIGNALS = SignalTable("race", "signals")
_TABLE_MAP, _XID, _WRITE, _UPDATE = 19, 16, (23, 30), (24, 31)

SCHEMA = (
    "CREATE DATABASE race",
    "CREATE TABLE race.counters (id INT PRIMARY KEY, v BIGINT NOT NULL)",
    "INSERT INTO race.counters VALUES (1, 0), (2, 0), (3, 0), (4, 0)",
    "CREATE TABLE race.grown (id BIGINT AUTO_INCREMENT PRIMARY KEY, w INT NOT NULL)",
    """CREATE PROCEDURE race.write_until(writer INT, end_at DATETIME(6))
       BEGIN
         WHILE SYSDATE(6) < end_at DO
           UPDATE race.counters SET v = v + 1 WHERE id = writer;
           INSERT INTO race.grown (w) VALUES (writer);
         END WHILE;
       END""",
)


@dataclass(frozen=True)
class Sample:
    """What a sampler saw: each writer's counter, or the largest key, after it took `low`."""

    low: Position
    counters: dict[int, int]
    largest: int = 0


class History:
    """What stood in the log, and where: per writer its counter, and the largest key so far."""

    def __init__(self) -> None:
        self.counters: dict[int, tuple[list[Position], list[int]]] = {w: ([], []) for w in WRITERS}
        self.keys: tuple[list[Position], list[int]] = ([], [])
        self.transactions = 0

    def misses(self, sample: Sample) -> bool:
        """Whether the sample lacks a transaction that ended at or before its low watermark."""
        for writer, seen in sample.counters.items():
            if seen < _last(self.counters[writer], sample.low):
                return True
        return bool(sample.largest) and sample.largest < _last(self.keys, sample.low)


def _last(series: tuple[list[Position], list[int]], low: Position) -> int:
    at = bisect_right(series[0], low)
    return series[1][at - 1] if at else 0


class Race:
    """One server with its writers."""

    def __init__(self, server: Database) -> None:
        self.server = server
        mapping = {
            "name": "race",
            "source": {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "tables": ["race\\..*"],
            },
        }
        self.source: SourceSettings = from_mapping(mapping).source
        with server.connect() as connection:
            with connection.cursor() as cursor:
                for statement in SCHEMA:
                    cursor.execute(statement)
            SIGNALS.ensure(connection)
            found = read_table_schema(connection, "race", "grown")
        assert found is not None
        self.grown: TableSchema = found

    def run(
        self, sample: Callable[[Any], Sample], enough: Callable[[int, int], bool]
    ) -> tuple[int, int]:
        """(stale, samples) of as many rounds as it takes until `enough(stale, samples)`."""
        stale = samples = 0
        for _ in range(MAX_ROUNDS):
            seen, history = self._round(sample)
            stale += sum(1 for one in seen if history.misses(one))
            samples += len(seen)
            if enough(stale, samples):
                break
        return stale, samples

    def _round(self, sample: Callable[[Any], Sample]) -> tuple[list[Sample], History]:
        with connect(ServerAccess.of(self.source)) as connection:
            start = current_position(connection)
            seen: list[Sample] = []
            threads = [threading.Thread(target=self._write, args=(writer,)) for writer in WRITERS]
            threads += [threading.Thread(target=self._sample, args=(sample, seen)) for _ in range(SAMPLERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            end = current_position(connection)
        return seen, self._read_log(start, end)

    def _write(self, writer: int) -> None:
        with connect(ServerAccess.of(self.source)) as connection, connection.cursor() as cursor:
            cursor.execute(f"CALL race.write_until({writer}, SYSDATE(6) + INTERVAL {ROUND_S} SECOND)")

    def _sample(self, sample: Callable[[Any], Sample], seen: list[Sample]) -> None:
        with connect(ServerAccess.of(self.source)) as connection:
            until = time.monotonic() + ROUND_S - 0.1
            while time.monotonic() < until:
                seen.append(sample(connection))

    def _read_log(self, start: Any, end: Any) -> History:
        history = History()
        stream = BinlogStream(self.source)
        stream.open(StreamStart(file=start.file, pos=start.pos), server_id=7007)
        last = Position(0, file_number(end.file), end.pos)
        tables: dict[int, str] = {}
        rows: list[tuple[str, bytes]] = []
        reached = Position(0, file_number(start.file), start.pos)
        try:
            while reached < last:
                batch = stream.read(60.0)
                assert batch is not None, "the log ends too early"
                for index, kind in enumerate(batch.types.tolist()):
                    if batch.is_artificial(index):
                        continue
                    begin, stop = int(batch.starts[index]), int(batch.ends[index])
                    after = int(batch.offsets[index]) + int(batch.sizes[index])
                    reached = Position(0, file_number(batch.file), after)
                    if kind == _TABLE_MAP:
                        table_id, _, table = events.parse_table_name(batch.buf, begin, stop)
                        tables[table_id] = table
                    elif kind in _WRITE or kind in _UPDATE:
                        header = events.parse_rows_header(batch.buf, begin, stop, kind)
                        rows.append((tables[header.table_id], bytes(batch.buf[header.rows_start : stop])))
                    elif kind == _XID:
                        _learn(history, reached, rows)
                        rows = []
        finally:
            stream.close()
        return history


def _learn(history: History, ended: Position, rows: list[tuple[str, bytes]]) -> None:
    """One transaction: `ended` is where it ends, and so the smallest low that covers it."""
    history.transactions += 1
    for table, image in rows:
        if table == "counters":
            writer, value = struct.unpack("<iq", image[14:26])
            history.counters[writer][0].append(ended)
            history.counters[writer][1].append(value)
        elif table == "grown":
            (key,) = struct.unpack("<q", image[1:9])
            history.keys[0].append(ended)
            history.keys[1].append(max(key, history.keys[1][-1] if history.keys[1] else 0))


def bare_position(connection: Any) -> LowWatermark:
    return end_of_binlog(connection, 0)


def product_low(connection: Any) -> LowWatermark:
    row = WindowRow.open(str(uuid.uuid4()), "race.counters", "race", dt.datetime.now(dt.UTC))
    return choose_low_watermark(connection, SIGNALS, row, Position.MINIMUM)


def counters_after(take: Callable[[Any], LowWatermark]) -> Callable[[Any], Sample]:
    def sample(connection: Any) -> Sample:
        low = take(connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, v FROM race.counters")
            return Sample(low.position, dict(cursor.fetchall()))

    return sample


def largest_key_with(race: Race, take: Callable[[Any], LowWatermark]) -> Callable[[Any], Sample]:
    def sample(connection: Any) -> Sample:
        key, low = largest_key(connection, race.grown, lambda: take(connection))
        return Sample(low.position, {}, int(key[0]) if key else 1)

    return sample


def caught(stale: int, _samples: int) -> bool:
    return stale > 0


def clean(_stale: int, samples: int) -> bool:
    return samples >= ENOUGH_SAMPLES


SERVERS: dict[str, dict[str, str]] = {
    "mysql80": {},
    "mariadb114": {},
    "mysql57": {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"},
}


@pytest.fixture(scope="module", params=SERVERS)
def race(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    folder: Path = tmp_path_factory.mktemp("race")
    with start_database(request.param, folder, {"sync_binlog": "1", **SERVERS[request.param]}) as server:
        yield Race(server)


@pytest.fixture
def report(race: Race, capsys: pytest.CaptureFixture[str]) -> Callable[[str, tuple[int, int]], None]:
    def printed(what: str, figures: tuple[int, int]) -> None:
        with capsys.disabled():
            print(f"\n{race.server.name}: {what}: {figures[0]} stale of {figures[1]}", flush=True)  # noqa: T201

    return printed


def test_a_bare_position_is_ahead_of_what_a_select_sees_and_the_barrier_ends_that(
    race: Race, report: Callable[[str, tuple[int, int]], None]
) -> None:
    bare = race.run(counters_after(bare_position), caught)
    report("bare position as low", bare)
    behind = race.run(counters_after(product_low), clean)
    report("choose_low_watermark, behind the barrier", behind)
    assert bare[0] > 0, "the race did not show: the clean samples prove nothing"
    assert behind[0] == 0
    assert behind[1] >= ENOUGH_SAMPLES


def test_the_barrier_taken_out_is_caught(
    race: Race, report: Callable[[str, tuple[int, int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark, "commit_barrier", lambda *_: None)
    mutant = race.run(counters_after(product_low), caught)
    report("choose_low_watermark without its barrier", mutant)
    assert mutant[0] > 0


def test_the_largest_key_is_complete_behind_the_barrier_and_not_without(
    race: Race, report: Callable[[str, tuple[int, int]], None]
) -> None:
    bare = race.run(largest_key_with(race, bare_position), caught)
    report("largest key without a barrier", bare)
    behind = race.run(largest_key_with(race, product_low), clean)
    report("largest key behind the barrier", behind)
    assert bare[0] > 0, "the race did not show: the clean samples prove nothing"
    assert behind[0] == 0
    assert behind[1] >= ENOUGH_SAMPLES


def test_unordered_commits_are_refused_because_they_would_be_stale(
    race: Race, report: Callable[[str, tuple[int, int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if race.server.flavour == "mariadb":
        with race.server.connect() as connection, connection.cursor() as cursor:
            assert cursor.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_order_commits'") == 0, "it has one now"
        return
    with race.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_order_commits = OFF")
        cursor.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000")  # larger groups: seen sooner
        try:
            with pytest.raises(SourceError, match="SET GLOBAL binlog_order_commits = ON"):
                product_low(connection)
            monkeypatch.setattr(watermark, "is_mariadb", lambda _: True)  # takes the check out
            mutant = race.run(counters_after(product_low), caught)
            report("choose_low_watermark with binlog_order_commits=OFF, unchecked", mutant)
        finally:
            cursor.execute("SET GLOBAL binlog_order_commits = ON")
            cursor.execute("SET GLOBAL binlog_group_commit_sync_delay = 0")
    assert mutant[0] > 0
