"""Tables that the settings do not name any longer: no signal reads them, nor does what was asked for before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.producers import SIGNAL, Source, running


@pytest.fixture
def source(kafka: Any, mysql80: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    place = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    place.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    place.execute("INSERT INTO t VALUES (1), (2)", "INSERT INTO u VALUES (1), (2)")
    yield place
    place.connection.close()


def test_what_is_not_captured_any_more_is_read_by_no_signal_and_no_snapshot_goes_on(source: Source) -> None:
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
