"""Each kind of difference: what is meant is excused, what only looks like it is not."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from tidemark.compare.comparison import Comparison
from tidemark.compare.differences import DIFFERENCES
from tidemark.compare.records import Decoder, Record, parsed

SMILE = "\U0001f600"


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
        ("DOUBLE(M,D) in snapshot rows is the one that is stored", 1.235, 1.2345678, True),
        ("DOUBLE(M,D) in snapshot rows is the one that is stored", 1.236, 1.2345678, False),
        ("a truncated text ends in a whole character", "abcd\ud83d", f"abcd{SMILE}", True),
        ("a truncated text ends in a whole character", "abcd", "abcde", False),
        ("a masked NULL is NULL", "***", None, True),
        ("a masked NULL is NULL", "", None, False),
        ("BIGINT UNSIGNED is exact by default", -1, 2**64 - 1, True),
        ("BIGINT UNSIGNED is exact by default", -2, 2**64 - 1, False),
        ("BIGINT UNSIGNED is exact by default", -1, "not base64", False),
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


def test_an_integer_column_that_looks_like_the_time_of_a_border_is_not_excused() -> None:
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
    "tableChanges": [{"type": "CREATE", "id": '"d"."t"', "table": {"columns": [{"name": "id", "length": 10, "position": 1}]}}],
}


def statement(**changes: Any) -> Record:
    source = {"name": "right", "row": 0, "thread": None, "sequence": "0000.0000000001.000000000004.0000000000"}
    value = {**STATEMENT, "source": {**STATEMENT["source"], **source}, **changes}
    return Record("t", 0, 0, {"schema": None, "payload": {"databaseName": "d"}}, {"schema": None, "payload": value}, {})


def problems(right: Record) -> tuple[str, ...]:
    left = Record("t", 0, 0, right.key, {"schema": None, "payload": STATEMENT}, {})
    return Comparison("mysql", "left", "right").judge("t", left, right).problems


def table(**column: Any) -> list[Any]:
    columns = [{"name": "id", "length": 10, "position": 1, **column}]
    return [{"type": "CREATE", "id": '"d"."t"', "table": {"columns": columns}}]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"ts_ms": 2}, 0),
        ({"ddl": "CREATE TABLE t (i INT)"}, 1),
        ({"tableChanges": table(length=0)}, 0),
        ({"tableChanges": table(length=11)}, 1),
        ({"tableChanges": table(position=2)}, 1),
        ({"tableChanges": []}, 1),
        ({"databaseName": "e"}, 1),
    ],
)
def test_statements_and_their_tables_are_compared(changes: dict[str, Any], count: int) -> None:
    assert len(problems(statement(**changes))) == count


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


def row_of_transaction(prefix: str, block: Any, **source: Any) -> Record:
    told = {"name": prefix, "file": "binlog.000001", "pos": 5, "gtid": "u:1", "sequence": None, **source}
    value = {"before": None, "after": {"v": 1}, "source": told, "op": "c", "ts_ms": 1, "transaction": block}
    return Record("t", 0, 1, None, {"schema": None, "payload": value}, {})


BLOCK = {"id": "u:1", "total_order": 1, "data_collection_order": 1}
SEQUENCE = "0000.0000000001.000000000005.0000000001"


def test_a_row_without_a_transaction_block_is_one_of_xa_only_where_others_have_one() -> None:
    left, right = row_of_transaction("left", None), row_of_transaction("right", BLOCK, gtid="u:2", sequence=SEQUENCE)
    assert Comparison("mysql", "left", "right").judge("t", left, right).problems == ()
    without = Comparison("mysql", "left", "right", tells_blocks=False)
    problems = without.judge("t", left, right).problems
    assert [name for name in ("source.gtid", "value.transaction") if any(name in problem for problem in problems)] == [
        "source.gtid",
        "value.transaction",
    ]
    assert without.xa == set()


def test_rows_of_xa_transactions_may_be_committed_in_another_file_than_they_were_prepared_in() -> None:
    left = row_of_transaction("left", None)
    right = row_of_transaction("right", BLOCK, file="binlog.000002", sequence=SEQUENCE)
    assert Comparison("mysql", "left", "right").judge("t", left, right).problems == ()


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
