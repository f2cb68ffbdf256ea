"""Keys, percentiles, ends of runs and memory of the benchmark, without servers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.arrivals import all_but_the_tail
from bench.log_lag import id_of, lags, percentile
from bench.scene import BenchError
from bench.soak import alive_mib, largest, not_flat, thirds_of


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (b'{"id":123}', 123),
        (b'{"id":-7}', -7),
        (b"\0\0\0\0\1\0", 0),
        (b"\0\0\0\0\1\1", -1),
        (b"\0\0\0\0\1\x80\1", 64),
        (b"\0\0\0\0\1\x80\x80\x80\x80\x20", 4_294_967_296),
    ],
)
def test_the_number_of_a_key_is_found_in_avro_and_in_json(key: bytes, number: int) -> None:
    assert id_of(key) == number


def test_a_key_without_a_number_is_refused() -> None:
    with pytest.raises(BenchError, match="no number"):
        id_of(b"{}")


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0


def test_only_rows_sent_in_the_time_count_and_one_that_is_missing_is_an_error() -> None:
    sent = {1: 10.0, 2: 11.0, 3: 12.0, 4: 20.0}
    seen = {2: 11.005, 3: 12.1}
    assert lags(sent, seen, 11.0, 13.0) == pytest.approx({"p50_ms": 5.0, "p99_ms": 100.0, "max_ms": 100.0, "lag_rows": 2})
    with pytest.raises(BenchError, match="1 of 3 rows"):
        lags(sent, seen, 10.0, 13.0)
    with pytest.raises(BenchError, match="no rows"):
        lags(sent, seen, 30.0, 40.0)


def test_a_run_is_complete_where_only_markers_may_follow() -> None:
    assert all_but_the_tail(1_000_050, 1_000_000) == 998_050
    assert all_but_the_tail(1_030, 1_000) == 1_014


def test_workers_are_neither_the_jvm_nor_the_job_itself() -> None:
    memory = [
        ("/usr/bin/python -m tidemark merge", 90.0),
        ("/opt/java/bin/java -cp pyspark/jars/* org.apache.spark.deploy.SparkSubmit pyspark-shell", 1_200.0),
        ("/usr/bin/python -m pyspark.daemon", 60.0),
        ("/usr/bin/python -m pyspark.daemon", 300.0),
    ]
    assert largest(memory) == {"jvm": 1_200.0, "worker": 300.0}


def test_memory_is_flat_where_the_last_third_is_as_the_second() -> None:
    assert thirds_of([10.0, 20.0, 100.0, 110.0, 130.0, 120.0]) == (105.0, 125.0)
    assert not_flat({"producer": (200.0, 225.0)}) == []
    (words,) = not_flat({"producer": (200.0, 225.0), "jvm": (1_000.0, 1_200.0)})
    assert words == "soak-30m: the memory of jvm is not flat: 1,000 MiB in the second third, 1,200 MiB in the last"


def test_the_heap_of_a_jvm_that_has_ended_is_unknown() -> None:
    """As that of the one that starts Spark's JVM: the soak had ended by it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    assert alive_mib(ended.pid) is None
