"""Every mapping of column types, held against a record: `python -m tests.schemas.test_recorded_types` rewrites it.

A line is one column type in SQL, or one pair of a type and a mode in which it has another schema. What is long, or
has a value for each of many inputs, is a hash. `tests/codec`, `tests/sinks` and `tests/catalog` prove that the mappings are right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Final, get_args

from deltalake import Schema
from pyspark.sql import types as T  # noqa: N812 - the usual name

from mysqlio.binary_query import ResultColumn
from mysqlio.definitions.column_definition import parse_definition
from mysqlio.definitions.column_types import is_exact, to_column
from mysqlio.definitions.token_cursor import Cursor
from mysqlio.definitions.tokens import tokenise
from mysqlio.result_columns import require_columns
from producer.binlog.tablemap import TableMap
from producer.catalog.conversions import keeps_values, looks_the_same
from producer.catalog.table_map import Announced, announced_column, disagreement, hidden_type
from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ranges import is_plain_integer, literal, range_key, select_expression
from rowcodec.program import compile_binlog, compile_result
from rowcodec.types import BinlogLayout, RecordOptions, SourceConstants, WireSchemas
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import BinaryMode, DecimalMode, TimeMode, ValueModes
from schemas.errors import TidemarkError
from schemas.jsonschema import to_json_schema
from schemas.types.column_facts import sized
from schemas.types.connect import key_schema, value_schema
from schemas.types.semantic_types import column_default, column_schema
from schemas.types.source_types import source_parameters
from spark_jobs.arrow.arrow_types import arrow_type
from spark_jobs.arrow.column_readings import reading_of
from spark_jobs.decode.spark_types import field_of, without_logical_type
from spark_jobs.sinks.iceberg.java_tables import stored_type
from spark_jobs.sinks.relational.mysql_dialect import MySqlDialect, MySqlTraits
from spark_jobs.sinks.relational.postgres_dialect import PostgresDialect
from tidemark.type_reference import connect_text

RECORD: Final = Path(__file__).parent / "recorded" / "types.txt"
SPATIAL: Final = ["GEOMETRY", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"]
SQL: Final = (
    *(f"{kind}{more}" for kind in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT") for more in ("", " UNSIGNED", "(7) ZEROFILL")),
    "TINYINT(1)", "DECIMAL(10,2)", "DECIMAL(10,2) UNSIGNED", "DECIMAL(38,38)", "DECIMAL(65,30)", "DECIMAL", "FLOAT", "FLOAT(10,2)",
    "DOUBLE", "DOUBLE(10,2)", "BIT(1)", "BIT(9)", "BIT(64)", "YEAR", "DATE", "TIME", "TIME(6)", "DATETIME", "DATETIME(3)",
    "DATETIME(4)", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(3)", "TIMESTAMP(6)", "CHAR(3)", "CHAR(3) CHARACTER SET latin1",
    "CHAR(3) CHARACTER SET binary", "VARCHAR(10)", "VARCHAR(300) CHARACTER SET gbk", "TINYTEXT", "TEXT", "TEXT(70000)", "MEDIUMTEXT",
    "LONGTEXT", "BINARY(4)", "BINARY", "VARBINARY(4)", "TINYBLOB", "BLOB", "BLOB(70000)", "MEDIUMBLOB", "LONGBLOB", "ENUM('a','b,c')",
    "ENUM('1')", "SET('a','b')", "JSON", "POINT", *SPATIAL, "VECTOR", "VECTOR(3)",
)  # fmt: skip
MARIADB: Final = ("UUID", "INET4", "INET6", "YEAR(2)", "VECTOR(3)", "JSON")
DEFAULTS: Final = (
    "0", "1", "-1", "2.5", "18446744073709551615", "1e3", "b'1'", "b'101'", "0x4142", "a", "a,b", "2024", "70", "69", "2024-02-29",
    "0000-00-00", "2024-02-29 01:02:03", "2024-02-29 01:02:03.456", "2024-02-29 01:02:03.456789", "0000-00-00 00:00:00", "01:02:03",
    "-838:59:59.5", "", "00000000-0000-0000-0000-0000000000AB", "1.2.3.4", "'it''s'",
)  # fmt: skip
MODES: Final[dict[str, ValueModes]] = {
    **{f"decimal {mode}": ValueModes(decimal=mode) for mode in get_args(DecimalMode)},
    "unsigned long": ValueModes(bigint_unsigned="long"),
    **{f"binary {mode}": ValueModes(binary=mode) for mode in get_args(BinaryMode)},
    **{f"time {mode}": ValueModes(time=mode) for mode in get_args(TimeMode)},
}
CODES: Final = (0, *range(1, 20), 140, 141, *range(242, 256))
METAS: Final = (1, 2, 3, 4, 0, 6, 2562, 16670, 2048, 257)
BLOBS: Final = (252, 140)
LAYOUTS: Final = tuple((code, meta) for code in CODES for meta in METAS[: 4 if code in BLOBS else None])
RESULTS: Final = tuple(
    ResultColumn("c", code, charset, length, flags, decimals)
    for code, charset, length, flags, decimals in product(
        CODES, (63, 45), (9, 12), (0, 1, 32, 256, 2048), (0, 2, 6)
    )
)


def columns() -> Iterator[tuple[str, Column]]:
    """Give every column type in SQL with the column that it makes. MySQL is first."""
    for flavour, texts in (("mysql", SQL), ("mariadb", MARIADB)):
        for text in texts:
            column = to_column(parse_definition(Cursor(tokenise(text, flavour)), "c"), "utf8mb4", flavour)
            assert column is not None, text
            yield (text if flavour == "mysql" else f"{text} of MariaDB"), replace(column, nullable=True)


def hashed(*values: Any) -> str:
    return sha256(repr(values).encode()).hexdigest()[:10]


def attempt(action: Callable[..., Any], *arguments: Any) -> Any:
    """Return the outcome of an action, or the error that it raises, as something that has a stable text."""
    try:
        return action(*arguments)
    except (TidemarkError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def table_of(column: Column) -> TableSchema:
    return TableSchema("d", "t", (column,))


def with_defaults(column: Column) -> Iterator[Column]:
    yield column
    for text in DEFAULTS:
        yield replace(column, has_default=True, default=text)
    yield replace(column, has_default=True, default="CURRENT_TIMESTAMP", default_is_expression=True)


def both_nullable(column: Column) -> Iterator[Column]:
    return (replace(one, nullable=nullable) for nullable in (True, False) for one in with_defaults(column))


def program_of(column: Column, modes: ValueModes) -> str:
    """Return the hash of the programs of a column in each wire format, from each layout that the log may have.

    Layouts that are refused are in the hash of the usual modes only.
    """
    parts: list[Any] = []
    plain, first = SourceConstants("3", "mysql", "p"), table_of(column)
    outcomes = [attempt(compile_binlog, first, BinlogLayout((code,), (meta,)), WireSchemas("json"), plain, RecordOptions())
                for code, meta in LAYOUTS]  # fmt: skip
    layouts = [BinlogLayout((code,), (meta,)) for (code, meta), outcome in zip(LAYOUTS, outcomes, strict=True)
               if not isinstance(outcome, str)]  # fmt: skip
    if modes == ValueModes():
        parts.append([outcome for outcome in outcomes if isinstance(outcome, str)])
    for wire, nullable in product((WireSchemas("avro", 1, 2), WireSchemas("json")), (True, False)):
        table = replace(table_of(replace(column, nullable=nullable)), primary_key=() if nullable else ("c",))
        mysql, mariadb = SourceConstants("3", "mysql", "p", modes), SourceConstants("3", "mariadb", "p", modes)
        parts += [numbers_of(attempt(compile_result, table, wire, one, RecordOptions())) for one in (mysql, mariadb)]
        parts += [numbers_of(attempt(compile_binlog, table, one, wire, mysql, RecordOptions())) for one in layouts]
    return hashed(parts)


def numbers_of(program: Any) -> Any:
    if isinstance(program, str):
        return program
    return program.numbers.tolist(), bytes(program.pool), len(program.python_cells), program.head_bound


def sink_line(column: Column, modes: ValueModes) -> str:
    """Return the types that sinks give a column, the values of its defaults there, and the hash of its schemas."""
    members = []
    for one in both_nullable(column):
        document = json.loads(to_avro(value_schema(table_of(one), "p", "mysql", modes)))
        (member,) = next(branch for branch in document["fields"][0]["type"] if branch != "null")["fields"]
        members.append(member)
    fields = [field_of(member) for member in members]
    kind = fields[0].type
    arrow = reading_of(members[0]["type"], {})
    mysql, postgres = MySqlDialect(MySqlTraits("utf8mb4_0900_bin", has_invisible=True)), PostgresDialect()
    delta = json.loads(Schema.from_json(T.StructType([T.StructField("c", kind)]).json()).to_json())["fields"][0]["type"]
    names = [kind.simpleString(), stored_type(kind).simpleString(), arrow_type(kind), mysql.column_type(kind), postgres.column_type(kind)]
    bare = [without_logical_type(next(part for part in member["type"] if part != "null") if isinstance(member["type"], list)
                                 else member["type"]) for member in members]  # fmt: skip
    fills = hashed([field.fill for field in fields])
    rest = hashed(arrow.parts, arrow.is_unique, bare, delta)
    keys = [key_schema(replace(table_of(one), primary_key=("c",)), "p", modes) for one in both_nullable(column)]
    written = hashed(members, [to_avro(key) for key in keys if key], [to_json_schema(key) for key in keys if key])
    return " | ".join((*map(str, names), fills, rest, written))


def result_of(column: Column) -> str:
    """Return the hash of the differences that a result set may have from a column."""
    return hashed([attempt(require_columns, table_of(column), (result,)) for result in RESULTS])


def source_line(column: Column) -> str:
    parameters = dict(source_parameters(column, comments=True))
    keyed = replace(table_of(column), primary_key=("c",))
    texts = [attempt(literal, column, text) for text in ("1", "1.5", "ab", "AB", "2024-01-01", "1e3", "::1")]
    sql = [select_expression(column), is_plain_integer(column), texts, attempt(range_key, keyed, "c")]
    child = attempt(ChildRows(("c",), frozenset({("41",)})).query, keyed)
    name = parameters["__debezium.source.column.type"], parameters.get("__debezium.source.column.length")
    return " | ".join((*map(str, name), hashed(column), hashed(sql, child, sorted(parameters.items()))))


def lines() -> Iterator[str]:
    """Give every line of the record."""
    for text, column in columns():
        base = column_schema(column)
        defaults = hashed([column_default(one) for one in both_nullable(column)])
        yield f"{text} | {connect_text(base)} | {source_line(column)} | {result_of(column)} | {defaults}"
        yield f"  sinks | {sink_line(column, ValueModes())} | {program_of(column, ValueModes())}"
        for name, modes in MODES.items():
            if column_schema(column, modes) != base:
                yield f"  {name} | {connect_text(column_schema(column, modes))} | {sink_line(column, modes)} | {program_of(column, modes)}"
    yield from catalog_lines([column for _, column in columns()])


def catalog_lines(known: Sequence[Column]) -> Iterator[str]:
    """Give the lines of the mappings that have several columns, or none."""
    pairs = [(old, new) for old in known for new in known]
    yield f"keeps_values | {hashed([(keeps_values(old, new), looks_the_same(old, new)) for old, new in pairs])}"
    yield f"hidden_type | {hashed([hidden_type(old, None, new) for old, new in pairs])}"
    for code in CODES:
        maps = [TableMap(1, "d", "t", (code,), (meta,), (True,), None, b"") for one, meta in LAYOUTS if one == code]
        facts = [Announced("c", unsigned, charset, ("a",), geometry) for unsigned in (False, True)
                 for charset in (None, "binary", "utf8mb4", "gbk") for geometry in (None, 1, 7, 9)]  # fmt: skip
        announced = [attempt(announced_column, one, 0, fact) for one in maps for fact in facts]
        differences = [attempt(disagreement, one, table_of(column)) for one in maps for column in known]
        yield f"code {code} | {hashed(announced)} | {hashed(differences)}"
    sizes = [sized(kind, 1 << bits) for kind in (ColumnType.TEXT, ColumnType.BLOB) for bits in range(33)]
    yield f"sized | {hashed(sizes)}"
    exact = []
    for flavour, (text, column) in product(("mysql", "mariadb"), columns()):
        for default in ("'a'", "5", "0x4142", "b'1'", "'2024-02-29'", "'2024-02-29 01:02:03.456'", "'01:02:03'", "'b,c'", "1.5", "'0xFF'"):
            sql = f"{text.removesuffix(' of MariaDB')} DEFAULT {default}"
            definition = parse_definition(Cursor(tokenise(sql, flavour)), "c")
            made = to_column(definition, "utf8mb4", flavour)
            exact.append((sql, made, made is not None and is_exact(definition, made, flavour), column.name))
    yield f"is_exact | {hashed(exact)}"


def test_every_mapping_of_types_is_the_recorded_one() -> None:
    recorded = RECORD.read_text("utf-8").splitlines()

    assert list(lines()) == recorded


def test_every_column_type_is_in_the_record() -> None:
    assert {column.type for _, column in columns()} == set(ColumnType)


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line}\n" for line in lines()), "utf-8")
