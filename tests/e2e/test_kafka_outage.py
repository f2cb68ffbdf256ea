"""Kafka is unreachable for longer than any call waits: the producer waits in bounded memory, and continues exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devservers import Database, Kafka, Registry, start_kafka
from tests.e2e.pipeline import Pipeline
from tests.support.servers import new_database, unique_name
from tests.support.topics import read_topic

ROWS = 1_200
ROW_BYTES = 1_000_000
AWAY_S = 75
"""Longer than the minute after which a flush is given up."""
BOUND_BYTES = 600 << 20
"""A cut that is not acknowledged holds the log reader; librdkafka's queue is 256 MiB. Far more is written meanwhile."""

pytestmark = pytest.mark.slow


@pytest.fixture
def lone_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A broker to be killed."""
    with start_kafka(tmp_path) as broker:
        yield broker


def test_an_outage_of_kafka_is_waited_out_in_bounded_memory(
    mysql80: Database, lone_kafka: Kafka, registry: Registry, tmp_path: Path
) -> None:
    more = {"format": {"type": "json"}, "sinks": []}
    database = new_database(mysql80)
    with Pipeline(unique_name("away"), tmp_path / "p", mysql80, database, lone_kafka, registry, more) as pipeline:
        pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY, v MEDIUMTEXT)", "INSERT INTO t VALUES (0, 'first')")
        pipeline.start("run")
        pipeline.wait("the producer", lambda status: status.log is not None)
        pipeline.sql("UPDATE t SET v = 'second'")
        pipeline.wait_for_log()
        before = forget_peak(pipeline.pid("run"))
        lone_kafka.kill()
        began = time.monotonic()
        pipeline.sql(*(f"INSERT INTO t VALUES ({n}, REPEAT('x', {ROW_BYTES}))" for n in range(1, ROWS + 1)))
        while time.monotonic() - began < AWAY_S:
            assert pipeline.running("run")
            time.sleep(1)
        lone_kafka.restart()
        pipeline.wait_for_log()
        grown = peak_bytes(pipeline.pid("run")) - before
        assert grown < BOUND_BYTES, f"{grown >> 20} MiB for {ROWS * ROW_BYTES >> 20} MiB of rows"
    records = read_topic(lone_kafka.bootstrap_servers, f"{pipeline.name}.{database}.t")
    found = sorted(record.key["id"] for record in records if record.value["op"] == "c")
    assert found == list(range(1, ROWS + 1))


def forget_peak(pid: int) -> int:
    """Begin to measure again; the memory it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    return peak_bytes(pid)


def peak_bytes(pid: int) -> int:
    """The most memory a process had since that."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
