"""Which records of two topics belong together: records enter in the order of the log, pairs and loners leave. No I/O.

A record belongs to the next one of the same key on the other side. Where the two differ and are at different positions in
the log, the earlier one is alone: one lost record is one difference, not one for each record behind it. What one side
can't have (it began later, ended earlier, its topic was trimmed or compacted) is counted and is no difference.
"""

from __future__ import annotations

import base64
import json
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from conformance.comparison import Comparison, Verdict, is_boundary
from schemas.overriding import override
from schemas.position import file_number
from tidemark.api.record_decoding import Record

SIDES: Final = ("left", "right")
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_MOMENT: Final = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
OF_TRANSACTION: Final = "\0transaction "
"""What the keys of records begin with that have no order of their own."""
_SHOWN_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a record's change is in the log, as far as the record says: `file` is empty where it has times only.

    `ts_ms` is the source's time in milliseconds, `transaction` a GTID, or the id of a record of the transaction topic.
    """

    ts_ms: int
    file: str = ""
    pos: int = 0
    transaction: str | None = None

    @property
    def order(self) -> tuple[int, int] | None:
        """Number of the file and offset in it; None without a file."""
        return (file_number(self.file), self.pos) if self.file else None

    @property
    def rank(self) -> tuple[int, int]:
        """What records of one topic are ordered by."""
        return self.order or (self.ts_ms, 0)

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.pos}" if self.file else f"ts_ms {self.ts_ms}"


@dataclass(slots=True)
class Incoming:
    """A record on its way. `record` is dropped while it waits, and made again from its bytes by `load`."""

    is_left: bool
    topic: str
    partition: int
    offset: int
    key: str
    coordinates: Coordinates | None
    is_read: bool
    size: int
    load: Callable[[], Record]
    record: Record | None = None

    @property
    def rank(self) -> tuple[int, int] | None:
        """Its order in the log; None for rows of snapshots, and where the record has no position."""
        return None if self.is_read or self.coordinates is None else self.coordinates.rank

    @property
    def side(self) -> int:
        """0 for the left, 1 for the right."""
        return 0 if self.is_left else 1

    def loaded(self) -> Record:
        """Return the record."""
        if self.record is None:
            self.record = self.load()
        return self.record

    @override
    def __str__(self) -> str:
        key = self.key if len(self.key) <= _SHOWN_KEY else f"{self.key[:_SHOWN_KEY]}…"
        payload = None if self.loaded().value is None else self.loaded().value["payload"]
        kind = "a tombstone" if payload is None else f"op {payload['op']}" if _has(payload, "op") else "a record"
        return f"{kind} of key {key or 'null'} at {self.coordinates or 'no coordinates'}"


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the log one side has; `first` and `last` are None where no record names a file."""

    first: Coordinates | None = None
    last: Coordinates | None = None
    first_ms: int | None = None
    last_ms: int | None = None

    def with_coordinates(self, coordinates: Coordinates) -> Span:
        """Return the span that reaches to this place, too."""
        first, last = self.first, self.last
        if coordinates.order is not None:
            first = coordinates if first is None or coordinates.rank < first.rank else first
            last = coordinates if last is None or coordinates.rank > last.rank else last
        first_ms = coordinates.ts_ms if self.first_ms is None else min(self.first_ms, coordinates.ts_ms)
        last_ms = coordinates.ts_ms if self.last_ms is None else max(self.last_ms, coordinates.ts_ms)
        return Span(first, last, first_ms, last_ms)

    def both(self, other: Span) -> Span:
        """Return the part that both have."""
        firsts = [coordinates for coordinates in (self.first, other.first) if coordinates is not None]
        lasts = [coordinates for coordinates in (self.last, other.last) if coordinates is not None]
        return Span(
            max(firsts, key=_rank, default=None),
            min(lasts, key=_rank, default=None),
            max((ms for ms in (self.first_ms, other.first_ms) if ms is not None), default=None),
            min((ms for ms in (self.last_ms, other.last_ms) if ms is not None), default=None),
        )

    def since(self, coordinates: Coordinates) -> Span:
        """Return the part of it from a place on."""
        first_ms = coordinates.ts_ms if self.first_ms is None else max(self.first_ms, coordinates.ts_ms)
        is_later = coordinates.order is not None and (self.first is None or coordinates.rank > self.first.rank)
        return Span(coordinates if is_later else self.first, self.last, first_ms, self.last_ms)

    def is_before(self, coordinates: Coordinates) -> bool:
        """Return whether a place is surely before it."""
        return coordinates.order is not None and self.first is not None and coordinates.rank < self.first.rank

    def is_after(self, coordinates: Coordinates) -> bool:
        """Return whether a place is surely after it."""
        return coordinates.order is not None and self.last is not None and coordinates.rank > self.last.rank

    def is_begin(self, coordinates: Coordinates, *, is_mariadb: bool) -> bool:
        """Return whether a place is not surely behind the begin: in its event, or without an order at its time.

        Of MariaDB in its transaction: places inside of one are not the same for all readers.
        """
        if coordinates.order is None:
            return self.first_ms is not None and coordinates.ts_ms <= self.first_ms
        return self.first is not None and _is_near(coordinates, self.first, is_mariadb=is_mariadb)

    def is_end(self, coordinates: Coordinates, *, is_mariadb: bool) -> bool:
        """As `is_begin`."""
        if coordinates.order is None:
            return self.last_ms is not None and coordinates.ts_ms >= self.last_ms
        return self.last is not None and _is_near(coordinates, self.last, is_mariadb=is_mariadb)


