"""What is meant to differ from Debezium in records, each with its reason; nothing else may.

`make conformance` adds what only its own scenarios show (`tests/conformance/differences.py`); the whole list stands in
docs/differences.md.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class Difference:
    """What may differ in the way `accepts` tests, and why.

    `types` is a pattern of the semantic type of a value; in its place stand `schema` for a field of a schema,
    `header`, `source.<field>`, `default` for a null whose column has a default, `record` for a record of Debezium
    alone, `border` for a BEGIN or END that the other side has not, `border.<field>` for a field of one, `model.<field>`
    for a table or column in a schema-change record. `ops` are the operations concerned, `k` for a key, `x` for what is
    told of an XA transaction, `s` for a schema change; `scenarios` a pattern of the names of scenarios of the
    conformance suite, which begin with `mariadb` on MariaDB, or of the connector.
    """

    name: str
    types: str
    accepts: Callable[[Any, Any], bool]
    reason: str
    ops: str = "rcudtk"
    scenarios: str = r".*"

    def covers(self, kind: str, op: str, scenario: str) -> bool:
        """Whether it speaks of this type in this operation and scenario."""
        return (
            op in self.ops
            and re.fullmatch(self.types, kind) is not None
            and re.fullmatch(self.scenarios, scenario) is not None
        )

    def excuses(self, debezium: Any, ours: Any) -> bool:
        """Whether two values, or fields of schemas, may differ so; those of a type it does not speak of may not."""
        try:
            return self.accepts(debezium, ours)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error):
            return False


def _pairs(pairs: Mapping[Any, Any]) -> Callable[[Any, Any], bool]:
    return lambda debezium, ours: debezium in pairs and pairs[debezium] == ours


# ── schemas: a field of Connect's JSON, or of an Avro record ────────────────────


def _retyped(field: Any, old: str, new: Mapping[str, Any]) -> Any:
    """The field with another type: `new` are the properties it then has, Avro's under `avro`."""
    if "field" in field:
        return {**field, **new["json"]} if field["type"] == old else field
    members = field["type"] if isinstance(field["type"], list) else [field["type"]]
    changed = [_retyped_member(member, new) for member in members]
    return {**field, "type": changed if isinstance(field["type"], list) else changed[0]}


def _retyped_member(member: Any, new: Mapping[str, Any]) -> Any:
    if isinstance(member, dict) and member.get("type") == new["from"]:
        return {**member, **new["avro"]}  # with its default
    return new["avro"] if member == new["from"] else member


def _without_default(field: Any) -> Any:
    return {name: value for name, value in field.items() if name != "default"}


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
    return bool(debezium != ours and _retyped(debezium, "boolean", BOOLEAN_TYPE) == ours)


def _is_exact(debezium: Any, ours: Any) -> bool:
    wide = _retyped(debezium, "int64", UNSIGNED_TYPE)
    return bool(debezium != ours and _without_default(wide) == _without_default(ours))


def _texts_of(value: bytes) -> tuple[str, ...]:
    """Bytes in all the looks that a default of bytes has, in the same order for all bytes."""
    return (
        base64.b64encode(value).decode(),
        base64.urlsafe_b64encode(value).decode(),
        value.hex(),
        value.decode("latin-1"),
    )


DEFAULTS: Final[Mapping[Any, Any]] = {
    2**63 - 1: -1,  # of 2^64-1 as a wrapped int64
    **dict(zip(_texts_of(rb"ab\0\0"), _texts_of(b"ab\0\0"), strict=True)),
    **dict(zip(_texts_of(b"00F"), _texts_of(b"\0\xff"), strict=True)),
}


def _stored(default: Any) -> Any:
    """What the server stores, of a default as Debezium tells it."""
    if isinstance(default, str) and "''" in default:
        return default.replace("''", "'")
    return DEFAULTS.get(default, default)


