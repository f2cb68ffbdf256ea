"""A log reader around memory for the tests of runs, and seeded logs with transactions of every kind."""

from __future__ import annotations

import random
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any
from uuid import UUID

from producer.binlog import EventBatch, TableMap
from producer.binlog.framing import PacketFramer
from producer.binlog.positions import PositionTracker
from producer.binlog.rowcount import cell_sizes
from producer.stream.checkpoint import Checkpoints
from producer.stream.cursor import LogCursor
from producer.stream.groups import TransactionAssembler
from producer.stream.handlers.change_records import ChangeRecords
from producer.stream.handlers.snapshot_windows import OpenWindowRows
from producer.stream.handlers.table_heartbeats import HeartbeatSchedule
from producer.stream.log_reader import LogReader
from producer.stream.offset import LogOffset
from producer.stream.ports import Route, RowsEvent
from producer.stream.publication import LogPublication
from producer.stream.reader_progress import LogProgress
from producer.stream.routes import CapturedTables, RouteBuilder, Router
from producer.stream.steps import Boundary
from producer.stream.view_publication import ViewPublication
from rowcodec import Records, TableCodec
from rowcodec.codec_factory import RowIdentity
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import TidemarkError
from schemas.settings import SourceSettings
from tests.binlog import build
from tests.codec.oracle import make_codec
from tests.codec.orders import COLUMNS, LAYOUT, image
from tests.support.log_handlers import MemoryStore

FILE = "binlog.000007"
TABLES = ("plain", "json", "keyless", "slow", "handled", "other")
"""`slow` has a column of the Python path, `handled` a handler that wants every event, `other` is not captured."""
_UUIDS = (build.UUID_TEXT, "00000000-0000-4000-8000-0000000000ff")


# ---- the log


def table_map(name: str, table_id: int, database: str = "d") -> bytes:
    """A TABLE_MAP event of one of the tables, which all have the same columns."""
    names = b"".join(bytes([len(one)]) + one.encode() + b"\0" for one in (database, name))
    body = table_id.to_bytes(6, "little") + b"\1\0" + names
    return build.event(19, body + b"\3" + bytes(LAYOUT.types) + b"\2\x28\0\0")


def query(sql: str, thread: int) -> bytes:
    return build.event(2, struct.pack("<IIBHH", thread, 0, 1, 0, 0) + b"d\0" + sql.encode(), timestamp=1_700_000_007)


