"""The merge jobs of the sinks in one driver: a thread, a query and a checkpoint for each, one Spark session for all.

A sink whose batch failed, where another attempt may succeed, is retried after a pause; one that needs a person ends, and says so.
Neither holds up another sink. Only a run of one sink that is to end once it has caught up ends with the first error.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn, Protocol

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from schemas.errors import (
    ConfigError,
    KafkaAccessError,
    PublishError,
    RegistryUnavailableError,
    RetriableSinkError,
    SinkError,
    TidemarkError,
)
from schemas.lasting import logged_errors
from schemas.overriding import override
from schemas.settings import Settings
from schemas.sink_figures import SinkFigures
from spark_jobs.jobs.jvm_start import LostClassError, has_jvm_ended, jvm_ended, without_class
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.own_session import own_session
from spark_jobs.jobs.runner import FIRST_PAUSE_S, Runner
from spark_jobs.spark_errors import lost_class, reason_of

log = structlog.get_logger()

_LOOKS_S: Final = 0.5
_OF_THE_JVM: Final = (PySparkException, Py4JError, OSError)


class Merging(Protocol):
    """The merging of one sink or of several, as the command watches it."""

    @property
    def figures(self) -> Mapping[str, SinkFigures]:
        """What is counted of each sink; an attempt counts from its own begin, but for the failures."""

    @property
    def not_ready(self) -> Mapping[str, str | None]:
        """Why no batch of a sink can run at the moment; None while its query runs."""

    def stop(self) -> None:
        """End after the batches that are running."""


def run_merge(
    settings: Settings, *, until_caught_up: bool, sinks: Sequence[str] = (), watch: Callable[[Merging], None] | None = None
) -> None:
    """Merge all captured tables into the sinks (none named: all), without end or until what is in Kafka now is merged.

    SIGTERM and SIGINT end it after the running batches, if they end soon. Otherwise the command ends the process
    (`tidemark.process`), and the batches are run again at the next start. `ConfigError` for settings the job cannot serve.
    `SinkError` if sink and checkpoint do not fit together or topics were deleted; of several sinks, when none is left. `watch`
    is given what merges.
    """
    names = list(dict.fromkeys(sinks)) or [sink.name for sink in settings.sinks]
    chosen = {name: settings.of_sink(name) for name in names} or {"": settings.of_sink(None)}
    is_one_round = until_caught_up and len(chosen) == 1
    jobs: OneMerge | MergeJobs = OneMerge(*chosen.items()) if is_one_round else MergeJobs(chosen)
    if watch is not None:
        watch(jobs)
    with _stopping_on_signals(jobs.stop):
        try:
            jobs.run(until_caught_up=until_caught_up)
        except _OF_THE_JVM as error:
            message = f"the merge job cannot continue: {reason_of(error)}"
            raise jvm_ended(settings.spark) or RetriableSinkError(message) from error


def require_settings(settings: Settings, sinks: Sequence[str] = ()) -> None:
    """Raise `ConfigError` for settings that the job of an only sink cannot serve. Of several sinks each ends alone."""
    names = list(dict.fromkeys(sinks)) or [sink.name for sink in settings.sinks]
    if len(names) < 2:
        MergeJob(settings.of_sink(names[0] if names else None))


class OneMerge(Merging):
    """The merge job of one sink, which ends with the first error: the next start is up to the one who asked for it."""

    def __init__(self, chosen: tuple[str, Settings]) -> None:
        self._name, settings = chosen
        self._job = MergeJob(settings)

    @property
    @override
    def figures(self) -> Mapping[str, SinkFigures]:
        return {self._name: self._job.figures}

    @property
    @override
    def not_ready(self) -> Mapping[str, str | None]:
        return {self._name: self._job.not_ready()}

    @override
    def stop(self) -> None:
        self._job.stop()

    def run(self, *, until_caught_up: bool) -> None:
        """Run to the end."""
        self._job.run(until_caught_up=until_caught_up)
        if until_caught_up:
            _require_nothing_set_aside(self._job)


class MergeJobs(Merging):
    """The merge jobs of several sinks. `run` blocks; `stop` may be called from any thread or signal handler.

    `make` returns the job of a sink, which is made again for each attempt. `ended` has why sinks ended that need a person.
    """

    def __init__(
        self,
        settings: Mapping[str, Settings],
        make: Callable[[Settings, SparkSession], MergeJob] = lambda settings, spark: MergeJob(settings, spark=spark),
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._settings = settings
        self._make = make
        self._stop = threading.Event()
        self._changed = threading.Lock()
        self._runners = {name: self._runner(name, first_pause_s) for name in settings}
        self.ended: dict[str, Exception] = {}
        self._lost_class: LostClassError | None = None
        self._checked = {name: MergeJob(one) for name, one in settings.items()}
        self._begun_ms = time.time_ns() // 1_000_000

    def _runner(self, name: str, first_pause_s: float) -> Runner[MergeJob]:
        def log_retry(reason: str, seconds: float) -> None:
            log.warning("merge.sink_again", sink=name, reason=reason, seconds=seconds)

        def is_retried(error: Exception) -> bool:
            return may_pass(error) and not has_jvm_ended()

        return Runner(self._stop, is_retried, log_retry, reason_of, (TidemarkError, *_OF_THE_JVM), first_pause_s)

    @property
    @override
    def figures(self) -> Mapping[str, SinkFigures]:
        return {name: self._figures(name) for name in self._settings}

    def _figures(self, name: str) -> SinkFigures:
        runner = self._runners[name]
        figures = SinkFigures() if runner.attempt is None else runner.attempt.figures
        return replace(figures, not_ready=self._why_not(name), failures=runner.failures)

    @property
    @override
    def not_ready(self) -> Mapping[str, str | None]:
        return {name: self._why_not(name) for name in self._settings}

    def _why_not(self, name: str) -> str | None:
        ended, runner = self.ended.get(name), self._runners[name]
        if ended is not None:
            return f"it ended: {reason_of(ended)}"
        return "the merge job is starting" if runner.attempt is None else runner.not_ready

    @override
    def stop(self) -> None:
        """End each after the batch that is running, if any (`MergeJob.stop`)."""
        self._stop.set()
        for runner in self._runners.values():
            runner.stop()

    def run(self, *, until_caught_up: bool, spark: SparkSession | None = None) -> None:
        """Run until all sinks have ended. `SinkError` when one needs a person and no other is left, or not all caught up."""
        self._require_usable()
        if len(self.ended) == len(self._settings):
            self._raise_ended()
        if spark is not None:
            self._run(spark, until_caught_up=until_caught_up)
            return
        one = next(settings for name, settings in self._settings.items() if name not in self.ended)
        with own_session(one, self._stop, has_workers=True) as own:
            if own is not None:
                self._run(own, until_caught_up=until_caught_up)

    def _require_usable(self) -> None:
        """Note the sinks that cannot be written to. Settings that are wrong are an error at once: nothing has begun yet."""
        for name, job in self._checked.items():
            try:
                job.require_usable()
            except ConfigError:
                raise
            except SinkError as error:
                self._note_end(name, error)

    def _run(self, spark: SparkSession, *, until_caught_up: bool) -> None:
        def serve(name: str, settings: Settings) -> None:
            try:
                make = partial(self._make, settings, spark.newSession())
                self._runners[name].run(make, partial(self._merge, until_caught_up=until_caught_up))
            except BaseException as error:  # raised by the thread that waits, with those of the others
                if not isinstance(error, Exception):
                    self._note_end(name, SinkError(f"the job ended by {type(error).__name__}: {error}"))  # a panic in Rust
                    raise
                with logged_errors(log.exception, "merge.liveness_not_written"):  # its folder may be what failed
                    self._runners[name].note_end(reason_of(error))
                ended = jvm_ended(settings.spark) if isinstance(error, _OF_THE_JVM) else None
                if ended is None or not self._stop.is_set():
                    self._note_end(name, ended or error)

        threads = [
            threading.Thread(target=serve, args=item, name=f"sink-{item[0]}", daemon=True)
            for item in self._settings.items()
            if item[0] not in self.ended
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # in turns: a signal must reach this thread
                thread.join(_LOOKS_S)
        if self._lost_class is not None:
            raise self._lost_class
        if self.ended and (until_caught_up or len(self.ended) == len(self._settings)):
            self._raise_ended()

    def _raise_ended(self) -> NoReturn:
        """Raise why sinks have ended: the error itself of the only one."""
        if len(self._settings) == 1:
            raise next(iter(self.ended.values()))
        reasons = "; ".join(f"{name}: {reason_of(error)}" for name, error in self.ended.items())
        raise SinkError(reasons) from next(iter(self.ended.values()))

    def _merge(self, job: MergeJob, *, until_caught_up: bool) -> None:
        """Run the job of a sink once. `LostClassError` if no retry in this JVM can help."""
        try:
            job.run(until_caught_up=until_caught_up)
        except _OF_THE_JVM as error:
            lost = None if self._stop.is_set() or has_jvm_ended() else lost_class(error)
            if lost is None:
                raise
            raise without_class(lost) from error
        if until_caught_up and not self._stop.is_set():
            _require_nothing_set_aside(job)

    def _note_end(self, name: str, error: Exception) -> None:
        with self._changed:
            self.ended[name] = error
        self._checked[name].note_end(reason_of(error), self._begun_ms)
        if isinstance(error, LostClassError):
            self._lost_class = error
            self.stop()  # all sinks share the JVM
        if len(self._settings) > 1:  # what ends the only one, the command says
            others = [] if self._lost_class else sorted(self._settings.keys() - self.ended.keys())
            log.error("merge.sink_ended", sink=name, reason=reason_of(error), others=others)


def may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed without a person: servers that do not answer, a batch that failed in Spark."""
    if isinstance(error, PublishError):
        return not isinstance(error, KafkaAccessError)
    return isinstance(error, (RetriableSinkError, RegistryUnavailableError, *_OF_THE_JVM))


def _require_nothing_set_aside(job: MergeJob) -> None:
    if job.set_aside:
        message = f"all is merged but for tables that are set aside: {'; '.join(f'{n}: {why}' for n, why in job.set_aside.items())}"
        raise SinkError(message)


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM and SIGINT stop the jobs; only in the main thread, where signals can be handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
