"""Tables that the settings do not name any longer: no signal reads them, nor does what was asked for before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.producers import SIGNAL, Source, running
from tidemark.api.observe import Observer
from tidemark.commands.status import as_json, as_text


@pytest.fixture
def source(kafka: Any, mysql80: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    created.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    created.execute("INSERT INTO t VALUES (1), (2)", "INSERT INTO u VALUES (1), (2)")
    yield created
    created.connection.close()


def test_what_is_not_captured_any_more_is_read_by_no_signal_and_no_snapshot_continues(source: Source) -> None:
    def signal(*signals: tuple[str, str]) -> None:
        """In one transaction: none of them is carried out for long before the next one comes."""
        everything = json.dumps({"data-collections": [".*"], "type": "INCREMENTAL"})
        rows = [(ident, f"{verb}-snapshot", everything if verb == "execute" else None) for ident, verb in signals]
        with source.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO tidemark_signal VALUES (%s, %s, %s)", rows)

    with running(source.settings()) as run:
        source.execute("INSERT INTO t VALUES (3)", "INSERT INTO u VALUES (3)")
        run.caught_up(source)
        signal(("first", "execute"), ("p", "pause"), ("second", "execute"))
        run.caught_up(source)
    with running(source.settings(tables=[f"{source.schema}\\.t"])) as run:
        signal(("third", "execute"), ("r", "resume"))
        run.caught_up(source)
        coordinator = run.producer.coordinator
        run.until(lambda: all(one.state in ("done", "cancelled") for one in coordinator.progress()), "all are read")
        states = {(one.request, one.table.rpartition(".")[2]): one.state for one in coordinator.progress()}
        errors = {one.error for one in coordinator.progress() if one.request == "second"}
    assert states["second", "u"] == "cancelled"
    assert any("not captured any more" in error for error in errors)
    assert states["third", "t"] == states["second", "t"] == "done"
    assert ("third", "u") not in states


def test_what_the_settings_name_and_the_source_does_not_show_is_said_at_the_start_and_in_the_status(source: Source) -> None:
    """A misspelt name, a table without SELECT, and one on which the account has no right, which the server does not show."""
    user = f"u{source.schema}"[:32]
    monitor = "BINLOG MONITOR" if source.server.flavour == "mariadb" else "REPLICATION CLIENT"
    source.execute(
        f"CREATE USER {user}@'%' IDENTIFIED BY 'pw'",
        f"GRANT REPLICATION SLAVE, {monitor}, XA_RECOVER_ADMIN ON *.* TO {user}@'%'",
        f"GRANT SELECT, INSERT, DELETE ON {source.schema}.tidemark_signal TO {user}@'%'",
        f"GRANT SELECT ON {source.schema}.t TO {user}@'%'",
        f"GRANT INSERT ON {source.schema}.u TO {user}@'%'",
        "CREATE TABLE hidden (id INT PRIMARY KEY)",
    )

    def notes(*tables: str) -> list[str]:
        patterns = [rf"{source.schema}\.{table}" for table in tables]
        settings = source.settings(tables=patterns, user=user, password="pw")
        with capture_logs() as logs, running(settings) as run:
            run.until(lambda: run.producer.reader.progress.checkpoints > 0, "the first commit")
        with Observer(settings) as observer:
            status = observer.read()
        reported = json.loads(as_json(status, status))["notes"]
        warned = str([line for line in logs if line["log_level"] == "warning"])
        for note in reported:
            assert note in as_text(status, status)
        assert ("GRANT SELECT" in warned) == any("GRANT SELECT" in note for note in reported)
        return list(reported)

    assert notes("t") == []
    (misspelt, nothing) = notes("tt")
    assert f"did you mean {source.schema}.t" in misspelt
    assert nothing == "no table is captured: nothing is published or merged"
    assert f"GRANT SELECT ON `{source.schema}`.*" in notes("t", "hidden")[0]
    assert notes("t", "u") == [f"{source.schema}.u: may not be read: GRANT SELECT ON {source.schema}.u"]
