"""What is known of a session's log beside the two records that are compared: by its server, and by the other readers."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Final

from conformance.comparison import UNKNOWN
from devservers import Database
from schemas.position import Position
from tests.support.topics import Record

MISSING: Final = object()
# What rows of an operation are in the log: a changed key is published as a delete and a create.
ROWS: Final = {"c": ("write", "update"), "u": ("update",), "d": ("delete", "update")}
PAYLOAD: Final = "Transaction_payload"
BETWEEN: Final = frozenset({"Rotate", "Stop", "Binlog_checkpoint", "Gtid_list", "Format_desc", "Start_encryption"})
MAGIC: Final = b"\xfebin"
_TABLE: Final = re.compile(r"table_id: (\d+)(?: \((.*)\))?")
Coordinates = tuple[str, int, int, str]
"""File, position of the event, number of the row in it; its table in a compressed transaction, else an empty text.

All events of a compressed transaction have one position, that of the event which contains them.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a log: where it begins in its file, its type, and the changes that have its position.

    Changes are `write`, `update` or `delete`, each with `database.table`; those of a compressed transaction are all its.
    `time_us` is the time of the event in microseconds since 1970, None where it is unknown: of MySQL's GTID events that of
    the commit, of others whole seconds. `info` is the server's text.
    """

    pos: int
    kind: str
    changes: frozenset[tuple[str, str]] = frozenset()
    time_us: int | None = None
    info: str = ""


_HEADER: Final = struct.Struct("<IBIII")  # seconds, type, server, length, end
_GTIDS: Final = frozenset({33, 34})
_TAGGED: Final = 42  # a GTID event in another form: its time is not read
_COMMIT: Final = slice(61, 68)  # of a GTID event: flags, UUID, number, type, and two numbers of the group come before
_HAS_ORIGINAL: Final = 1 << 55


def times_of(data: bytes) -> dict[int, int]:
    """The times of the events in the bytes of a file of the log, in microseconds by position; MySQL's or MariaDB's."""
    times: dict[int, int] = {}
    pos = len(MAGIC)
    while pos + _HEADER.size <= len(data):
        seconds, kind, _, length, _ = _HEADER.unpack_from(data, pos)
        commit = int.from_bytes(data[pos:][:_COMMIT.stop][_COMMIT], "little") & ~_HAS_ORIGINAL
        if kind != _TAGGED:
            times[pos] = commit if kind in _GTIDS and length > _COMMIT.stop else seconds * 1_000_000
        pos += max(length, _HEADER.size)
    return times


def listed(rows: Iterable[Sequence[Any]], times: Mapping[int, int] = MappingProxyType({})) -> list[Event]:
    """The events of a file in rows of SHOW BINLOG EVENTS, with their times.

    MySQL lists the events inside a compressed transaction behind it, where it ends. No event begins there: they are
    those without a length.
    """
    events: list[Event] = []
    tables: dict[str, str] = {}
    for _, pos, kind, _, end, info in rows:
        named = _TABLE.match(info)
        if named is not None and named[2] is not None:
            tables[named[1]] = named[2]
        verb, separator, _ = kind.lower().partition("_rows")
        changes = frozenset({(verb, tables[named[1]])} if separator and named is not None else ())
        if events and events[-1].kind == PAYLOAD and pos == end:
            events[-1] = replace(events[-1], changes=events[-1].changes | changes)
        else:
            events.append(Event(pos, kind, changes, times.get(pos), info))
    return events


@dataclass(frozen=True)
class Log:
    """The events of a log as its server lists them, by file."""

    files: Mapping[str, Sequence[Event]]

    def event_at(self, file: str, pos: int) -> Event | None:
        """The event that begins there; None where none does."""
        event = self._last(file, pos, lambda _: True)
        return event if event is not None and event.pos == pos else None

    def group_of(self, file: str, pos: int) -> int | None:
        """Where the transaction begins that an event belongs to."""
        event = self._last(file, pos, lambda event: _begins(event.kind))
        return None if event is None else event.pos

    def time_us(self, file: str, pos: int) -> int | None:
        """When a change was made that is at a position: of MySQL when its transaction was committed; None if unknown."""
        begin, event = self._last(file, pos, lambda event: _begins(event.kind)), self.event_at(file, pos)
        if begin is None or event is None or begin.time_us is None:
            return None
        return event.time_us if _is_mariadb(begin) else begin.time_us

    @cached_property
    def boundaries(self) -> Mapping[str, tuple[int, int]]:
        """The times in milliseconds of the first and last event of each transaction on MariaDB, by GTID."""
        found: dict[str, tuple[int, int]] = {}
        for events in self.files.values():
            gtid = ""
            for event in events:
                if _begins(event.kind):
                    gtid = event.info.rpartition("GTID ")[2].split()[0] if _is_mariadb(event) else ""
                if gtid and event.time_us is not None and event.kind not in BETWEEN:
                    first = found.get(gtid, (event.time_us // 1_000, 0))[0]
                    found[gtid] = first, event.time_us // 1_000
        return found

    def _last(self, file: str, pos: int, test: Callable[[Event], bool]) -> Event | None:
        events = self.files.get(file, ())
        until = bisect_right(events, pos, key=attrgetter("pos"))
        return next((events[at] for at in range(until - 1, -1, -1) if test(events[at])), None)


def read_log(database: Database) -> Log:
    """The log of a server, as SHOW BINLOG EVENTS lists it."""
    files: dict[str, list[Event]] = {}
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        for name in [row[0] for row in cursor.fetchall()]:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{name}'")
            files[name] = listed(cursor.fetchall(), times_of((database.data_dir / name).read_bytes()))
    return Log(files)


@dataclass(frozen=True)
class Truth:
    """What all readers of a log agree on. `log` is None where no server can be asked any more.

    `versions` are those of rows by their places (more than one only where rows of a compressed transaction have one place),
    and `positions` those by their versions, `cells` rows by their places as Debezium published them in a mode that loses
    nothing, those of snapshots by their `id`; `databases` are theirs. `threads` are the positions and threads of rows by
    file, in the order of the log, without those of XA transactions.
    """

    log: Log | None = None
    versions: Mapping[tuple[Coordinates, str], frozenset[str]] = field(default_factory=dict)
    positions: Mapping[str, Coordinates] = field(default_factory=dict)
    cells: Mapping[tuple[Any, ...], Mapping[str, Any]] = field(default_factory=dict)
    databases: frozenset[str] = frozenset()
    threads: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def seen(self, source: Mapping[str, Any], image: str, column: str, row: Mapping[str, Any]) -> Any:
        """The value of a column of a row as the most exact mode has it."""
        if source["db"] not in self.databases:
            return UNKNOWN
        return self.cells.get(_cell(source, image, row), {}).get(column, MISSING)

    def objections(self, op: str, source: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with the place of a record of ours."""
        if op == "b":
            yield from self._of_boundary(source)
            return
        version = Position.parse(source["sequence"])
        if version.epoch != 0:
            yield f"the version {source['sequence']} is of an epoch that never was"
        if op in (*ROWS, "s", "t"):
            coordinates = _coordinates(source, self.log)
            versions = self.versions.get(_named(coordinates, op), frozenset({source["sequence"]}))
            reported = self.positions.get(source["sequence"], coordinates)
            if source["sequence"] not in versions or reported != coordinates:
                yield f"{source['sequence']} at {coordinates} is {' or '.join(sorted(versions))} at {reported} for other readers"
        if op == "x":
            yield from self._by_neighbours(source)
        if self.log is not None:
            yield from self._by_log(self.log, op, version, source)

    def _by_neighbours(self, source: Mapping[str, Any]) -> Iterator[str]:
        """The thread of a row of an XA transaction, which Debezium does not have: sessions follow each other."""
        rows = self.threads.get(source["file"], ())
        at = bisect_right(rows, source["pos"], key=itemgetter(0))
        threads = {thread for _, thread in rows[max(at - 1, 0) : at + 1]}
        if 0 < at < len(rows) and len(threads) == 1 and source["thread"] not in threads:
            yield f"thread {source['thread']} at {source['file']}:{source['pos']}, amid rows of {threads}"

    def _of_boundary(self, boundary: Mapping[str, Any]) -> Iterator[str]:
        """The time of a BEGIN or END on MariaDB, which Debezium has from a row."""
        times = None if self.log is None else self.log.boundaries.get(boundary["id"])
        if times is not None and boundary["ts_ms"] != times[boundary["status"] == "END"]:
            yield f"{boundary['status']} of {boundary['id']} is at {times}, not {boundary['ts_ms']}"

    def _by_log(self, log: Log, op: str, version: Position, source: Mapping[str, Any]) -> Iterator[str]:
        file, pos = source["file"], source["pos"]
        event = log.event_at(file, pos)
        time_us = log.time_us(file, pos) if op in (*ROWS, "s", "t", "x") else None
        if time_us is not None and source["ts_us"] != time_us:
            yield f"the time at {file}:{pos} is {time_us}, not {source['ts_us']}"
        if event is None:
            yield f"no event begins at {file}:{pos}"
        elif op in ROWS and not event.changes.intersection((verb, _table(source)) for verb in ROWS[op]):
            yield f"the event at {file}:{pos} is {event.kind} of {sorted(event.changes)}"
        elif op in ROWS and log.group_of(file, pos) != version.offset:
            yield f"the transaction of {file}:{pos} does not begin at {version.offset}"


