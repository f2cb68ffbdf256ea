"""Every type of the sink added, widened, dropped and added again, in tables that do not have it yet: MySQL to lake, by `verify`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest
from deltalake import DeltaTable

from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import database as server_named
from tests.support.servers import new_database
from tests.verify.all_types import POINT
from tidemark.embedded import Kafka


@dataclass(frozen=True)
class Type:
    """A type as SQL, two values of it, one that is narrower with a value, and another one with a value that is none of it."""

    ddl: str
    values: tuple[str, str]
    narrower: tuple[str, str]
    other: tuple[str, str] = ("VARCHAR(20)", "'x'")


SHAPE = f"x'E6100000{POINT.hex()}'"
TYPES = {
    "smallint": Type("SMALLINT", ("-5", "32767"), ("TINYINT", "-5")),
    "int": Type("INT", ("70000", "0"), ("SMALLINT", "7")),
    "bigint": Type("BIGINT", ("-9223372036854775808", "1"), ("INT UNSIGNED", "4294967295"), ("DATETIME(6)", "'2024-05-06 07:08:09.5'")),
    "ubigint": Type("BIGINT UNSIGNED", ("18446744073709551615", "0"), ("INT", "5")),
    "decimal": Type("DECIMAL(12,4)", ("-1.5000", "99999999.9999"), ("DECIMAL(6,2)", "1.25"), ("DATE", "'2024-02-29'")),
    "decimal65": Type("DECIMAL(65,30)", ("0.5", "-" + "9" * 35), ("DECIMAL(20,2)", "1.25")),
    "float": Type("FLOAT", ("0.1", "-3.4028234e38"), ("SMALLINT", "5"), ("JSON", "'{}'")),
    "double": Type("DOUBLE", ("0.1", "5e-324"), ("FLOAT", "1.5"), ("DECIMAL(10,2)", "1.25")),
    "bit": Type("BIT(1)", ("b'1'", "b'0'"), ("BIT(1)", "b'1'"), ("INT", "7")),
    "bits": Type("BIT(10)", ("b'1000000011'", "b'1'"), ("BIT(1)", "b'1'")),
    "year": Type("YEAR", ("2155", "1901"), ("TINYINT UNSIGNED", "99"), ("DECIMAL(10,2)", "1.25")),
    "date": Type("DATE", ("'9999-12-31'", "'1000-01-01'"), ("DATE", "'2024-02-29'"), ("DATETIME", "'2024-02-29 01:02:03'")),
    "datetime": Type("DATETIME", ("'9999-12-31 23:59:59'", "'1000-01-01 00:00:00'"), ("DATE", "'2024-02-29'")),
    "datetime6": Type("DATETIME(6)", ("'2024-05-06 07:08:09.123456'", "NULL"), ("DATETIME(3)", "'2024-05-06 07:08:09.123'")),
    "timestamp": Type("TIMESTAMP(6) NULL", ("'2038-01-19 03:14:07.999999'", "NULL"), ("DATETIME", "'2024-05-06 07:08:09'")),
    "time": Type("TIME(6)", ("'-838:59:58.999999'", "'00:00:00.5'"), ("TIME", "'12:34:56'")),
    "char": Type("VARCHAR(300)", ("'日本 🌊 '", "''"), ("CHAR(10)", "'ß'"), ("INT", "7")),
    "enum": Type("ENUM('a','b')", ("'b'", "NULL"), ("ENUM('a')", "'a'"), ("BLOB", "x'FF00'")),
    "json": Type("JSON", ("'{\"k\": [1, 2.5]}'", "'null'"), ("INT", "5"), ("BLOB", "x'FF00'")),
    "binary": Type("VARBINARY(20)", ("x'00FF00'", "''"), ("BINARY(4)", "x'01'"), ("INT", "7")),
    "point": Type("POINT", (SHAPE, "NULL"), ("POINT", SHAPE), ("INT", "7")),
    "vector": Type("VECTOR(2)", ("x'0000C03F000080BE'", "NULL"), ("VECTOR(2)", "x'0000C03F000080BE'"), ("INT", "7")),
}
OPERATIONS = ("added", "filled", "widened", "again", "other", "swapped", "anew")
SOME = ("smallint", "datetime", "point")
WITHOUT_DEFAULT = frozenset({"json", "point", "vector"})


@dataclass(frozen=True)
class Cell:
    """One type and what is done with it: a table of its own."""

    operation: str
    name: str

    @property
    def table(self) -> str:
        return f"{self.operation}_{self.name}"

    @property
    def before(self) -> str:
        """The columns beside the key that the table has at first."""
        kind = TYPES[self.name]
        of_operation = {
            "added": "n INT",
            "filled": "n INT",
            "widened": f"c {kind.narrower[0]} NULL",
            "again": f"c {kind.ddl}",
            "other": f"c {kind.other[0]}",
            "swapped": f"c {kind.other[0]}, d {kind.ddl}",
            "anew": f"c {kind.other[0]}",
        }
        return of_operation[self.operation]

    @property
    def first(self) -> str:
        """A row of that."""
        kind = TYPES[self.name]
        values = {"widened": kind.narrower[1], "again": kind.values[0], "other": kind.other[1], "anew": kind.other[1]}
        return f"{kind.other[1]}, {kind.values[0]}" if self.operation == "swapped" else values.get(self.operation, "5")

    @property
    def change(self) -> tuple[str, ...]:
        """What brings the type into column c."""
        kind, alter = TYPES[self.name], f"ALTER TABLE {self.table}"
        of_operation = {
            "added": (f"{alter} ADD COLUMN c {kind.ddl}",),
            "filled": (f"{alter} ADD COLUMN c {kind.ddl.removesuffix(' NULL')} NOT NULL DEFAULT {kind.values[0]}",),
            "widened": (f"{alter} MODIFY c {kind.ddl}",),
            "again": (f"{alter} DROP COLUMN c", f"{alter} ADD COLUMN c {kind.ddl}"),
            "other": (f"{alter} DROP COLUMN c", f"{alter} ADD COLUMN c {kind.ddl}"),
            "swapped": (f"{alter} RENAME COLUMN c TO d, RENAME COLUMN d TO c",),
            "anew": (f"DROP TABLE {self.table}", f"CREATE TABLE {self.table} (id INT PRIMARY KEY, c {kind.ddl})"),
        }
        return of_operation[self.operation]

    @property
    def second(self) -> tuple[str, ...]:
        """Rows with values of the type, one of them of a row that was there."""
        table, (one, two) = self.table, TYPES[self.name].values
        two = one if two == "NULL" and self.operation == "filled" else two
        return (f"INSERT INTO {table} (id, c) VALUES (10, {one}), (11, {two})", f"UPDATE {table} SET c = {two} WHERE id = 2")


def _cells(names: tuple[str, ...]) -> list[Cell]:
    cells = [Cell(operation, name) for name in names for operation in OPERATIONS]
    return [cell for cell in cells if not (cell.operation == "filled" and cell.name in WITHOUT_DEFAULT)]


@pytest.mark.parametrize(
    ("name", "names"),
    [("mysql80", SOME), pytest.param("mysql97", tuple(TYPES), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_every_type_comes_into_a_table_that_does_not_have_it(
    name: str, names: tuple[str, ...], kafka: Kafka, make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    server, cells = server_named(name), _cells(names)
    few = {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 1}
    pipeline = make_pipeline(server, new_database(server), kafka=few, snapshot={"mode": "initial", "readers": 2})
    with pipeline.connect() as connection:
        create_signal_table(connection)
    for cell in cells:
        key = "VARCHAR(10)" if cell.operation == "anew" else "INT"
        rows = ", ".join(f"({number}, {cell.first})" for number in (1, 2, 3))
        pipeline.sql(f"CREATE TABLE {cell.table} (id {key} PRIMARY KEY, {cell.before})", f"INSERT INTO {cell.table} VALUES {rows}")
    tables = [cell.table for cell in cells]
    pipeline.start("run", "merge")
    pipeline.wait_for_snapshot(*tables)
    pipeline.wait_for_sink(*tables)

    for cell in cells:
        pipeline.sql(*cell.change, *cell.second)
    pipeline.wait_for_log()
    pipeline.wait("their snapshots", lambda status: not status.snapshot_running)
    pipeline.wait_for_sink(*tables)

    report = pipeline.assert_equal(*tables)
    assert len(report.tables) == len(cells), report.to_text()
    assert not [table.table for table in report.tables if table.absent_columns]
    wanted = {name: _type(pipeline, Cell("added", name)) for name in names}
    kept = {cell.table: found for cell in cells if (found := _type(pipeline, cell)) != wanted[cell.name]}
    assert not kept, "columns that have not taken the source's type"
    with capsys.disabled():
        sys.stdout.write(f"\nevolution: {len(cells)} cells tried, {report.rows} rows, all equal by verify\n")


def _type(pipeline: Pipeline, cell: Cell) -> str:
    """Of column c in the lake."""
    path = pipeline.settings.sink.table_path(pipeline.database, cell.table)
    return str(next(field.type for field in DeltaTable(path).schema().fields if field.name == "c"))
