"""Two streams of records of the same changes, compared record by record; every difference is named.

Keys and values come as `{"schema": …, "payload": …}`, whatever the format was: the schema is Connect's JSON
schema block or the Avro schema of the registry, None where records have none. Without schemas the types of values are
not known, and no difference of values is excused.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from conformance.difference import Difference, is_same, is_same_value
from conformance.fit import Misfits
from conformance.intended_differences import (
    CONTEXT,
    CONTEXT_HEADERS,
    DIFFERENCES,
)
from conformance.own_records import VersionCheck, boundary_problems, is_one_time, table_of, version_of
from conformance.record_schemas import Column, SchemaPairs, Types
from conformance.wire_check import WireCheck
from schemas.errors import TidemarkError
from schemas.position import Position
from tidemark.api.record_decoding import Record

# Of each reader's own clock: present and of one type on both sides.
CLOCKS: Final = {"ts_ms": 1, "ts_us": 1_000, "ts_ns": 1_000_000}
UNKNOWN: Final = object()
Witness = Callable[[Mapping[str, Any], str, str, Mapping[str, Any]], Any]
KEY_HEADERS: Final = frozenset({"__debezium.newkey", "__debezium.oldkey"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What differs between two records: problems as sentences, and what was excused.

    `filled` counts defaults that were excused as NULL of the other side; `null_at` is where the left side left NULL.
    """

    problems: tuple[str, ...]
    intended: Counter[Difference]
    filled: int = 0
    null_at: str | None = None


