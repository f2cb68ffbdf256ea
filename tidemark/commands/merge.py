"""`tidemark merge`: the Spark job, from Kafka into the tables of the sink."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidemark import config

if TYPE_CHECKING:
    from schemas.settings import Settings

HELP: Final = "merge Kafka's change and snapshot topics into the sink's tables (Spark)"


def configure(parser: argparse.ArgumentParser) -> None:
    """One switch."""
    parser.add_argument(
        "--until-caught-up", action="store_true", help="end when everything Kafka holds now is merged"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Merge until stopped, or until caught up."""
    settings = config.load(arguments.config)
    settings.sink  # noqa: B018 - refuses a missing sink before Spark is started
    from spark_jobs.job import run_merge

    run_merge(with_java(settings), until_caught_up=arguments.until_caught_up)
    return 0


def with_java(settings: Settings) -> Settings:
    """A Java for Spark, and the jars of the lock file unless others are named; fetched when missing."""
    from tidemark.embedded import java_home, spark_jars

    config.forget_secrets()  # the JVM inherits the environment
    os.environ.setdefault("JAVA_HOME", str(java_home(17)))
    if settings.spark.jars:
        return settings
    jars = tuple(str(path) for path in spark_jars("delta"))
    return replace(settings, spark=replace(settings.spark, jars=jars))
