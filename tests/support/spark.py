"""One Spark session for all tests that need one: starting it takes as long as a dozen of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import JVMView

from schemas.settings import SparkSettings
from tidemark.runtime import spark_jars
from tidemark.runtime.jars import SINK_BUNDLES
from tidemark.runtime.spark_classes import with_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves the sockets of its threads to the garbage collector."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session, as the job builds it, tuned to start fast."""
    from spark_jobs.jobs.session import build_session

    conf = {
        # Most objects die young here: room for them, so that few are copied before. No collection for the sake of classes.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn512m -XX:MetaspaceSize=512m",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
        # Plans are small, and each is run once: planning is what costs. Some end-to-end tests plan as the job does.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.lightweightPlanChangeValidation": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "100",
        "spark.sql.debug.maxToStringFields": "1",
        "spark.ui.liveUpdate.period": "-1",
        # The manager that Spark takes by itself asks a process `stat` for each file that it writes.
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        # Compiling an expression takes longer than it runs here; the jobs of some end-to-end tests compile theirs.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    jars = tuple(str(path) for path in spark_jars(SINK_BUNDLES))
    settings = SparkSettings(master="local[2]", driver_memory="1g", jars=jars, conf=conf)
    session = build_session(with_archive(settings), "tests")
    with _classes_found_once():
        yield session
    session.stop()


@contextmanager
def _classes_found_once() -> Iterator[None]:
    """Have py4j ask once for each class: PySpark asks for the same ones by their short names, hundreds of jars are searched."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JVMView, "__getattr__", cache(JVMView.__getattr__))
        yield