class Log:
    """The events of a log, written by a seeded generator."""

    def __init__(self, seed: int, flavour: str) -> None:
        self.rng = random.Random(seed)
        self.flavour = flavour
        self.events: list[bytes] = []
        self._numbers = dict.fromkeys(_UUIDS, 9)
        self._sequence = 9
        self._ids = {name: 10 + at for at, name in enumerate(TABLES)}

    def write(self, transactions: int) -> Log:
        """Add transactions, three of four of rows alone, in stretches."""
        while transactions > 0:
            stretch = self.rng.choice((1, 2, 5, 30))
            names = self.rng.sample(TABLES, self.rng.randint(1, 3))
            for _ in range(stretch):
                self.simple(names)
            transactions -= stretch
            self.rng.choice(self._others())()
        return self

    def _others(self) -> list[Any]:
        always = [self.heartbeat, self.ddl, self.new_id, self.unannounced, self.rolled_back, self.committed_by_query]
        return [*always, self.savepoint, self.partial, self.empty, self.nothing, self.jump, self.old_rows]

    def begin(self, *, transactional: bool = True, thread: int | None = None) -> None:
        rng = self.rng
        if self.flavour == "mariadb":
            self._sequence += 1
            flags = (4 if transactional else 0) | rng.choice((0, 8, 2))
            extra = bytes(8) if flags & 2 else b""
            self.events.append(build.event(162, struct.pack("<QIB", self._sequence, rng.choice((0, 0, 0, 1)), flags) + extra))
            return
        uuid = _UUIDS[rng.random() < 0.1]
        self._numbers[uuid] += 1
        kind = 34 if rng.random() < 0.1 else 33
        head = struct.pack("<B16sqBqq", not transactional, UUID(uuid).bytes, self._numbers[uuid], 2, 3, 4)
        original = rng.randrange(1 << 50).to_bytes(7, "little")
        both = (rng.randrange(1 << 50) | 1 << 55).to_bytes(7, "little") + original
        times = rng.choice((b"", original, original + b"\xfc\1\1", both + b"\x30", bytes(7)))
        self.events += [build.event(kind, head + times), query("BEGIN", rng.randrange(99) if thread is None else thread)]

    def end(self) -> None:
        self.events.append(build.event(16, bytes(8)))

    def rows(self, name: str, *, present: int | None = None) -> None:
        rng = self.rng
        kind = rng.choice((30, 31, 32)) if self.flavour == "mysql" else rng.choice((23, 24, 25))
        images = b"".join(
            image(rng.randrange(50), rng.choice((None, "", "é" * rng.randrange(9))), rng.randrange(3))
            for _ in range(rng.choice((1, 1, 1, 4)) * (2 if kind in (24, 31) else 1))
        )
        data = images if present is None else b"\0" + bytes(4)
        kind = kind if present is None else 30
        extra = rng.choice((b"", b"ab")) if kind >= 30 else b""
        part = build.rows(kind, 3, data, present=present, extra=extra, table_id=self._ids[name])
        self.events.append(part)

    def simple(self, names: Iterable[str]) -> None:
        rng, names = self.rng, list(names)
        self.begin()
        for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
            name = rng.choice(names)
            if rng.random() < 0.1:
                text = (29, b"\5INSERT") if self.flavour == "mysql" else (160, b"INSERT")
                self.events.append(build.event(*text))
            self.events.append(table_map(name, self._ids[name]))
            if rng.random() < 0.05:
                continue  # the table is locked, and no row of it changes
            for _ in range(rng.choice((1, 1, 1, 2))):
                self.rows(name)
        self.end()

    def heartbeat(self) -> None:
        self.events.append(build.event(27, FILE.encode()))

    def ddl(self) -> None:
        if self.flavour == "mysql":
            self.begin(thread=1)
            self.events.pop()
        else:
            self._sequence += 1
            self.events.append(build.event(162, struct.pack("<QIB", self._sequence, 0, 1 | 32) + bytes(6)))
        self.events.append(query(f"ALTER TABLE {self.rng.choice(TABLES)} FORCE", 1))

    def new_id(self) -> None:
        name = self.rng.choice(TABLES)
        self._ids[name] = max(self._ids.values()) + 1

    def unannounced(self) -> None:
        self.begin()
        self.events.append(build.event(30, b"\xff\xff\xff\0\0\0\1\0\2\0\0"))  # the event that only ends a statement
        self.end()

    def rolled_back(self) -> None:
        self.begin(transactional=False)
        self.events.append(table_map("plain", self._ids["plain"]))
        self.rows("plain")
        self.events.append(query("ROLLBACK", 3))

    def committed_by_query(self) -> None:
        self.begin(transactional=False)
        self.events.append(table_map("json", self._ids["json"]))
        self.rows("json")
        self.events.append(query("COMMIT", 3))

    def savepoint(self) -> None:
        self.begin()
        self.events += [table_map("plain", self._ids["plain"]), query("SAVEPOINT `s`", 3)]
        self.rows("plain")
        self.end()

    def partial(self) -> None:
        """Rows of a table that is not captured, without some columns; then rows that are."""
        self.begin()
        self.events.append(table_map("other", self._ids["other"]))
        self.rows("other", present=1)
        self.events.append(table_map("plain", self._ids["plain"]))
        self.rows("plain")
        self.end()

    def empty(self) -> None:
        self.begin()
        self.end()

    def nothing(self) -> None:
        self.events.append(build.event(28, b"ignorable"))

    def jump(self) -> None:
        self._numbers[_UUIDS[0]] += self.rng.randrange(3)
        self._sequence += self.rng.randrange(3)

    def old_rows(self) -> None:
        self.begin()
        self.events.append(table_map("plain", self._ids["plain"]))
        self.events.append(build.rows(23, 3, image(1, "v1", 2), table_id=self._ids["plain"]))
        self.end()

    def change_a_byte(self) -> None:
        """Change one byte behind the header of any event; its checksum fits."""
        at = self.rng.randrange(len(self.events))
        event = bytearray(self.events[at][:-4])
        if len(event) > 19:
            event[self.rng.randrange(19, len(event))] ^= 1 << self.rng.randrange(8)
        self.events[at] = bytes(event) + zlib.crc32(event).to_bytes(4, "little")

    def damage(self) -> None:
        """A row that ends in the middle of a value, and another transaction behind it."""
        self.begin()
        self.events.append(table_map("plain", self._ids["plain"]))
        self.events.append(build.rows(30, 3, image(1, "whole", 2)[:-1], table_id=self._ids["plain"]))
        self.end()
        self.simple(["plain"])


# ---- what surrounds the reader