@dataclass(slots=True)
class Tally:
    """What became of the records of one topic that were not compared, by side; and how many were.

    `given_up` are those that were reported as missing because too many waited.
    """

    topic: str
    records: int = 0
    differing: int = 0
    intended: int = 0
    earlier: list[int] = field(default_factory=lambda: [0, 0])
    later: list[int] = field(default_factory=lambda: [0, 0])
    snapshot: list[int] = field(default_factory=lambda: [0, 0])
    compacted: list[int] = field(default_factory=lambda: [0, 0])
    given_up: int = 0


class Pairing:
    """Pairs the records of one topic. What waits for its counterpart takes at most `kept_bytes`: the oldest go first.

    `is_compacted` says that either topic keeps the last record of a key only. Rows of snapshots are compared only where
    `with_snapshots` is set: the two sides read them at different moments. `proven` is, of each side, the position before
    which it has surely written everything: what the other side has before that is missing. `lasts` is, of each side, the last
    position at the first look: what it has behind that came while the two were compared, and is not demanded of the other.
    """

    def __init__(
        self,
        comparison: Comparison,
        span: Span,
        tally: Tally,
        *,
        kept_bytes: int,
        with_snapshots: bool = False,
        is_compacted: bool = False,
        proven: Sequence[Coordinates | None] = (None, None),
        lasts: Sequence[Coordinates | None] = (None, None),
    ) -> None:
        self._proven = proven
        self._lasts = lasts
        self._comparison = comparison
        self._span = span
        self._tally = tally
        self._kept_bytes = kept_bytes
        self._with_snapshots = with_snapshots
        self._is_compacted = is_compacted
        self._waiting: tuple[dict[str, deque[Incoming]], ...] = ({}, {})
        self._arrivals: OrderedDict[int, Incoming] = OrderedDict()
        self._bytes = 0

    def add(self, item: Incoming) -> None:
        """Pair the next record of either side."""
        if item.is_read:
            if not self._with_snapshots:
                self._tally.snapshot[item.side] += 1
                return
        elif item.coordinates is not None and self._span.is_before(item.coordinates):
            self._tally.earlier[item.side] += 1
            return
        elif item.coordinates is not None and self._is_later(item.coordinates) and not self._is_demanded(item.coordinates):
            self._tally.later[item.side] += 1
            return
        others = self._waiting[1 - item.side].get(item.key)
        if item.key.startswith(OF_TRANSACTION):
            self._add_unordered(item, others or ())
            return
        while others:
            other = others[0]
            verdict = self._judge(item, other)
            if verdict.problems and self._is_compacted and (item.coordinates is None) != (other.coordinates is None):
                # A tombstone whose delete is compacted away has no position: one that has is of another change.
                if other.coordinates is None:
                    self._alone(item)
                    return
                self._leave(other)
                self._alone(other)
                continue
            if not verdict.problems or self._same_change(item, other):
                self._leave(other)
                self._comparison.accept(verdict)
                return
            if (item.rank or other.rank or (0, 0)) < (other.rank or (0, 0)):
                self._alone(item)
                return
            self._leave(other)
            self._alone(other)
        self._wait(item)

    def _is_later(self, coordinates: Coordinates) -> bool:
        """Return whether a place is behind the end of the span, and not in its last transaction."""
        is_mariadb = self._is_mariadb
        return self._span.is_after(coordinates) and not (is_mariadb and self._span.is_end(coordinates, is_mariadb=True))

    def _add_unordered(self, item: Incoming, others: Iterable[Incoming]) -> None:
        """Pair a record with any one of the other side that is equal to it; those that differ are paired at the end."""
        for other in others:
            verdict = self._judge(item, other)
            if not verdict.problems:
                self._leave(other)
                self._comparison.accept(verdict)
                return
        self._wait(item)

    def _pair_unequal(self) -> None:
        """Pair what waits of one transaction on both sides: it differs."""
        for key in [key for key in self._waiting[0] if key.startswith(OF_TRANSACTION)]:
            while (queue := self._waiting[0].get(key)) and (others := self._waiting[1].get(key)):
                one, other = queue[0], others[0]
                self._leave(one)
                self._leave(other)
                self._comparison.accept(self._judge(one, other))

    def finish(self) -> None:
        """There are no more records: what waits is alone, but for records of one transaction that differ."""
        self._pair_unequal()
        while self._arrivals:
            self._give_up_oldest()

    def _judge(self, item: Incoming, other: Incoming) -> Verdict:
        left, right = (item, other) if item.is_left else (other, item)
        where = f"{self._tally.topic} [left {left.partition}:{left.offset}, right {right.partition}:{right.offset}]"
        return self._comparison.judge(where, left.loaded(), right.loaded())

    def _same_change(self, one: Incoming, other: Incoming) -> bool:
        """Return whether two records of one key are of the same change, as far as they say.

        Places inside a transaction of MariaDB are not the same for all readers.
        """
        if one.coordinates is None or other.coordinates is None or (one.is_read and other.is_read):
            return True
        if one.coordinates.order is None or other.coordinates.order is None:
            return True
        return _is_near(one.coordinates, other.coordinates, is_mariadb=self._is_mariadb)

    @property
    def _is_mariadb(self) -> bool:
        return self._comparison.scenario.startswith("mariadb")

    def _wait(self, item: Incoming) -> None:
        item.record = None
        self._waiting[item.side].setdefault(item.key, deque()).append(item)
        self._arrivals[id(item)] = item
        self._bytes += item.size
        while self._bytes > self._kept_bytes:
            self._tally.given_up += 1
            self._give_up_oldest()

    def _give_up_oldest(self) -> None:
        item = next(iter(self._arrivals.values()))
        self._leave(item)
        self._alone(item)

    def _leave(self, item: Incoming) -> None:
        """Remove a record that waits under its key."""
        del self._arrivals[id(item)]
        self._bytes -= item.size
        queue = self._waiting[item.side][item.key]
        if queue[0] is item:
            queue.popleft()
        else:
            del queue[next(at for at, other in enumerate(queue) if other is item)]
        if not queue:
            del self._waiting[item.side][item.key]

    def _is_demanded(self, coordinates: Coordinates, sides: Iterable[int] = (0, 1)) -> bool:
        """Return whether a record that one of these sides has there is demanded of its other side.

        That has surely written it, and the record was there at the first look.
        """
        order = coordinates.order
        return order is not None and any(
            proven is not None and order < proven.rank and (last is None or order <= last.rank)
            for proven, last in ((self._proven[1 - side], self._lasts[side]) for side in sides)
        )

    def _alone(self, item: Incoming) -> None:
        tally = self._tally
        coordinates = None if item.is_read else item.coordinates
        if coordinates is not None and self._span.is_begin(coordinates, is_mariadb=self._is_mariadb):
            tally.earlier[item.side] += 1
        elif (
            coordinates is not None
            and (self._is_later(coordinates) or self._span.is_end(coordinates, is_mariadb=self._is_mariadb))
            and not self._is_demanded(coordinates, [item.side])
        ):
            tally.later[item.side] += 1
        elif self._is_compacted:
            tally.compacted[item.side] += 1
        elif not self._comparison.is_meant_alone(item.loaded(), is_left=item.is_left):
            where = f"{tally.topic} [{SIDES[item.side]} {item.partition}:{item.offset}]"
            self._comparison.differ(f"{where}: only on the {SIDES[item.side]}: {item}")


