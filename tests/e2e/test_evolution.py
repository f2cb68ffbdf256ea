"""Every type of the sink added, widened, dropped and added again, in tables that do not have it yet: MySQL to lake, by `verify`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from deltalake import DeltaTable

from devservers import Kafka
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import database as server_named
from tests.support.servers import new_database
from tests.verify.all_types import POINT


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
    "json": Type("JSON", ("'{\"k\": [1, 2.5]}'", "'null'"), ("VARCHAR(20)", "'5'"), ("BLOB", "x'FF00'")),
    "binary": Type("VARBINARY(20)", ("x'00FF00'", "''"), ("BINARY(4)", "x'01'"), ("INT", "7")),
    "point": Type("POINT", (SHAPE, "NULL"), ("POINT", SHAPE), ("INT", "7")),
    "vector": Type("VECTOR(2)", ("x'0000C03F000080BE'", "NULL"), ("VECTOR(2)", "x'0000C03F000080BE'"), ("INT", "7")),
}
OPERATIONS = ("added", "filled", "widened", "again", "other", "swapped", "anew")
WITHOUT_DEFAULT = frozenset({"json", "point", "vector"})
OF_MYSQL_97 = frozenset({"vector"})
ALONE = ("datetime",)  # Delta must know of it; everything else in one table for each operation
TOGETHER = tuple(name for name in TYPES if name not in {*ALONE, *OF_MYSQL_97})

_PATIENCE_S = 1_800.0  # all tables are one batch

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Work:
    """A table, what is done to it, and the types that it gets by that; each has a column `c_<name>`."""

    operation: str
    names: tuple[str, ...]

    @property
    def table(self) -> str:
        return f"{self.operation}_{self.names[0]}"

    def _each(self, text: Callable[[str, Type], str]) -> str:
        return ", ".join(text(name, TYPES[name]) for name in self.names)

    @property
    def create(self) -> tuple[str, str]:
        """The table as it is at first, with rows."""
        defined: dict[str, Callable[[str, Type], str]] = {
            "widened": lambda name, kind: f"c_{name} {kind.narrower[0]} NULL",
            "again": lambda name, kind: f"c_{name} {kind.ddl}",
            "other": lambda name, kind: f"c_{name} {kind.other[0]}",
            "swapped": lambda name, kind: f"c_{name} {kind.other[0]}, d_{name} {kind.ddl}",
            "anew": lambda name, kind: f"c_{name} {kind.other[0]}",
        }
        filled: dict[str, Callable[[str, Type], str]] = {
            "widened": lambda _, kind: kind.narrower[1],
            "again": lambda _, kind: kind.values[0],
            "other": lambda _, kind: kind.other[1],
            "swapped": lambda _, kind: f"{kind.other[1]}, {kind.values[0]}",
            "anew": lambda _, kind: kind.other[1],
        }
        plain = self.operation not in defined
        columns = "n INT" if plain else self._each(defined[self.operation])
        values = "5" if plain else self._each(filled[self.operation])
        key = "VARCHAR(10)" if self.operation == "anew" else "INT"
        rows = ", ".join(f"({number}, {values})" for number in (1, 2, 3))
        return f"CREATE TABLE {self.table} (id {key} PRIMARY KEY, {columns})", f"INSERT INTO {self.table} VALUES {rows}"

    @property
    def change(self) -> tuple[str, ...]:
        """What brings the types into the columns."""
        alter, each = f"ALTER TABLE {self.table} ", self._each
        added = alter + each(lambda name, kind: f"ADD COLUMN c_{name} {kind.ddl}")
        dropped = alter + each(lambda name, _: f"DROP COLUMN c_{name}")
        required = "{} NOT NULL DEFAULT {}"
        of_operation = {
            "added": (added,),
            "filled": (
                alter
                + each(lambda n, kind: f"ADD COLUMN c_{n} {required.format(kind.ddl.removesuffix(' NULL'), kind.values[0])}"),
            ),
            "widened": (alter + each(lambda name, kind: f"MODIFY c_{name} {kind.ddl}"),),
            "again": (dropped, added),
            "other": (dropped, added),
            "swapped": (alter + each(lambda name, _: f"RENAME COLUMN c_{name} TO d_{name}, RENAME COLUMN d_{name} TO c_{name}"),),
            "anew": (
                f"DROP TABLE {self.table}",
                f"CREATE TABLE {self.table} (id INT PRIMARY KEY, {each(lambda name, kind: f'c_{name} {kind.ddl}')})",
            ),
        }
        return of_operation[self.operation]

    @property
    def second(self) -> tuple[str, str]:
        """Rows with values of the types, one of them of a row that was there."""

        def other(kind: Type) -> str:
            return kind.values[0] if kind.values[1] == "NULL" and self.operation == "filled" else kind.values[1]

        columns = self._each(lambda name, _: f"c_{name}")
        one, two = self._each(lambda _, kind: kind.values[0]), self._each(lambda _, kind: other(kind))
        changed = self._each(lambda name, kind: f"c_{name} = {other(kind)}")
        return (
            f"INSERT INTO {self.table} (id, {columns}) VALUES (10, {one}), (11, {two})",
            f"UPDATE {self.table} SET {changed} WHERE id = 2",
        )


def _works(groups: Groups) -> list[Work]:
    works = [Work(operation, names) for names in groups for operation in OPERATIONS if operation != "filled"]
    filled = [tuple(name for name in names if name not in WITHOUT_DEFAULT) for names in groups]
    return works + [Work("filled", names) for names in filled if names]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("mysql80", (ALONE, TOGETHER)),
        pytest.param("mysql97", tuple((name,) for name in TYPES), marks=pytest.mark.slow),
    ],
    ids=["together", "each alone"],
)
def test_every_type_comes_into_a_table_that_does_not_have_it(
    name: str, groups: Groups, kafka: Kafka, make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    server, works = server_named(name), _works(groups)
    few = {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 1}
    pipeline = make_pipeline(server, new_database(server), kafka=few, snapshot={"mode": "initial", "readers": 2})
    with pipeline.connect() as connection:
        create_signal_table(connection)
    for work in works:
        pipeline.sql(*work.create)
    tables = [work.table for work in works]
    pipeline.start("run", "merge")
    pipeline.wait_for_snapshot(*tables)
    pipeline.wait_for_sink(*tables, seconds=_PATIENCE_S)

    for work in works:
        pipeline.sql(*work.change, *work.second)
    pipeline.wait_for_log()
    pipeline.wait("their snapshots", lambda status: not status.snapshot_running)
    pipeline.wait_for_sink(*tables, seconds=_PATIENCE_S)

    report = pipeline.assert_equal(*tables)
    assert len(report.tables) == len(works), report.to_text()
    assert not [table.table for table in report.tables if table.absent_columns]
    wanted = {name: _type(pipeline, Work("added", names), name) for names in groups for name in names}
    found = {(work.operation, name): _type(pipeline, work, name) for work in works for name in work.names}
    assert not {cell: kind for cell, kind in found.items() if kind != wanted[cell[1]]}, "not the source's type"
    with capsys.disabled():
        sys.stdout.write(f"\nevolution: {len(found)} cells tried, {report.rows} rows, all equal by verify\n")


def _type(pipeline: Pipeline, work: Work, name: str) -> str:
    """Of a type's column in the lake."""
    path = pipeline.settings.sink.table_path(pipeline.database, work.table)
    return str(next(field.type for field in DeltaTable(path).schema().fields if field.name == f"c_{name}"))
