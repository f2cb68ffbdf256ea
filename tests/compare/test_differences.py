"""Each kind of difference: what is meant is excused, what only looks like it is not."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import date
from typing import Any, Final, get_args

import fastavro
import pytest

from conformance.comparison import UNKNOWN, Comparison
from conformance.difference import is_same, is_same_value
from conformance.fit import Misfits
from conformance.intended_differences import DIFFERENCES
from conformance.schema_differences import UNSIGNED_TYPE
from schemas.applied.avro_decoding import parsed
from schemas.names import NameMode, adjusted_schema_name
from tidemark.api.record_decoding import Decoder, Record, Wire

DAY = "2020-01-02"
SMILE = "\U0001f600"


def plain(kind: str, default: Any = None, **more: Any) -> Any:
    field = {"type": kind, "optional": True, "field": "a", **more}
    return field if default is None else {**field, "default": default}


def moment(default: str) -> Any:
    """The schema of a TIMESTAMP with a default."""
    return {**plain("string", default), "name": "io.debezium.time.ZonedTimestamp", "version": 1}


def year(default: int) -> Any:
    """The schema of a YEAR with a default."""
    return {**plain("int32", default), "name": "io.debezium.time.Year", "version": 1}


def int64(default: Any = None) -> Any:
    return plain("int64", default)


def unsigned(default: Any = None) -> Any:
    return plain("bytes", default, **{name: UNSIGNED_TYPE["json"][name] for name in ("name", "version", "parameters")})


GEOMETRY = "io.debezium.data.geometry.Geometry"


def avro(kind: str = "bytes") -> Any:
    return {"name": "g", "type": ["null", kind], "default": None}


def days(year: int) -> int:
    """From 1970 to the last of February of a year, by the Gregorian calendar; the server's year 0 is none of Python's."""
    return date(year, 2, 28).toordinal() - date(1970, 1, 1).toordinal()


def excused(name: str, debezium: Any, ours: Any) -> bool:
    (difference,) = (item for item in DIFFERENCES if item.name == name)
    return difference.excuses(debezium, ours)


@pytest.mark.parametrize(
    ("name", "debezium", "ours", "is_meant"),
    [
        ("JSON holds what the server prints", '{"a":0.1000000000000000055511151231257827,"b":1}', '{"a":0.1,"b":1}', False),
        ("JSON holds what the server prints", "1000000000000000", "1e15", True),
        ("JSON holds what the server prints", "1000000000000001", "1e15", False),
        ("JSON holds what the server prints", "12345678901234567891", "12345678901234567890", False),
        ("JSON holds what the server prints", '"2020-01-02 03:04:05"', '"2020-01-02 03:04:05.000000"', True),
        ("JSON holds what the server prints", '"2020-01-02 03:04:06"', '"2020-01-02 03:04:05.000000"', False),
        ("JSON holds what the server prints", '"13:0-35:0-57.00000-7"', '"-12:34:56.700000"', True),
        ("JSON holds what the server prints", '"05:0-10:0-45"', '"-04:10:45.000000"', False),
        ("JSON holds what the server prints", '"05:0-11:0-45"', '"-04:10:45.000000"', True),
        ("JSON holds what the server prints", '"any text"', '"-12:34:56.700000"', False),
        ("JSON holds what the server prints", '"-12:34:56.7"', '"-12:34:56.700000"', False),
        ("JSON holds what the server prints", '{"a":"03:04:05.5"}', '{"a":"03:04:05.500000"}', True),
        ("JSON holds what the server prints", '"2020-01-02 03:04:05.5"', '"2020-01-02 03:04:05.500000"', True),
        ("JSON holds what the server prints", '"2020-01-02 03:04:05.6"', '"2020-01-02 03:04:05.500000"', False),
        ("JSON holds what the server prints", '"2020-01-02 03:04:05.50"', '"2020-01-02 03:04:05.500000"', False),
        ("JSON holds what the server prints", '"a"', '"a.000000"', False),
        ("JSON holds what the server prints", '{"03:04:05.5":1}', '{"03:04:05.500000":1}', False),
        ("JSON holds what the server prints", '"x"', '"base64:type15:more:x"', False),
        ("JSON holds what the server prints", "[1000000000000000,1]", "[1e15, 1]", False),
        ("JSON holds what the server prints", '{"bit":"BQ=="}', '{"bit":"base64:type15:BQ=="}', True),
        ("JSON holds what the server prints", '{"bit":"BR=="}', '{"bit":"base64:type15:BQ=="}', False),
        ("JSON holds what the server prints", '{"a":1,"b":2}', '{"b":2,"a":1}', False),
        ("JSON holds what the server prints", "[1,true]", "[1,1]", False),
        ("JSON holds what the server prints", "no JSON", "none either", False),
        ("JSON of snapshot rows is compact", '{"a b": [1, 2]}', '{"a b":[1,2]}', True),
        ("JSON of snapshot rows is compact", '{"a b": [1, 2]}', '{"ab":[1,2]}', False),
        ("a TIMESTAMP(n) has n digits in snapshot rows", "2020-01-01T00:00:00.5Z", "2020-01-01T00:00:00.500Z", True),
        ("a TIMESTAMP(n) has n digits in snapshot rows", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000Z", True),
        ("a TIMESTAMP(n) has n digits in snapshot rows", "2020-01-01T00:00:00.5Z", "2020-01-01T00:00:00.501Z", False),
        ("FLOAT in snapshot rows is the one that is stored", 16777200.0, 16777216.0, True),
        ("FLOAT in snapshot rows is the one that is stored", 16777300.0, 16777216.0, False),
        ("DOUBLE(M,D) in snapshot rows is the one that is stored", -0.001, -0.0010000000000000009, True),
        ("DOUBLE(M,D) in snapshot rows is the one that is stored", 1.5, 1.46, False),
        ("a truncated text ends in a whole character", "abcd\ud83d", f"abcd{SMILE}", True),
        ("a truncated text ends in a whole character", "abcd", "abcde", False),
        ("YEAR DEFAULT 0 is 0", year(2000), year(0), True),
        ("YEAR DEFAULT 0 is 0", year(2000), year(1), False),
        ("YEAR DEFAULT 0 is 0", year(2001), year(0), False),
        ("YEAR DEFAULT 0 is 0", year(0), year(2000), False),
        ("YEAR DEFAULT 0 is 0", year(2000), {**year(0), "optional": False}, False),
        ("YEAR DEFAULT 0 is 0", plain("int32", 2000), plain("int32", 0), False),
        ("the year 0 is a year", None, -719528, True),
        ("the year 0 is a year", 0, -719163, True),
        ("the year 0 is a year", None, -719162, False),
        ("the year 0 is a year", None, -719529, False),
        ("the year 0 is a year", 1, -719528, False),
        ("the year 0 is a year", None, -62135596801000, True),
        ("the year 0 is a year", None, -62135596800000, False),
        ("the year 0 is a year", None, -62162207999999999, True),
        ("the year 0 is a year", None, "0000-12-31Z", True),
        ("the year 0 is a year", None, "0001-01-01Z", False),
        ("the year 0 in snapshot rows is not the year 1", -62104060801000, -62135596801000, True),
        ("the year 0 in snapshot rows is not the year 1", -62104060801000, -62135596802000, False),
        ("the year 0 in snapshot rows is not the year 1", -62130585599999999, -62162207999999999, True),
        ("the year 0 in snapshot rows is not the year 1", -62130585600000000, -62162207999999999, False),
        ("the year 0 in snapshot rows is not the year 1", None, -62162207999999999, False),
        ("the year 0 in snapshot rows is not the year 1", 365 * 86_400_000, 0, False),
        ("keys of snapshot rows have columns that are left out", 0, 5, True),
        ("keys of snapshot rows have columns that are left out", "", "x", True),
        ("keys of snapshot rows have columns that are left out", 0, "x", False),
        ("keys of snapshot rows have columns that are left out", 0, 0, False),
        ("keys of snapshot rows have columns that are left out", 4, 5, False),
        ("keys of snapshot rows have columns that are left out", None, 5, False),
        ("a zero TIMESTAMP is NULL on MariaDB", "1970-01-01T00:00:00Z", None, True),
        ("a zero TIMESTAMP is NULL on MariaDB", "1970-01-01T00:00:00.000Z", None, True),
        ("a zero TIMESTAMP is NULL on MariaDB", "1970-01-01T00:00:01Z", None, False),
        ("a zero TIMESTAMP is NULL on MariaDB", "1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", False),
        ("a zero TIMESTAMP is NULL on MariaDB", None, "1970-01-01T00:00:00Z", False),
        ("a masked NULL is NULL", "***", None, True),
        ("a masked NULL is NULL", "", None, True),
        ("a masked NULL is NULL", "a*", None, False),
        ("a masked NULL is NULL", "***", "", False),
        ("BIGINT UNSIGNED is exact by default", -1, 2**64 - 1, True),
        ("BIGINT UNSIGNED is exact by default", -2, 2**64 - 1, False),
        ("BIGINT UNSIGNED is exact by default", -1, "not base64", False),
        ("BIGINT UNSIGNED is exact by default", 255, "/w==", False),
        ("BIGINT UNSIGNED is exact by default", 5, "AAU=", False),
        ("BIGINT UNSIGNED is a Decimal by default", int64(), unsigned(), True),
        ("BIGINT UNSIGNED is a Decimal by default", int64(42), unsigned("Kg=="), True),
        ("BIGINT UNSIGNED is a Decimal by default", int64(42), unsigned("Kw=="), False),
        ("BIGINT UNSIGNED is a Decimal by default", int64(42), unsigned(), False),
        ("BIGINT UNSIGNED is a Decimal by default", int64(), unsigned("Kg=="), False),
        ("BIGINT UNSIGNED is a Decimal by default", int64(2**63 - 1), unsigned("AP//////////"), True),
        ("BIGINT UNSIGNED is a Decimal by default", int64(2**63 - 2), unsigned("AP//////////"), False),
        ("BIGINT UNSIGNED is a Decimal by default", int64(42), int64(43), False),
        ("BIGINT UNSIGNED is a Decimal by default", {**int64(42), "type": "int32"}, {**int64(43), "type": "int32"}, False),
        ("BOOLEAN is TINYINT(1)", plain("boolean", True), plain("int16", 1), True),
        ("BOOLEAN is TINYINT(1)", plain("boolean", True), plain("int16", 0), False),
        ("BOOLEAN is TINYINT(1)", plain("boolean", True), plain("int16", True), False),
        ("BOOLEAN is TINYINT(1)", plain("boolean", True), plain("int16"), False),
        ("defaults are what the server stores", plain("string", "it''s"), plain("string", "it's"), True),
        ("defaults are what the server stores", plain("string", "it''s"), plain("string", "its"), False),
        ("defaults are what the server stores", plain("string", "it''s"), plain("string"), False),
        ("defaults are what the server stores", plain("int64", 2**63 - 1), plain("int64", -1), True),
        ("defaults are what the server stores", plain("int64", 2**63 - 1), plain("int64", -2), False),
        ("defaults are what the server stores", plain("int32", 42), plain("int32", 43), False),
        ("defaults are what the server stores", plain("bytes", "YWJcMFww"), plain("bytes", "YWIAAA=="), True),
        ("defaults are what the server stores", plain("bytes", "YWJcMFww"), plain("bytes", "YWIAAQ=="), False),
        ("defaults are what the server stores", plain("bytes", "MDBG"), plain("bytes", "AP8="), True),
        ("defaults are what the server stores", plain("bytes", "MDBG"), plain("bytes", "AA8="), False),
        ("defaults are what the server stores", plain("string", "it's"), plain("string", "it''s"), False),
        ("TIMESTAMP defaults are in UTC", moment(f"{DAY}T03:04:05.6Z"), moment(f"{DAY}T01:04:05.6Z"), True),
        ("TIMESTAMP defaults are in UTC", moment(f"{DAY}T03:04:05.6Z"), moment(f"{DAY}T01:04:06.6Z"), False),
        ("TIMESTAMP defaults are in UTC", moment(f"{DAY}T03:04:05.6Z"), moment(f"{DAY}T01:04:05Z"), False),
        ("TIMESTAMP defaults are in UTC", moment(f"{DAY}T23:04:05Z"), moment(f"{DAY}T01:04:05Z"), False),
        ("TIMESTAMP defaults are in UTC", moment(f"{DAY}T03:04:05Z"), plain("string"), False),
        ("TIMESTAMP defaults are in UTC", plain("string", f"{DAY}T03:04:05Z"), plain("string", f"{DAY}T01:04:05Z"), False),
        ("a TIMESTAMP(n) has n digits in snapshot rows", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00", False),
        ("YEAR 0000 is 0", 1900, 0, True),
        ("YEAR 0000 is 0", 2000, 0, False),
        ("YEAR 0000 in snapshot rows is 0", 2001, 0, False),
        ("ENUM labels are not escaped", "x\\,y", "x,y", True),
        ("ENUM labels are not escaped", "x\\y", "xy", False),
        ("BOOLEAN values are 0 and 1", True, 1, True),
        ("BOOLEAN values are 0 and 1", True, True, False),
        ("BOOLEAN values are 0 and 1", True, 0, False),
        ("the year 1 is not the year 2001", 11323, -719162, True),
        ("the year 1 is not the year 2001", 11324, -719162, False),
        ("the year 1 is not the year 2001", 978307200000001, -62135596799999999, True),
        ("the year 1 is not the year 2001", *(days(year) for year in (1999, 99)), True),
        ("the year 1 is not the year 2001", *(days(year) for year in (2069, 69)), True),
        ("the year 1 is not the year 2001", *(days(year) for year in (2099, 99)), False),
        ("the year 1 is not the year 2001", *(days(year) for year in (2100, 100)), False),
        ("the year 1 is not the year 2001", *(days(year) * 86_400_000 for year in (1970, 70)), True),
        ("the year 1 is not the year 2001", "1996-02-29T00:00:00Z", "0096-02-29T00:00:00Z", True),
        ("the year 1 is not the year 2001", "2020-02-29T00:00:00Z", "0096-02-29T00:00:00Z", False),
        ("a truncated text ends in a whole character", "abcd\ud83d", f"abcd{SMILE}{SMILE}", False),
        ("a truncated text ends in a whole character", "abcd\ud83d", "abcd", False),
        ("a truncate has no row", 3, 0, True),
        ("a truncate has no row", 3, 1, False),
        ("a truncate has no row", 3, None, False),
        ("fields of Avro have their doc", avro(GEOMETRY), {**avro(GEOMETRY), "doc": "Geometry"}, True),
        ("fields of Avro have their doc", avro(GEOMETRY), {**avro(GEOMETRY), "doc": "Geometry (POINT)"}, False),
        ("fields of Avro have their doc", avro(GEOMETRY), avro(GEOMETRY), False),
        ("fields of Avro have their doc", avro(), {**avro(), "doc": "Geometry"}, False),
        ("fields of Avro have their doc", avro(), avro(), False),
        ("defaults in models of tables are values", "", "0x00FF", False),
        ("a transaction ends at its COMMIT", None, 5, False),
        ("CHAR(0) has length 0", 10, 0, True),
        ("CHAR(0) has length 0", 10, 9, False),
        ("defaults in models of tables are values", "it''s", "it's", True),
        ("defaults in models of tables are values", "ab\\0\\0", "ab\0\0", True),
        ("defaults in models of tables are values", "00F", "0x00FF", True),
        ("defaults in models of tables are values", "5", "6", False),
    ],
)
def test_only_what_is_meant_is_excused(name: str, debezium: Any, ours: Any, is_meant: bool) -> None:
    assert excused(name, debezium, ours) == is_meant


def test_an_integer_column_that_looks_like_the_time_of_a_boundary_is_not_excused() -> None:
    schema = {"type": "struct", "name": "k", "fields": [{"type": "int64", "optional": False, "field": "id"}]}
    records = [
        Record("t", 0, 0, {"schema": schema, "payload": {"id": value}}, None, {})
        for value in (1_700_000_000_000, 1_700_000_005_000)
    ]
    comparison = Comparison("mariadb", "left", "right")
    assert len(comparison.judge("t", *records).problems) == 1


STATEMENT = {
    "source": {"name": "left", "snapshot": "false", "row": 4, "thread": 250, "pos": 7, "sequence": None},
    "ts_ms": 1,
    "databaseName": "d",
    "ddl": "CREATE TABLE t (id INT)",
    "tableChanges": [{"type": "CREATE", "id": '"d"."t"', "table": {"columns": [{"name": "id", "typeName": "CHAR", "length": 10, "position": 1}]}}],
}


def statement(**changes: Any) -> Record:
    source = {"name": "right", "row": 0, "thread": None, "sequence": "0000.0000000001.000000000004.0000000000"}
    value = {**STATEMENT, "source": {**STATEMENT["source"], **source}, **changes}
    return Record("t", 0, 0, {"schema": None, "payload": {"databaseName": "d"}}, {"schema": None, "payload": value}, {})


def problems(right: Record) -> tuple[str, ...]:
    left = Record("t", 0, 0, right.key, {"schema": None, "payload": STATEMENT}, {})
    return Comparison("mysql", "left", "right").judge("t", left, right).problems


def keyed(prefix: str, key: int, op: str, **row: Any) -> Record:
    """A record whose key is `a`."""
    source = {"name": prefix, "snapshot": "true" if op == "r" else "false"}
    value = {"before": None, "after": row, "source": source, "op": op}
    return Record("t", 0, 0, {"schema": None, "payload": {"a": key}}, {"schema": None, "payload": value}, {})


@pytest.mark.parametrize(
    ("op", "row", "unread", "count"),
    [("r", {"v": 1}, 0, 0), ("r", {"v": 1}, 4, 1), ("r", {"a": 5}, 0, 1), ("c", {"v": 1}, 0, 1)],
)
def test_a_key_that_debezium_did_not_read_is_one_of_a_snapshot_row_without_the_column(
    op: str, row: dict[str, Any], unread: int, count: int
) -> None:
    pair = keyed("left", unread, op, **row), keyed("right", 5, op, **row)
    assert len(Comparison("mysql", "left", "right").judge("t", *pair).problems) == count
    assert len(Comparison("mysql", "left", "right").judge("t", keyed("left", 5, op, **row), keyed("right", 5, op, **row)).problems) == 0


@pytest.mark.parametrize(
    ("scenario", "op", "block", "gtid", "count"),
    [
        ("mariadb", "t", {"id": "0-1-5", "total_order": 1, "data_collection_order": 1}, "0-1-5", 0),
        ("mysql", "t", {"id": "0-1-5", "total_order": 1, "data_collection_order": 1}, "0-1-5", 1),
        ("mariadb", "c", {"id": "0-1-5", "total_order": 1, "data_collection_order": 1}, "0-1-5", 1),
        ("mariadb", "t", {"id": "0-1-5"}, "0-1-5", 1),
        ("mariadb", "t", None, "0-1-5", 0),
    ],
)
def test_only_a_truncate_of_mariadb_is_in_a_transaction_of_debezium_alone(
    scenario: str, op: str, block: Any, gtid: str, count: int
) -> None:
    def change(prefix: str, block: Any) -> Record:
        value = {"before": None, "after": None, "source": {"name": prefix, "gtid": gtid}, "op": op, "transaction": block}
        return Record("t", 0, 0, None, {"schema": None, "payload": value}, {})

    comparison = Comparison(scenario, "left", "right")
    assert len(comparison.judge("t", change("left", block), change("right", None)).problems) == count


def table(**column: Any) -> list[Any]:
    columns = [{"name": "id", "typeName": "CHAR", "length": 10, "position": 1, **column}]
    return [{"type": "CREATE", "id": '"d"."t"', "table": {"columns": columns}}]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"ts_ms": 2}, 0),
        ({"ddl": "CREATE TABLE t (i INT)"}, 1),
        ({"tableChanges": table(length=0)}, 1),
        ({"tableChanges": table(length=11)}, 1),
        ({"tableChanges": table(position=2)}, 1),
        ({"tableChanges": []}, 1),
        ({"databaseName": "e"}, 1),
    ],
)
def test_statements_and_their_tables_are_compared(changes: dict[str, Any], count: int) -> None:
    assert len(problems(statement(**changes))) == count


@pytest.mark.parametrize(
    ("ddl", "kind", "default", "ours", "is_meant"),
    [
        ("CREATE TABLE t (id CHAR(0), v INT)", "length", 10, 0, True),
        ("CREATE TABLE t (`id` binary ( 0 ), v INT)", "length", 10, 0, True),
        ("CREATE TABLE t (v CHAR(0), id CHAR(10))", "length", 10, 0, False),
        ("CREATE TABLE t (idx CHAR(0), id CHAR)", "length", 10, 0, False),
        ("CREATE TABLE t (id BINARY(2) DEFAULT 0x00FF)", "defaultValueExpression", "00F", "0x00FF", True),
        ("CREATE TABLE t (id BINARY(2) DEFAULT x'00FF')", "defaultValueExpression", "00F", "0x00FF", True),
        ("CREATE TABLE t (id BINARY(2) DEFAULT '1')", "defaultValueExpression", "1", "0x1F", False),
        ("CREATE TABLE t (id BINARY(2) DEFAULT 0x1FF)", "defaultValueExpression", "1", "0x1F", False),
        ("CREATE TABLE t (v BINARY(2) DEFAULT 0x1F, id CHAR(1) DEFAULT '1')", "defaultValueExpression", "1", "0x1F", False),
    ],
)
def test_what_a_model_of_a_table_may_differ_in_is_in_its_statement(
    ddl: str, kind: str, default: Any, ours: Any, is_meant: bool
) -> None:
    left = {**STATEMENT, "ddl": ddl, "tableChanges": table(**{kind: default})}
    right = statement(ddl=ddl, tableChanges=table(**{kind: ours}))
    judged = Comparison("mysql", "left", "right").judge("t", replace(right, value={"schema": None, "payload": left}), right)
    assert len(judged.problems) == (not is_meant)


def wired(left: Any, right: Any, headers: tuple[tuple[str, bytes], ...] = (), value: bytes | None = b'{"a":1}') -> int:
    """The problems of two records with these keys and this value on the right, beside `{"a":1}`."""
    records = []
    for key, text, pairs in ((left, b'{"a":1}', ()), (right, value, headers)):
        decode = Decoder().decode
        records.append(Record("t", 0, 0, decode(key), decode(text), {}, Wire(key, text, pairs)))
    comparison = Comparison("mysql", "left", "right")
    return len(comparison.judge("t", *records).problems)


KEY: Final = b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"left.d.t.Key"},"payload":{"id":1}}'


def test_bytes_of_records_are_compared_beside_their_meaning() -> None:
    right = KEY.replace(b"left", b"right")
    assert wired(KEY, right) == 0
    turned = right.replace(b'"type":"int32","optional":false', b'"optional":false,"type":"int32"')
    assert wired(KEY, turned) == 1
    assert wired(KEY, right.replace(b'"id":1}', b'"id": 1}')) == 1
    assert wired(KEY, right.replace(b'{"id":1}', b'{"\\u0069d":1}')) == 1
    assert wired(KEY, right.replace(b'{"id":1}', b'{"id":2,"id":1}')) > 0
    assert wired(KEY, right, (("h", b"1"), ("h", b"1"))) == 1
    assert wired(KEY, right, value=b'{"a":2,"a":1}') == 1
    assert wired(KEY, right, value=b'{"a":1,"b":{"c":1,"c":1}}') > 0
    assert wired(None, b'{"schema":null,"payload":null}') == 1
    assert wired(b"text", b"text") == 0


def test_a_tombstone_is_no_empty_json_value() -> None:
    both = [Record("t", 0, 0, None, None, {}, Wire(KEY, value)) for value in (None, b'{"schema":null,"payload":null}')]
    comparison = Comparison("mysql", "left", "right")
    assert [len(comparison.judge("t", both[0], other).problems) for other in both] == [0, 1]


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), ([0.0], [-0.0]), ({"a": -0.0}, {"a": 0.0})])
def test_the_sign_of_zero_counts(one: Any, other: Any) -> None:
    assert not is_same(one, other)
    assert not is_same_value(one, other)
    assert is_same(one, one)
    assert is_same_value(other, other)


def test_the_clock_of_a_reader_and_the_version_it_names_are_its_own() -> None:
    def change(version: str, prefix: str) -> Record:
        sequence = "0000.0000000001.000000000004.0000000001" if prefix == "right" else None
        source = {"version": version, "name": prefix, "sequence": sequence}
        value = {"before": None, "after": {"a": 1}, "source": source, "op": "c", "ts_ms": len(prefix)}
        return Record("t", 0, 0, None, {"schema": None, "payload": value}, {})

    pair = (change("3.0.0.Final", "left"), change("3.6.1.Final", "right"))
    assert len(Comparison("mysql", "left", "right").judge("t", *pair).problems) == 1
    own = Comparison("mysql", "left", "right", readers_own=frozenset({"version"}))
    assert own.judge("t", *pair).problems == ()


def test_only_so_many_problems_are_kept_and_all_are_counted() -> None:
    comparison = Comparison("mysql", "left", "right", kept=2)
    for number in range(5):
        comparison.differ(str(number))
    assert (comparison.problems, comparison.differing) == (["0", "1"], 5)


def test_what_is_no_json_is_text_and_schemas_are_taken_off() -> None:
    decode = Decoder().decode
    assert decode(None) is None
    assert decode(b'{"schema":null,"payload":null}') is None
    assert decode(b'{"schema":{"type":"int32"},"payload":5}') == {"schema": {"type": "int32"}, "payload": 5}
    assert decode(b'{"a":1}') == {"schema": None, "payload": {"a": 1}}
    assert decode(b"plain") == {"schema": None, "payload": "plain"}
    assert decode(b'{"schema":"a","n":1,"payload":"b"}') == {"schema": None, "payload": {"schema": "a", "n": 1, "payload": "b"}}
    assert decode(b'{"schema":{"type":"int32"},"payload":') == {"schema": None, "payload": '{"schema":{"type":"int32"},"payload":'}


def test_a_header_of_a_key_that_is_no_struct_is_compared_as_text() -> None:
    one, other = (Record("t", 0, 1, None, None, {"__debezium.newkey": text}) for text in ("5", '{"id":5}'))
    (problem,) = Comparison("mysql", "left", "right").judge("t", one, other).problems
    assert "__debezium.newkey" in problem


@pytest.mark.parametrize(
    ("kind", "logical", "number"),
    [("int", "date", -719500), ("int", "time-millis", 90_000_000), ("long", "timestamp-millis", -62167219200000)],
)
def test_times_in_avro_that_python_has_none_for_are_read(kind: str, logical: str, number: int) -> None:
    field = {"name": "at", "type": ["null", {"type": kind, "logicalType": logical}]}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, {"type": "record", "name": "r", "fields": [{**field, "type": ["null", kind]}]}, {"at": number})
    schema = parsed({"type": "record", "name": "r", "fields": [field]})
    assert fastavro.schemaless_reader(io.BytesIO(data.getvalue()), schema, None) == {"at": number}


def with_default(prefix: str, value: Any, *, default: int | None = 42, optional: bool = True) -> Record:
    column = plain("int32", default, optional=optional)
    schema = {"type": "struct", "fields": [column], "optional": False, "name": f"{prefix}.d.t.Value"}
    return Record("t", 0, 0, None, {"schema": schema, "payload": {"a": value}}, {})


def judged(comparison: Comparison, left: Record, right: Record) -> int:
    before = comparison.differing
    comparison.accept(comparison.judge("t", left, right))
    return comparison.differing - before


def test_a_changed_default_is_noticed() -> None:
    pair = with_default("left", 1), with_default("right", 1, default=43)
    assert judged(Comparison("mysql", "left", "right"), *pair) == 1


def change_of(record: Record, op: str = "c") -> Record:
    """The row of a record as the change of a table."""
    row = record.value["schema"]
    prefix = row["name"].partition(".")[0]
    images = [{**row, "optional": True, "field": name} for name in ("before", "after")]
    others = [
        {"type": "struct", "optional": False, "field": "source", "fields": [plain("string", field="name")]},
        plain("string", field="op"),
    ]
    payload = {"before": None, "after": record.value["payload"], "source": {"name": prefix}, "op": op}
    schema = {"type": "struct", "fields": [*images, *others], "optional": False, "name": f"{prefix}.d.t.Envelope"}
    return Record("t", 0, 0, None, {"schema": schema, "payload": payload}, {})


def test_null_for_a_default_is_excused_only_while_the_left_side_never_kept_null() -> None:
    filled = change_of(with_default("left", 42)), change_of(with_default("right", None))
    kept = change_of(with_default("left", None)), change_of(with_default("right", None))
    comparison = Comparison("mysql", "left", "right")
    assert judged(comparison, *filled) == 0
    assert judged(comparison, *kept) == 1  # and says so
    assert judged(comparison, *filled) == 1
    assert judged(Comparison("mysql", "left", "right", keeps_nulls=True), *filled) == 1


def test_null_for_a_default_is_excused_only_where_the_column_is_optional_and_the_value_its_default() -> None:
    one = Comparison("mysql", "left", "right")
    assert judged(one, change_of(with_default("left", 41)), change_of(with_default("right", None))) == 1
    required = [change_of(with_default(prefix, value, optional=False)) for prefix, value in (("left", 42), ("right", None))]
    assert judged(one, *required) == 2  # it does not fit its schema, too


def test_null_for_a_default_is_proved_by_what_another_reader_has_of_the_row() -> None:
    pair = change_of(with_default("left", 42)), change_of(with_default("right", None))
    for seen, count in ((None, 0), (42, 1), (UNKNOWN, 0), ("nothing", 1)):
        comparison = Comparison("mysql", "left", "right", witness=lambda *_, seen=seen: seen)
        assert judged(comparison, *pair) == count


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [("int16", 1, True), ("int16", True, False), ("int16", 40_000, False), ("boolean", 1, False), ("string", 1, False),
     ("bytes", "AA==", True), ("bytes", "A", False), ("double", 1, True), ("float", "1", False), ("int64", None, True)],
)  # fmt: skip
def test_a_value_has_to_fit_its_own_schema(kind: str, value: Any, fits: bool) -> None:
    part = {"schema": {"type": "struct", "fields": [plain(kind)], "optional": False}, "payload": {"a": value}}
    assert (list(Misfits().of(part)) == []) == fits


def test_a_prefix_is_the_same_in_every_adjustment_of_names() -> None:
    for mode in get_args(NameMode):
        one, other = ({"type": "struct", "optional": False, "fields": [], "name": adjusted_schema_name(f"{prefix}.d.t.Key", mode)}
                      for prefix in ("my_shop-1", "new_shop"))  # fmt: skip
        pair = [Record("t", 0, 0, {"schema": schema, "payload": {}}, None, {}) for schema in (one, other)]
        assert judged(Comparison("mysql", "my_shop-1", "new_shop"), *pair) == 0
