"""The shop under load, from the source to the lake, on every kind of server."""

from __future__ import annotations

import os
from collections.abc import Callable

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, spark_section
from tests.support.servers import database as server_named
from tests.support.servers import unique_name
from tidemark.demo import shop
from tidemark.demo.workload import Workload

FEW = ("mariadb114",)
ALL = (*FEW, "mysql97", "mysql80", "mariadb1011", "mariadb118")
SERVERS = ALL if os.environ.get("TIDEMARK_TEST_SERVERS") == "all" else FEW
ROWS = 20_000


@pytest.fixture
def shop_database() -> Callable[[Database], str]:
    return lambda _server: unique_name("shop").replace("-", "_")


@pytest.mark.parametrize("name", SERVERS)
def test_a_snapshot_under_load_arrives_whole_and_verify_finds_what_is_spoiled(
    name: str, make_pipeline: MakePipeline, shop_database: Callable[[Database], str]
) -> None:
    server = server_named(name)
    database = shop_database(server)
    with server.connect() as connection:
        shop.create_schema(connection, server.flavour, database)
        sizes = shop.load_rows(connection, ROWS, database=database)
    pipeline = make_pipeline(server, database, spark=spark_section(compiled=True))
    pipeline.start("merge", "run")
    pipeline.wait("the producer", lambda status: status.log is not None)
    load = Workload(server.connect, rate=60, sizes=sizes, database=database).start()
    pipeline.request_snapshot()
    pipeline.wait_for_snapshot(*shop.TABLES)
    counts = load.stop()
    assert counts.changes > 0
    pipeline.wait_for_sink(*shop.TABLES)
    report = pipeline.assert_equal()
    assert len(report.tables) == len(shop.TABLES)
    assert_planted_differences_are_found(pipeline)


def assert_planted_differences_are_found(pipeline: Pipeline) -> None:
    """`tidemark verify` on the lake as the merge job wrote it, with three rows spoiled."""
    lines = DeltaTable(pipeline.settings.sink.table_path(pipeline.database, "order_lines"))
    rows = lines.to_pyarrow_table().slice(100, 3)
    keys = [(int(row["order_id"]), row["line"]) for row in rows.to_pylist()]
    where = [f"order_id = {order} AND line = {line}" for order, line in keys]
    lines.update(updates={"quantity": "-77"}, predicate=where[0])
    lines.delete(where[1])
    index = rows.schema.get_field_index("line")
    extra = rows.slice(2, 1).set_column(index, "line", pa.array([30_000], rows.schema.field("line").type))
    write_deltalake(lines, extra, mode="append")
    process = pipeline.spawn("verify", pipeline.log_path("verify"))
    assert process.wait(300)
    said = pipeline.log_path("verify").read_text(encoding="utf-8")
    assert process.status == 1, said
    key = "order_id={}, line={}"
    assert f"{key.format(*keys[0])}: value differs: quantity: source " in said
    assert f"{key.format(*keys[1])}: missing in the sink" in said
    assert f"{key.format(keys[2][0], 30_000)}: only in the sink" in said
    assert "could not compare" not in said