def truth_of(records: Iterable[Iterable[Record]], exact: Iterable[Iterable[Record]], log: Log | None = None) -> Truth:
    """What readers agree on; `records` are ours by scenario, `exact` those of Debezium in modes that lose nothing."""
    versions: dict[tuple[Coordinates, str], Counter[str]] = defaultdict(Counter)
    positions: dict[str, Counter[Coordinates]] = defaultdict(Counter)
    threads: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for scenario in records:
        for record in scenario:
            source = _source(record)
            if source is not None and source["snapshot"] in ("false", None) and not _is_xa(source, log):
                coordinates = _coordinates(source, log)
                versions[_named(coordinates, record.value["payload"].get("op"))][source["sequence"]] += 1
                positions[source["sequence"]][coordinates] += 1
                if source.get("thread") is not None:
                    threads[source["file"]].add((source["pos"], source["thread"]))
    cells: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for scenario in exact:
        for record in scenario:
            source = _source(record)
            for image in ("before", "after") if source is not None else ():
                row = record.value["payload"].get(image)
                if source is not None and isinstance(row, dict):
                    cells[_cell(source, image, row)] = row
    of_coordinates = {
        (coordinates, op): frozenset(counter if coordinates[3] else [_most_reported(counter)])
        for (coordinates, op), counter in versions.items()
    }
    return Truth(
        log,
        of_coordinates,
        {version: _most_reported(counter) for version, counter in positions.items()},
        cells,
        frozenset(coordinates[0] for coordinates in cells),
        {file: sorted(reported) for file, reported in threads.items()},
    )