class Recorded:
    """A stream of a log in pieces of seeded sizes. It sets `stop` at its end."""

    server_version = "8.0.40"

    def __init__(self, events: Iterable[bytes], seed: int, stop: Event) -> None:
        self._data, self._stop, self._rng = build.packets(events, sequence=2), stop, random.Random(seed)
        self._framer = PacketFramer(sequence=1)
        build.feed(self._framer, build.packets([build.format_description()]))
        self._tracker = PositionTracker(FILE, 4)

    def read(self, _timeout_s: float) -> EventBatch | None:
        while (batch := self._framer.next_batch()) is None:
            if not self._data:
                self._stop.set()
                return None
            space = self._framer.space()
            size = min(len(space), len(self._data), self._rng.choice((50, 700, 9_000, 60_000)))
            space[:size] = self._data[:size]
            self._data = self._data[size:]
            self._framer.filled(size)
        self._tracker.advance(batch)
        return batch


def _without_time(document: str) -> str:
    before, _, behind = document.partition("'committed_ms'")
    return before + behind.partition(",")[2]


class TopicsInMemory:
    """A publisher that keeps records by topic. `commits` has the offset document of each commit, and what was visible."""

    is_long_open = False

    def __init__(self) -> None:
        self.in_transaction = False
        self.uncommitted = 0
        self.uncommitted_bytes = 0
        self.topics: dict[str, list[Any]] = defaultdict(list)
        self.commits: list[tuple[str, dict[str, int]]] = []

    def write(self, topic: str, records: Records, key_text: object = None) -> None:
        del key_text
        self.in_transaction = True
        self.uncommitted += records.count
        self.uncommitted_bytes += len(records.values) + len(records.keys)
        values, keys = records.value_offsets.tolist(), records.key_offsets.tolist()
        for at in range(records.count):
            key = records.keys[keys[at] : keys[at + 1]] if records.has_key else None
            value = None if records.is_tombstone[at] else records.values[values[at] : values[at + 1]]
            other = int(records.related[at])
            header = None if other < 0 else records.keys[keys[other] : keys[other + 1]]
            self.topics[topic].append((key, value, int(records.ops[at]), header))

    def produce(self, topic: str, value: bytes | None, key: bytes | None = None, **_named: Any) -> None:
        self.in_transaction = True
        self.topics[topic].append((key, value))

    def flush(self) -> None:
        pass

    def commit(self) -> None:
        if self.in_transaction:
            document = _without_time(self.topics.pop("state")[-1][1].decode())
            self.commits.append((document, self.visible))
        self.in_transaction, self.uncommitted, self.uncommitted_bytes = False, 0, 0

    commit_later = commit
    is_answered = True

    def settle(self) -> None:
        pass

    def abort(self) -> None:
        self.in_transaction = False

    @property
    def visible(self) -> dict[str, int]:
        return {topic: len(found) for topic, found in self.topics.items() if found}


class Windows:
    """Open windows of some tables, and the keys that were touched."""

    def __init__(self) -> None:
        self.keys: dict[str, list[bytes]] = defaultdict(list)

    def watches(self, table: str) -> bool:
        return table in ("d.plain", "d.keyless")

    def touched(self, table: str, keys: Iterable[bytes]) -> None:
        self.keys[table] += keys

    def approach(self, _read: object) -> None:
        return None