def coordinates_of(payload: Any) -> Coordinates | None:
    """Return where the change of a record's value is; None where the value has no position."""
    if not isinstance(payload, dict):
        return None
    source = payload.get("source")
    if isinstance(source, dict) and source.get("file"):
        return Coordinates(source.get("ts_ms") or 0, source["file"], source.get("pos") or 0, source.get("gtid"))
    if is_boundary(payload) and _has(payload, "ts_ms"):
        return Coordinates(payload["ts_ms"], transaction=payload["id"])
    if _has(payload, "__source_ts_ms"):
        return Coordinates(payload["__source_ts_ms"])
    return None


def own_key(payload: Any, coordinates: Coordinates | None) -> str:
    """Return what distinguishes a record without a key: its position and row; of snapshot rows their content.

    Of MariaDB its transaction, operation and row: positions inside of a transaction are not the same for all readers. Several
    records have one such key then, and no order in a topic of several partitions.
    """
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, dict):
        return json.dumps(payload, default=_plain, sort_keys=True)
    if is_read(payload):
        return json.dumps(payload.get("after"), default=str, sort_keys=True)
    if source.get("connector") == "mariadb" and source.get("gtid"):
        return f"{OF_TRANSACTION}{source['gtid']} {payload.get('op')} {source.get('row')}"
    return f"{coordinates} {source.get('row')}"


