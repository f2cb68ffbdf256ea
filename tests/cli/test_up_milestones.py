"""What `tidemark up` says on its way: only what jobs of this start report counts, and what is wrong is said where it is started."""

from __future__ import annotations

import json
import queue
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from schemas.errors import PublishError
from schemas.liveness import Sign
from tests.cli.test_status import LOG, documents, progress, status_of
from tests.cli.test_up_command import write_settings
from tidemark.api.observe import Observer
from tidemark.local.local_jobs import Complaints, LocalJobs, Milestones, complaint
from tidemark.process import config
from tidemark.status.job_standing import JobState, Standing
from tidemark.status.status_tree import Status, TableStatus

OLD = Sign(at_ms=0)


@pytest.fixture
def milestones(tmp_path: Path) -> Milestones:
    return Milestones(config.load(write_settings(tmp_path, 1, 1)), lambda _: None)


def status_at(sign: Sign, merge_sign: Sign, *tables: TableStatus) -> Status:
    """A pipeline without lag whose jobs wrote these liveness records."""
    now_ms = int(time.time() * 1000)
    alive = Standing(JobState.CAUGHT_UP, alive=True)
    found = status_of(documents(), progress(), now_ms)
    return replace(found, tables=tables, sign=sign, merge=alive, merge_sign=merge_sign)


def table(rows: int, **values: object) -> TableStatus:
    found = status_of(documents(), progress(consistent_at=LOG.text), 1_000_000).tables[0]
    return replace(found, **{"snapshot": "done", "rows_read": rows, "sink_rows": rows, "behind": 0, "inexact": None, **values})


def of_now() -> Sign:
    now_ms = int(time.time() * 1000)
    return Sign(at_ms=now_ms, state="reading", in_kafka_ms=now_ms)


def test_what_an_earlier_run_has_left_says_nothing_of_now(milestones: Milestones) -> None:
    done = table(77)
    assert list(milestones.reached("lake", status_at(OLD, OLD, done))) == [
        "lake: continues where it ended: 77 records were merged before"
    ]
    assert list(milestones.reached("lake", status_at(of_now(), OLD, done))) == []
    (caught_up,) = milestones.reached("lake", status_at(of_now(), of_now(), done))
    assert caught_up.startswith("lake: has caught up, each of 1 tables consistent, after ")
    (new,) = milestones.reached("lake", status_at(of_now(), of_now(), table(80)))
    assert new.startswith("lake: new rows are in the sink, 3 so far, after ")
    assert list(milestones.reached("lake", status_at(of_now(), of_now(), table(90)))) == []


def test_a_first_start_says_what_is_read_and_which_table_needs_a_person(milestones: Milestones) -> None:
    reading = table(0, snapshot="running", consistent_at=None)
    assert list(milestones.reached("lake", status_at(of_now(), OLD, reading))) == ["reading 1 table: shop.orders"]
    failed = table(0, table="shop.keyless", snapshot="failed", error="it has no key", consistent_at=None)
    asks, rows = milestones.reached("lake", status_at(of_now(), of_now(), table(5, snapshot="running"), failed))
    assert asks == "lake: needs a person: shop.keyless: its snapshot failed: it has no key"
    assert rows.startswith("lake: the first rows are in the sink, 5 so far")
    unmerged = table(5, table="shop.stock", consistent_at=None)
    assert list(milestones.reached("lake", status_at(of_now(), of_now(), table(5), unmerged, failed))) == []
    (end,) = milestones.reached("lake", status_at(of_now(), of_now(), table(5), failed))
    assert end.startswith("lake: has caught up, 1 of 2 tables consistent, after ")


def test_a_job_that_has_ended_counts_for_nothing(milestones: Milestones) -> None:
    assert list(milestones.reached("lake", status_at(replace(of_now(), state="ended"), of_now(), table(0)))) == []


def test_what_is_waited_for_is_said_while_nothing_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.local.local_jobs._QUIET_S", 0.1)
    monkeypatch.setattr("tidemark.local.local_jobs._LOOK_S", 0.1)

    def read_each(_observer: Observer, *, oldest: bool) -> NoReturn:
        raise PublishError(f"Kafka is silent: {oldest}")

    monkeypatch.setattr(Observer, "read_each", read_each)
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with Milestones(config.load(write_settings(tmp_path, 1, 1)), said.put):
        assert said.get(timeout=10) == "waits for Kafka and the producer"


def test_warnings_and_errors_of_a_job_are_lines_each_once() -> None:
    entries = [
        {"event": "producer.started", "level": "info"},
        {"event": "waiting.for_peer", "level": "warning", "peer": "compiler", "address": "this process", "what": "the row codec", "seconds": 5},
        {"event": "producer.restarts", "level": "error", "reason": "no registry", "timestamp": "2026-01-01"},
        {"event": "waiting.for_peer", "level": "warning", "peer": "compiler", "address": "this process", "what": "the row codec", "seconds": 30},
    ]  # fmt: skip
    log = "".join(json.dumps(one) + "\n" for one in entries)

    class Jobs:
        written = 0

        def said_behind(self, _verb: str, read: int) -> bytes:
            return f"page: no JSON, ä\n{log[: self.written]}".encode()[read:]

    jobs = Jobs()
    jobs.written = len(log) - 100
    found = Complaints(cast("LocalJobs", jobs), ["run"])
    first = list(found.new())
    jobs.written = len(log)
    assert [*first, *found.new(), *found.new()] == [
        "run: waits for the row codec (compiler, this process)", "run: producer.restarts: reason no registry"
    ]  # fmt: skip
    assert complaint("{") == complaint("[1]") == ""


def test_what_is_waited_for_is_known_until_all_has_caught_up(milestones: Milestones) -> None:
    assert milestones.awaited_of("lake", status_at(OLD, OLD, table(0))) == "waits for the producer, which starts"
    assert milestones.awaited_of("lake", status_at(of_now(), OLD, table(0))) == "lake: waits for the merge job, which starts Spark"
    reading = table(40, snapshot="running", consistent_at=None)
    assert "40 rows read of tables that are being read" in milestones.awaited_of("lake", status_at(of_now(), of_now(), reading))
    list(milestones.reached("lake", status_at(of_now(), of_now(), table(80))))
    assert milestones.awaited_of("lake", status_at(of_now(), of_now(), table(80))) == ""
