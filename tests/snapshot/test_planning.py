"""Chunk ranges against real servers: whatever the key, every row is in exactly one chunk."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from devservers import Database
from mysqlio.information_schema import read_table_schema
from producer.snapshot.pace import ChunkSizes
from producer.snapshot.planner import TablePlanner
from producer.snapshot.ranges import KeyRange, chunk_query, literal, range_key
from producer.snapshot.snapshot_state import Chunk
from producer.snapshot.watermark import LowWatermark
from schemas.columns import Column, ColumnType
from schemas.documents import ChunkDocument, PlanDocument
from schemas.errors import StateError
from schemas.json_codec import decode, encode
from schemas.position import Position
from tests.support.servers import database, drop_database, new_database
from tests.support.snapshots import explain

SEED = 20261121
NOWHERE = LowWatermark(Position.MINIMUM, "", 4)


@dataclass(frozen=True)
class Shape:
    """A table's key: columns, the PRIMARY KEY clause, and values that go in."""

    columns: str
    key: str
    rows: Callable[[random.Random], list[tuple[Any, ...]]]
    chunk_rows: int = 7
    in_order: bool = True


def _distinct(
    make: Callable[[random.Random], Any], count: int
) -> Callable[[random.Random], list[tuple[Any, ...]]]:
    def rows(rng: random.Random) -> list[tuple[Any, ...]]:
        found: dict[Any, None] = {}
        while len(found) < count:
            found[make(rng)] = None
        return [value if isinstance(value, tuple) else (value,) for value in found]

    return rows


def _text(rng: random.Random) -> str:
    return "".join(rng.choice("aAbBéÉßzZ _%'\\\"🐬ñ-0") for _ in range(rng.randint(0, 6)))


def _ascii(rng: random.Random) -> str:
    return "".join(rng.choice("aAbBzZ _'\\ ") for _ in range(rng.randint(0, 6)))


def _datetime(rng: random.Random) -> str:
    return (
        f"{rng.randint(1, 9999):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} "
        f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}."
        f"{rng.randint(0, 999999):06d}"
    )


def _double(rng: random.Random) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0]
    return value if abs(value) < 1e300 and abs(value) > 1e-300 else rng.random()


