"""The session's settings: what must hold in every JVM of the job."""

from __future__ import annotations

import gc
import re
import zipimport
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_jobs.jobs
from kafkaio.slices import Slice
from schemas.settings import KafkaSettings, SparkSettings
from spark_jobs.jobs.session import configuration, master_with_retries
from spark_jobs.kafka.read import read_slices
from spark_jobs.merge import rule
from spark_jobs.sinks.delta import writes as merge
from spark_jobs.spark_errors import is_lost_executor

LOG_SETTINGS = Path(spark_jobs.jobs.__file__).with_name("log4j2.properties")
DRIVER, EXECUTOR = (f"spark.{role}.extraJavaOptions" for role in ("driver", "executor"))


@pytest.mark.parametrize("option", ["avro.limits.string.maxLength", "avro.limits.bytes.maxLength", "user.timezone=UTC"])
def test_executors_read_records_with_the_limits_and_the_time_zone_of_the_driver(option: str) -> None:
    """Records are decoded on executors: a corrupt length must not make one allocate two gigabytes."""
    conf = configuration(SparkSettings(master="spark://master:7077"))
    assert option in conf[DRIVER]
    assert option in conf[EXECUTOR]


@pytest.mark.parametrize("name", [DRIVER, EXECUTOR])
def test_java_options_of_the_user_come_behind_ours(name: str) -> None:
    conf = configuration(SparkSettings(master="spark://master:7077", conf={name: "-Xss4m"}))
    assert conf[name].endswith(" -Xss4m")
    assert "-Duser.timezone=UTC" in conf[name]


@pytest.mark.parametrize(
    ("warning", "is_shown"),
    [
        ("Stage 7 contains a task of very large size (1234 KiB). The maximum recommended task size is 1000 KiB.", False),
        ("Lost task 0.0 in stage 3.0 (TID 3) (localhost executor driver): No space left on device", True),
    ],
)
def test_the_size_of_a_task_is_no_warning_of_the_merge_job(warning: str, is_shown: bool, spark: SparkSession) -> None:
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    logger = log4j.LogManager.getContext(False).getConfiguration().getLoggerConfig("org.apache.spark.scheduler.TaskSetManager")
    message = log4j.message.SimpleMessage(warning)
    event = log4j.core.impl.Log4jLogEvent.newBuilder().setLevel(log4j.Level.WARN).setMessage(message).build()
    assert logger.isFiltered(event) != is_shown


def test_the_loggers_of_the_settings_exist(spark: SparkSession) -> None:
    """Spark moves classes: a setting for the old name is none."""
    found = re.findall(r"^logger\.\w+\.name = (\S+\.[A-Z]\w+)$", LOG_SETTINGS.read_text("utf-8"), re.MULTILINE)
    assert len(found) >= 5
    for name in found:
        spark._jvm.java.lang.Class.forName(name)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,3]"),
        ("local[2]", "local[2,3]"),
        ("local[*]", "local[*,3]"),
        ("local[2, 7]", "local[2, 7]"),
        ("spark://one:7077", "spark://one:7077"),
        ("yarn", "yarn"),
    ],
)
def test_a_local_session_retries_tasks_unless_the_user_says_how_often(given: str, used: str) -> None:
    assert master_with_retries(given) == used


def test_a_task_that_fails_once_is_run_again(spark: SparkSession) -> None:
    """A clock that jumps ends the patience of a Kafka client at once: no reason to end the job."""

    def fails_once(number: int) -> int:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise ValueError(number)
        return number

    assert spark.sparkContext.parallelize([7], 1).map(fails_once).collect() == [7]


def test_rows_that_went_with_their_executor_are_distinguished_from_other_errors(spark: SparkSession) -> None:
    """The table's part of the batch is run again for it; a table that is not there is no reason to."""
    with rule.computed(spark.range(5)) as kept:
        rule.release(kept)
        with pytest.raises((PySparkException, Py4JError)) as lost:
            kept.collect()
    with pytest.raises((PySparkException, Py4JError)) as other:
        spark.read.format("delta").load("/nowhere").collect()
    assert is_lost_executor(lost.value)
    assert not is_lost_executor(other.value)
    assert not merge.is_conflict(lost.value)


def test_records_of_kafka_become_rows_without_an_object_of_java_for_each(spark: SparkSession) -> None:
    records = read_slices(spark, KafkaSettings(bootstrap_servers="127.0.0.1:9"), [Slice("t", 0, 0, 1)])
    plan = records._jdf.queryExecution().optimizedPlan().toString()
    assert "RelationV2" in plan, plan


def test_tasks_of_a_worker_do_not_read_the_archives_of_spark_again(spark: SparkSession) -> None:
    """Nor look for cycles in all that its daemon has imported."""

    def readings(_: int) -> tuple[int, int]:
        if not hasattr(zipimport, "readings"):
            read, zipimport.readings = zipimport._read_directory, []
            zipimport._read_directory = lambda archive: (zipimport.readings.append(archive), read(archive))[1]
        return len(zipimport.readings), gc.get_freeze_count()

    for _ in range(3):
        results = spark.sparkContext.parallelize([0, 1], 2).map(readings).collect()
    assert [count for count, _ in results] == [0, 0]
    assert all(frozen > 10_000 for _, frozen in results)