def is_read(payload: Any) -> bool:
    """Return whether a value was read from a table, or reported of one, by a snapshot."""
    if not isinstance(payload, dict):
        return False
    source = payload.get("source")
    if isinstance(source, dict):
        return source.get("snapshot") not in (None, "false")
    return payload.get("__op") == "r"


def key_text(key: Any) -> str:
    """Return a record's key as text that is the same for the same key on either side, whatever its format; "" for null.

    A BIGINT UNSIGNED may be an int64 here and a Decimal there.
    """
    if key is None:
        return ""
    payload = key["payload"]
    if not isinstance(payload, dict):
        return json.dumps(payload, default=_plain)
    exact = _decimals(key["schema"])
    fields = {name: _from_base64(value) if name in exact else value for name, value in payload.items()}
    return json.dumps({name: _wrapped(value) for name, value in fields.items()}, default=_plain, ensure_ascii=False)


def _decimals(schema: Any) -> frozenset[str]:
    """Return the fields of Connect's JSON that are Decimals without decimals."""
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    return frozenset(
        item["field"]
        for item in fields
        if item.get("name") == _DECIMAL and item.get("parameters", {}).get("scale") == "0"
    )


def _from_base64(value: Any) -> Any:
    return int.from_bytes(base64.b64decode(value), "big", signed=True) if isinstance(value, str) else value


def _wrapped(value: Any) -> Any:
    """Return a whole number as Debezium's default has it, in 64 bits with a sign; a TIMESTAMP without zeros at its end."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        whole, _, digits = value.removesuffix("Z").partition(".")
        return f"{whole}.{digits.rstrip('0')}Z"
    is_wide = isinstance(value, int) and 2**63 <= value < 2**64
    return value - 2**64 if is_wide else value


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _has(payload: Mapping[str, Any], name: str) -> bool:
    return payload.get(name) is not None


def _rank(coordinates: Coordinates) -> tuple[int, int]:
    return coordinates.rank


def _is_near(one: Coordinates, other: Coordinates, *, is_mariadb: bool) -> bool:
    """Return whether two places are that of one event; of MariaDB: of one transaction."""
    if is_mariadb and one.transaction is not None and other.transaction is not None:
        return one.transaction == other.transaction
    return one.order == other.order
