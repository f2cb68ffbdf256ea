"""`tidemark merge`: the Spark job, from Kafka into the tables of the sink."""

from __future__ import annotations

import argparse
import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidemark.api.health import health
from tidemark.api.merge_metrics import handler_of, metrics_text
from tidemark.process import config
from tidemark.process.shutdown import stop_on_signals

if TYPE_CHECKING:
    from schemas.settings import Settings
    from spark_jobs.jobs.merge_job import MergeJob

HELP: Final = "merge Kafka's change and snapshot topics into the sink's tables (Spark)"


def configure(parser: argparse.ArgumentParser) -> None:
    """One switch."""
    parser.add_argument(
        "--until-caught-up", action="store_true", help="end when everything Kafka holds now is merged"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Merge until SIGTERM or SIGINT, or until caught up; exit code 0. A batch that takes longer is left to the next start."""
    settings = config.load(arguments.config)
    settings.sink  # noqa: B018 - refuses a missing sink before Spark is started
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(stop))
        job: list[MergeJob] = []
        if settings.service.merge_port:
            handler = handler_of(lambda: _metrics(job))
            stack.enter_context(health(settings.service.host, settings.service.merge_port, lambda: _not_ready(job), handler))
        from spark_jobs.jobs.merge_job import run_merge

        with_jars = with_java(settings)
        if not stop.is_set():
            run_merge(with_jars, until_caught_up=arguments.until_caught_up, watch=job.append)
    return 0


def _not_ready(job: list[MergeJob]) -> str | None:
    return job[0].not_ready() if job else "the merge job is starting"


def _metrics(job: list[MergeJob]) -> str:
    return metrics_text(job[0].delays if job else {}, ready=_not_ready(job) is None)


def with_java(settings: Settings) -> Settings:
    """Return a Java for Spark, and the jars of the lock file unless others are named; fetched when missing."""
    from tidemark.runtime import java_home, spark_jars
    from tidemark.runtime.spark_classes import with_archive

    config.forget_secrets()  # the JVM inherits the environment
    os.environ.setdefault("JAVA_HOME", str(java_home(17)))
    spark = settings.spark
    if not spark.jars:
        spark = replace(spark, jars=tuple(str(path) for path in spark_jars("delta")))
    return replace(settings, spark=with_archive(spark))