def problems_of(truth: Truth) -> Iterator[str]:
    """Versions that all readers agree on and that cannot be: rows are counted in the order of the log.

    Rows that are rolled back to a savepoint are counted, too, and nobody publishes them. Positions say nothing of the
    order in a compressed transaction.
    """
    rows: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
    for text, (_, pos, row, packed) in truth.positions.items():
        version = Position.parse(text)
        if version.ordinal and not packed:
            rows[version.file, version.offset].append((version.ordinal, (pos, row)))
    for (file, offset), reported in sorted(rows.items()):
        reported.sort()
        if [coordinates for _, coordinates in reported] != sorted(coordinates for _, coordinates in reported):
            yield f"the rows of the transaction at {file}:{offset} are not in the order of the log"


def _source(record: Record) -> dict[str, Any] | None:
    payload = None if record.value is None else record.value["payload"]
    source = payload.get("source") if isinstance(payload, dict) else None
    return source if isinstance(source, dict) else None


def _is_xa(source: Mapping[str, Any], log: Log | None) -> bool:
    """Whether the place is that of an XA COMMIT, which all rows of its transaction have."""
    version = Position.parse(source["sequence"])
    event = None if log is None else log.event_at(source["file"], source["pos"])
    return version.ordinal > 0 and event is not None and not event.changes


def _coordinates(source: Mapping[str, Any], log: Log | None) -> Coordinates:
    event = None if log is None else log.event_at(source["file"], source["pos"])
    is_packed = event is not None and event.kind == PAYLOAD
    return source["file"], source["pos"], source["row"], _table(source) if is_packed else ""


def _named(coordinates: Coordinates, op: str) -> tuple[Coordinates, str]:
    """A place, with the operation where rows of several events may have it."""
    return coordinates, op if coordinates[3] else ""


def _table(source: Mapping[str, Any]) -> str:
    return f"{source['db']}.{source['table']}"


def _cell(source: Mapping[str, Any], image: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    if source["snapshot"] not in ("false", None):
        return source["db"], source["table"], row.get("id")
    return source["db"], source["table"], source["file"], source["pos"], source["row"], image


def _most_reported(counter: Counter[Any]) -> Any:
    return counter.most_common(1)[0][0]


def _is_mariadb(gtid: Event) -> bool:
    return "GTID " in gtid.info and "GTID_NEXT" not in gtid.info


def _begins(kind: str) -> bool:
    return "gtid" in kind.lower() and "list" not in kind.lower() and "previous" not in kind.lower()
