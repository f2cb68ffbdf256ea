"""A user with the rights of docs/sinks/relational.md, and no others, is enough for a relational sink."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from devservers import Database, Postgres
from tests.docs.doc_blocks import ROOT, page_of
from tests.sinks.behaviour import AFTER_WHOLE, FIRST, NAME, WHOLE, change
from tests.sinks.behaviour import Batch as SinkBatch
from tests.sinks.test_relational_sinks import MySqlLab, RelationalLab
from tests.support.servers import database as server_of

USER: Final = "granted"
PASSWORD: Final = "of-the-page"
pytestmark = pytest.mark.slow


def statements(kind: str) -> list[str]:
    """Return the statements of the page for a kind of server, for our user."""
    page = page_of(ROOT / "docs" / "sinks" / "relational.md")
    (text,) = (block.text for block in page.blocks if block.language == "sql" and block.text.startswith(f"-- {kind}"))
    own = re.sub(r"--[^\n]*", "", text).replace("'...'", f"'{PASSWORD}'").replace("warehouse", USER)
    own = re.sub(r"(USER|ROLE|TO) tidemark\b", rf"\1 {USER}", own)
    return [part.strip() for part in own.split(";") if part.strip()]


def played(lab: RelationalLab) -> dict[int, Any]:
    """Return the rows after three batches, a new start and a rebuild: all that a merge job does there."""
    record = lab.play(WHOLE, lab.play(FIRST))
    rows = lab.values()
    sink = lab.open()
    with sink.exclusive(lab.spark, 1):
        lab.play(SinkBatch(2, [change(9, 500, 9)]), record, sink)
        sink.remove(NAME)
        sink.forget(NAME)
    return rows


@pytest.mark.parametrize("name", ["mysql97", "mariadb114"])
def test_the_rights_of_the_page_are_enough_on_mysql_and_mariadb(name: str, spark: SparkSession, tmp_path: Path) -> None:
    server: Database = server_of(name)
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in [f"DROP USER IF EXISTS {USER}", *statements("MySQL and MariaDB")]:
            cursor.execute(statement)
    access = SimpleNamespace(user=USER, password=PASSWORD, host=server.host, port=server.port, connect=server.connect)
    try:
        assert played(MySqlLab(spark, tmp_path, access)) == AFTER_WHOLE
    finally:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP USER {USER}")


class OwnSchemaLab(RelationalLab):
    """A sink that makes its schemas itself."""

    def run(self, sql: str) -> None:
        with self.server.connect() as connection:
            connection.execute(sql)


@pytest.fixture
def own_database(postgres17: Postgres) -> Iterator[SimpleNamespace]:
    """A database with the rights of the page, in which nobody has those that everyone has by default."""
    with postgres17.connect() as connection:
        connection.execute(f"CREATE DATABASE {USER}")
        connection.execute(f"REVOKE ALL ON DATABASE {USER} FROM PUBLIC")
        for statement in statements("PostgreSQL"):
            connection.execute(statement)
    url = str(postgres17.jdbc_url).replace(f"/{postgres17.database}", f"/{USER}")
    yield SimpleNamespace(user=USER, password=PASSWORD, jdbc_url=url, connect=partial(postgres17.connect, dbname=USER))
    with postgres17.connect() as connection:
        connection.execute(f"DROP DATABASE {USER} WITH (FORCE)")
        connection.execute(f"DROP ROLE {USER}")


def test_the_rights_of_the_page_are_enough_on_postgresql(spark: SparkSession, tmp_path: Path, own_database: SimpleNamespace) -> None:
    assert played(OwnSchemaLab(spark, tmp_path, own_database)) == AFTER_WHOLE
