"""What is meant to differ from Debezium in records, each with its reason; nothing else may.

`make conformance` adds what only its own scenarios show (`tests/conformance/differences.py`); the whole list is in
docs/differences.md.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from schemas.errors import TidemarkError
from schemas.position import Position, file_number

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class Difference:
    """What may differ in the way `accepts` tests, and why.

    `types` is a pattern of the semantic type of a value; in its place stand `schema` for a field of a schema,
    `header`, `source.<field>`, `default` for a null whose column has a default, `record` for a record of Debezium
    alone, `border` for a BEGIN or END that the other side has not, `border.<field>` for a field of one, `model.<field>`
    for a table or column in a schema-change record. `ops` are the operations concerned, `k` for a key, `x` for what is
    reported of an XA transaction, `s` for a schema change; `scenarios` a pattern of the names of scenarios of the
    conformance suite, which begin with `mariadb` on MariaDB, or of the connector. `given` tests the two structs that the
    values are fields of: the sources of two records, the models of two columns. `proof` tests the same value as Debezium
    published it in a mode that loses nothing; only the conformance suite has such records.
    """

    name: str
    types: str
    accepts: Callable[[Any, Any], bool]
    reason: str
    ops: str = "rcudtk"
    scenarios: str = r".*"
    given: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None
    proof: Callable[[Any], bool] | None = None

    def covers(self, kind: str, op: str, scenario: str) -> bool:
        """Return whether it speaks of this type in this operation and scenario."""
        return (
            op in self.ops
            and re.fullmatch(self.types, kind) is not None
            and re.fullmatch(self.scenarios, scenario) is not None
        )

    def excuses(self, debezium: Any, ours: Any) -> bool:
        """Return whether two values, or fields of schemas, may differ so; those of a type it does not speak of may not."""
        return _holds(self.accepts, debezium, ours)

    def excuses_in(self, debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
        """Return whether two values may differ in these structs."""
        return self.given is None or _holds(self.given, debezium, ours)


def _holds(test: Callable[[Any, Any], bool], debezium: Any, ours: Any) -> bool:
    try:
        return test(debezium, ours)
    except (TidemarkError, TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error):
        return False


def _pairs(pairs: Mapping[Any, Any]) -> Callable[[Any, Any], bool]:
    return lambda debezium, ours: debezium in pairs and is_same(pairs[debezium], ours)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two documents are equal, types included: 1 is neither true nor 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and bool(one == other)


def is_same_value(one: Any, other: Any) -> bool:
    """Return whether two values of records are equal, types and the order of the fields of structs included.

    Properties of schemas have no order: `is_same` compares these.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return [*one] == [*other] and all(is_same_value(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    return type(one) is type(other) and bool(one == other)


# ── schemas: a field of Connect's JSON, or of an Avro record ────────────────────


def _retyped(field: Any, old: str, new: Mapping[str, Any]) -> Any:
    """Return the field with another type: `new` are the properties it then has, Avro's under `avro`."""
    if "field" in field:
        return {**field, **new["json"]} if field["type"] == old else field
    members = field["type"] if isinstance(field["type"], list) else [field["type"]]
    changed = [_retyped_member(member, new) for member in members]
    return {**field, "type": changed if isinstance(field["type"], list) else changed[0]}


def _retyped_member(member: Any, new: Mapping[str, Any]) -> Any:
    if isinstance(member, dict) and member.get("type") == new["from"]:
        return {**member, **new["avro"]}  # with its default
    return new["avro"] if member == new["from"] else member


DEFAULT_NAMES: Final = frozenset({"default", "connect.default"})


def _with_defaults(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a schema whose defaults are changed."""
    if isinstance(node, list):
        return [_with_defaults(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: change(value) if name in DEFAULT_NAMES else _with_defaults(value, change) for name, value in node.items()
    }


def _defaults(node: Any) -> list[tuple[str, Any]]:
    """Return all defaults in a schema with the plain types they are of, in order."""
    if isinstance(node, list):
        return [found for item in node for found in _defaults(item)]
    if not isinstance(node, dict):
        return []
    own = [(_plain_type(node), node[name]) for name in sorted(DEFAULT_NAMES & node.keys())]
    return own + [found for name in sorted(node) if name not in DEFAULT_NAMES for found in _defaults(node[name])]


def _plain_type(node: Any) -> str:
    """Return what a node of a schema is written as: `string`, `bytes`, `int64`, Avro's `long`."""
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(kind, list):
        kind = next((member for member in kind if member != "null"), "null")
    return _plain_type(kind) if isinstance(kind, dict) else str(kind)


BOOLEAN_TYPE: Final = {
    "json": {"type": "int16"},
    "avro": {"type": "int", "connect.type": "int16"},
    "from": "boolean",
}
UNSIGNED_TYPE: Final = {
    "json": {
        "type": "bytes",
        "name": DECIMAL,
        "version": 1,
        "parameters": {"scale": "0", "connect.decimal.precision": "20"},
    },
    "avro": {
        "type": "bytes",
        "scale": 0,
        "precision": 20,
        "connect.version": 1,
        "connect.parameters": {"scale": "0", "connect.decimal.precision": "20"},
        "connect.name": DECIMAL,
        "logicalType": "decimal",
    },
    "from": "long",
}


def _is_tinyint(debezium: Any, ours: Any) -> bool:
    small = _retyped(debezium, "boolean", BOOLEAN_TYPE)
    return small != debezium and is_same(_with_defaults(small, _number), ours)


def _number(default: Any) -> Any:
    return int(default) if isinstance(default, bool) else default


def _is_exact(debezium: Any, ours: Any) -> bool:
    """Return whether the right side is the int64 as a Decimal with the same default; Debezium has 2^63-1 for 2^64-1."""
    wide = _retyped(debezium, "int64", UNSIGNED_TYPE)
    text = _in_base64 if "field" in debezium else _in_latin

    def exact(default: Any) -> Any:
        return text(default % 2**64) if isinstance(default, int) else default

    def longest(default: Any) -> Any:
        return text(2**64 - 1) if default == 2**63 - 1 else exact(default)

    return bool(wide != debezium) and any(is_same(_with_defaults(wide, change), ours) for change in (exact, longest))


def _in_base64(number: int) -> str:
    return base64.b64encode(_bytes_of(number)).decode()


def _in_latin(number: int) -> str:
    return _bytes_of(number).decode("latin-1")


def _bytes_of(number: int) -> bytes:
    """Return an unsigned number as the bytes of a Decimal."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _stored_default(debezium: Any, ours: Any) -> bool:
    """Fields that differ in defaults only, in those whose literal Debezium did not read right."""
    blank = _with_defaults(debezium, lambda _: None)
    theirs, own = _defaults(debezium), _defaults(ours)
    if not is_same(blank, _with_defaults(ours, lambda _: None)) or len(theirs) != len(own):
        return False
    return debezium != ours and all(
        is_same(value, stored) or _is_stored(kind, value, stored)
        for (kind, value), (_, stored) in zip(theirs, own, strict=True)
    )


_MOMENT_IN_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_QUARTER_S: Final = 900
_FARTHEST_S: Final = 14 * 3600


def _in_zone(debezium: Any, ours: Any) -> bool:
    """Fields that differ in the default of a TIMESTAMP only, by what a zone is apart from UTC."""
    if not is_same(_with_defaults(debezium, lambda _: None), _with_defaults(ours, lambda _: None)):
        return False
    theirs, own = _defaults(debezium), _defaults(ours)
    if debezium == ours or len(theirs) != len(own):
        return False
    return all(is_same(value, stored) or _is_zone_apart(value, stored) for (_, value), (_, stored) in zip(theirs, own, strict=True))


def _is_zone_apart(debezium: str, ours: str) -> bool:
    if not all(map(_MOMENT_IN_UTC.fullmatch, (debezium, ours))) or debezium[19:] != ours[19:]:
        return False
    apart = (datetime.fromisoformat(debezium[:19]) - datetime.fromisoformat(ours[:19])).total_seconds()
    return 0 < abs(apart) <= _FARTHEST_S and apart % _QUARTER_S == 0


def _is_stored(kind: str, debezium: Any, ours: Any) -> bool:
    if kind in ("int64", "long"):
        return is_same((debezium, ours), (2**63 - 1, -1))  # of 2^64-1 as a wrapped int64
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    if kind == "string" and "''" in debezium and debezium.replace("''", "'") == ours:
        return True
    readings = _BINARY if kind == "string" else (_BINARY[0], _latin) if kind == "bytes" else ()
    return any(_is_literal_of(*pair) for read in readings if (pair := _both_read(read, debezium, ours)) is not None)


def _latin(text: str) -> bytes:
    return text.encode("latin-1")


def _canonical(decode: Callable[[str], bytes], encode: Callable[[bytes], str]) -> Callable[[str], bytes]:
    """Return bytes of a text that is written as `encode` writes them; `ValueError` for another text."""

    def read(text: str) -> bytes:
        data = decode(text)
        if encode(data) != text:
            raise ValueError(text)
        return data

    return read


# Base64 first: what JSON has bytes in. Then `binary.handling.mode`'s other forms.
_BINARY: Final = (
    _canonical(base64.b64decode, lambda data: base64.b64encode(data).decode()),
    _canonical(base64.urlsafe_b64decode, lambda data: base64.urlsafe_b64encode(data).decode()),
    _canonical(bytes.fromhex, bytes.hex),
)


def _both_read(read: Callable[[str], bytes], debezium: str, ours: str) -> tuple[bytes, bytes] | None:
    try:
        return read(debezium), read(ours)
    except ValueError:
        return None


def _is_literal_of(text: bytes, value: bytes) -> bool:
    """Return whether bytes are the text of a value's SQL literal: with its escapes, or hexadecimal and cut."""
    if text == value:
        return False
    escaped = text.replace(b"\\0", b"\0") == value
    is_truncated = len(value) <= len(text) and value.hex().upper().encode().startswith(text)
    return escaped or (is_truncated and text != b"")


# ── values ────────────────────


def _unescaped(debezium: Any, ours: Any) -> bool:
    return bool(debezium != ours and debezium == re.sub(r"([\\,])", r"\\\1", ours))


def _unwrapped(debezium: Any, ours: Any) -> bool:
    """Return whether an int64 is the unsigned number on the right, which is a number in headers, base64 in JSON."""
    if not isinstance(debezium, int) or isinstance(debezium, bool):
        return False
    if isinstance(ours, str):
        return ours == _in_base64(debezium % 2**64)
    return isinstance(ours, (int, Decimal)) and not isinstance(ours, bool) and ours == debezium % 2**64


def _truncated_to_milliseconds(debezium: Any, ours: Any) -> bool:
    """Of microseconds and of nanoseconds since 1970: the latter have three digits more."""
    unit = 1_000 if debezium < 10**17 else 1_000_000
    return bool(debezium == ours // unit * unit)


def _some_seconds_later(debezium: Any, ours: Any) -> bool:
    """Of milliseconds since 1970, whole seconds as the log has them."""
    return bool(debezium > 10**12 and debezium % 1000 == ours % 1000 == 0 and 0 < ours - debezium < 60_000)


def _same_float(debezium: Any, ours: Any) -> bool:
    return isinstance(ours, float) and struct.pack("<f", debezium) == struct.pack("<f", ours)


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|\s+|.', re.DOTALL)
_DOUBLE: Final = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_NEGATIVE_TIME: Final = re.compile(r'"-(\d{2,3}):(\d\d):(\d\d)\.(\d{6})"')
_MOMENT: Final = re.compile(r'"(\d{4}-\d\d-\d\d |\d{2,3}:)[\d:]+\.\d{6}"')
_BASE64: Final = re.compile(r'"base64:type\d+:([A-Za-z0-9+/]*=*)"')


def _printed_by_the_server(debezium: Any, ours: Any) -> bool:
    """Return whether two JSON texts differ only in how Debezium spells doubles, times and binaries in values."""
    json.loads(ours)
    tokens = _JSON_TOKEN.findall(ours)
    spelled = _JSON_TOKEN.findall(debezium)
    names = [follows == ":" for follows in [*tokens[1:], ""]]
    return bool(debezium != ours) and len(spelled) == len(tokens) and all(
        one == other or (not is_name and one == _spelled_by_debezium(other))
        for one, other, is_name in zip(spelled, tokens, names, strict=True)
    )


def _spelled_by_debezium(token: str) -> str | None:
    """Return a value of MySQL's JSON as Debezium's reader of the log prints it where it prints another text."""
    if (time := _NEGATIVE_TIME.fullmatch(token)) is not None:
        return _garbled(*map(int, time.groups()))
    if _MOMENT.fullmatch(token) is not None:
        return f'{token[:-1].rstrip("0").removesuffix(".")}"'
    if (binary := _BASE64.fullmatch(token)) is not None:
        return f'"{binary[1]}"'
    if _DOUBLE.fullmatch(token) is None or not re.search(r"[.e]", token) or 1e-3 <= abs(float(token)) < 1e7:
        return None  # what Java prints without an exponent is as the server prints it
    return f"{Decimal(float(token)):f}"


def _garbled(hours: int, minutes: int, seconds: int, microseconds: int) -> str:
    """Return a negative TIME as Debezium prints it: by the rules of Java's shifts and remainders on its packed form."""
    packed = -((hours << 12 | minutes << 6 | seconds) + (microseconds > 0))
    parts = [-_remainder(packed >> 12, 1024), _remainder(packed >> 6, 64), _remainder(packed, 64)]
    text = ":".join(str(part) if part >= 10 else f"0{part}" for part in parts)
    fraction = f".00000-{str(microseconds).rstrip('0')}" if microseconds else ""
    return f'"{text}{fraction}"'


def _remainder(number: int, divisor: int) -> int:
    """Java's `%`: with the sign of the number."""
    return abs(number) % divisor * (-1 if number < 0 else 1)


def _compact(debezium: Any, ours: Any) -> bool:
    """Return whether both are the same JSON text but for the server's spaces."""
    if not isinstance(debezium, str):
        return False
    pieces = re.split(r'("(?:[^"\\]|\\.)*")', debezium)
    text = "".join(piece if piece.startswith('"') else piece.replace(" ", "") for piece in pieces)
    return bool(debezium != ours and text == ours)


_DIGITS: Final = 6


def _padded(debezium: Any, ours: Any) -> bool:
    """Return whether both are the same time in UTC, one with more zeros at the end of its fraction."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    if not (debezium.endswith("Z") and ours.endswith("Z")):
        return False
    (whole, _, digits), (own, _, all_digits) = (text[:-1].partition(".") for text in (debezium, ours))
    return debezium != ours and whole == own and all_digits.rstrip("0") == digits and 0 < len(all_digits) <= _DIGITS


def _in_six_digits(debezium: Any, ours: Any) -> bool:
    return isinstance(ours, float) and (_same_float(debezium, ours) or _same_float(debezium, float(f"{ours:.5e}")))


def _rounded(debezium: Any, ours: Any) -> bool:
    """Return whether one is the double that the server prints, rounded to the decimals of DOUBLE(M,D)."""
    if not (isinstance(debezium, float) and isinstance(ours, float)):
        return False
    return debezium != ours and abs(debezium - ours) <= 4 * math.ulp(ours)


def _time_without_date(debezium: Any, ours: Any) -> bool:
    """Kafka's `Values` takes a Timestamp before 1970-01-02 for a time of day."""
    if ours is None:
        return False
    whole = r"(?<=:)(\d{4}-\d\d-\d\d)T(?=[\d:.]+Z)"
    expected = re.sub(whole, lambda found: found[0] if found[1] >= "1970-01-02" else "", ours)
    return bool(debezium != ours and debezium == expected)


def _whole_characters(debezium: Any, ours: Any) -> bool:
    """Debezium's text ends in half a character, ours continues to its end."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    units, half = ours.encode("utf-16-le", "surrogatepass"), debezium.encode("utf-16-le", "surrogatepass")
    return len(units) == len(half) + 2 and units.startswith(half) and 0xD8 <= half[-1] <= 0xDB


_GEOMETRY: Final = "io.debezium.data.geometry."
_DOCS: Final = {f"{_GEOMETRY}Geometry": "Geometry", f"{_GEOMETRY}Point": "Geometry (POINT)"}


def with_docs(schema: Any) -> Any:
    """Return an Avro schema whose fields of Debezium's own types have the doc of their type; those of Connect's JSON have it.

    A field that has a doc keeps it.
    """
    if isinstance(schema, list):
        return [with_docs(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: with_docs(value) for name, value in schema.items()}
    is_field = "name" in schema and "type" in schema and not schema.keys() & {"field", "fields", "doc"}
    doc = _doc(schema["type"]) if is_field else None
    return inner if doc is None else {**inner, "doc": doc}


def _doc(kind: Any) -> str | None:
    """Return the doc of the fields of a type: a record, the name of one, or a union with one."""
    members = kind if isinstance(kind, list) else [kind]
    names = [member.get("connect.name") if isinstance(member, dict) else member for member in members]
    return next((_DOCS[name] for name in names if isinstance(name, str) and name in _DOCS), None)


def _default_value(debezium: Any, ours: Any) -> bool:
    """Of models of tables, where the server's literals are quoted twice or cut in Debezium."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    digits = ours[2:] if re.fullmatch(r"0[xXbB][0-9a-fA-F]+", ours) else ""
    is_truncated = debezium != "" and digits.startswith(debezium)
    return debezium != ours and (is_truncated or debezium.replace("\\0", "\0") == ours or debezium.replace("''", "'") == ours)


# ── places, times and years ────────────────────


_DAY: Final = {"days": 1, "milliseconds": 86_400_000, "microseconds": 86_400_000_000}
_2000_YEARS: Final = 5 * 146_097  # days
_CENTURY: Final = 36_525  # days, from a year after 1970 to the one a hundred years later
_EPOCH: Final = date(1970, 1, 1).toordinal()


def _in_this_century(debezium: Any, ours: Any) -> bool:
    """Return whether a date of the years 0 to 69 is 2000 years later in Debezium, one of 70 to 99 1900 years."""
    if isinstance(ours, str):
        year = int(ours[:4])
        return 0 <= year < 100 and debezium == f"{year + (2000 if year < 70 else 1900)}{ours[4:]}"
    return type(debezium) is type(ours) is int and any(_is_later_by_centuries(debezium, ours, day) for day in _DAY.values())


def _is_later_by_centuries(debezium: int, ours: int, day: int) -> bool:
    days = ours // day + _2000_YEARS
    ordinal = days + _EPOCH
    year = date.fromordinal(ordinal).year if 0 < ordinal < date.max.toordinal() else 0
    if not 2000 <= year < 2100:
        return False
    return debezium == (days - (_CENTURY if year >= 2070 else 0)) * day + ours % day


def _is_at_chunk(_debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether the position of a source is the one that its version names."""
    version = Position.parse(ours["sequence"])
    return (version.file, version.offset, version.ordinal) == (file_number(ours["file"]), ours["pos"], 0)


def _is_in_transaction(debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Debezium's place is where the transaction of our row begins."""
    version = Position.parse(ours["sequence"])
    return (version.file, version.offset) == (file_number(ours["file"]), debezium["pos"]) and version.ordinal > 0


def _is_committed_later(debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether both are sources of one row, at XA PREPARE and at XA COMMIT."""
    prepared, committed = ((file_number(side["file"]), side["pos"]) for side in (debezium, ours))
    servers = [str(side["gtid"]).partition(":")[0] for side in (debezium, ours) if side["gtid"] is not None]
    return prepared <= committed and debezium["ts_us"] <= ours["ts_us"] and len({*servers}) <= 1


SNAPSHOT_POSITIONS: Final = frozenset({"first", "first_in_data_collection", "last_in_data_collection", "last"})
# What Debezium's defaults and ours differ in, and masks: the suite's scenarios that have them, and any connector.
DEFAULTS_OF_BOTH: Final = "types|keys|mysql|mariadb"
MASKS: Final = "masks.*|mysql|mariadb"
CONTEXT_HEADERS: Final = frozenset(
    f"__debezium.context.{name}" for name in ("connectorLogicalName", "taskId", "connectorName", "runId")
)
CONTEXT: Final = Difference(
    "no headers that name a Connect task",
    r"header",
    lambda _debezium, ours: ours is None,
    "`__debezium.context.*` name connector, task and run of Kafka Connect; Tidemark has none",
)
NULLS: Final = Difference(
    "NULL stays NULL",
    r"default",
    lambda _debezium, ours: ours is None,
    "Connect's converters put the default of a column in the place of its NULL, unless "
    "`value.converter.replace.null.with.default` is false, which Apicurio's for Avro does not know",
    ops="rcud",
    proof=lambda value: value is None,
)
DOCS: Final = Difference(
    "fields of Avro have their doc",
    r"schema",
    lambda debezium, ours: not is_same(debezium, ours) and is_same(with_docs(debezium), ours),
    "Confluent's converter, whose Avro ours is, gives a field the text of its Connect schema; Apicurio's, which "
    "the comparison runs, does not",
)
DIFFERENCES: Final = (
    CONTEXT,
    Difference(
        "BOOLEAN is TINYINT(1)",
        r"schema",
        _is_tinyint,
        "Debezium makes a boolean of a column whose DDL it read as BOOLEAN in the log, and an int16 of the same "
        "column when it reads the table from the server; ours is what the server stores",
    ),
    Difference(
        "BOOLEAN values are 0 and 1",
        r"int16",
        lambda debezium, ours: isinstance(debezium, bool) and type(ours) is int and int(debezium) == ours,
        "as their schema, above",
    ),
    Difference(
        "YEAR 0000 is 0",
        r"io\.debezium\.time\.Year",
        _pairs({1900: 0}),
        "the server stores and prints 0000; Debezium's log events say 1900, which no YEAR is",
        ops="cudk",
    ),
    Difference(
        "YEAR 0000 in snapshot rows is 0",
        r"io\.debezium\.time\.Year",
        _pairs({2000: 0}),
        "Debezium's snapshot says 2000, for 2000 as well",
        ops="r",
    ),
    Difference(
        "ENUM labels are not escaped",
        r"io\.debezium\.data\.Enum",
        _unescaped,
        "Debezium's log events give the label `x,y` as `x\\,y`, its snapshot as it is; ours is the label in both",
        ops="cudk",
    ),
    Difference(
        "BIGINT UNSIGNED is a Decimal by default",
        r"schema",
        _is_exact,
        "Debezium's default is int64, which wraps from 2^63 on; both know the other mode",
        scenarios=DEFAULTS_OF_BOTH,
    ),
    Difference(
        "BIGINT UNSIGNED is exact by default",
        r"org\.apache\.kafka\.connect\.data\.Decimal",
        _unwrapped,
        "as its schema, above",
        scenarios=DEFAULTS_OF_BOTH,
    ),
    Difference(
        "defaults are what the server stores",
        r"schema",
        _stored_default,
        "Debezium leaves `'it''s'` doubled, gives BINARY defaults as the bytes of their SQL text, and 2^64-1 as 2^63-1",
    ),
    Difference(
        "TIMESTAMP defaults are in UTC",
        r"schema",
        _in_zone,
        "the server reads the literal in its own zone; Debezium takes it for UTC",
        scenarios="random|mysql|mariadb",
    ),
    DOCS,
    NULLS,
    Difference(
        "FLOAT in its shortest digits",
        r"float",
        _same_float,
        "the same float32, in the fewest digits that distinguish it from its neighbours",
    ),
    Difference(
        "the year 1 is not the year 2001",
        r"io\.debezium\.time\.(Date|Timestamp|MicroTimestamp|IsoDate|IsoTimestamp)|org\.apache\.kafka\.connect\.data\.(Date|Timestamp)",
        _in_this_century,
        "Debezium's `enable.time.adjuster` takes the years 0 to 99 for years of this century and the last",
        scenarios=DEFAULTS_OF_BOTH,
    ),
    Difference(
        "JSON holds what the server prints",
        r"io\.debezium\.data\.Json",
        _printed_by_the_server,
        "Debezium's log events garble negative times in JSON, drop zeros at the end of times, spell out exponents, and "
        "omit the type of binaries; ours are the numbers, times and binaries that the server itself prints",
        ops="cud",
        scenarios="(?!mariadb).*",
    ),
    Difference(
        "the position is that of the row event",
        r"source\.pos",
        lambda debezium, ours: type(ours) is int and debezium < ours,
        "events inside a transaction have no position since MariaDB 11.4; Debezium repeats that of the last event that "
        "did, ours is reckoned by the lengths of the events",
        ops="cud",
        scenarios="mariadb.*",
        given=_is_in_transaction,
    ),
    Difference(
        "DDL begins no transaction",
        r"border",
        lambda debezium, ours: ours is None and debezium["status"] == "BEGIN",
        "Debezium publishes a BEGIN for each DDL statement on MariaDB, and never an END",
        ops="k",
        scenarios="mariadb.*",
    ),
    Difference(
        "a transaction ends at its COMMIT",
        r"border\.ts_ms",
        _some_seconds_later,
        "without the microseconds that MySQL logs Debezium gives END the time of the last row",
        ops="k",
        scenarios="mariadb.*",
    ),
    Difference(
        "DATETIME keys before 1970-01-02 have their date in headers",
        r"header",
        _time_without_date,
        "with `connect` Kafka's header converter writes only the time of day of these",
        ops="k",
        scenarios="time_connect|mysql|mariadb",
    ),
    Difference(
        "TIME 24:00:00 is no 00:00:00Z",
        r"io\.debezium\.time\.IsoTime",
        _pairs({"00:00:00Z": None}),
        "`isostring` cannot say it; Debezium writes another time, ours is NULL",
        proof=lambda value: value == 86_400_000_000,
    ),
    Difference(
        "rows of XA transactions are those of their XA COMMIT",
        r"transaction|source\.(thread|gtid|file|pos|ts_ms|ts_us|ts_ns)",
        lambda debezium, ours: ours is not None and (debezium is None or type(debezium) is type(ours)),
        "Debezium's have time, position and GTID of XA PREPARE, no thread and no transaction block",
        ops="x",
        given=_is_committed_later,
    ),
    Difference(
        "XA transactions have a BEGIN and an END",
        r"border",
        lambda debezium, _ours: debezium is None,
        "as all others; Debezium publishes no boundaries of theirs",
        ops="x",
    ),
    Difference(
        "the times of truncates and statements have microseconds",
        r"source\.ts_(us|ns)",
        lambda debezium, ours: debezium % 1_000 == 0 and _truncated_to_milliseconds(debezium, ours),
        "as all other records have where the server logs them; Debezium cuts them off here",
        ops="ts",
    ),
    Difference(
        "schemas of masked keys say so",
        r"schema",
        lambda debezium, ours: is_same({**debezium, "parameters": {"masked": "true"}}, ours),
        "as in the row, since the key is masked, too",
        scenarios=MASKS,
    ),
    Difference(
        "a masked NULL is NULL",
        r"masked",
        lambda debezium, ours: ours is None and isinstance(debezium, str) and set(debezium) <= {"*"},
        "`column.mask.with.10.chars` makes asterisks of NULL in Debezium, `column.mask.with.0.chars` an empty text",
        ops="rcud",
        proof=lambda value: value is None,
    ),
    Difference(
        "a truncated text ends in a whole character",
        r"truncated",
        _whole_characters,
        "`column.truncate.to.5.chars` counts UTF-16 units and cuts characters beyond U+FFFF in two in Debezium",
        ops="rcud",
    ),
    Difference(
        "a table whose stored values DDL changed is read again",
        r"record",
        lambda debezium, ours: debezium is None and ours["op"] == "r" and ours["source"]["snapshot"] == "incremental",
        "such a statement leaves no row events (a new column with a default, a converting MODIFY): Debezium's consumers "
        "keep what they had",
        ops="r",
    ),
    Difference(
        "no row of a snapshot is the first or the last",
        r"source\.snapshot",
        lambda debezium, ours: debezium in SNAPSHOT_POSITIONS and ours == "true",
        "chunks are read in parallel",
        ops="r",
    ),
    Difference(
        "a snapshot row has position and time of its chunk",
        r"source\.(ts_ms|ts_us|ts_ns|file|pos)",
        lambda debezium, ours: type(debezium) is type(ours),
        "Debezium reads all rows at one position in the log, ours are read chunk by chunk beside it",
        ops="r",
        given=_is_at_chunk,
    ),
    Difference(
        "JSON of snapshot rows is compact",
        r"io\.debezium\.data\.Json",
        _compact,
        "as in log events, so that both are the same bytes; Debezium's snapshot gives the server's text with its spaces",
        ops="r",
    ),
    Difference(
        "a TIMESTAMP(n) has n digits in snapshot rows",
        r"io\.debezium\.time\.ZonedTimestamp",
        _padded,
        "as in log events; Debezium's snapshot drops zeros at the end",
        ops="r",
    ),
    Difference(
        "FLOAT in snapshot rows is the one that is stored",
        r"float",
        _in_six_digits,
        "as in log events; Debezium's snapshot reads the server's text, which has six digits",
        ops="r",
    ),
    Difference(
        "DOUBLE(M,D) in snapshot rows is the one that is stored",
        r"double",
        _rounded,
        "as in log events; Debezium's snapshot reads the server's text, which has D decimals",
        ops="r",
    ),
    Difference(
        "a statement has neither row nor thread",
        r"source\.(row|thread)",
        lambda debezium, ours: ours is None or (type(ours) is int and ours == 0 < debezium),
        "Debezium's are left over from the rows event before",
        ops="s",
        given=lambda _debezium, ours: ours["row"] == 0 and ours["thread"] is None,
    ),
    Difference(
        "a truncate has no row",
        r"source\.row",
        lambda debezium, ours: type(ours) is int and ours == 0 < debezium,
        "Debezium's is left over from the rows event before",
        ops="t",
    ),
    Difference(
        "defaults in models of tables are values",
        r"model\.defaultValueExpression",
        _default_value,
        "`it's`, `0x00FF`: Debezium leaves quotes doubled and cuts hexadecimal literals (`00F`)",
        ops="s",
    ),
    Difference(
        "no comments of tables and columns",
        r"model\.comment",
        lambda _debezium, ours: ours is None,
        "Debezium's with `include.schema.comments`, which we do not have",
        ops="s",
        scenarios="mariadb_statements|mysql|mariadb",
    ),
    Difference(
        "CHAR(0) has length 0",
        r"model\.length",
        _pairs({10: 0}),
        "Debezium's models say 10",
        ops="s",
        given=lambda debezium, _ours: debezium["typeName"] in ("CHAR", "BINARY"),
    ),
)
