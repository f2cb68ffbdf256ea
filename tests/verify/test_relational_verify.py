"""Verify of sinks that are databases, on real servers: it finds what is wrong there, and only that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from devservers import Postgres
from schemas.identity import TableName
from schemas.settings import SinkSettings
from tests.verify import all_types, sinks
from tests.verify.conftest import Scene
from tests.verify.relational_tables import MySqlTables, PostgresTables, SinkTables
from tests.verify.test_verify import changed, only, prepare_types
from tidemark.verify import DifferenceKind, verify
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.postgres_rows import PostgresServer
from tidemark.verify.relational_reader import RelationalReader, SinkDatabaseError
from tidemark.verify.sink_types import open_reader

SINKS = ["postgres17", pytest.param("mysql97", marks=pytest.mark.slow), pytest.param("mariadb114", marks=pytest.mark.slow)]
OTHER: dict[pa.DataType, Any] = {
    pa.int8(): 1, pa.int16(): 2, pa.int32(): 3, pa.int64(): 4, pa.float32(): 0.25, pa.float64(): 0.25, pa.bool_(): None,
    pa.string(): "9", pa.binary(): b"other", pa.date32(): all_types.date(2001, 1, 1),
    all_types.NAIVE: all_types.datetime(2001, 1, 1), all_types.SHAPE: {"srid": 7, "wkb": all_types.POINT},
    all_types.AWARE: all_types.datetime(2001, 1, 1, tzinfo=all_types.UTC), pa.list_(pa.float32()): [1.5],
}  # fmt: skip


@pytest.fixture(params=SINKS)
def tables(request: pytest.FixtureRequest) -> SinkTables:
    server = request.getfixturevalue(request.param)
    return PostgresTables(server) if isinstance(server, Postgres) else MySqlTables(server)


def with_sink(scene: Scene, tables: SinkTables, folder: Path) -> Scene:
    """The scene with a sink in a database. Its password is in a file."""
    secret = folder / "password"
    secret.write_text(f"{tables.settings['password']}\n", "utf-8")
    given = {**tables.settings, "password": "", "password_file": str(secret), "work": str(folder / "work")}
    settings = sinks.settings_for(scene.server, scene.database, folder, given)
    return replace(scene, settings=settings)


@pytest.mark.parametrize("scene", ["mysql80"], indirect=True)
def test_what_is_wrong_in_a_database_is_found_whatever_its_type(scene: Scene, tables: SinkTables, tmp_path: Path) -> None:
    scene = with_sink(scene, tables, tmp_path)
    name, right = TableName(scene.database, "types"), prepare_types(scene)
    tables.write(name, right)
    report = verify(scene.settings)
    assert report.ok, report.to_text()
    assert (only(report).source_rows, only(report).sink_rows, only(report).sink_only_columns) == (40, 40, ())

    wrong = right
    columns = [column for column in right.column_names if column not in {"id", "_tm_position"}]
    for row, column in enumerate(columns):
        kind = right.schema.field(column).type
        wrong = changed(wrong, row, column, all_types.Decimal(3) if pa.types.is_decimal(kind) else OTHER[kind])
    assert len(columns) < 39, "the last row is right, and is the one that is missing"
    tables.write(name, pa.concat_tables([wrong.slice(0, 39), changed(right.slice(3, 1), 0, "id", 1000)]))
    found = {(part.kind, part.key["id"]): [one.column for one in part.columns] for part in only(verify(scene.settings)).differences}
    values = {(DifferenceKind.VALUE, str(row)): [column] for row, column in enumerate(columns)}
    assert {key: names for key, names in found.items() if key[0] is DifferenceKind.VALUE} == values
    assert set(found) - set(values) == {(DifferenceKind.MISSING, "39"), (DifferenceKind.EXTRA, "1000")}


@pytest.fixture
def odd(postgres17: Postgres) -> Iterator[tuple[PostgresTables, TableName]]:
    tables, name = PostgresTables(postgres17), TableName("odd'\" %s", "t")
    tables.drop(name)
    yield tables, name
    tables.run("""DROP SCHEMA "odd'"" %s" CASCADE""")


def test_what_only_postgresql_has_is_read_as_it_is_or_refused(odd: tuple[PostgresTables, TableName]) -> None:
    tables, name = odd
    table = tables.dialect.table(name)
    tables.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, d date, m timestamp, f real, g double precision, n numeric(5,2), j jsonb,"
        ' "%s" bigint, _tm_position text)'
    )
    tables.run(f"COMMENT ON COLUMN {table}.j IS 'tidemark decimal(20,0)'")  # which it no longer is
    moment, infinite = "'0001-03-01 01:02:03.000004 BC'", "'-Infinity'"
    tables.run(f"INSERT INTO {table} VALUES (1, '0001-03-01 BC', {moment}, {infinite}, 'NaN', 1.5, '{{}}', -1, 'p')")
    server = PostgresServer(SinkSettings(**tables.settings))
    rows = RelationalReader(server).rows(name)
    (batch,) = rows.scan(["d", "m", "f", "g", "n", "j", "%s"])
    days = -719_468  # of the year 0, which has a 29th of February
    assert batch["d"].cast(pa.int32()).to_pylist() == [days]
    assert batch["m"].cast(pa.int64()).to_pylist() == [days * 86_400_000_000 + 3_723_000_004]
    assert [str(batch[column][0]) for column in ("f", "g", "n", "j", "%s")] == ["-inf", "nan", "1.50", "{}", "-1"]
    tables.run(f"INSERT INTO {table} (id, d, _tm_position) VALUES (2, 'infinity', 'p')")
    with pytest.raises(SinkDatabaseError, match=r"cannot be read: .*infinite"):
        list(rows.scan(["d"]))
    tables.run(f"DELETE FROM {table} WHERE id = 2")
    tables.run(f"INSERT INTO {table} SELECT g, NULL, NULL, 0, 0, 0, '{{}}', g, repeat('p', 4000) FROM generate_series(2, 5000) g")
    started = rows.scan(["_tm_position"])
    assert next(started).num_rows < 5000, "rows come in batches"
    started.close()
    assert (rows.total(), rows.count()) == (5000, 5000)
    tables.run(f"ALTER TABLE {table} DROP COLUMN _tm_position")
    with pytest.raises(IncomparableError, match="no merge job has made it"):
        RelationalReader(server).rows(name)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_database_that_does_not_answer_is_named(kind: str) -> None:
    reader = open_reader(sinks.of_sink(type=kind, url=f"{kind}://127.0.0.1:1/shop", user="u", password="hidden"))
    with pytest.raises(IncomparableError, match=r"database 127\.0\.0\.1:1 cannot be read") as caught:
        reader.rows(TableName("shop", "orders"))
    assert "hidden" not in str(caught.value)
    with pytest.raises(SinkDatabaseError, match=r"database 127\.0\.0\.1:1 cannot be read"):
        list(reader.targets())
