"""What is loaded before the first batch: it ends by itself, and an error of it is none of the job."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from schemas.documents import TopicsDocument
from schemas.topics import state_topic
from spark_jobs.jobs.warm_up import _load_libraries, import_meanwhile, warm_up
from tests.merge.conftest import SinkFactory
from tests.merge.lake import flush, topics_of
from tests.merge.test_grouped_tables import SCHEMAS

PATIENCE_S = 120


def test_pandas_is_imported_on_a_thread() -> None:
    import_meanwhile().join(PATIENCE_S)
    assert "pandas" in sys.modules


def test_a_warm_up_ends_with_a_state_topic_without_one_and_without_kafka(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = merge_settings()
    topics = topics_of(settings, SCHEMAS[0])
    nobody = replace(settings, kafka=replace(settings.kafka, bootstrap_servers="127.0.0.1:9"))
    threads = [*warm_up(spark, settings), *warm_up(spark, nobody)]
    assert "warm-up-libraries" in {thread.name for thread in threads}
    topics._make(state_topic(settings.name))
    topics.ends[state_topic(settings.name)] = {}
    topics.put(state_topic(settings.name), 0, TopicsDocument.PREFIX.encode(), b"{}")
    flush(topics)
    for thread in [*threads, *warm_up(spark, settings)]:
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