SHAPES = {
    "dense integers": Shape("id INT NOT NULL", "id", lambda _: [(i,) for i in range(-40, 60)]),
    "sparse integers": Shape("id INT NOT NULL", "id", lambda _: [(i * i * i,) for i in range(-30, 70)]),
    "integers at both ends": Shape(
        "id BIGINT NOT NULL",
        "id",
        lambda _: [(i,) for i in (*range(-(2**63), -(2**63) + 30), *range(2**63 - 30, 2**63))],
    ),
    "dense integers at the upper end": Shape(
        "id INT NOT NULL", "id", lambda _: [(i,) for i in range(2**31 - 60, 2**31)], chunk_rows=10
    ),
    "unsigned bigint beyond 2^63": Shape(
        "id BIGINT UNSIGNED NOT NULL",
        "id",
        lambda _: [(i,) for i in (0, 1, *range(2**63 - 20, 2**63 + 20), *range(2**64 - 30, 2**64))],
    ),
    "dense unsigned bigint at the upper end": Shape(
        "id BIGINT UNSIGNED NOT NULL", "id", lambda _: [(i,) for i in range(2**64 - 64, 2**64)]
    ),
    "decimal": Shape(
        "d DECIMAL(40,20) NOT NULL",
        "d",
        _distinct(lambda rng: f"{rng.randint(-(10**19), 10**19)}.{rng.randint(0, 10**20 - 1):020d}", 90),
    ),
    "double": Shape("d DOUBLE NOT NULL", "d", _distinct(_double, 90)),
    "float": Shape("d FLOAT NOT NULL", "d", _distinct(lambda rng: rng.randint(-(10**6), 10**6) / 64, 90)),
    "varchar, case-insensitive": Shape(
        "s VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", "s", _distinct(_text, 110)
    ),
    "varchar, unicode_ci": Shape(
        "s VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL", "s", _distinct(_text, 110)
    ),
    "varchar, binary collation": Shape(
        "s VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL", "s", _distinct(_text, 110)
    ),
    "char, latin1 swedish": Shape(
        "s CHAR(12) CHARACTER SET latin1 NOT NULL",
        "s",
        _distinct(lambda rng: _ascii(rng) + rng.choice(["", "é", "ß", "Å"]), 90),
    ),
    "binary with trailing zeros": Shape(
        "b BINARY(4) NOT NULL",
        "b",
        _distinct(lambda rng: bytes(rng.choice(b"\x00\x00\x01\x20\xff") for _ in range(4)), 90),
    ),
    "varbinary with trailing zeros": Shape(
        "b VARBINARY(6) NOT NULL",
        "b",
        _distinct(lambda rng: bytes(rng.choice(b"\x00\x01\x20\xff") for _ in range(rng.randint(0, 5))), 110),
    ),
    "datetime": Shape("t DATETIME(6) NOT NULL", "t", _distinct(_datetime, 90)),
    "date with zero dates": Shape(
        "t DATE NOT NULL",
        "t",
        _distinct(lambda rng: rng.choice([_datetime(rng)[:10], f"{rng.randint(1990, 2030)}-00-00"]), 60),
    ),
    "timestamp": Shape(
        "t TIMESTAMP(3) NOT NULL",
        "t",
        _distinct(lambda rng: f"20{rng.randint(10, 37)}-03-05 02:{rng.randint(10, 59)}:00.123", 80),
    ),
    "time": Shape(
        "t TIME(2) NOT NULL",
        "t",
        _distinct(lambda rng: f"{rng.choice(['', '-'])}{rng.randint(0, 838):02d}:59:01.25", 80),
    ),
    "year": Shape("y YEAR NOT NULL", "y", lambda _: [(0,), *((year,) for year in range(1950, 2050))]),
    "bit": Shape("b BIT(64) NOT NULL", "b", _distinct(lambda rng: rng.getrandbits(64), 60)),
    "enum out of letter order": Shape(
        "e ENUM('z','m','a','q','b','x') NOT NULL, n INT NOT NULL",
        "e, n",
        lambda _: [(e, n) for e in "zmaqbx" for n in range(12)],
    ),
    "set": Shape(
        "e SET('z','m','a','q','b','x') NOT NULL",
        "e",
        lambda _: [(",".join(m for i, m in enumerate("zmaqbx") if v & 1 << i),) for v in range(64)],
    ),
    "composite, first column repeated": Shape(
        "a INT NOT NULL, b VARCHAR(9) COLLATE utf8mb4_general_ci NOT NULL, c DATETIME(3) NOT NULL",
        "a, b, c",
        _distinct(
            lambda rng: (rng.randint(0, 3), rng.choice("xYé"), f"2020-01-01 00:00:{rng.randint(10, 59)}.5"),
            150,
        ),
    ),
    "composite in another order than the columns": Shape(
        "a INT NOT NULL, b BIGINT UNSIGNED NOT NULL",
        "b, a",
        _distinct(lambda rng: (rng.randint(0, 9), 2**64 - rng.randint(1, 30)), 120),
    ),
    "key prefix": Shape(
        "s VARCHAR(50) NOT NULL", "s(3)", lambda rng: [(f"{i:03d}{_ascii(rng)}",) for i in range(90)]
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=("mysql80", "mariadb114"))
def schema(request: pytest.FixtureRequest) -> Iterator[tuple[Database, Any, str]]:
    server = database(request.param)
    name = new_database(server)
    with server.connect(database=name) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        yield server, connection, name
    drop_database(server, name)


def fill(connection: Any, shape: Shape) -> None:
    rows = shape.rows(random.Random(SEED))
    columns = len(rows[0])
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(
            f"CREATE TABLE t ({shape.columns}, pad INT NOT NULL DEFAULT 1, PRIMARY KEY ({shape.key}))"
        )
        names = [part.split()[0] for part in shape.columns.split(", ") if not part.startswith("'")]
        sql = f"INSERT IGNORE INTO t ({', '.join(names[:columns])}) VALUES ({', '.join(['%s'] * columns)})"
        cursor.executemany(sql, rows)
        cursor.execute("ANALYZE TABLE t")


def planned(connection: Any, schema: str, chunk_rows: int) -> list[KeyRange]:
    table = read_table_schema(connection, schema, "t")
    assert table is not None
    planner = TablePlanner(connection, table, ChunkSizes(chunk_rows), lambda: NOWHERE)
    plan, ranges = PlanDocument(), []
    while (step := planner.next(plan)) is not None:
        bounds, plan = step
        ranges.append(Chunk.of(decode(ChunkDocument, encode(Chunk(0, bounds).document()))).range)
        plan = decode(PlanDocument, encode(plan))
        assert len(ranges) < 1000, "the planner does not end"
    return ranges


@pytest.mark.parametrize("name", SHAPES)
def test_every_row_is_in_exactly_one_chunk(schema: tuple[Database, Any, str], name: str) -> None:
    _, connection, database_name = schema
    shape = SHAPES[name]
    fill(connection, shape)
    table = read_table_schema(connection, database_name, "t")
    assert table is not None
    ranges = planned(connection, database_name, shape.chunk_rows)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        everything = sorted(map(repr, cursor.fetchall()))
        seen: list[str] = []
        for bounds in ranges:
            cursor.execute(chunk_query(table, bounds).replace("%", "%%"))
            rows = cursor.fetchall()
            assert len(rows) <= 5 * shape.chunk_rows
            seen += map(repr, rows)
    assert len(everything) >= 25
    assert len(ranges) >= len(everything) / (5 * shape.chunk_rows)
    assert sorted(seen) == everything
    assert ranges[0].lower is None
    assert all(one.upper == two.lower for one, two in pairwise(ranges))


SHAPES_OF_MARIADB = {
    "two-digit years": Shape(
        "y YEAR(2) NOT NULL, n INT NOT NULL", "y, n", lambda _: [(year, n) for year in range(100) for n in (1, 2)]
    ),
    "uuids and addresses": Shape(
        "u UUID NOT NULL, i INET6 NOT NULL, j INET4 NOT NULL",
        "u, i, j",
        _distinct(
            lambda rng: (
                str(uuid.UUID(int=rng.choice([rng.getrandbits(128), 0, 5]))),
                rng.choice(["::1", "::ffff:1.2.3.4", "1:2::", f"{rng.getrandbits(16):x}::7"]),
                f"10.0.{rng.getrandbits(8)}.1",
            ),
            120,
        ),
    ),
}


@pytest.mark.parametrize("name", SHAPES_OF_MARIADB)
def test_types_of_mariadb_are_keys(
    name: str, mariadb114: Any, fresh_database: Callable[[Database], str]
) -> None:
    """Its comparisons of two-digit years leave out rows that an index does not hold on that side."""
    database_name, shape = fresh_database(mariadb114), SHAPES_OF_MARIADB[name]
    with mariadb114.connect(database=database_name) as connection:
        fill(connection, shape)
        table = read_table_schema(connection, database_name, "t")
        assert table is not None
        ranges = planned(connection, database_name, shape.chunk_rows)
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM t")
            everything = sorted(map(repr, cursor.fetchall()))
            seen: list[str] = []
            for bounds in ranges:
                cursor.execute(chunk_query(table, bounds).replace("%", "%%"))
                seen += map(repr, cursor.fetchall())
    assert sorted(seen) == everything
    assert len(ranges) >= len(everything) / (5 * shape.chunk_rows)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("key prefix", "set", "bit")])
