"""What is loaded before the first batch: it ends by itself, and an error of it is none of the job."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from spark_jobs.jobs.warm_up import _load_libraries, import_meanwhile, warm_up

PATIENCE_S = 120


def test_pandas_is_imported_on_a_thread() -> None:
    import_meanwhile().join(PATIENCE_S)
    assert "pandas" in sys.modules


def test_a_warm_up_ends_and_twice_does_no_harm(spark: SparkSession) -> None:
    threads = [*warm_up(spark), *warm_up(spark)]
    assert {thread.name for thread in threads} == {"warm-up-workers", "warm-up-libraries"}
    for thread in threads:
        assert thread.daemon
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_the_libraries_of_parquet_and_kafka_are_in_the_jvm_before_the_first_batch() -> None:
    gateway = launch_gateway()  # a JVM that has compressed nothing yet
    try:
        jvm: Any = gateway.jvm
        maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps")
        assert not loaded(maps)
        _load_libraries(jvm)
        assert loaded(maps) == {"snappy", "zstd", "lz4"}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends then
        gateway.proc.wait(PATIENCE_S)


def loaded(maps: Path) -> set[str]:
    text = maps.read_text(encoding="utf-8")
    return {name for name in ("snappy", "zstd", "lz4") if re.search(rf"{name}\S*\.so", text)}
