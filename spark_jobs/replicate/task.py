"""A replication task: settings enter, the tables of the target follow their source until the task is stopped.

    read commit records and their rows  ▸  sort them  ▸  apply them, with how far they go in the same transaction

All that a task knows durably is in the target. A start raises its epoch there, and continues behind the state.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import structlog

from kafkaio.schema_registry import HttpRegistry
from mysqlio.server_access import ServerAccess
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import (
    KafkaAccessError,
    KafkaRefusalError,
    PublishError,
    RegistryUnavailableError,
    RetriableSourceError,
)
from schemas.settings.declaration import compiled
from spark_jobs.jobs.runner import Attempt, Runner
from spark_jobs.replicate.applier import Applier
from spark_jobs.replicate.apply_target import ApplyTarget
from spark_jobs.replicate.archiver import Archiver, FileTarget
from spark_jobs.replicate.ddl_statements import DdlStatements
from spark_jobs.replicate.loading import SourceTopics, begun
from spark_jobs.replicate.log_order import LogOrder
from spark_jobs.replicate.row_values import RowDecoder
from spark_jobs.replicate.row_writer import RowWriter
from spark_jobs.replicate.stream_reader import KafkaTransaction, StreamReader

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from schemas.settings.task_section import TaskSettings, TaskSource
    from spark_jobs.replicate.apply_target import SourceState
    from spark_jobs.replicate.destination import ChangeWriter, StatementWriter

log = structlog.get_logger()

_WAITS_S: Final = 0.5
_BUFFER_BYTES: Final = 32 << 20


def run_task(
    settings: TaskSettings,
    stop: threading.Event,
    *,
    until_caught_up: bool = False,
    watch: Callable[[Runner[SourceTask]], None] = lambda _: None,
) -> None:
    """Apply the changes of the task's source until `stop` is set; with `until_caught_up` until all that Kafka has now is applied.

    `watch` is given the runner, which says why nothing can be applied at the moment. What may pass is retried after a pause.
    `FencedError`: another process has taken the task over. `SinkError`: the target does not take a row or a statement. Kafka, the
    registry and the server of the target have errors of their own.
    """
    target: FileTarget | ApplyTarget
    if settings.target.type == "file":
        target = FileTarget(settings.target, settings.task)
    else:
        target = ApplyTarget(ServerAccess.of(settings.target), settings.task)
    (source,) = settings.sources
    runner: Runner[SourceTask] = Runner(stop, _may_pass, _log_retry)
    watch(runner)
    with closing(target):
        runner.run(lambda: SourceTask(settings, source, target, stop), lambda task: task.run(until_caught_up=until_caught_up))


def _may_pass(error: Exception) -> bool:
    is_of_kafka = isinstance(error, PublishError) and not isinstance(error, (KafkaAccessError, KafkaRefusalError))
    return is_of_kafka or isinstance(error, (RetriableSourceError, RegistryUnavailableError, OSError))


def _log_retry(reason: str, pause_s: float) -> None:
    log.warning("task.retried", reason=reason, pause_s=pause_s)


class SourceTask(Attempt):
    """One attempt at a source of a task, from its state in the target on."""

    def __init__(self, settings: TaskSettings, source: TaskSource, target: FileTarget | ApplyTarget, stop: threading.Event) -> None:
        super().__init__("the task is starting", stop)
        self._settings = settings
        self._source = source
        self._target = target
        self._group = f"tidemark-task-{settings.task}"
        self._registry = HttpRegistry(settings.format.registry or "", RegistryAccess.of(settings.format))
        self._decoder = RowDecoder(self._registry.text_of)
        self._order = LogOrder(self._decoder, topics.schema_change_topic(source.name))
        self._topics = SourceTopics(settings.kafka, source.name, self._group)
        self._follows = cache(self._is_of_task)

    def run(self, *, until_caught_up: bool) -> None:
        """Apply until stopped, or until caught up."""
        newest, commit = self._topics.newest_commit()
        end = newest if until_caught_up else None
        if not self._target.epoch:  # a process that was fenced does not come back
            self._target.require_usable(self._source.name, commit.server)
            self._target.take_over()
            log.info("task.started", task=self._settings.task, epoch=self._target.epoch)
        applier = self._begun()
        state = applier.state
        with ExitStack() as stack:
            reader = StreamReader(self._settings.kafka, self._source.name, self._group, state.offset, state.n, _BUFFER_BYTES)
            stack.enter_context(closing(reader))
            watch = self._topics.watch(state, self._decoder) if state.loading else None
            if watch is not None:
                stack.enter_context(closing(watch))
            self._is_ready = True
            while not self._stop.is_set() and (end is None or applier.state.offset <= end or applier.state.loading):
                applier.apply(self._batch(reader))
                self.note_success()
                if watch is not None and applier.state.loading:
                    watch.require_hope()

    def _begun(self) -> ChangeWriter:
        """Return the applier or archiver, behind the history of the tables that the target lacked when the task began."""
        settings, source, target = self._settings, self._source, self._target
        state = target.states().get(source.name)
        if state is None:
            state = begun(self._topics, target, self._order, source, self._follows, loads=settings.mode == "all")
        changes, statements = self._changes(state)
        for statement in self._topics.history(self._order, state.begin):
            if statement.table is None or ".".join(statement.table) not in state.kept:
                state = statements.run(statement, state)
        if state.request and not state.asked_ms:
            asked_ms = time.time_ns() // 1_000_000
            self._topics.ask(state.request, source, state.loading)
            state = replace(state, asked_ms=asked_ms)
            with target.transaction():
                target.put_state(source.name, state)
        changes.state = state
        return changes

    def _changes(self, state: SourceState) -> tuple[ChangeWriter, StatementWriter]:
        target, name = self._target, self._source.name
        if isinstance(target, FileTarget):
            archiver = Archiver(target, name, state, self._order, self._registry.text_of, self._follows)
            return archiver, archiver
        statements = DdlStatements(target, name, self._follows)
        writer = RowWriter(target, name, self._decoder, self._settings.apply)
        return Applier(target, name, state, self._order, writer, statements, self._follows), statements

    def _is_of_task(self, database: str, table: str) -> bool:
        name, source = f"{database}.{table}", self._source
        is_named = not source.tables or any(compiled(pattern).fullmatch(name) for pattern in source.tables)
        return is_named and not any(compiled(pattern).fullmatch(name) for pattern in source.exclude_tables)

    def _batch(self, reader: StreamReader) -> list[KafkaTransaction]:
        """Return the Kafka transactions that are there, up to `driver_rows`; a busy source has the delay to add more."""
        settings = self._settings.apply
        batch, count, deadline = list[KafkaTransaction](), 0, time.monotonic() + settings.max_delay_ms / 1000
        while not batch or (count < settings.driver_rows and time.monotonic() < deadline):
            another = reader.next(0.0 if batch else _WAITS_S)
            if another is None:
                break
            batch.append(another)
            count += len(another.records)
        return batch