def test_a_chunk_reads_its_part_of_the_index_only(schema: tuple[Database, Any, str], name: str) -> None:
    _, connection, database_name = schema
    fill(connection, SHAPES[name])
    table = read_table_schema(connection, database_name, "t")
    assert table is not None
    ranges = planned(connection, database_name, SHAPES[name].chunk_rows)
    middle = ranges[len(ranges) // 2]
    for bounds in (ranges[0], middle, ranges[-1]):
        (line,) = explain(connection, chunk_query(table, bounds).replace("%", "%%"))
        assert line["type"] == "range", (bounds, line)
        assert line["key"] == "PRIMARY"


def test_a_table_that_fits_one_chunk_is_one_unbounded_range_without_a_barrier(
    schema: tuple[Database, Any, str],
) -> None:
    _, connection, database_name = schema
    fill(connection, SHAPES["dense integers"])
    table = read_table_schema(connection, database_name, "t")
    assert table is not None

    def no_barrier() -> LowWatermark:
        raise AssertionError

    bounds, plan = TablePlanner(connection, table, ChunkSizes(1000), no_barrier).next(PlanDocument()) or pytest.fail("no range")
    assert bounds == KeyRange()
    assert plan.complete


def test_rows_inserted_and_deleted_while_planning_leave_no_gap(schema: tuple[Database, Any, str]) -> None:
    _, connection, database_name = schema
    fill(connection, SHAPES["sparse integers"])
    table = read_table_schema(connection, database_name, "t")
    assert table is not None
    planner = TablePlanner(connection, table, ChunkSizes(7), lambda: NOWHERE)
    plan, ranges = PlanDocument(), []
    rng = random.Random(SEED)
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(id) FROM t")
        ((largest,),) = cursor.fetchall()
        while (step := planner.next(plan)) is not None:
            bounds, plan = step
            ranges.append(bounds)
            cursor.execute("DELETE FROM t ORDER BY id DESC LIMIT 2")
            cursor.execute("INSERT IGNORE INTO t (id) VALUES (%s)", [rng.randint(-30000, 400000)])
        assert ranges[-1].upper == (str(largest),)
        assert all(one.upper == two.lower for one, two in pairwise(ranges))


def test_planning_continues_where_a_stored_plan_ends(schema: tuple[Database, Any, str]) -> None:
    _, connection, database_name = schema
    fill(connection, SHAPES["composite, first column repeated"])
    table = read_table_schema(connection, database_name, "t")
    assert table is not None
    whole = planned(connection, database_name, 7)
    plan, ranges = PlanDocument(), []
    while True:
        step = TablePlanner(connection, table, ChunkSizes(7), lambda: NOWHERE).next(plan)
        if step is None:
            break
        ranges.append(step[0])
        plan = decode(PlanDocument, encode(step[1]))
    assert ranges == whole


def test_a_condition_is_put_in_parentheses(schema: tuple[Database, Any, str]) -> None:
    _, connection, database_name = schema
    fill(connection, SHAPES["dense integers"])
    table = read_table_schema(connection, database_name, "t")
    assert table is not None
    with connection.cursor() as cursor:
        cursor.execute(chunk_query(table, KeyRange(("0",), ("10",)), "id = 5 OR id = 50"))
        assert [row[0] for row in cursor.fetchall()] == [5]


def test_wide_rows_make_smaller_chunks() -> None:
    sizes = ChunkSizes(50_000)
    assert sizes.first(1_000_000, 100_000_000) == 50_000
    assert sizes.first(1_000, 1_000 * (1 << 20)) == 200
    assert sizes.first(100_000, 100_000 * 10_000) == 6710
    assert sizes.first(0, 16384) == 50_000
    assert ChunkSizes(50_000, target_bytes=16 << 20).first(100_000, 100_000 * 10_000) == 1677
    assert ChunkSizes(100).first(10, 10 << 30) == 100


def test_text_that_never_was_a_key_is_refused_before_it_is_sql() -> None:
    number = Column("id", ColumnType.INT, nullable=False)
    text = Column("s", ColumnType.VARCHAR, nullable=False, charset="utf8mb4")
    when = Column("t", ColumnType.DATETIME, nullable=False)
    ident = Column("u", ColumnType.UUID, nullable=False)
    for column, value in ((number, "1 OR 1=1"), (text, "6' OR '1"), (when, "2020' OR '1"), (number, ""), (ident, "a' OR")):
        with pytest.raises(StateError):
            literal(column, value)


def test_primary_key_columns_come_in_key_order(schema: tuple[Database, Any, str]) -> None:
    _, connection, database_name = schema
    fill(connection, SHAPES["composite in another order than the columns"])
    table = read_table_schema(connection, database_name, "t")
    assert table is not None
    assert [column.name for column in range_key(table).columns] == ["b", "a"]
