"""Connections of relational sinks to real servers, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from devservers import Database, Postgres
from schemas.settings import SinkSettings
from spark_jobs.sinks.relational.relational_sink import database_of
from spark_jobs.sinks.relational.sink_connection import DatabaseError
from tidemark.verify.postgres_rows import PostgresServer


@pytest.mark.parametrize("server", ["mysql97", "mariadb114"])
def test_a_row_longer_than_a_packet_is_refused_before_it_is_sent(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    database: Database = request.getfixturevalue(server)
    sink = database_of("mysql", f"mysql://{database.host}:{database.port}", database.user, database.password)
    connection, file = sink.open(), tmp_path / "row"
    connection.execute("CREATE DATABASE IF NOT EXISTS packets")
    connection.execute("CREATE TEMPORARY TABLE packets.filled (id int)")
    most = connection.value("SELECT @@max_allowed_packet") - len("INSERT INTO packets.filled VALUES ") - 1
    file.write_text(f"(1){'':{most - 3}}")
    with pytest.raises(DatabaseError, match=r"needs a statement of .* bytes, and max_allowed_packet") as caught:
        connection.fill("packets.filled", file)
    assert caught.value.passes is None
    file.write_text(f"(1){'':{most - 4}}")
    assert connection.fill("packets.filled", file) == 1, "on the same connection"
    connection.execute("DROP DATABASE packets")
    connection.close()


def test_numbers_keep_all_digits_whatever_the_server_shows(postgres17: Postgres) -> None:
    url = f"{postgres17.jdbc_url}?options=-c%20extra_float_digits%3D0"
    connection = database_of("postgresql", url, postgres17.user, postgres17.password).open()
    assert connection.value("SELECT (0.1::float8 + 0.2::float8)::text") == "0.30000000000000004"
    connection.close()


def test_the_environment_of_libpq_changes_no_connection(postgres17: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "PGHOSTADDR": "192.0.2.1", "PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/no/such.pem", "PGOPTIONS": "-c no.such=1 -c none=1",
        "PGTARGETSESSIONATTRS": "standby", "PGCHANNELBINDING": "require", "PGSERVICE": "none", "PGPASSWORD": "wrong",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    connection = database_of("postgresql", postgres17.jdbc_url, postgres17.user, postgres17.password).open()
    assert connection.value("SELECT 1") == 1
    connection.close()
    sink = SinkSettings(type="postgresql", url=postgres17.jdbc_url, user=postgres17.user, password=postgres17.password)
    assert PostgresServer(sink).ask("SELECT 1") == [(1,)]
