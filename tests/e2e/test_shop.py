"""The shop under load, from the source to the lake, on every kind of server."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import spark_section
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
def test_a_snapshot_under_load_arrives_whole(
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