class EveryEvent:
    """A handler that wants the events of one table one by one."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, str | None]] = []

    def wants(self, table: Route, op: str) -> bool:
        return table.table == "handled" and op != "d"

    def rows(self, event: RowsEvent) -> None:
        self.seen.append((event.op, event.transaction.next_ordinal, event.transaction.gtid))


class _Identities:
    def identity(self, table: TableSchema, layout: Any = None) -> RowIdentity:
        if table.primary_key:
            return RowIdentity(None, 5)
        return RowIdentity(make_codec(replace(table, message_key=("id", "name", "tenant")), layout, "json"), 0)


class _Builder(RouteBuilder):
    def __init__(self) -> None:
        self.codecs: dict[str, TableCodec] = {}

    def captured(self, table_map: TableMap) -> Route:
        name = table_map.table
        schema = schema_of(name)
        if name not in self.codecs:
            self.codecs[name] = make_codec(schema, LAYOUT, "json" if name == "json" else "avro")
        return Route(
            "d", name, 3, cell_sizes(table_map.types, table_map.metas), topic=f"s.d.{name}", codec=self.codecs[name], layout=LAYOUT,
            schema=schema, encoded_ops=frozenset("cud" if name != "keyless" else "cu"),
        )  # fmt: skip


def schema_of(name: str) -> TableSchema:
    columns = COLUMNS
    if name == "slow":
        columns = (COLUMNS[0], Column("name", ColumnType.VARCHAR, nullable=True, charset="gbk"), COLUMNS[2])
    return TableSchema("d", name, columns, () if name == "keyless" else ("tenant", "id"))


class _Aside:
    def put(self, _database: str, _table: str, error: TidemarkError, _position: object) -> None:
        raise error

    def resume_table(self, _database: str, _table: str) -> None:
        pass


class _Markers:
    def is_due(self, _boundary: object) -> bool:
        return False

    def write(self, *_arguments: object) -> None:
        pass

    def committed(self) -> None:
        pass


class _Statements:
    def __init__(self, router: Router, publisher: TopicsInMemory) -> None:
        self._router, self._publisher = router, publisher

    def apply(self, step: Any) -> None:
        self._router.forget("d", step.query.sql.removeprefix("ALTER TABLE ").removesuffix(" FORCE"))
        self._publisher.produce("ddl", step.query.sql.encode())


class NoRuns:
    """A finder that finds none: every transaction goes step by step."""

    def find(self, *_arguments: object) -> None:
        return None

    def leave_out_none(self) -> None:
        pass


class Reading:
    """A log reader over a log, and all that it leaves behind. Each look at its clock adds `tick_s`."""

    def __init__(
        self, log: Log, pieces: int, *, tick_s: float, by_runs: bool, include_query: bool = False, ignored: tuple[str, ...] = ()
    ) -> None:
        flavour = log.flavour
        server, gtids = ("server", f"{build.UUID_TEXT}:1-9") if flavour == "mysql" else ("server_id=1", "0-1-9")
        offset = LogOffset(0, FILE, 4, gtids, server)
        ticks = count()

        def clock() -> float:
            return next(ticks) * tick_s

        self.stop = Event()
        self.topics, self.windows, self.every = TopicsInMemory(), Windows(), EveryEvent()
        self.progress = LogProgress(offset.position)
        self.schedule = HeartbeatSchedule(clock)
        windows: Any = self.windows
        identities: Any = _Identities()
        handlers: list[Any] = [
            self.every, OpenWindowRows(windows, identities), ChangeRecords(self.topics, self.progress, self.schedule)
        ]  # fmt: skip
        tables = tuple(rf"d\.{name}" for name in TABLES if name != "other")
        captured = CapturedTables(SourceSettings(host="x", user="x", password="x", tables=tables, ignore_channels=ignored))
        router = Router(_Builder(), captured, _Aside(), handlers)
        stream: Any = Recorded(log.events, pieces, self.stop)
        store: Any = MemoryStore()
        markers: Any = _Markers()
        statements: Any = _Statements(router, self.topics)
        checkpoints = Checkpoints(offset, self.topics, store, markers, [], self.progress, clock)
        publication = LogPublication(router, statements, self.progress, lambda: "8.0.40", now_ns=lambda: 1_790_000_000_123_456_789)
        self.assembler = TransactionAssembler(LogCursor(offset, flavour), flavour, include_query=include_query)
        self.runs = 0
        if by_runs:
            pass_run = self.assembler.pass_run

            def counted(run: Any) -> None:
                self.runs += run.count
                pass_run(run)

            self.assembler.pass_run = counted  # type: ignore[method-assign]
        else:
            self.assembler.runs = NoRuns()  # type: ignore[assignment]
        view = ViewPublication(windows, checkpoints, clock)
        self.reader = LogReader(stream, self.assembler, publication, checkpoints, view, self.topics, clock)
        self.error: str | None = None
        self.boundaries: dict[str, dict[str, int]] = {}
        if not by_runs:
            reader: Any = self.reader
            pass_boundary = reader._boundary

            def noted(step: Any) -> None:
                document = reader._boundary_offset().document(0)
                self.boundaries[_without_time(repr(dict(document)))] = self.topics.visible
                pass_boundary(step)

            reader._boundary = reader._actions[Boundary] = noted

    def read(self) -> Reading:
        """Read the whole log."""
        try:
            self.reader.run(self.stop)
        except (TidemarkError, ValueError) as error:
            self.error = str(error)
        return self

    @property
    def result(self) -> dict[str, Any]:
        """Everything that must be the same, however the log was read."""
        progress = self.progress
        counts = (progress.transactions, progress.rows, progress.records, progress.source_ts_ms, progress.position)
        return {
            "topics": dict(self.topics.topics),
            "last": self.topics.commits[-1:],
            "touched": dict(self.windows.keys),
            "every": self.every.seen,
            "changed": self.schedule.changed,
            "counts": counts,
            "error": self.error,
        }
