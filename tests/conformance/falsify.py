"""One value of every kind falsified in what we wrote; the comparison has to notice each. Pure: it costs no server.

A kind is a place in a record (a column by its type, the operation, whether the two sides differ there as they are meant
to) and a way to falsify it: another value, null, another type, missing, added, in another order. Of each kind one record
of a scenario is falsified. Records themselves are lost, doubled and moved, one of each kind in each topic.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Self

from conformance.comparison import CLOCKS
from conformance.difference import is_same
from conformance.pairing import is_read
from conformance.record_schemas import Types
from conformance.value_differences import is_in_year_0, is_not_read
from tests.conformance.listed_events import Truth
from tests.conformance.recorded import HEARTBEATS, Recorded, compare_topic
from tests.support.topics import Record
from tidemark.api.record_decoding import PAYLOAD, Decoder

DAY_MS: Final = 86_400_000
_FLOAT32_MAX: Final = 3.4e38
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT)(\d\d)(:\d\d:\d\d(\.\d+)?Z)")
_HEX: Final = re.compile(r"[0-9A-F]+")
Path = tuple[Any, ...]
ALIKE: Final = 2  # topics in which the records of one kind are lost, doubled and moved


@dataclass
class Outcome:
    """How many falsifications were tried, and those that nobody noticed."""

    tried: int = 0
    missed: list[str] = field(default_factory=list)

    @property
    def noticed(self) -> int:
        """How many were noticed."""
        return self.tried - len(self.missed)

    def __iadd__(self, other: Outcome) -> Self:
        self.tried += other.tried
        self.missed += other.missed
        return self


def falsify(recorded: Recorded, truth: Truth) -> Outcome:
    """Falsify one value of every kind in a scenario, and one record of every kind in each topic."""
    outcome = Outcome()
    notice = _Notice(recorded, truth)
    seen: set[str] = set()
    shapes: set[Any] = set()
    moved: Counter[str] = Counter()
    for topic, (theirs, ours) in recorded.topics.items():
        pairs = [*zip(*recorded.comparison(truth).aligned(theirs, ours), strict=False)]
        if topic == HEARTBEATS:
            pairs = pairs[:1]
        for left, right in pairs:
            for kind, false in falsified(left, right, shapes):
                if kind in seen:
                    continue
                seen.add(kind)
                outcome.tried += 1
                if not notice.of_value(topic, left, right, false):
                    outcome.missed.append(f"{recorded.scenario.name}: {topic} [{right.offset}]: {kind}")
        for kind, falsely in displaced(ours):
            moved[kind] += 1
            if topic == HEARTBEATS or moved[kind] > ALIKE:
                continue
            outcome.tried += 1
            if not notice.of_records(topic, falsely):
                outcome.missed.append(f"{recorded.scenario.name}: {topic}: {kind}")
    return outcome


class _Notice:
    """Finds whether a falsification is noticed: a problem that was not there, where there are problems anyway."""

    def __init__(self, recorded: Recorded, truth: Truth) -> None:
        self._recorded = recorded
        self._truth = truth
        self._comparison = recorded.comparison(truth)
        self._problems = Counter(recorded.compared(truth).problems)
        self._of_topics: dict[str, Counter[str]] = {}

    def of_value(self, topic: str, left: Record, right: Record, false: Record) -> bool:
        """Whether a falsified record is noticed beside its counterpart, else in the whole scenario."""
        try:
            if topic != HEARTBEATS and self._beside(left, false) - self._beside(left, right):
                return True
            ours = [false if record is right else record for record in self._recorded.topics[topic][1]]
            compared = self._recorded.with_topic(topic, ours).compared(self._truth)
            return bool(Counter(compared.problems) - self._problems)
        except (KeyError, TypeError, ValueError, AttributeError):  # no record of any writer: the comparison ends with it
            return True

    def of_records(self, topic: str, falsely: Sequence[Record]) -> bool:
        """Whether it is noticed that a topic has other records."""
        if topic not in self._of_topics:
            self._of_topics[topic] = self._in_topic(topic, self._recorded.topics[topic][1])
        return bool(self._in_topic(topic, falsely) - self._of_topics[topic])

    def _beside(self, left: Record, right: Record) -> Counter[str]:
        return Counter(self._comparison.judge("", left, right).problems)

    def _in_topic(self, topic: str, ours: Sequence[Record]) -> Counter[str]:
        fresh = self._recorded.comparison(self._truth)
        compare_topic(fresh, topic, self._recorded.topics[topic][0], ours)
        return Counter(fresh.problems)


def _shape(left: Any, right: Any) -> Any:
    """What payloads have in common whose falsifications are of the same kinds, as far as it can be reported at a glance."""
    if isinstance(right, dict):
        theirs = left if isinstance(left, dict) else {}
        return tuple((name, _shape(theirs.get(name), value)) for name, value in right.items())
    if isinstance(right, list):
        return len(right)
    return type(right), type(left) is type(right) and bool(left == right)


def _parts(schema: Any) -> frozenset[str]:
    """The fields of all structs of a schema without their names."""
    if isinstance(schema, list):
        return frozenset[str]().union(*map(_parts, schema))
    if not isinstance(schema, dict):
        return frozenset()
    inner = frozenset[str]().union(*(_parts(value) for value in schema.values()))
    reported = {name: value for name, value in schema.items() if name not in ("field", "fields", "name")}
    return inner | {json.dumps([reported, str(schema.get("name")).rpartition(".")[2]], default=str)}


# ── records ────────────────────


def displaced(ours: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    """The records of a topic with one lost, doubled, moved behind the next or added, for each kind of record."""
    kinds: dict[str, int] = {}
    for number, record in enumerate(ours):
        if not _is_read_again(record):
            kinds[kind_of(record)] = number  # the last of its kind
    records = list(ours)
    for kind, number in kinds.items():
        before, record, after = records[:number], records[number], records[number + 1 :]
        yield f"{kind} lost", [*before, *after]
        yield f"{kind} doubled", [*before, record, record, *after]
        if after and not _is_equal(record, after[0]) and not _is_read_again(after[0]):
            yield f"{kind} behind the next", [*before, after[0], record, *after[1:]]


def kind_of(record: Record) -> str:
    """What kind of record it is."""
    payload = None if record.value is None else record.value["payload"]
    if not isinstance(payload, dict):
        return "a tombstone"
    for name in ("op", "__op", "status"):
        if name in payload:
            return f"{name} {payload[name]}"
    return "a record"


def _is_equal(one: Record, other: Record) -> bool:
    return is_same(
        [one.key, one.value, dict(one.headers)], [other.key, other.value, dict(other.headers)]
    )


def _is_read_again(record: Record) -> bool:
    """Whether Debezium has no such record: a row of a table that is read again."""
    payload = None if record.value is None else record.value["payload"]
    source = payload.get("source") if isinstance(payload, dict) else None
    return isinstance(source, dict) and source.get("snapshot") == "incremental"


# ── values ────────────────────


def falsified(left: Record, right: Record, shapes: set[Any]) -> Iterator[tuple[str, Record]]:
    """The right record with one thing falsified each time, and of what kind that is; but for shapes seen before."""
    what = kind_of(right)
    if _is_new(shapes, (what, tuple(right.headers), right.key is None)):
        yield from _headers(right)
        yield from _absent(what, right)
    if right.wire is not None and _is_new(shapes, (what, "wire", right.key is None, right.value is None, bool(right.headers))):
        yield from _rewritten(what, right)
    for part in ("key", "value"):
        theirs, ours = getattr(left, part), getattr(right, part)
        if theirs is None or ours is None:
            continue
        types = Types(ours["schema"], theirs["schema"])
        parts = [(what, part, reported) for reported in _parts(ours["schema"])] if ours["schema"] is not None else []
        shape = (what, part, id(ours["schema"]), _shape(theirs["payload"], ours["payload"]))
        names = ["payload"] * _is_new(shapes, shape) + ["schema"] * (not shapes.issuperset(parts))
        shapes.update(parts)
        for name in names:
            for path, way, document in changes(ours[name], (), is_schema=name == "schema"):
                if name == "payload" and _is_lost(what, part, theirs[name], ours[name], path):
                    continue
                kind = f"{what}: {part} {name} {_named(path, types, name)}{_state(theirs[name], ours[name], path)} {way}"
                yield kind, replace(right, **{part: {**ours, name: document}}, wire=None)
        if part == "value" and isinstance(ours["payload"], dict) and _is_new(shapes, (what, "times", is_read(ours["payload"]))):
            yield from _later(what, right)


def _is_new(shapes: set[Any], shape: Any) -> bool:
    is_new = shape not in shapes
    shapes.add(shape)
    return is_new


def _absent(what: str, right: Record) -> Iterator[tuple[str, Record]]:
    for part, other in (("key", right.value), ("value", right.key)):
        if getattr(right, part) is not None:
            yield f"{what}: no {part}", replace(right, **{part: None}, wire=None)
        elif other is not None:
            yield f"{what}: a {part} for null", replace(right, **{part: other}, wire=None)


def _later(what: str, right: Record) -> Iterator[tuple[str, Record]]:
    """The record with all times of its source or boundary later, by little: each of them fits the others."""
    payload = right.value["payload"]
    source = payload.get("source")
    if is_read(payload):
        return  # of the reader's own clock
    if isinstance(source, dict) and isinstance(source.get("ts_us"), int):
        for us in (1, 1_000, 1_000_000):
            later = source["ts_us"] + us
            times = {"ts_ms": later // 1_000, "ts_us": later, "ts_ns": later * 1_000}
            false = {**payload, "source": {**source, **times}}
            yield f"{what}: source {us} microseconds later", replace(right, value={**right.value, "payload": false}, wire=None)
    elif isinstance(payload.get("ts_ms"), int) and "data_collections" in payload:
        for seconds in (-1, 1, 59):
            false = {**payload, "ts_ms": payload["ts_ms"] + seconds * 1_000}
            yield f"{what}: a boundary {seconds} s later", replace(right, value={**right.value, "payload": false}, wire=None)


_DECODER: Final = Decoder()
EMPTY: Final = b'{"schema":null,"payload":null}'


def _rewritten(what: str, right: Record) -> Iterator[tuple[str, Record]]:
    """The record in other bytes of the same meaning, or in bytes that a decoder takes for it."""
    wire = right.wire
    assert wire is not None
    if wire.headers:
        yield "a header twice", replace(right, wire=replace(wire, headers=(*wire.headers, wire.headers[0])))
    for part in ("key", "value"):
        data: bytes | None = getattr(wire, part)
        for way, false in _other_bytes(data, part):
            decoded = {} if false[:1] == b"\0" else {part: _DECODER.decode(false)}
            yield f"{what}: {part} {way}", replace(right, **decoded, wire=replace(wire, **{part: false}))


def _other_bytes(data: bytes | None, part: str) -> Iterator[tuple[str, bytes]]:
    if data is None:
        yield "an empty JSON value", EMPTY
        return
    if data[:1] != b"{":
        return
    yield "a field twice", _twice(data)
    head, separator, tail = data.partition(PAYLOAD)
    if separator and tail[:1] == b"{":
        yield "a field of its payload twice", head + separator + _twice(tail)
    if part == "key":  # what decides on its partition, and on what compaction keeps
        document = json.loads(data)
        yield "bytes with spaces", json.dumps(document, ensure_ascii=False).encode()
        if separator:
            other = _dumped({**document, "schema": _turned(document["schema"])})
            yield "bytes with properties of the schema in another order", other.encode()
        letter = data.rindex(b'"', 0, data.rindex(b'"'))
        yield "bytes with an escape", data[: letter + 1] + b"\\u%04x" % data[letter + 1] + data[letter + 2 :]


def _twice(data: bytes) -> bytes:
    """The text of a JSON object with its first field a second time."""
    name = data.partition(b":")[0][1:]
    return data[:1] + name + b":null," + data[1:]


def _turned(schema: Any) -> Any:
    """A schema with its properties in another order."""
    if isinstance(schema, dict):
        return {name: _turned(value) for name, value in reversed(schema.items())}
    return [_turned(item) for item in schema] if isinstance(schema, list) else schema


def _dumped(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _headers(right: Record) -> Iterator[tuple[str, Record]]:
    headers = dict(right.headers)
    yield "a header more", replace(right, headers={**headers, "x": "y"})
    for name, text in headers.items():
        yield f"header {name} lost", replace(right, headers={key: reported for key, reported in headers.items() if key != name})
        yield f"header {name} changed", replace(right, headers={**headers, name: f"{text} "})
        for way, false in _other_texts(text):
            if false == text:
                continue
            yield f"header {name} {way}", replace(right, headers={**headers, name: false})
    if len(headers) > 1:
        yield "headers in another order", replace(right, headers=dict(reversed(headers.items())))


def _named(path: Path, types: Types, name: str) -> str:
    """A path with the type of a column in the place of its name, and without numbers."""
    reported = [str(step) for step in path]
    for index, step in enumerate(path):
        if name == "payload" and isinstance(step, str) and (index == 0 or path[index - 1] in ("before", "after")):
            column = types.of(step)
            if column.kind != "?":
                flags = f"{'?' if column.is_optional else ''}{'=' if column.default is not None else ''}"
                reported[index] = f"<{column.kind}{flags}>"
        elif isinstance(step, int):
            reported[index] = "#"
    return ".".join(reported)


def _state(left: Any, right: Any, path: Path) -> str:
    """Whether the two sides differ there, as they may be meant to."""
    for step in path:
        try:
            left, right = left[step], right[step]
        except (KeyError, IndexError, TypeError):
            return " (alone)"
    if isinstance(right, (dict, list)):
        return ""
    return "" if is_same(left, right) else " (differs)"


def _is_lost(what: str, part: str, left: Any, right: Any, path: Path) -> bool:
    """Whether Debezium has no trace of a value: a date of the year 0 in the log, a key that its snapshot did not read."""
    for step in path:
        try:
            left, right = left[step], right[step]
        except (KeyError, IndexError, TypeError):
            return False
    if what == "op r":
        return part == "key" and len(path) == 1 and is_not_read(left, right)
    return path[:1] in (("before",), ("after",)) and is_in_year_0(left, right)


def changes(node: Any, path: Path, *, is_schema: bool = False) -> Iterator[tuple[Path, str, Any]]:
    """A document with one thing changed each time: where, how, and the document.

    Properties in a schema have no order: it is one JSON object or another with the same meaning. Fields of a record and
    members of a union have one, and are in arrays.
    """
    if isinstance(node, dict):
        for name, value in node.items():
            for where, way, changed in changes(value, (*path, name), is_schema=is_schema):
                yield where, way, {**node, name: changed}
            yield (*path, name), "missing", {key: reported for key, reported in node.items() if key != name}
        yield path, "a field more", {**node, "tm_more": 1}
        if len(node) > 1 and not is_schema:
            yield path, "in another order", dict(reversed(node.items()))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            for where, way, changed in changes(value, (*path, number), is_schema=is_schema):
                yield where, way, [*node[:number], changed, *node[number + 1 :]]
        if node:
            yield path, "an item less", node[:-1]
            yield path, "an item twice", [*node, node[-1]]
        if len(node) > 1 and path[-1:] != ("data_collections",) and not is_same(node[0], node[-1]):
            yield path, "in another order", node[::-1]
    else:
        name = path[-1] if path else ""
        for way, false in other_values(node, name):
            if not is_same(node, false):
                yield path, way, false


def other_values(value: Any, name: Any) -> Iterator[tuple[str, Any]]:
    """Other values in the place of one."""
    if value is None:
        yield "a number for null", 1
        yield "a text for null", "x"
        return
    yield "null", None
    if isinstance(value, bool):
        yield "the contrary", not value
        yield "a number", int(value)
    elif isinstance(value, int):
        yield from _other_integers(value, name)
    elif isinstance(value, float):
        yield from _other_floats(value)
    elif isinstance(value, Decimal):
        yield "more", value + Decimal(1).scaleb(int(value.as_tuple().exponent))
        yield "a text", str(value)
    elif isinstance(value, bytes):
        yield "another byte", _other_byte(value)
        yield "a byte more", value + b"\0"
    elif isinstance(value, str):
        yield from _other_texts(value)
        yield from _looking_alike(value, name)


def _other_integers(value: int, name: Any) -> Iterator[tuple[str, Any]]:
    step = DAY_MS * CLOCKS[name] if name in CLOCKS else 1
    yield "more", value + step
    yield "less", value - step
    yield "a text", str(value)
    if name in CLOCKS or name == "length":
        yield "zero", 0


def _other_floats(value: float) -> Iterator[tuple[str, Any]]:
    yield "more", value + max(abs(value) * 1e-4, 1e-3)
    yield "a text", str(value)
    if value == 0:
        yield "with the other sign", -value
    elif abs(value) < _FLOAT32_MAX:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
        yield "in the digits of a double", single


def _looking_alike(text: str, name: Any) -> Iterator[tuple[str, str]]:
    """Texts that look as if they were meant to differ so."""
    if (moment := _MOMENT.fullmatch(text)) is not None:
        yield "in another zone", f"{moment[1]}{(int(moment[2]) + 3) % 24:02}{moment[3]}"
    if name == "defaultValueExpression" and _HEX.fullmatch(text):
        yield "a digit of a hexadecimal number", f"0x{text}F"
        yield "digits of a hexadecimal number", f"0x{text}FFF"


def _other_texts(text: str) -> Iterator[tuple[str, str]]:
    yield "a text more", f"{text}x"
    yield "a space more", f"{text} "
    if text:
        yield "no text", ""
        yield "a character less", text[:-1]
    for digit in "0123456789":
        at = text.rfind(digit)
        if at >= 0:
            yield "another digit", f"{text[:at]}{(int(digit) + 1) % 10}{text[at + 1 :]}"
            break
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if data:
        yield "another byte", base64.b64encode(_other_byte(data)).decode()
    try:
        document = json.loads(text)
    except ValueError:
        return
    if isinstance(document, dict) and document:
        yield "JSON with a field twice", _twice(text.encode()).decode()
    if isinstance(document, (dict, list)):
        yield "JSON with spaces", json.dumps(document, ensure_ascii=False, indent=1)
        for _, way, changed in changes(document, ()):
            yield f"JSON with {way}", json.dumps(changed, ensure_ascii=False, separators=(",", ":"))


def _other_byte(data: bytes) -> bytes:
    return bytes([*data[:-1], data[-1] ^ 1]) if data else b"\1"
