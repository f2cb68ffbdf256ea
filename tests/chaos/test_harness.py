"""What chaos counts with: results that are kept, and the log as it was before it is purged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devservers import Kafka
from tests.chaos.changed_world import CHANGED
from tests.chaos.load import TABLES
from tests.chaos.log import CommittedChanges
from tests.chaos.results import summary, write_down
from tests.chaos.round import Outcome, plan, wait_for_snapshots
from tests.chaos.sink_plans import kinds_of
from tests.chaos.world import ChaosError
from tests.support.clock import Clock
from tests.support.replication import end_of_log, execute
from tests.support.servers import database, new_database

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")


def outcome(events: int, wrong: str = "") -> Outcome:
    return Outcome(2, 1, events, 0, 0, 0, 10, 90.0, {}, wrong)


def test_of_a_round_that_was_played_again_the_last_outcome_counts(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    write_down(results, 1, "mysql80", ["kill producer"], outcome(100, "x" * 1_000))
    write_down(results, 1, "mysql80", ["kill producer"], outcome(200))
    write_down(results, 1, "mariadb114", ["kill producer"], outcome(300, "lost"))
    said = summary(results)
    assert said.startswith("chaos: 2 rounds, 4 kills, 2 other faults, 0 refusals, 500 events, 0 lost")
    assert "1 rounds with something wrong; 0.1 h of rounds" in said
    write_down(results, 2, "mysql80", ["change masks"], replace(outcome(1), leaked=3))
    assert not replace(outcome(1), leaked=1).good
    assert "0 differing rows, 3 leaked, 0 out of order, 1 rounds" in summary(results), "lines from before it was counted have no such key"
    assert max(map(len, results.read_text().splitlines())) < 500


@pytest.mark.parametrize("kind", ["mysql80", "mariadb114"])
def test_files_read_before_they_go_are_not_read_again_and_xa_may_be_open_across_their_end(kind: str) -> None:
    server = database(kind)
    schema = new_database(server)
    execute(server, "CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    log = CommittedChanges(server, schema, {"t": ["id"]}, end_of_log(server))
    xid = f"'{schema}'"
    execute(
        server, "INSERT INTO t VALUES (1)", f"XA START {xid}", "INSERT INTO t VALUES (2)", f"XA END {xid}",
        f"XA PREPARE {xid}", database=schema,
    )  # fmt: skip
    execute(server, "INSERT INTO t VALUES (3)", "FLUSH BINARY LOGS", database=schema)
    log.read_before(end_of_log(server)[0])
    execute(server, "INSERT INTO t VALUES (4)", f"XA COMMIT {xid}", "INSERT INTO t VALUES (5)", database=schema)
    assert [change.key for change in log.read()] == [(1,), (3,), (4,), (2,), (5,)]


class Statuses:
    """A pipeline that says these states of the snapshot of `cleared`, one after the other; all other tables are read."""

    def __init__(self, *states: str, error: str = "shop.cleared was dropped while it was read") -> None:
        self._states, self._error = states, error
        self.asked: list[str] = []

    def request_snapshot(self, *patterns: str) -> None:
        self.asked += patterns

    def wait(self, what: str, until: Any) -> None:
        for state in self._states:
            tables = [
                SimpleNamespace(table=f"shop.{name}", snapshot="done" if name != "cleared" else state, inexact=None, error=self._error)
                for name in TABLES
            ]
            if until(SimpleNamespace(tables=tables)):
                return
        raise ChaosError(f"waited for {what}")


def waited(pipeline: Statuses, *, drops: bool) -> list[str]:
    wait_for_snapshots(SimpleNamespace(database="shop", pipeline=pipeline), drops=drops)
    return pipeline.asked


def test_a_table_that_the_round_dropped_while_it_was_read_is_asked_for_once_more() -> None:
    states = ("running", "failed", "failed", "running", "done")
    assert waited(Statuses(*states), drops=True) == ["cleared"]
    assert waited(Statuses(*states, error="shop.cleared does not exist"), drops=True) == ["cleared"]
    with pytest.raises(ChaosError, match="waited for the snapshots"):
        waited(Statuses("failed", "failed", "running", "failed"), drops=True)
    with pytest.raises(ChaosError, match="a snapshot failed"):
        waited(Statuses("failed", "done"), drops=False)
    with pytest.raises(ChaosError, match="a snapshot failed"):
        waited(Statuses("failed", "done", error="shop.cleared: no row is sent"), drops=True)


METADATA = """
import sys
from confluent_kafka.admin import AdminClient
AdminClient({"bootstrap.servers": sys.argv[1]}).list_topics(timeout=10)
"""


@pytest.mark.parametrize("seconds", [-3_000, -90, 0, 3_000])
def test_a_stepped_clock_lets_a_client_wait_as_long_as_it_means_to(seconds: int, kafka: Kafka, tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    clock.step(seconds)
    command = [sys.executable, "-c", METADATA, kafka.bootstrap_servers]
    subprocess.run(command, env={**os.environ, **clock.environment}, timeout=60, check=True)


def test_thirty_rounds_in_a_row_have_each_change_of_the_world_several_times() -> None:
    for first in (1, 500):
        drawn = Counter(name for seed in range(first, first + 30) for name in plan(seed)[1] if name in CHANGED)
        assert min(drawn[name] for name in CHANGED) > 4, drawn
        into_sinks = Counter(name for seed in range(first, first + 30) for name in plan(seed, kinds=kinds_of(seed))[1] if name in CHANGED)
        assert min(into_sinks[name] for name in CHANGED) > 1, into_sinks
