"""What planning and reading a chunk cost a large table, by the server's own counters: a chunk's rows, never the table's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mysqlio.information_schema import read_table_schema
from producer.snapshot.pace import ChunkSizes
from producer.snapshot.planner import TablePlanner, split_bounds
from producer.snapshot.ranges import KeyRange, chunk_query
from producer.snapshot.watermark import LowWatermark
from schemas.columns import TableSchema
from schemas.documents import PlanDocument
from schemas.position import Position
from tests.support.servers import database, drop_database, new_database
from tests.support.snapshots import explain

ROWS = 20_000
CHUNK = 100
SOME = 200
"""Rows of dictionary tables, of the counters themselves, and the ends of ranges."""
NOWHERE = LowWatermark(Position.MINIMUM, "", 4)
KEYS = {
    "dense": "SELECT n AS k FROM numbers",
    "sparse": "SELECT n * 1000003 AS k FROM numbers",
    "few_first": "SELECT n % 3 AS a, n DIV 3 AS b FROM numbers",
    "many_first": "SELECT n DIV 10 AS a, n % 10 AS b FROM numbers",
    "three": "SELECT n % 2 AS a, (n DIV 2) % 5 AS b, n AS c FROM numbers",
    "texts": "SELECT CONCAT('tenant-', n % 4) AS a, LPAD(n, 12, '0') AS b FROM numbers",
}


@dataclass(frozen=True)
class Site:
    """The server's tables, one per shape of the key."""

    connection: Any
    schema: str

    def table(self, name: str) -> TableSchema:
        """A table of `KEYS`, or `unique_only`; it is made and filled for the first test that asks."""
        found = read_table_schema(self.connection, self.schema, name)
        if found is None:
            self._make(name)
            found = read_table_schema(self.connection, self.schema, name)
        assert found is not None
        return found

    def _make(self, name: str) -> None:
        if name == "unique_only":
            self.run(
                "CREATE TABLE unique_only (a BIGINT NOT NULL, b BIGINT NOT NULL, pad INT, UNIQUE KEY (a, b))",
                "INSERT INTO unique_only SELECT n % 3, n, 1 FROM numbers",
                "ANALYZE TABLE unique_only",
            )
            return
        names = [part.split()[0].rstrip(",") for part in KEYS[name].split(" AS ")[1:]]
        kind = "VARCHAR(20)" if name == "texts" else "BIGINT"
        definition = ", ".join(f"{column} {kind} NOT NULL" for column in names)
        self.run(
            f"CREATE TABLE {name} ({definition}, pad INT NOT NULL DEFAULT 1, PRIMARY KEY ({', '.join(names)}))",
            f"INSERT INTO {name} ({', '.join(names)}) {KEYS[name]}",
            f"ANALYZE TABLE {name}",
        )

    def run(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows_touched(self, action: Callable[[], object]) -> int:
        """The rows that the session's statements read meanwhile, index entries counted once each."""
        self.run("FLUSH STATUS")
        action()
        with self.connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(count) for _, count in cursor.fetchall())

    def read(self, table: TableSchema, bounds: KeyRange) -> int:
        with self.connection.cursor() as cursor:
            return int(cursor.execute(chunk_query(table, bounds).replace("%", "%%")))


@pytest.fixture(scope="module", params=("mysql80", pytest.param("mysql57", marks=pytest.mark.slow), "mariadb114"))
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    server = database(request.param)
    schema = new_database(server)
    with server.connect(database=schema) as connection:
        made = Site(connection, schema)
        made.run("SET SESSION sql_log_bin = 0")  # nobody reads the log of so many rows
        made.run("CREATE TABLE digits (d INT PRIMARY KEY)", "INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
        made.run("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")
        made.run(
            "INSERT INTO numbers SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d FROM digits a, "
            f"digits b, digits c, digits e, digits f WHERE f.d < {ROWS // 10_000}"
        )
        yield made
    drop_database(server, schema)


TABLES = (*KEYS, "unique_only")


@pytest.mark.parametrize("name", TABLES)
def test_planning_and_reading_touch_the_rows_of_a_chunk(site: Site, name: str) -> None:
    table = site.table(name)
    planner = TablePlanner(site.connection, table, ChunkSizes(CHUNK), lambda: NOWHERE)
    steps: list[tuple[KeyRange, PlanDocument]] = []

    def plan() -> None:
        step = planner.next(steps[-1][1] if steps else PlanDocument())
        assert step is not None
        steps.append(step)

    begun = site.rows_touched(plan)
    assert begun <= 2 * CHUNK + SOME, "to see that it is no small table, and the first range"
    costs = [(site.rows_touched(plan), site.rows_touched(lambda: site.read(table, steps[-1][0]))) for _ in range(120)]
    assert max(planning for planning, _ in costs) <= 3 * CHUNK + SOME, costs
    assert max(reading for _, reading in costs) <= 2 * CHUNK + SOME, costs
    assert sum(site.read(table, bounds) for bounds, _ in steps) > 100 * CHUNK, "it is in the middle of the table by now"

    resumed = TablePlanner(site.connection, site.table(name), ChunkSizes(10 * CHUNK), lambda: NOWHERE)
    step: list[tuple[KeyRange, PlanDocument] | None] = []
    cost = site.rows_touched(lambda: step.append(resumed.next(steps[-1][1], CHUNK // 2)))
    assert cost <= 3 * (CHUNK // 2) + SOME, "another process continues there, with another size"
    assert step[0] is not None
    assert CHUNK // 4 <= site.read(table, step[0][0]) <= CHUNK


@pytest.mark.parametrize("name", TABLES)
def test_dividing_a_chunk_touches_its_own_rows(site: Site, name: str) -> None:
    table = site.table(name)
    planner = TablePlanner(site.connection, table, ChunkSizes(10 * CHUNK), lambda: NOWHERE)
    plan = PlanDocument()
    for _ in range(8):
        step = planner.next(plan)
        assert step is not None
        bounds, plan = step
    found: list[Any] = []
    cost = site.rows_touched(lambda: found.extend(split_bounds(site.connection, table, bounds, CHUNK)))
    assert 8 <= len(found) <= 12
    assert cost <= 12 * CHUNK + SOME


@pytest.mark.parametrize("name", TABLES)
def test_the_server_plans_a_range_of_the_key(site: Site, name: str) -> None:
    table = site.table(name)
    planner = TablePlanner(site.connection, table, ChunkSizes(CHUNK), lambda: NOWHERE)
    plan = PlanDocument()
    for _ in range(50):
        step = planner.next(plan)
        assert step is not None
        bounds, plan = step
    (line,) = explain(site.connection, chunk_query(table, bounds).replace("%", "%%"))
    assert line["type"] == "range", line
    assert int(line["rows"]) <= 5 * CHUNK, line