def _stored_default(debezium: Any, ours: Any) -> bool:
    return bool(debezium != ours and _with_stored_defaults(debezium) == ours)


def _with_stored_defaults(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_stored_defaults(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: _stored(value)
        if name in ("default", "connect.default") and not isinstance(value, (dict, list))
        else _with_stored_defaults(value)
        for name, value in node.items()
    }


# ── values ────────────────────


def _unescaped(debezium: Any, ours: Any) -> bool:
    return isinstance(debezium, str) and debezium != ours and re.sub(r"\\(.)", r"\1", debezium) == ours


def _unwrapped(debezium: Any, ours: Any) -> bool:
    """An int64 and the unsigned number it stands for, which is a number in headers, base64 in JSON."""
    if not isinstance(debezium, int):
        return False
    if isinstance(ours, str):
        return int.from_bytes(base64.b64decode(ours), "big") == debezium % 2**64
    return isinstance(ours, (int, Decimal)) and ours == debezium % 2**64


def _cut_to_milliseconds(debezium: Any, ours: Any) -> bool:
    """Of microseconds and of nanoseconds since 1970: the latter have three digits more."""
    unit = 1_000 if debezium < 10**17 else 1_000_000
    return bool(debezium == ours // unit * unit)


def _some_seconds_later(debezium: Any, ours: Any) -> bool:
    """Of milliseconds since 1970, whole seconds as the log has them."""
    return bool(debezium > 10**12 and debezium % 1000 == ours % 1000 == 0 and 0 < ours - debezium < 60_000)


def _same_float(debezium: Any, ours: Any) -> bool:
    return isinstance(ours, float) and struct.pack("<f", debezium) == struct.pack("<f", ours)


def _printed_by_the_server(debezium: Any, ours: Any) -> bool:
    """Two JSON documents that differ in no more than how Debezium spells doubles, times and binaries in them."""
    one, other = (_json(text) for text in (debezium, ours))
    return repr(one) != repr(other) and _same_document(one, other)


def _json(text: Any) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (TypeError, ValueError):
        return object()


def _same_document(debezium: Any, ours: Any) -> bool:
    if isinstance(ours, dict) and isinstance(debezium, dict):
        return list(debezium) == list(ours) and all(_same_document(debezium[name], ours[name]) for name in ours)
    if isinstance(ours, list) and isinstance(debezium, list):
        return len(debezium) == len(ours) and all(map(_same_document, debezium, ours))
    if isinstance(ours, Decimal):  # a double of the server's, of which Debezium gives all digits
        is_number = isinstance(debezium, (int, Decimal)) and not isinstance(debezium, bool)
        return is_number and debezium in (ours, Decimal(float(ours)))
    if isinstance(ours, str) and isinstance(debezium, str):
        is_negative_time = re.fullmatch(r"-\d+:\d\d:\d\d\.\d{6}", ours) is not None
        is_binary = ours.startswith("base64:type") and ours.endswith(f":{debezium}")
        return ours in (debezium, f"{debezium}.000000") or is_negative_time or is_binary
    return type(debezium) is type(ours) and bool(debezium == ours)


def _compact(debezium: Any, ours: Any) -> bool:
    """The same JSON text without the server's spaces."""
    if not isinstance(debezium, str):
        return False
    pieces = re.split(r'("(?:[^"\\]|\\.)*")', debezium)
    text = "".join(piece if piece.startswith('"') else piece.replace(" ", "") for piece in pieces)
    return bool(debezium != ours and text == ours)


def _padded(debezium: Any, ours: Any) -> bool:
    """A time in UTC whose fraction has more zeros at its end."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    (whole, _, digits), (own, _, all_digits) = (text.removesuffix("Z").partition(".") for text in (debezium, ours))
    return debezium != ours and whole == own and all_digits.rstrip("0") == digits


def _in_six_digits(debezium: Any, ours: Any) -> bool:
    return isinstance(ours, float) and (_same_float(debezium, ours) or _same_float(debezium, float(f"{ours:.5e}")))


def _rounded(debezium: Any, ours: Any) -> bool:
    """A double in the decimals of DOUBLE(M,D)."""
    if not (isinstance(debezium, float) and isinstance(ours, float)):
        return False
    return bool(debezium == round(ours, len(repr(debezium).partition(".")[2])))


def _time_without_date(debezium: Any, ours: Any) -> bool:
    """Kafka's `Values` takes a Timestamp before 1970-01-02 for a time of day."""
    if ours is None:
        return False
    whole = r"(?<=:)(\d{4}-\d\d-\d\d)T(?=[\d:.]+Z)"
    told = re.sub(whole, lambda found: found[0] if found[1] >= "1970-01-02" else "", ours)
    return bool(debezium != ours and debezium == told)


def _whole_characters(debezium: Any, ours: Any) -> bool:
    """Debezium's text ends in half a character, ours goes on to its end."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    units, half = ours.encode("utf-16-le", "surrogatepass"), debezium.encode("utf-16-le", "surrogatepass")
    return len(units) == len(half) + 2 and units.startswith(half) and 0xD8 <= half[-1] <= 0xDB


def _documented(debezium: Any, ours: Any) -> bool:
    """Of a field of Avro: Connect's JSON calls its name `field`."""
    return "field" not in debezium and "doc" in ours and {**debezium, "doc": ours["doc"]} == ours


def _default_value(debezium: Any, ours: Any) -> bool:
    """Of models of tables, where the server's literals are quoted twice or cut in Debezium."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    is_literal = ours.upper().startswith(("0X", "0B")) and debezium == ours[2:][: len(debezium)]
    is_escaped = debezium.replace("\\0", "\0") == ours
    return debezium != ours and (debezium.replace("''", "'") == ours or is_literal or is_escaped)


SNAPSHOT_PLACES: Final = frozenset({"first", "first_in_data_collection", "last_in_data_collection", "last"})
CONTEXT: Final = Difference(
    "no headers that name a Connect task",
    r"header",
    lambda _debezium, ours: ours is None,
    "`__debezium.context.*` tell connector, task and run of Kafka Connect, of which there is none here",
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
        lambda debezium, ours: isinstance(debezium, bool) and int(debezium) == ours,
        "as their schema, above",
    ),
    Difference(
        "YEAR 0000 is 0",
        r"io\.debezium\.time\.Year",
        _pairs({1900: 0, 2000: 0}),
        "the server stores and prints 0000; Debezium's log events say 1900, its snapshot 2000",
    ),
    Difference(
        "ENUM labels are not escaped",
        r"io\.debezium\.data\.Enum",
        _unescaped,
        "Debezium's log events give the label `x,y` as `x\\,y`, its snapshot as it is; ours is the label in both",
    ),
    Difference(
        "BIGINT UNSIGNED is a Decimal by default",
        r"schema",
        _is_exact,
        "Debezium's default is int64, which wraps from 2^63 on; both know the other mode",
    ),
    Difference(
        "BIGINT UNSIGNED is exact by default",
        r"org\.apache\.kafka\.connect\.data\.Decimal",
        _unwrapped,
        "as its schema, above",
    ),
    Difference(
        "defaults are what the server stores",
        r"schema",
        _stored_default,
        "Debezium leaves `'it''s'` doubled, gives BINARY defaults as the bytes of their SQL text, and 2^64-1 as 2^63-1",
    ),
    Difference(
        "fields of Avro have their doc",
        r"schema",
        _documented,
        "Confluent's converter, whose Avro ours is, gives a field the text of its Connect schema; Apicurio's, which "
        "the comparison runs, does not",
    ),
    Difference(
        "NULL stays NULL",
        r"default",
        lambda _debezium, ours: ours is None,
        "Connect's converters put the default of a column in the place of its NULL",
    ),
    Difference(
        "FLOAT in its shortest digits",
        r"float",
        _same_float,
        "the same float32, in the fewest digits that tell it from its neighbours",
    ),
    Difference(
        "the year 1 is not the year 2001",
        r"io\.debezium\.time\.(Date|MicroTimestamp)",
        _pairs({11323: -719162, 978307200000001: -62135596799999999}),
        "Debezium's `enable.time.adjuster` takes the years 0 to 99 for years of this century and the last",
    ),
    Difference(
        "JSON holds what the server prints",
        r"io\.debezium\.data\.Json",
        _printed_by_the_server,
        "Debezium's log events garble negative times in JSON, spell out exponents, and tell no type of binaries; ours "
        "are the numbers, times and binaries that the server itself prints",
    ),
    Difference(
        "the position is that of the row event",
        r"source\.pos",
        lambda debezium, ours: debezium < ours,
        "events inside a transaction tell no position since MariaDB 11.4; Debezium repeats that of the last event that "
        "did, ours is reckoned by the lengths of the events",
        scenarios="mariadb.*",
    ),
    Difference(
        "DDL begins no transaction",
        r"border",
        lambda debezium, ours: ours is None and debezium["status"] == "BEGIN",
        "of each DDL statement on MariaDB Debezium tells a BEGIN, and never an END",
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
    ),
    Difference(
        "TIME 24:00:00 is no 00:00:00Z",
        r"io\.debezium\.time\.IsoTime",
        _pairs({"00:00:00Z": None}),
        "`isostring` cannot say it; Debezium writes another time, ours is NULL",
    ),
    Difference(
        "rows of XA transactions are those of their XA COMMIT",
        r"transaction|source\.(thread|gtid|file|pos|ts_ms|ts_us|ts_ns)",
        lambda _debezium, ours: ours is not None,
        "Debezium's have time, place and GTID of XA PREPARE, no thread and no transaction block",
        ops="x",
    ),
    Difference(
        "XA transactions have a BEGIN and an END",
        r"border",
        lambda debezium, _ours: debezium is None,
        "as all others; Debezium tells no borders of theirs",
        ops="x",
    ),
    Difference(
        "the times of truncates and statements have microseconds",
        r"source\.ts_(us|ns)",
        _cut_to_milliseconds,
        "as all other records have where the server logs them; Debezium cuts them off here",
        ops="ts",
    ),
    Difference(
        "schemas of masked keys say so",
        r"schema",
        lambda debezium, ours: {**debezium, "parameters": {"masked": "true"}} == ours,
        "as in the row, since the key is masked, too",
    ),
    Difference(
        "a masked NULL is NULL",
        r"string",
        lambda debezium, ours: ours is None and isinstance(debezium, str) and set(debezium) == {"*"},
        "`column.mask.with.10.chars` makes asterisks of NULL in Debezium",
        ops="cud",
    ),
    Difference(
        "a truncated text ends in a whole character",
        r"string",
        _whole_characters,
        "`column.truncate.to.5.chars` counts UTF-16 units in Debezium and cuts characters beyond U+FFFF in two",
        ops="cud",
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
        lambda debezium, ours: debezium in SNAPSHOT_PLACES and ours == "true",
        "chunks are read in parallel",
        ops="r",
    ),
    Difference(
        "a snapshot row has place and time of its chunk",
        r"source\.(ts_ms|ts_us|ts_ns|server_id|gtid|file|pos|row|thread)",
        lambda debezium, ours: ours is None or type(debezium) is type(ours),
        "Debezium reads all rows at one place in the log, ours are read chunk by chunk beside it",
        ops="r",
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
        lambda _debezium, ours: ours in (0, None),
        "Debezium's are left over from the rows event before",
        ops="s",
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
    ),
    Difference(
        "CHAR(0) has length 0",
        r"model\.length",
        _pairs({10: 0}),
        "Debezium's models say 10",
        ops="s",
    ),
)
