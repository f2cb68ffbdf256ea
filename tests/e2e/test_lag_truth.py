"""The lag and the word that a person reads, against what the test knows, while processes are killed and frozen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.support.servers import new_database
from tidemark.api.source_log import source_of
from tidemark.status.lags import Lags, Word

LATE_S = 6.0
"""The lag is never less than the truth, and more by at most that: the server's heartbeat, the liveness record, a busy machine."""
OTHER_CLOCK_S = 0.2


class Truth:
    """What is not there yet, as the test knows it: when it wrote the oldest row that did not arrive."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.number = 0
        self.samples = 0

    def write(self) -> float:
        """Insert a row; return when that was."""
        self.number += 1
        before_s = time.time()
        self.pipeline.sql(f"INSERT INTO items VALUES ({self.number})")
        return before_s

    def asked(self) -> Lags:
        """What a person reads now."""
        status = self.pipeline.settled()
        self.samples += 1
        return source_of(self.pipeline.settings, status).lags(status)

    def wait(self, what: str, until: Callable[[Lags], bool]) -> Lags:
        """Ask until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not until(found := self.asked()):
            self.pipeline.check()
            assert time.monotonic() < deadline, f"{what}: {found}"
            time.sleep(0.3)
        return found

    def wait_until_well(self) -> None:
        """Ask until everything has arrived and all is well; the sink has every row then."""
        found = self.wait("everything to arrive", lambda lags: lags.verdict.word is Word.RUNNING and lags.to_kafka.left == 0)
        assert found.to_sink is not None
        assert found.to_sink.seconds == 0.0 or found.to_sink.left, found


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_lag_is_the_age_of_what_has_not_arrived_also_while_a_process_is_dead(mysql80: Database, make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(mysql80, new_database(mysql80), snapshot={"mode": "initial"})
    with pipeline.connect() as connection:
        create_signal_table(connection)
    pipeline.sql("CREATE TABLE items (id INT PRIMARY KEY)")
    truth = Truth(pipeline)
    truth.write()
    assert truth.asked().verdict.word is Word.UNKNOWN  # nothing was started
    pipeline.start("run", "merge")
    pipeline.wait_for_sink("items")
    truth.wait_until_well()
    time.sleep(5)  # idle: what is there stays there
    assert truth.asked().to_kafka.seconds == 0.0

    _dead_merge_job(truth)
    pipeline.start("merge")
    truth.wait_until_well()
    _frozen_producer(truth)
    truth.wait_until_well()
    _dead_producer(truth)
    pipeline.start("run")
    truth.wait_until_well()
    pipeline.assert_equal("items")
    assert truth.samples > 25


def _dead_merge_job(truth: Truth) -> None:
    truth.pipeline.kill("merge")
    written_s = truth.write()
    found = truth.wait("the row in Kafka", lambda lags: bool(lags.to_sink and lags.to_sink.left) and lags.to_kafka.left == 0)
    for _ in range(5):
        found, now_s = truth.asked(), time.time()
        assert found.to_sink is not None
        assert found.to_sink.seconds is not None
        assert found.to_kafka.seconds == 0.0
        assert found.verdict.word is Word.DEAD, found.verdict
        # the oldest record may be older than the row: heartbeats of the table are records, too
        assert now_s - written_s - LATE_S - 1 < found.to_sink.seconds < now_s - written_s + LATE_S + 10
        assert found.tables[f"{truth.pipeline.database}.items"].seconds == found.to_sink.seconds
        time.sleep(1)


def _frozen_producer(truth: Truth) -> None:
    with frozen(truth.pipeline.pid("run")):
        time.sleep(3)
        written_s = truth.write()
        for _ in range(8):
            asked_s, found, now_s = time.time(), truth.asked(), time.time()
            assert found.to_kafka.left, "the row is in the source's log alone"
            assert found.to_kafka.seconds is not None
            assert asked_s - written_s - OTHER_CLOCK_S <= found.to_kafka.seconds <= now_s - written_s + 3 + LATE_S
            time.sleep(2)
        assert truth.wait("the producer to be called dead", lambda lags: lags.verdict.word is Word.DEAD)


def _dead_producer(truth: Truth) -> None:
    killed_s = time.time()
    truth.pipeline.kill("run")
    written_s = truth.write()
    for _ in range(10):
        asked_s, found, now_s = time.time(), truth.asked(), time.time()
        assert found.to_kafka.left
        assert found.to_kafka.seconds is not None
        assert asked_s - written_s - OTHER_CLOCK_S <= found.to_kafka.seconds <= now_s - killed_s + LATE_S
        time.sleep(2)
    assert truth.wait("the producer to be called dead", lambda lags: lags.verdict.word is Word.DEAD)
