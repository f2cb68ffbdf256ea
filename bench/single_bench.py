"""What a small transaction costs the producer, from bytes of the log to records; no server needed.

    python -m bench.single_bench [--transactions N] [--rows ROWS] [--kafka] [--profile]

Recorded packets of transactions of a few rows of the `bench` table go through framing, assembler, publication, codec and
checkpoints into a publisher that drops the records; with `--kafka` into a real broker. Prints CPU time per transaction.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import struct
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from bench.codec_bench import CONSTANTS, LAYOUT, TABLE, binlog_row, wire
from producer.binlog.framing import PacketFramer
from producer.binlog.positions import PositionTracker
from producer.stream.checkpoint import Checkpoints
from producer.stream.cursor import LogCursor
from producer.stream.groups import TransactionAssembler
from producer.stream.handlers.change_records import ChangeRecords
from producer.stream.handlers.table_heartbeats import HeartbeatSchedule
from producer.stream.log_reader import LogReader
from producer.stream.offset import LogOffset
from producer.stream.ports import Route
from producer.stream.publication import LogPublication
from producer.stream.reader_progress import LogProgress
from producer.stream.routes import CapturedTables, RouteBuilder, Router
from producer.stream.view_publication import ViewPublication
from rowcodec import RecordOptions, TableCodec
from schemas.settings import SourceSettings
from tests.binlog import build
from tests.support.log_handlers import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.binlog import EventBatch
    from producer.binlog import TableMap as ParsedTableMap
    from producer.kafka.key_headers import KeyText
    from producer.stream.ports import RecordPublisher
    from rowcodec import Records

FILE: Final = "binlog.000001"
_PIECE_BYTES: Final = 16 << 10
"""The server sends a backlog in pieces of its network buffer."""


def packets_of(transactions: int, rows: int) -> bytes:
    """Return the packets of inserts of `rows` rows each, as MySQL 8.0 sends them."""
    rng = random.Random(7)
    types, metas = bytes(LAYOUT.types), b"\0\1\x0c\2\6\2\x08\4\0"
    names = b"".join(b"\1" + column.name[:1].encode() for column in TABLE.columns)
    table = build.table_map(types, metas, build.field(4, names), names="shop.bench")
    begin = build.event(2, struct.pack("<IIBHH", 9, 0, 4, 0, 0) + b"shop\0BEGIN")
    xid = build.event(16, bytes(8))
    commit_us = 1_780_000_000_654_321
    found: list[bytes] = []
    for number in range(transactions):
        times = (commit_us + number).to_bytes(7, "little") + build.packed(500) + (80040).to_bytes(4, "little")
        head = struct.pack("<B16sqBqq", 0, UUID(build.UUID_TEXT).bytes, number + 1, 2, number, number + 1)
        images = b"".join(binlog_row(number * rows + row, rng, None) for row in range(rows))
        found += [build.event(33, head + times), begin, table, build.rows(30, len(types), images), xid]
    return build.packets(found, sequence=2)


class RecordedStream:
    """The stream of a log in memory, in pieces as a socket has them. `stop` is set at its end."""

    server_version = "8.0.40"

    def __init__(self, data: bytes, piece_bytes: int, stop: Event) -> None:
        self._data, self._piece_bytes, self._stop = memoryview(data), piece_bytes, stop
        self._framer = PacketFramer(sequence=1)
        build.feed(self._framer, build.packets([build.format_description()]))
        self._tracker = PositionTracker(FILE, 4)

    def read(self, _timeout_s: float) -> EventBatch | None:
        """Return the next complete events."""
        while True:
            batch = self._framer.next_batch()
            if batch is not None:
                self._tracker.advance(batch)
                return batch
            if not self._data:
                self._stop.set()
                return None
            space = self._framer.space()
            size = min(len(space), len(self._data), self._piece_bytes)
            space[:size] = self._data[:size]
            self._data = self._data[size:]
            self._framer.filled(size)


class DroppingPublisher:
    """A publisher that counts records and drops them."""

    is_long_open = False
    is_answered = True

    def __init__(self) -> None:
        self.in_transaction = False
        self.uncommitted = self.uncommitted_bytes = 0

    def write(self, _topic: str, records: Records, _key_text: KeyText | None = None) -> None:
        """Count the records."""
        self.in_transaction = True
        self.uncommitted += records.count
        self.uncommitted_bytes += len(records.values) + len(records.keys)

    def produce(self, *_arguments: Any, **_named: Any) -> None:
        """Count the record."""
        self.in_transaction = True
        self.uncommitted += 1

    def flush(self) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Forget the records."""
        self.in_transaction, self.uncommitted, self.uncommitted_bytes = False, 0, 0

    def commit_later(self) -> None:
        """Forget the records."""
        self.commit()

    def commit_flushed(self) -> None:
        """Commit."""
        self.commit_later()

    def settle(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Forget the records."""
        self.commit()


class _Markers:
    def is_due(self, _boundary: object) -> bool:
        return False

    def write(self, *_arguments: object) -> None:
        pass

    def committed(self) -> None:
        pass


class _NoViews:
    def approach(self, _read: object) -> None:
        return None


class _Builder(RouteBuilder):
    """Routes of the one table, without a catalog."""

    def __init__(self) -> None:
        self._codec = TableCodec(TABLE, LAYOUT, wire("avro"), CONSTANTS, RecordOptions())

    def captured(self, table_map: ParsedTableMap) -> Route:
        """Return the route of the table."""
        return Route(
            table_map.database, table_map.table, len(table_map.types), _sizes(table_map), topic="srv.shop.bench",
            codec=self._codec, layout=LAYOUT, schema=TABLE, encoded_ops=frozenset("cud"),
        )  # fmt: skip


def _sizes(table_map: ParsedTableMap) -> Any:
    from producer.binlog.rowcount import cell_sizes

    return cell_sizes(table_map.types, table_map.metas)


class _Aside:
    def put(self, _database: str, _table: str, error: Exception, _position: object) -> None:
        raise error

    def resume_table(self, _database: str, _table: str) -> None:
        pass


def reader_of(stream: Any, publisher: RecordPublisher) -> LogReader:
    """Return a log reader around the stream and the publisher, as `producer.wiring` connects it."""
    offset = LogOffset(0, FILE, 4, "", "server")
    progress = LogProgress(offset.position)
    schedule = HeartbeatSchedule(time.monotonic)
    captured = CapturedTables(SourceSettings(host="x", user="x", password="x", tables=(r"shop\..*",)))  # noqa: S106
    router = Router(_Builder(), captured, _Aside(), [ChangeRecords(publisher, progress, schedule)])
    store: Any = MemoryStore()
    markers: Any = _Markers()
    checkpoints = Checkpoints(offset, publisher, store, markers, [], progress)
    statements: Any = None
    publication = LogPublication(router, statements, progress, lambda: stream.server_version)
    views: Any = _NoViews()
    view = ViewPublication(views, checkpoints)
    assembler = TransactionAssembler(LogCursor(offset, "mysql"), "mysql")
    return LogReader(stream, assembler, publication, checkpoints, view, publisher)


def measure(name: str, data: bytes, transactions: int, piece_bytes: int, publisher: RecordPublisher, *, profile: bool) -> None:
    """Read the packets once and print what a transaction cost."""
    stop = Event()
    reader = reader_of(RecordedStream(data, piece_bytes, stop), publisher)
    profiler = cProfile.Profile() if profile else None
    wall, cpu = time.perf_counter(), time.process_time()
    if profiler is not None:
        profiler.enable()
    reader.run(stop)
    if profiler is not None:
        profiler.disable()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert reader.progress.transactions == transactions, reader.progress
    print(
        f"{name:36} {cpu / transactions * 1e6:7.2f} µs of CPU a transaction, {cpu / reader.progress.rows * 1e6:6.2f} a row, "
        f"{transactions / wall:10,.0f} transactions/s", flush=True,
    )  # fmt: skip
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    """Measure without Kafka, and with it where asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--piece-bytes", type=int, default=_PIECE_BYTES)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="also publish to a real broker")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    data = packets_of(options.transactions, options.rows)
    made: list[tuple[str, Callable[[], RecordPublisher]]] = [("without Kafka", DroppingPublisher)]
    with ExitStack() as stack:
        if options.kafka:
            made.append(("with Kafka", _kafka(stack)))
        for name, make in made:
            for _ in range(options.repeat):
                measure(name, data, options.transactions, options.piece_bytes, make(), profile=options.profile)


def _kafka(stack: ExitStack) -> Callable[[], RecordPublisher]:
    from confluent_kafka.admin import AdminClient, NewTopic

    from devservers import start_kafka
    from producer.kafka.alternating_publisher import AlternatingPublisher
    from schemas.settings import KafkaSettings

    broker = stack.enter_context(start_kafka(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic("srv.shop.bench", 4, 1), NewTopic("state", 1, 1)]).values():
        future.result()

    def make() -> RecordPublisher:
        publisher = AlternatingPublisher(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), "bench")
        publisher.fence()
        stack.callback(publisher.close)
        return publisher

    return make


if __name__ == "__main__":
    main()
