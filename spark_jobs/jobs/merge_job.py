"""The merge job: settings enter, one streaming query runs until it is stopped or has caught up."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, Self

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from structlog.contextvars import bound_contextvars

from kafkaio.schema_registry import HttpRegistry, SchemaRegistry
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import ConfigError, EndingError, RetriableSinkError, SinkError, TidemarkError
from schemas.overriding import override
from schemas.settings import Settings, why_no_merge
from schemas.settings.sink_section import folder_key
from schemas.sink_figures import SinkFigures
from schemas.topics import state_topic
from schemas.waiting import waiting
from spark_jobs.jobs.jvm_start import has_jvm_ended, jvm_ended, without_class
from spark_jobs.jobs.liveness_file import LivenessFile
from spark_jobs.jobs.own_session import own_session
from spark_jobs.jobs.plan_check import require_plan
from spark_jobs.jobs.preflight import require_writable
from spark_jobs.jobs.runner import Attempt
from spark_jobs.jobs.shared_folder import SharedFolder
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.jobs.trigger_pace import TriggerPace, interval_of
from spark_jobs.kafka.admin import is_same_producer, require_same_topics, topic_ids
from spark_jobs.kafka.read import stream, topic_pattern
from spark_jobs.loads.source_of_chunks import ChunkSource, open_chunk_source
from spark_jobs.merge.batch import BatchMerger, Step, no_step
from spark_jobs.merge.context import MergeParts, checkpoint_of, merge_parts
from spark_jobs.merge.job_state import JobStates, MergeState
from spark_jobs.merge.old_file_turns import OldFiles
from spark_jobs.pipeline.table_plan import require_same_rules
from spark_jobs.sinks.contract import Sink
from spark_jobs.spark_errors import lost_class, reason_of
from spark_jobs.store.files import LOCK_WAIT_S
from spark_jobs.store.sink_layout import PROGRESS, SinkLayout

log = structlog.get_logger()

_IDLE: Final = "the merge job is starting, waits for the sink's lock or for Kafka, or is ending"
_MOST_ROUNDS: Final = 10
_LINES_OF_SPARK: Final = 3
_TOPICS_NAMED: Final = 5
_DATA_LOSS: Final = ("KAFKA_DATA_LOSS", "Some data may have been lost because they are not available in Kafka")
_REASON: Final = re.compile(r"Reason:\s*(\S.*)")
_ASKS_KAFKA: Final = ("Initializing sources", "Getting offsets")
"""What the status of a query begins with then."""
_GRACE_S: Final = 2.0
"""A batch may take so long after a stop, before Spark cancels its jobs; a stop is by force after 4 s."""
_COMMIT_S: Final = 1.0
"""Spark writes down that a batch is done within milliseconds; on object storage one request later."""
_ENDS_LOOK_S: Final = 1.0
"""The wait for a batch looks whether Spark's JVM is still there as often."""
_BETWEEN_S: Final = (0.13, 0.29)
"""A question that is still asked is asked at these times, too, each after the one before."""


class Stopped(TidemarkError):  # noqa: N818 - not an error: how a batch is refused after `stop`
    """The job is being stopped; no further batch begins."""


class WallClock:
    """The machine's clock, and whether it was set back since the latest time it has shown."""

    def __init__(self) -> None:
        self._ahead_s = self._of_steady()

    def was_set_back(self) -> bool:
        """Return whether it was set back by more than a second."""
        ahead_s = self._of_steady()
        self._ahead_s = max(self._ahead_s, ahead_s)
        return ahead_s < self._ahead_s - 1

    @staticmethod
    def _of_steady() -> float:
        return time.time() - time.monotonic()


