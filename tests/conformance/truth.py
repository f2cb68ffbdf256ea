"""What is known of a session's log beside the two records that are compared: by its server, and by the other readers."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.position import Position
from tests.support.topics import Record
from tidemark.compare.comparison import UNKNOWN
from tidemark.embedded import Database

MISSING: Final = object()
ROWS: Final = ("c", "u", "d")
Place = tuple[str, int, int]
"""File, position of the event, number of the row in it."""


@dataclass(frozen=True)
class Log:
    """The events of a log as its server lists them: where each begins in its file, and its type."""

    files: Mapping[str, Sequence[tuple[int, str]]]

    def type_at(self, file: str, pos: int) -> str | None:
        """The type of the event that begins there; None where none does."""
        events = self.files.get(file, ())
        found = bisect_right(events, (pos, "\U0010ffff")) - 1
        return events[found][1] if found >= 0 and events[found][0] == pos else None

    def group_of(self, file: str, pos: int) -> int | None:
        """Where the transaction begins that an event belongs to."""
        events = self.files.get(file, ())
        found = bisect_right(events, (pos, "\U0010ffff")) - 1
        while found >= 0 and not _begins(events[found][1]):
            found -= 1
        return events[found][0] if found >= 0 else None


def read_log(database: Database) -> Log:
    """The log of a server, as SHOW BINLOG EVENTS lists it."""
    files: dict[str, list[tuple[int, str]]] = {}
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        for name in [row[0] for row in cursor.fetchall()]:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{name}'")
            files[name] = [(int(row[1]), str(row[2])) for row in cursor.fetchall()]
    return Log(files)


@dataclass(frozen=True)
class Truth:
    """What all readers of a log agree on. `log` is None where no server can be asked any more.

    `versions` are those of rows by their places and `places` those by their versions, `cells` rows by their places as
    Debezium published them in a mode that loses nothing, those of snapshots by their `id`; `databases` are theirs.
    """

    log: Log | None = None
    versions: Mapping[Place, str] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    cells: Mapping[tuple[Any, ...], Mapping[str, Any]] = field(default_factory=dict)
    databases: frozenset[str] = frozenset()

    def seen(self, source: Mapping[str, Any], image: str, column: str, row: Mapping[str, Any]) -> Any:
        """The value of a column of a row as the most exact mode has it."""
        if source["db"] not in self.databases:
            return UNKNOWN
        return self.cells.get(_cell(source, image, row), {}).get(column, MISSING)

    def objections(self, op: str, source: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with the place of a record of ours."""
        version = Position.parse(source["sequence"])
        if version.epoch != 0:
            yield f"the version {source['sequence']} is of an epoch that never was"
        place = source["file"], source["pos"], source["row"]
        if op in (*ROWS, "s", "t"):
            told = self.versions.get(place, source["sequence"]), self.places.get(source["sequence"], place)
            if told != (source["sequence"], place):
                yield f"{source['sequence']} at {place} is {told[0]} at {told[1]} for other readers"
        if self.log is not None:
            yield from self._by_log(op, version, source)

    def _by_log(self, op: str, version: Position, source: Mapping[str, Any]) -> Iterator[str]:
        assert self.log is not None
        file, pos = source["file"], source["pos"]
        kind = self.log.type_at(file, pos)
        if kind is None:
            yield f"no event begins at {file}:{pos}"
        elif op in ROWS and "rows" not in kind.lower():
            yield f"the event at {file}:{pos} is {kind}"
        elif op in ROWS and self.log.group_of(file, pos) != version.offset:
            yield f"the transaction of {file}:{pos} does not begin at {version.offset}"


def truth_of(records: Iterable[Iterable[Record]], exact: Iterable[Iterable[Record]], log: Log | None = None) -> Truth:
    """What readers agree on; `records` are ours by scenario, `exact` those of Debezium in modes that lose nothing."""
    versions: dict[Place, Counter[str]] = defaultdict(Counter)
    places: dict[str, Counter[Place]] = defaultdict(Counter)
    for scenario in records:
        for record in scenario:
            source = _source(record)
            if source is not None and source["snapshot"] in ("false", None) and not _is_xa(source, log):
                place = source["file"], source["pos"], source["row"]
                versions[place][source["sequence"]] += 1
                places[source["sequence"]][place] += 1
    cells: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for scenario in exact:
        for record in scenario:
            source = _source(record)
            for image in ("before", "after") if source is not None else ():
                row = record.value["payload"].get(image)
                if source is not None and isinstance(row, dict):
                    cells[_cell(source, image, row)] = row
    return Truth(log, _most_told(versions), _most_told(places), cells, frozenset(place[0] for place in cells))


def problems_of(truth: Truth) -> Iterator[str]:
    """Versions that all readers agree on and that cannot be: rows are counted in the order of the log.

    Rows that are rolled back to a savepoint are counted, too, and nobody publishes them.
    """
    rows: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
    for text, (_, pos, row) in truth.places.items():
        version = Position.parse(text)
        if version.ordinal:
            rows[version.file, version.offset].append((version.ordinal, (pos, row)))
    for (file, offset), told in sorted(rows.items()):
        told.sort()
        if [place for _, place in told] != sorted(place for _, place in told):
            yield f"the rows of the transaction at {file}:{offset} are not in the order of the log"


def _source(record: Record) -> dict[str, Any] | None:
    payload = None if record.value is None else record.value["payload"]
    source = payload.get("source") if isinstance(payload, dict) else None
    return source if isinstance(source, dict) else None


def _is_xa(source: Mapping[str, Any], log: Log | None) -> bool:
    """Whether the place is that of an XA COMMIT, which all rows of its transaction have."""
    version = Position.parse(source["sequence"])
    kind = None if log is None else log.type_at(source["file"], source["pos"])
    return version.ordinal > 0 and kind is not None and "rows" not in kind.lower()


def _cell(source: Mapping[str, Any], image: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    if source["snapshot"] not in ("false", None):
        return source["db"], source["table"], row.get("id")
    return source["db"], source["table"], source["file"], source["pos"], source["row"], image


def _most_told(told: Mapping[Any, Counter[Any]]) -> dict[Any, Any]:
    return {name: counter.most_common(1)[0][0] for name, counter in told.items()}


def _begins(kind: str) -> bool:
    return "gtid" in kind.lower() and "list" not in kind.lower() and "previous" not in kind.lower()