@dataclass
class Comparison:
    """What was compared so far; `problems` are differences that nobody meant, at most `kept` of them as sentences.

    `scenario` is what the patterns of the list of differences speak of. `xa` are the ids of the XA transactions seen in
    the rows. Fields of `source` named in `readers_own` are compared by type only. `has_blocks` is whether the left side
    has transaction blocks at all: what has none there is of an XA transaction then. `keeps_nulls` is whether its converter
    leaves NULL where a column has a default; where it is not known, the first such NULL shows it.

    `witness` gives the value of a column of a row, named by its source and image, as a mode that loses nothing has it;
    `UNKNOWN` where none can be had. `objections` names what is wrong with a source of ours, or with a boundary (`b` in the
    place of an operation), by what else is known of the log. `statements` are the texts of DDL seen so far,
    `partitions` the number of partitions of the topic of the right side that is compared, 0 where keys are not to be in one.
    `clocks_apart_ms` is how far the clocks of two readers that ran at the same time may be apart.
    """

    scenario: str
    left_prefix: str
    right_prefix: str
    records: int = 0
    xa: set[str] = field(default_factory=set)
    intended: Counter[Difference] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    differing: int = 0
    kept: int | None = None
    differences: Sequence[Difference] = DIFFERENCES
    names: tuple[str, str] = ("Debezium", "ours")
    readers_own: frozenset[str] = frozenset()
    has_blocks: bool = True
    keeps_nulls: bool = False
    witness: Witness | None = None
    objections: Callable[[str, Mapping[str, Any]], Iterable[str]] | None = None
    clocks_apart_ms: int | None = None
    statements: set[str] = field(default_factory=set)
    partitions: int = 0
    _fit: Misfits = field(default_factory=Misfits)
    _filled: int = 0
    _null_at: str | None = None
    _versions: VersionCheck = field(default_factory=VersionCheck)
    _xa_rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    _left_out: frozenset[str] = frozenset()
    _schemas: SchemaPairs = field(init=False)
    _wire: WireCheck = field(init=False)

    def __post_init__(self) -> None:
        prefixes = (self.left_prefix, self.right_prefix)
        self._schemas = SchemaPairs(self.scenario, prefixes, self.names, self.differences)
        self._wire = WireCheck(self._schemas.renamed_names)

    def topic(self, name: str, left: Sequence[Record], right: Sequence[Record]) -> None:
        """Compare the records of one topic, in their order; the left is Debezium's."""
        left, right = self.aligned(left, right)
        if len(left) != len(right):
            self.differ(f"{name}: {len(left)} records of {self.names[0]}, {len(right)} of {self.names[1]}")
        for one, other in zip(left, right, strict=False):
            self.accept(self.judge(f"{name} [{one.offset}]", one, other))

    def aligned(self, left: Sequence[Record], right: Sequence[Record]) -> tuple[list[Record], list[Record]]:
        """Return the records of one topic that have a counterpart; what is meant to have none is counted as intended."""
        left = [record for record in left if not self._is_meant_to_be_alone(record)]
        if not any(map(_is_read_again, left)):
            right = [record for record in right if not (_is_read_again(record) and self.is_meant_alone(record, is_left=False))]
        return [*left], [*right]

    def judge(self, where: str, left: Record, right: Record) -> Verdict:
        """Compare two records, and count nothing."""
        outside = self.problems, self.differing, self.intended, self.kept, self._filled, self._null_at
        self.problems, self.differing, self.intended, self.kept, self._filled, self._null_at = [], 0, Counter(), None, 0, None
        try:
            self._record(where, left, right)
            return Verdict(tuple(self.problems), self.intended, self._filled, self._null_at)
        finally:
            self.problems, self.differing, self.intended, self.kept, self._filled, self._null_at = outside

    def accept(self, verdict: Verdict) -> None:
        """Count two records that belong together."""
        self.records += 1
        self.intended.update(verdict.intended)
        for problem in verdict.problems:
            self.differ(problem)
        self._filled += verdict.filled
        if verdict.null_at is not None and not self.keeps_nulls:
            self.keeps_nulls = True
            if self._filled:
                where, (left, right) = verdict.null_at, self.names
                self.differ(f"{where}: {left} keeps NULL, and had a default for NULL of {right} {self._filled} times")

    def differ(self, problem: str) -> None:
        """Count a difference."""
        self.differing += 1
        if self.kept is None or len(self.problems) < self.kept:
            self.problems.append(problem)

    def is_meant_alone(self, record: Record, *, is_left: bool) -> bool:
        """Return whether the other side is meant not to have a record; counted as intended then."""
        if record.value is None:
            return False
        payload = _payload(record)
        if not is_left and _op(record) == "r":
            return self._is_meant("record", "r", None, payload)
        if not is_boundary(payload):
            return False
        if is_left:
            return self._is_meant("boundary", "k", payload, None)
        return payload["id"] in self.xa and self._is_meant("boundary", "x", None, payload)

    def first(self, name: str, left: Sequence[Record], right: Sequence[Record]) -> None:
        """Compare the first records of a topic where both continue for ever."""
        if not (left and right):
            self.differ(f"{name}: {len(left)} records of {self.names[0]}, {len(right)} of {self.names[1]}")
        for one, other in zip(left[:1], right[:1], strict=False):
            theirs, own = _payload(one), _payload(other)
            for clock in CLOCKS.keys() & theirs.keys() & own.keys():
                self._clock(f"{name} value.{clock}", clock, theirs[clock], own[clock])
        sides = ((left, self.left_prefix), (right, self.right_prefix))
        self.topic(name, *([_impersonal(record, prefix) for record in side[:1]] for side, prefix in sides))

    def transaction_boundaries(self, name: str, left: Sequence[Record], right: Sequence[Record]) -> None:
        """Compare the transaction topics."""
        ended = {boundary["id"] for boundary in map(_payload, left) if boundary["status"] == "END"}
        closed = [
            record
            for record in left
            if _payload(record)["id"] in ended or not self._is_meant("boundary", "k", _payload(record), None)
        ]
        published = [
            record
            for record in right
            if _payload(record)["id"] not in self.xa or not self._is_meant("boundary", "x", None, _payload(record))
        ]
        self.topic(name, closed, published)
        for ident in sorted(self.xa):
            boundaries = [end for end in map(_payload, right) if end["id"] == ident]
            for problem in boundary_problems(f"{name} {ident}", ident, boundaries, self._xa_rows.get(ident, ()), self.names[1]):
                self.differ(problem)

    def _is_meant_to_be_alone(self, record: Record) -> bool:
        payload = record.value and _payload(record)
        if isinstance(payload, dict) and "ddl" in payload:
            return self._is_meant("statement", "s", payload, None)
        return self._is_meant("record", "k", record.key and record.key["payload"], None)

    def _record(self, where: str, left: Record, right: Record) -> None:
        for problem in self._wire.problems(left, right, self.names, self.partitions):
            self.differ(f"{where}{problem}")
        is_read = left.value is not None and _op(left) == "r"
        self._left_out = _left_out(right) if is_read else frozenset()
        types = self._part(f"{where} key", left.key, right.key, "r" if is_read else "k")
        self._headers(f"{where} headers", left.headers, right.headers, types)
        if left.value is None or right.value is None:
            self._same(f"{where} tombstone", left.value is None, right.value is None)
            return
        self._part(f"{where} value", left.value, right.value, "k")
        for name, part in (("key", right.key), ("value", right.value)):
            if part is not None:
                for problem in self._fit.of(part):
                    self.differ(f"{where} {name}{problem}")

    def _headers(self, where: str, left: Mapping[str, str], right: Mapping[str, str], types: Types) -> None:
        kept = {name: text for name, text in left.items() if name not in CONTEXT_HEADERS}
        if len(kept) < len(left):
            self.intended[CONTEXT] += 1
        self._same(f"{where} names", list(kept), list(right))
        for name in kept.keys() & right.keys():
            if kept[name] != right[name]:
                self._key_header(f"{where}.{name}", kept[name], right[name], types)

    def _key_header(self, where: str, left: str, right: str, types: Types) -> None:
        before = len(self.problems), sum(self.intended.values())
        if where.rpartition(" headers.")[2] in KEY_HEADERS:
            with contextlib.suppress(ValueError):  # not every text of a struct is JSON
                one, other = json.loads(left), json.loads(right)
                if isinstance(one, dict) and isinstance(other, dict) and _is_plain(left, one) == _is_plain(right, other):
                    self._fields(where, "k", one, other, types)
        is_open = before == (len(self.problems), sum(self.intended.values()))
        if is_open and not self._is_meant("header", "k", left, right):
            self._same(where, left, right)

    def _part(self, where: str, left: Any, right: Any, op: str) -> Types:
        if left is None or right is None:
            self._same(where, left, right)
            return Types()
        findings = self._schemas.compare(left["schema"], right["schema"])
        self.intended.update(findings.intended)
        for problem in findings.problems:
            self.differ(f"{where} schema{problem}")
        self._payload(where, op, left["payload"], right["payload"], findings.types)
        return findings.types

    def _payload(self, where: str, part: str, left: Any, right: Any, types: Types) -> None:
        if not (isinstance(left, dict) and isinstance(right, dict)):
            self._same(where, left, right)
            return
        op = left.get("op")
        if is_boundary(left):
            self._boundary(where, left, right)
            return
        if {"ddl", "tableChanges", "source"} <= left.keys() & right.keys():
            self._schema_change(where, left, right)
            return
        if op is None or not isinstance(left.get("source"), dict) or not isinstance(right.get("source"), dict):
            self._fields(where, part, left, right, types)
            return
        self._clocks(where, left, right)
        self._same(f"{where} fields", [*left], [*right])
        block = right.get("transaction")
        self.has_blocks = self.has_blocks or left.get("transaction") is not None
        moment = "x" if self.has_blocks and left.get("transaction") is None and block is not None else op
        if moment == "x" and block is not None:
            self.xa.add(block["id"])
            self._same(f"{where} transaction id", right["source"]["gtid"], block["id"])
            if right["source"].get("thread", 0) is None:  # as Debezium's is
                self.differ(f"{where}: {self.names[1]} has no thread of an XA COMMIT")
            self._xa_rows.setdefault(block["id"], []).append(right)
        for name in left.keys() & right.keys():
            path = f"{where}.{name}"
            if name == "source":
                self._source(path, moment, left[name], right[name])
            elif name == "transaction":
                self._value(path, moment, name, left[name], right[name], (left["source"], right["source"]))
            elif name in ("before", "after"):
                self._row(path, op, left[name], right[name], types, (left["source"], name))
            elif name in CLOCKS:
                self._clock(path, name, left[name], right[name])
            else:
                self._same(path, left[name], right[name])

    def _row(
        self, where: str, op: str, left: Any, right: Any, types: Types, image: tuple[Mapping[str, Any], str]
    ) -> None:
        if left is None or right is None:
            self._same(where, left, right)
            return
        self._fields(where, op, left, right, types, image)

    def _fields(
        self,
        where: str,
        op: str,
        left: Any,
        right: Any,
        types: Types,
        image: tuple[Mapping[str, Any], str] | None = None,
    ) -> None:
        """Columns, of an image of a row in the log: its source and `before` or `after`."""
        self._same(f"{where} fields", [*left], [*right])
        for name in left.keys() & right.keys():
            one, other, column = left[name], right[name], types.of(name)
            if self._may_be_null(column, one) and other is not None and self._seen(image, name, right) is None:
                self.differ(f"{where}.{name}: {self.names[0]} has a default for NULL, {self.names[1]} {other!r}")
            elif is_same_value(one, other):
                self._see_null(where, column, one)
            elif image is None and op == "r" and name in self._left_out and self._is_meant("left out", op, one, other):
                continue
            else:
                self._column(f"{where}.{name}", op, column, one, other, self._seen(image, name, right))

    def _seen(self, image: tuple[Mapping[str, Any], str] | None, column: str, row: Mapping[str, Any]) -> Any:
        return UNKNOWN if self.witness is None or image is None else self.witness(*image, column, row)

    def _see_null(self, where: str, column: Column, value: Any) -> None:
        """Note that the left side leaves NULL where a column has a default."""
        if value is None and column.default is not None and self._null_at is None:
            self._null_at = where

    def _may_be_null(self, column: Column, left: Any) -> bool:
        """Return whether a value of the left side is a default, which its converter may have put in the place of NULL."""
        return (
            column.default is not None
            and column.is_optional
            and not self.keeps_nulls
            and is_same(left, column.default)
        )

    def _column(self, where: str, op: str, column: Column, left: Any, right: Any, seen: Any) -> None:
        """Report a value that differs."""
        if self._may_be_null(column, left) and self._is_meant("default", op, left, right, seen=seen):
            self._filled += 1
            return
        if not self._is_meant(column.kind, op, left, right, seen=seen):
            self.differ(f"{where} ({column.kind}): {self._both(left, right)}")

    def _boundary(self, where: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
        """BEGIN or END; tables stand there in the order of a hash map."""
        self._same(f"{where} fields", [*left], [*right])
        for name in left.keys() & right.keys():
            one, other = (
                sorted(side[name], key=table_of) if isinstance(side[name], list) else side[name]
                for side in (left, right)
            )
            self._value(f"{where}.{name}", "k", f"boundary.{name}", one, other)
        self._object(where, "b", right)

    def _object(self, where: str, op: str, struct: Mapping[str, Any]) -> None:
        for objection in self.objections(op, struct) if self.objections is not None else ():
            self.differ(f"{where}: {objection}")

    def _schema_change(self, where: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
        """Compare a statement, and what its tables look like after it."""
        self._same(f"{where} fields", [*left], [*right])
        self.statements.add(left["ddl"] or "")
        op = "r" if left["source"]["snapshot"] not in (None, "false") else "s"
        self._clocks(where, left, right)
        for name in left.keys() & right.keys():
            path = f"{where} {left['ddl'] or ''!r:.60} {name}"
            if name == "source":
                self._source(path, op, left[name], right[name])
            elif name in CLOCKS:
                self._clock(path, name, left[name], right[name])
            elif name == "tableChanges":
                self._model(path, name, left[name], right[name])
            else:
                self._same(path, left[name], right[name])

    def _model(self, where: str, name: str, left: Any, right: Any, structs: Structs = None) -> None:
        """Compare what is reported of tables: structs, arrays of them, and values."""
        if isinstance(left, dict) and isinstance(right, dict):
            self._same(f"{where} fields", [*left], [*right])
            for item in left.keys() & right.keys():
                self._model(f"{where}.{left.get('name', '')}.{item}", item, left[item], right[item], (left, right))
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            for index, (one, other) in enumerate(zip(left, right, strict=True)):
                self._model(f"{where}[{index}]", name, one, other)
        else:
            self._value(where, "s", f"model.{name}", left, right, structs)

    def _source(self, where: str, op: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
        self._same(f"{where} fields", [*left], [*right])
        for name in left.keys() & right.keys():
            path = f"{where}.{name}"
            if name == "name":
                self._same(path, (left[name], right[name]), (self.left_prefix, self.right_prefix))
            elif name == "sequence":
                self._sequence(path, op, left[name], right[name])
            elif name == "snapshot" and left[name] is None:
                self._same(path, "false", right[name])  # the default of the schema, which Debezium leaves unset
            elif name in self.readers_own:
                self._same(f"{path} type", type(left[name]), type(right[name]))
            else:
                self._value(path, op, f"source.{name}", left[name], right[name], (left, right))
        self._clocks(where, left, right)
        for problem in self._versions.problems(op, right):
            self.differ(f"{where}: {problem}")
        if version_of(right) is not None:
            self._object(where, op, right)

    def _sequence(self, where: str, op: str, left: Any, right: Any) -> None:
        """Debezium has none here; ours is the version of the row, the same in two of ours but for its epoch."""
        try:
            other = Position.parse(right)
            one = None if left is None else Position.parse(left)
        except (TidemarkError, TypeError, ValueError):
            self.differ(f"{where}: not a position: {self._both(left, right)}")
            return
        if one is not None and op != "r":
            self._same(where, replace(one, epoch=0).text, replace(other, epoch=0).text)

    def _clock(self, where: str, name: str, left: Any, right: Any) -> None:
        """Check a time of the reader's own clock."""
        self._same(f"{where} type", type(left), type(right))
        if self.clocks_apart_ms is None or not (isinstance(left, int) and isinstance(right, int)):
            return
        if abs(left - right) > self.clocks_apart_ms * CLOCKS[name]:
            self.differ(f"{where}: times that are far apart: {self._both(left, right)}")

    def _clocks(self, where: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
        """Check that times in milli-, micro- and nanoseconds are the same time, where the left side has them."""
        if is_one_time(left) and not is_one_time(right):
            self.differ(f"{where}: not one time: {self.names[1]} {[right.get(name) for name in CLOCKS]}")

    def _value(self, where: str, op: str, kind: str, left: Any, right: Any, structs: Structs = None) -> None:
        if not is_same_value(left, right) and not self._is_meant(kind, op, left, right, structs):
            self.differ(f"{where} ({kind}): {self._both(left, right)}")

    def _both(self, left: Any, right: Any) -> str:
        return f"{self.names[0]} {left!r}, {self.names[1]} {right!r}"

    def _is_meant(
        self, kind: str, op: str, left: Any, right: Any, structs: Structs = None, seen: Any = UNKNOWN
    ) -> bool:
        for difference in self.differences:
            if (
                difference.covers(kind, op, self.scenario)
                and difference.excuses(left, right)
                and (structs is None or difference.excuses_in(*structs))
                and (structs is None or difference.is_declared(structs[0], right, self.statements))
                and self._is_proved(difference, seen)
            ):
                self.intended[difference] += 1
                return True
        return False

    @staticmethod
    def _is_proved(difference: Difference, seen: Any) -> bool:
        return difference.proof is None or seen is UNKNOWN or difference.proof(seen)

    def _same(self, where: str, left: Any, right: Any) -> None:
        if not is_same_value(left, right):
            self.differ(f"{where}: {self._both(left, right)}")


Structs = tuple[Mapping[str, Any], Mapping[str, Any]] | None
"""The structs two values are fields of."""


def is_boundary(payload: Any) -> bool:
    """Return whether a value is a BEGIN or END; a flat row may have columns of some of these names."""
    return isinstance(payload, dict) and payload.keys() >= {"status", "id", "event_count", "data_collections"}


def _payload(record: Record) -> Any:
    return record.value["payload"]


def _impersonal(record: Record, prefix: str) -> Record:
    """Values of the clock as their types, and the prefix as such."""

    def reworded(part: Any) -> Any:
        payload = {
            name: 0 if name in CLOCKS and isinstance(value, int) else "the prefix" if value == prefix else value
            for name, value in part["payload"].items()
        }
        return {**part, "payload": payload}

    wire = record.wire
    if wire is not None and wire.key is not None:
        wire = replace(wire, key=wire.key.replace(f'"{prefix}"'.encode(), b'"the prefix"'))
    return replace(record, key=reworded(record.key), value=reworded(record.value), wire=wire)


def _op(record: Record) -> Any:
    payload = _payload(record)
    return payload.get("op") if isinstance(payload, dict) else None


def _left_out(record: Record) -> frozenset[str]:
    """Return the columns of a record's key that its row does not have."""
    key = record.key["payload"] if record.key is not None else None
    row = _payload(record).get("after") if record.value is not None and isinstance(_payload(record), dict) else None
    return frozenset(key) - frozenset(row) if isinstance(key, dict) and isinstance(row, dict) else frozenset()


def _is_read_again(record: Record) -> bool:
    """Return whether it is a row of a snapshot that is not the first."""
    return record.value is not None and _op(record) == "r" and _payload(record)["source"]["snapshot"] == "incremental"


def _is_plain(text: str, document: Any) -> bool:
    """Return whether a text of JSON is written without spaces."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) == text