class KafkaQuestions:
    """A watch on a query that notes its questions for offsets as a wait for Kafka: the client in the JVM logs nothing."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._noted: ExitStack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._noted is not None:
            self._noted.close()
            self._noted = None

    def look(self, query: StreamingQuery) -> None:
        """Look at what the query does now.

        Spark asks at multiples of its interval, so looks once a second may all meet short questions: each is looked at three times.
        """
        if not _asks_kafka(query):
            self.__exit__()
        elif self._noted is not None:
            if not all(_asks_kafka(query, pause) for pause in _BETWEEN_S):
                self.__exit__()
        else:
            self._noted = ExitStack()
            self._noted.enter_context(waiting("kafka", self._servers, "the offsets of the topics"))


def _asks_kafka(query: StreamingQuery, after_s: float = 0.0) -> bool:
    time.sleep(after_s)
    return str(query.status["message"]).startswith(_ASKS_KAFKA)


class MergeJob(Attempt):
    """One run of the merge job, whose rounds are the batches of queries. `run` blocks."""

    def __init__(
        self,
        settings: Settings,
        *,
        spark: SparkSession | None = None,
        registry: SchemaRegistry | None = None,
        sink: Sink | None = None,
        on_step: Step = no_step,
        open_source: Callable[[Settings], ChunkSource | None] = open_chunk_source,
    ) -> None:
        require_supported(settings)
        self._settings = settings
        self._spark = spark
        self._registry = registry or HttpRegistry(
            settings.format.registry or "", RegistryAccess.of(settings.format)
        )
        self._on_step = on_step
        self._open_source = open_source
        self._layout = SinkLayout.of(settings.sink)
        self._checkpoint = checkpoint_of(self._layout)
        self._sink = sink or open_sink(settings, self._layout, self._checkpoint)
        super().__init__(_IDLE, threading.Event())
        self._liveness = LivenessFile(self._layout.liveness)
        self._old_files = OldFiles(self._sink, self._layout.files, settings.sink.vacuum_hours)
        self._stopped_s: float | None = None
        self._batch_runs = threading.Lock()
        self._ends = threading.Event()
        self._leaves_query = False
        self._retries = False
        self._problem: BaseException | None = None
        self._state: MergeState | None = None
        self._merger: BatchMerger | None = None
        self._shared: SharedFolder | None = None

    @property
    def set_aside(self) -> dict[str, str]:
        """The tables that the last batch left set aside, with the reason."""
        sources = {} if self._state is None else self._state.sources
        return {
            table.name.plain: record.set_aside.reason for table, record in sources.items() if record.set_aside is not None
        }

    @property
    def figures(self) -> SinkFigures:
        """What is counted since the query began, and what the last batch left."""
        merger, not_ready = self._merger, self.not_ready()
        if merger is None:
            return SinkFigures(not_ready=not_ready)
        sources = None if merger.state is None else merger.state.sources.values()
        return SinkFigures(
            not_ready=not_ready,
            delays={table.name.plain: one.total for table, one in merger.delays.items()},
            counts=merger.counts,
            quarantined=None if sources is None else sum(record.quarantined for record in sources),
            set_aside=None if sources is None else sum(record.set_aside is not None for record in sources),
        )

    @override
    def stop(self) -> None:
        """End after the batch that is running, if any; one that takes longer than two seconds is run again at the next start."""
        self._stopped_s = self._stopped_s or time.monotonic()
        super().stop()

    @override
    def wait(self, seconds: float, reason: str, since_ms: int) -> None:
        with self._liveness.waiting(reason, since_ms):
            super().wait(seconds, reason, since_ms)

    @override
    def retries_after(self, reason: str, since_ms: int) -> None:
        super().retries_after(reason, since_ms)
        self._liveness.lasts(reason, since_ms)

    @override
    def note_success(self) -> None:
        super().note_success()
        self._liveness.succeeded()

    @override
    def note_end(self, reason: str, begun_ms: int) -> None:
        self._liveness.note_end(reason, begun_ms)

    def run(self, *, until_caught_up: bool) -> None:
        """Run to the end. An error that ended the query is raised, ours as it was."""
        with bound_contextvars(sink=self._settings.sink.name):
            self.require_usable()
            if self._spark is not None:
                self._run(self._spark, until_caught_up=until_caught_up)
                return
            with own_session(self._settings, self._stop, has_workers=self._settings.sink.mode != "changelog") as spark:
                if spark is not None:
                    self._run(spark, until_caught_up=until_caught_up)

    def require_usable(self) -> None:
        """Raise `ConfigError` or `SinkError` for a sink that cannot be written to, or is not that of its checkpoint."""
        require_writable(self._settings.sink.name, self._layout)
        self._checkpoint.require_own_sink(PROGRESS, self._sink.states())

    def _run(self, spark: SparkSession, *, until_caught_up: bool) -> None:
        try:
            parts = merge_parts(spark, self._settings, self._layout, self._sink)
            require_plan(spark, self._settings, parts, self._registry)  # before a sink makes tables or topics of its own
            with self._sink.exclusive(spark, LOCK_WAIT_S), self._liveness:
                self._shared = SharedFolder.of(spark, self._settings.sink.name, self._layout)
                self._shared.require()
                self._require_own_topics(spark, parts)
                log.info("merge.started", path=str(self._layout.sink), until_caught_up=until_caught_up)
                try:
                    self._run_rounds(spark, parts, until_caught_up=until_caught_up)
                    if until_caught_up and self._state is not None:
                        self._old_files.finish(spark, self._state.targets, self._stop.is_set)
                finally:
                    self._old_files.close()
                log.info("merge.stopped")
        except EndingError:
            log.info("merge.stopped", reason="it was asked to end while it read the producer's documents")
        except (Py4JError, OSError) as error:
            ended = jvm_ended(self._settings.spark)
            if ended is None:
                raise
            if not self._stop.is_set():
                raise ended from error
            log.info("merge.stopped", reason="Spark's JVM was ended as well; the batch that ran is run again at the next start")

    def _require_own_topics(self, spark: SparkSession, parts: MergeParts) -> None:
        """Refuse to begin if topics that were read are missing (`SinkError`), before Spark notes their absence.

        Spark writes down the ends of what it finds before anything else: corrected settings would come too late.
        """
        states = JobStates(self._sink.states(), parts.naming)
        self._state = states.load(self._checkpoint.query_id or "", self._checkpoint.newest_done)
        merged = {table: record.feeds for table, record in self._state.sources.items() if not self._state.is_unmerged(table)}
        require_same_rules(parts.naming.routes, merged)
        known = self._state.topics
        anchor = state_topic(self._settings.name, self._settings.kafka.topic_delimiter)
        read = {topic: ident for topic, ident in known.items() if topic != anchor}
        there = topic_ids(spark, self._settings.kafka, read)
        pattern = re.compile(topic_pattern(self._settings))
        lost = sorted(topic for topic in read if topic not in there or not pattern.fullmatch(topic))
        replaced = {topic for topic, ident in there.items() if ident != read[topic]}
        if (lost or replaced) and self._settings.on_table_error == "set_aside" and all(pattern.fullmatch(topic) for topic in read):
            others = read.keys() - replaced - set(lost)
            if is_same_producer(spark, self._settings.kafka, anchor, known, others):
                return  # of single tables: the first batch sets them aside
        require_same_topics(spark, self._settings.kafka, replaced, read)
        if lost:
            message = (
                f"topics that this sink was read from are not to be found at {self._settings.kafka.bootstrap_servers} as topics of "
                f"{self._settings.name!r}: {', '.join(lost[:_TOPICS_NAMED])}{', ...' if lost[_TOPICS_NAMED:] else ''}. Nothing was "
                "changed: check name, kafka.bootstrap_servers, and that the user may describe them. If they were deleted, start "
                f"the merge job on an empty folder (another sinks.{folder_key(self._settings.sink)}) and snapshot again"
            )
            raise SinkError(message)

    def _run_rounds(self, spark: SparkSession, parts: MergeParts, *, until_caught_up: bool) -> None:
        """Run a query, or one per set of latest offsets to catch up, until no marker waits for another topic."""
        if not until_caught_up:
            interval = {"processingTime": f"{self._settings.spark.trigger_s} seconds"}
            self._run_query(spark, parts, interval)
            while self._leaves_query and not self._stop.is_set():
                self._run_query(spark, parts, interval)
            return
        for _ in range(_MOST_ROUNDS):
            state = self._run_query(spark, parts, {"availableNow": True})
            if state is None and self.set_aside and not self._stop.is_set():
                self._retries = True
                state = self._run_query(spark, parts, {"availableNow": True})
            if self._stop.is_set() or state is None:
                return
            if not any(record.state.has_pending_work for record in state.sources.values() if record.set_aside is None):
                return

    def _run_query(self, spark: SparkSession, parts: MergeParts, trigger: dict[str, Any]) -> MergeState | None:
        """Run a query to its end, and return the state it leaves; None where it had no batch."""
        self._checkpoint.remove_unfinished()
        if self._retries:
            self._checkpoint.begin_empty_batch()
        self._retries = False
        self._ends = threading.Event()
        merger = BatchMerger(spark, self._settings, parts, self._registry, self._on_step, self._is_ending, self._open_source)
        self._merger = merger
        try:
            self._query(spark, merger, trigger)
            self._state = merger.state or self._state
            return merger.state
        finally:
            merger.close()

    def _query(self, spark: SparkSession, merger: BatchMerger, trigger: dict[str, Any]) -> None:
        self._leaves_query = False
        pace, over = TriggerPace(self._settings.spark.trigger_s, interval_of), self._ends

        def guarded(records: Any, batch_id: int) -> None:  # on a thread of Spark's
            with bound_contextvars(sink=self._settings.sink.name), self._batch_runs, pace.batch():
                if self._is_ending() or over.is_set():
                    raise Stopped
                try:
                    with self._liveness.batch(batch_id):
                        if self._shared is not None:
                            self._shared.require()
                        merger(records, batch_id)
                        self._liveness.note_stages(merger.stages.recent)
                        self.note_success()
                    if merger.state is not None and not self._stop.is_set():
                        self._old_files.offer(spark, merger.state.targets)
                except BaseException as error:
                    if isinstance(error, Exception):
                        self._problem = error
                        raise
                    # A panic of a library in Rust: py4j has no answer to it for the JVM, which waits for ever.
                    self._problem = RetriableSinkError(f"the batch ended by {type(error).__name__}: {error}")
                    raise self._problem from error

        writer = stream(spark, self._settings).writeStream.foreachBatch(guarded).trigger(**trigger)
        query = writer.option("checkpointLocation", str(self._layout.checkpoint)).start()
        self._is_ready = True
        try:
            self._wait(query, WallClock() if "processingTime" in trigger else None, pace)
        except StreamingQueryException as error:
            if not self._stop.is_set():
                raise self._problem_of(error) from error
        except (PySparkException, Py4JError, OSError) as error:
            if not self._stop.is_set():
                log.warning("merge.query_left", reason=reason_of(error))  # it is raised after the batch
            raise
        finally:
            self._is_ready = False
            pace.close()
            self._end(query)

    def _wait(self, query: StreamingQuery, clock: WallClock | None, pace: TriggerPace) -> None:
        """Wait until the query ends, is to be stopped, or is to be started over.

        It is started over where it waits for a time that a clock set back has made late: Spark waits for the next trigger of an
        interval by the wall clock (ProcessingTimeExecutor). And where a table is to be retried, and no new record begins a batch.
        """
        asks = KafkaQuestions(self._settings.kafka.bootstrap_servers)
        with asks:
            while not query.awaitTermination(1):
                if self._stop.is_set():
                    return
                asks.look(query)
                if self._lasting and self._is_idle(query):
                    self.note_success()
                if clock is not None:
                    pace.look(query)
                if self._must_leave(query, clock):
                    return

    def _is_ending(self) -> bool:
        """Return whether no further batch begins, and the one that runs is to wait for nobody."""
        return self._stop.is_set() or self._leaves_query or self._ends.is_set()

    def _end(self, query: StreamingQuery) -> None:
        """Return when no batch of the query runs, nor ever will: the next holder of the sink's lock would write beside it.

        A batch has a moment to end by itself, so that the next start need not run it again. One that takes longer is waited for all
        the same: Spark's `stop` cancels the jobs of the batch's own thread, as those of workers, but not those that other threads
        have begun for it. That a query is not active says nothing: Spark calls it so before its batch has ended.
        """
        self._ends.set()
        try:
            self._let_end()
        finally:
            self._stop_query(query)
            while not (is_over := self._batch_runs.acquire(timeout=_ENDS_LOOK_S)) and not has_jvm_ended():
                pass
            if is_over:
                self._batch_runs.release()

    def _let_end(self) -> None:
        """Give the batch that runs a moment to end, and Spark one to write that it is done, or the next start runs it once more."""
        if self._batch_runs.acquire(blocking=False):
            self._batch_runs.release()
            return
        try:
            begun = self._checkpoint.newest_begun
            grace_s = _GRACE_S if self._stopped_s is None else max(0.0, self._stopped_s + _GRACE_S - time.monotonic())
            if not self._batch_runs.acquire(timeout=grace_s):
                return
            self._batch_runs.release()
            until = time.monotonic() + _COMMIT_S
            while self._problem is None and self._checkpoint.newest_done < begun and time.monotonic() < until:
                time.sleep(_COMMIT_S / 20)
        except (Py4JError, OSError) as error:
            log.warning("merge.checkpoint_not_read", reason=str(error).partition("\n")[0])

    @staticmethod
    def _stop_query(query: StreamingQuery) -> None:
        if has_jvm_ended():
            return
        try:
            query.stop()
        except (Py4JError, PySparkException, OSError) as error:
            if not has_jvm_ended():
                log.warning("merge.query_not_stopped", reason=str(error).partition("\n")[0])

    def _must_leave(self, query: StreamingQuery, clock: WallClock | None) -> bool:
        """Return whether the query is to be started over; no batch of it runs then, nor will."""
        if clock is None:
            return False
        is_late = clock.was_set_back()
        if not is_late and not (self._has_retry_due() and self._is_idle(query)):
            return False
        if not self._batch_runs.acquire(blocking=False):
            return False
        self._leaves_query, self._retries = True, not is_late
        self._batch_runs.release()
        if is_late:
            log.warning("merge.clock_set_back", reason="Spark would wait until it is as late again; the query is started over")
        return True

    @staticmethod
    def _is_idle(query: StreamingQuery) -> bool:
        """Return whether the query has looked for records, and found none."""
        status = query.status
        is_active = status["isDataAvailable"] or status["isTriggerActive"]
        return not is_active and str(status["message"]).startswith("Waiting for")

    def _has_retry_due(self) -> bool:
        """Return whether the pause of a table that is set aside is over, or no batch has retried it since the start."""
        state = self._merger.state if self._merger is not None else None
        if state is None:
            return bool(self.set_aside)
        aside = [one.set_aside for one in state.sources.values() if one.set_aside is not None]
        return any(time.time_ns() // 1_000_000 >= one.retry_ms for one in aside)

    def _problem_of(self, error: StreamingQueryException) -> BaseException:
        """Return the error to raise: our own as it was raised, one of Spark's by its first lines."""
        problem = self._problem or error
        if not isinstance(problem, (PySparkException, Py4JError)):
            return problem
        if any(text in str(problem) for text in _DATA_LOSS):
            found = _REASON.search(str(problem))
            reason = found.group(1) if found else "Spark does not say of which"
            message = (
                "records that were not read yet are no longer in Kafka: the job was stopped for longer than the topics are kept, "
                f"or a topic was deleted ({reason}). The next start names the table: snapshot it again"
            )
            return SinkError(message)
        lost = lost_class(problem)
        if lost is not None:
            return without_class(lost)
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        message = f"the batch could not be merged: {' '.join(lines[:_LINES_OF_SPARK])}. The next attempt runs it again"
        return RetriableSinkError(message)


def require_supported(settings: Settings) -> None:
    """Refuse settings that this job cannot serve (`ConfigError`)."""
    if problems := why_no_merge(settings):
        raise ConfigError(*problems)
    settings.sink  # noqa: B018 - exactly one, or ConfigError
