"""`tidemark merge`: the Spark job, from Kafka into the tables of the sink."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tidemark.api.health import HealthServer
from tidemark.api.merge_metrics import handler_of, metrics_text
from tidemark.doctor.merge_start import MergeStart, exit_code
from tidemark.process import config
from tidemark.process.shutdown import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from schemas.settings import Settings
    from spark_jobs.jobs.merge_jobs import Merging

HELP: Final = "merge Kafka's change and snapshot topics into the tables of the sinks (Spark)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which sinks, and until when."""
    parser.add_argument(
        "--sink", action="append", default=[], metavar="NAME", help="only this sink; may be given several times (default: all)"
    )
    parser.add_argument(
        "--until-caught-up", action="store_true", help="end when everything Kafka holds now is merged"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Merge until SIGTERM or SIGINT, or until caught up; exit code 0. A batch that takes longer is left to the next start.

    What keeps it from running is found before Spark is started, a line for each: `tidemark.doctor.merge_start`.
    With several sinks an error of one ends no other: exit code 1 when none is left, or when not all have caught up.
    """
    settings = config.load(arguments.config)
    names = arguments.sink or [sink.name for sink in settings.sinks]
    for name in names or [None]:
        settings.of_sink(name)  # refuses one that is missing before Spark is started
    stop = threading.Event()
    with ExitStack() as stack:
        last_line = stack.enter_context(LastLine(settings, names))
        stack.enter_context(stop_on_signals(stop))
        job: list[Merging] = []
        if settings.service.merge_port:
            handler = handler_of(lambda: _metrics(job))
            listens_at = settings.service.host, settings.service.merge_port
            stack.enter_context(HealthServer("service.merge_port", *listens_at, lambda: _not_ready(job), handler))
        checks = MergeStart(settings, arguments.sink)  # answered while Spark is imported
        from spark_jobs.jobs.merge_jobs import require_settings, run_merge

        require_settings(settings, arguments.sink)  # what is wrong with the settings comes before what is wrong with servers
        with_jars = with_java(settings)
        errors = checks.errors(with_jars, stop)
        for error in errors:
            print(f"tidemark: {error.text}", file=sys.stderr)
        if errors:
            last_line.note("; ".join(error.text for error in errors))
            return exit_code(errors)
        if not stop.is_set():
            run_merge(with_jars, until_caught_up=arguments.until_caught_up, sinks=arguments.sink, watch=job.append)
    return 0


class LastLine:
    """The last line of a merge job that ends with an error, kept in its sinks' folders, where the views read it.

    A job that has begun keeps it itself (`LivenessFile`): this one is of errors before that.
    """

    def __init__(self, settings: Settings, names: Sequence[str]) -> None:
        self._services = [Path(sink.service_path) for sink in settings.sinks if sink.name in names]
        self._begun_ms = time.time_ns() // 1_000_000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self.note((str(error).splitlines() or [type(error).__name__])[0])

    def note(self, reason: str) -> None:
        """Keep it for each sink whose job did not do so."""
        from spark_jobs.jobs.liveness_file import LivenessFile

        for service in self._services:
            LivenessFile(service / "alive.json").note_end(reason, self._begun_ms)


def _not_ready(job: list[Merging]) -> str | None:
    """Return why some sink is not merged into at the moment; None where all are."""
    if not job:
        return "the merge job is starting"
    reasons = {name: reason for name, reason in job[0].not_ready.items() if reason is not None}
    if len(job[0].not_ready) == 1:
        return next(iter(reasons.values()), None)
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or None


def _metrics(job: list[Merging]) -> str:
    return metrics_text(job[0].figures if job else {})


def with_java(settings: Settings) -> Settings:
    """Return a Java for Spark, and the jars of the lock file unless others are named; fetched when missing."""
    from tidemark.runtime import java_home
    from tidemark.runtime.spark_classes import with_jars

    config.forget_secrets()  # the JVM inherits the environment
    os.environ.setdefault("JAVA_HOME", str(java_home(17)))
    return replace(settings, spark=with_jars(settings.spark, [sink.type for sink in settings.sinks]))
