"""The whole list of what is meant to differ from Debezium, each with its reason; nothing else may."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

SALT: Final = "abc"  # of the scenario that hashes
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class Difference:
    """What may differ in the way `accepts` tests, and why.

    `types` is a pattern of the semantic type of a value; in its place stand `schema` for a field of a schema,
    `header`, `source.<field>`, `default` for a null whose column has a default, `record` for a record of Debezium
    alone, `border` for a BEGIN or END that the other side has not. `ops` are the operations concerned, `k` for a key,
    `x` for what is told of an XA transaction; `scenarios` a pattern of their names.
    """

    name: str
    types: str
    accepts: Callable[[Any, Any], bool]
    reason: str
    ops: str = "cudtk"
    scenarios: str = r".*"

    def covers(self, kind: str, op: str, scenario: str) -> bool:
        """Whether it speaks of this type in this operation and scenario."""
        return (
            op in self.ops
            and re.fullmatch(self.types, kind) is not None
            and re.fullmatch(self.scenarios, scenario) is not None
        )


def _pairs(pairs: Mapping[Any, Any]) -> Callable[[Any, Any], bool]:
    return lambda debezium, ours: debezium in pairs and pairs[debezium] == ours


# ── schemas: a field of Connect's JSON, or of an Avro record ────────────────────


def _retyped(field: Any, old: str, new: Mapping[str, Any]) -> Any:
    """The field with another type: `new` are the properties it then has, Avro's under `avro`."""
    if "field" in field:
        return {**field, **new["json"]} if field["type"] == old else field
    members = field["type"] if isinstance(field["type"], list) else [field["type"]]
    changed = [new["avro"] if member == new["from"] else member for member in members]
    return {**field, "type": changed if isinstance(field["type"], list) else changed[0]}


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
    "it''s": "it's",
    2**63 - 1: -1,  # of 2^64-1 as a wrapped int64
    **dict(zip(_texts_of(rb"ab\0\0"), _texts_of(b"ab\0\0"), strict=True)),
    **dict(zip(_texts_of(b"00F"), _texts_of(b"\0\xff"), strict=True)),
}


def _stored_default(debezium: Any, ours: Any) -> bool:
    return bool(debezium != ours and _with_stored_defaults(debezium) == ours)


def _with_stored_defaults(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_stored_defaults(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: DEFAULTS.get(value, value)
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


SERVER_JSON: Final = {
    "1e100",
    "0.0000001",
    "1.2345678901234568e29",
    "[1.5,3,3.0,100.0,1e15,1e16,123456789.0,0.00001]",
    '"2020-01-02 03:04:05.000000"',
    '{"bit":"base64:type15:BQ==","blob":"base64:type15:AP9B","year":2020}',
    (
        '{"dt":"2020-01-02 03:04:05.678901","dt0":"2020-01-02 03:04:05.000000","date":"2020-01-02",'
        '"time":"-12:34:56.700000","time6":"12:34:56.789012"}'
    ),
}


def _time_without_date(debezium: Any, ours: Any) -> bool:
    """Kafka's `Values` takes a Timestamp before 1970-01-02 for a time of day."""
    if ours is None:
        return False
    whole = r"(?<=:)(\d{4}-\d\d-\d\d)T(?=[\d:.]+Z)"
    told = re.sub(whole, lambda found: found[0] if found[1] >= "1970-01-02" else "", ours)
    return bool(debezium != ours and debezium == told)


def _hashed(debezium: Any, ours: Any) -> bool:
    return isinstance(debezium, str) and ours == hashlib.sha256((SALT + debezium).encode()).hexdigest()


def _whole_characters(debezium: Any, ours: Any) -> bool:
    """Debezium's text ends in half a character, ours goes on to its end."""
    units, half = str(ours).encode("utf-16-le"), str(debezium).encode("utf-16-le", "surrogatepass")
    return debezium != ours and units.startswith(half)


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
        _pairs({1900: 0}),
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
        lambda debezium, ours: {**debezium, "doc": ours.get("doc")} == ours,
        "Confluent's converter, whose Avro ours is, gives a field the text of its Connect schema; Apicurio's, which "
        "the comparison runs, does not",
        scenarios="avro",
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
        lambda debezium, ours: ours in SERVER_JSON and debezium != ours,
        "Debezium's log events garble negative times in JSON, spell out exponents, and tell no type of binaries; ours "
        "are the numbers, times and binaries that the server itself prints",
    ),
    Difference(
        "the version of Debezium is 3.6.1.Final",
        r"source\.version",
        _pairs({"3.5.0.Final": "3.6.1.Final"}),
        "the contract is one; of Debezium's connector for MariaDB 3.5.0 is the newest to be had",
        scenarios="mariadb.*",
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
        r"int64",
        _some_seconds_later,
        "without the microseconds that MySQL logs Debezium gives END the time of the last row",
        ops="k",
        scenarios="mariadb_tx",
    ),
    Difference(
        "DATETIME keys before 1970-01-02 have their date in headers",
        r"header",
        _time_without_date,
        "with `connect` Kafka's header converter writes only the time of day of these",
        ops="k",
        scenarios="time_connect",
    ),
    Difference(
        "TIME 24:00:00 is no 00:00:00Z",
        r"io\.debezium\.time\.IsoTime",
        _pairs({"00:00:00Z": None}),
        "`isostring` cannot say it; Debezium writes another time, ours is NULL",
        scenarios="time_isostring",
    ),
    Difference(
        "a rolled back XA transaction is not published",
        r"record",
        lambda debezium, _ours: debezium == {"id": 21},
        "Debezium publishes rows at XA PREPARE and never takes them back; ours come at XA COMMIT",
        scenarios="tx",
    ),
    Difference(
        "rows of XA transactions are those of their XA COMMIT",
        r"transaction|source\.(thread|gtid|pos|ts_ms|ts_us|ts_ns)",
        lambda _debezium, ours: ours is not None,
        "Debezium's have time, place and GTID of XA PREPARE, no thread and no transaction block",
        ops="x",
        scenarios="tx",
    ),
    Difference(
        "XA transactions have a BEGIN and an END",
        r"border",
        lambda debezium, _ours: debezium is None,
        "as all others; Debezium tells no borders of theirs",
        ops="x",
    ),
    Difference(
        "the time of a truncate has microseconds",
        r"source\.ts_(us|ns)",
        _cut_to_milliseconds,
        "as all other records have where the server logs them; Debezium cuts them off here",
        ops="t",
    ),
    Difference(
        "masks are applied to keys",
        r"string",
        _hashed,
        "Debezium masks the columns of rows only: the key of the record shows what the row hides",
        ops="k",
        scenarios="masks",
    ),
    Difference(
        "schemas of masked keys say so",
        r"schema",
        lambda debezium, ours: {**debezium, "parameters": {"masked": "true"}} == ours,
        "as in the row, since the key is masked, too",
        scenarios="masks",
    ),
    Difference(
        "a masked NULL is NULL",
        r"string",
        _pairs({"**********": None}),
        "`column.mask.with.10.chars` makes asterisks of NULL in Debezium",
        ops="cud",
        scenarios="masks",
    ),
    Difference(
        "a truncated text ends in a whole character",
        r"string",
        _whole_characters,
        "`column.truncate.to.5.chars` counts UTF-16 units in Debezium and cuts characters beyond U+FFFF in two",
        ops="cud",
        scenarios="masks",
    ),
)
