"""A replication task: settings enter, the tables of the target follow their source until the task is stopped.

    read commit records and their rows  ▸  sort them  ▸  apply them, with how far they go in the same transaction

All that a task knows durably is in the target. A start raises its epoch there, and continues behind the state.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from kafkaio.schema_registry import HttpRegistry
from mysqlio.server_access import ServerAccess
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.settings.declaration import compiled
from spark_jobs.replicate.applier import Applier
from spark_jobs.replicate.apply_target import ApplyTarget
from spark_jobs.replicate.ddl_statements import DdlStatements
from spark_jobs.replicate.loading import SourceTopics, begun
from spark_jobs.replicate.log_order import LogOrder
from spark_jobs.replicate.row_values import RowDecoder
from spark_jobs.replicate.stream_reader import StreamReader

if TYPE_CHECKING:
    import threading

    from schemas.settings.task_section import TaskSettings, TaskSource
    from spark_jobs.replicate.stream_reader import KafkaTransaction

log = structlog.get_logger()

_WAITS_S: Final = 0.5
_BUFFER_BYTES: Final = 32 << 20


def run_task(settings: TaskSettings, stop: threading.Event, *, until_caught_up: bool = False) -> None:
    """Apply the changes of the task's source until `stop` is set; with `until_caught_up` until all that Kafka has now is applied.

    `FencedError`: another process has taken the task over. `SinkError`: the target does not take a row or a statement. Kafka, the
    registry and the server of the target have errors of their own.
    """
    target = ApplyTarget(ServerAccess.of(settings.target), settings.task)
    with closing(target):
        target.require_usable()
        target.take_over()
        log.info("task.started", task=settings.task, epoch=target.epoch)
        for source in settings.sources:
            SourceTask(settings, source, target).run(stop, until_caught_up=until_caught_up)


class SourceTask:
    """The apply of one source of a task, from its state in the target on."""

    def __init__(self, settings: TaskSettings, source: TaskSource, target: ApplyTarget) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        registry = HttpRegistry(settings.format.registry or "", RegistryAccess.of(settings.format))
        self._decoder = RowDecoder(registry.text_of)
        self._order = LogOrder(self._decoder, topics.schema_change_topic(source.name))
        self._topics = SourceTopics(settings.kafka, source.name, f"tidemark-task-{settings.task}")

    def run(self, stop: threading.Event, *, until_caught_up: bool) -> None:
        """Apply until stopped, or until caught up."""
        applier = self._begun()
        end = self._topics.newest_commit()[0] if until_caught_up else None
        state, apply = applier.state, self._settings.apply
        group = f"tidemark-task-{self._settings.task}"
        with closing(StreamReader(self._settings.kafka, self._source.name, group, state.offset, state.n, _BUFFER_BYTES)) as reader:
            while not stop.is_set() and (end is None or applier.state.offset <= end or applier.state.loading):
                batch = self._batch(reader, apply.driver_rows, apply.max_delay_ms / 1000)
                if batch:
                    applier.apply(batch)

    def _begun(self) -> Applier:
        """Return the applier, behind the history of the tables that the target lacked when the task began."""
        settings, source, target = self._settings, self._source, self._target
        state = target.states().get(source.name)
        if state is None:
            state = begun(self._topics, target, self._order, source, self._follows, loads=settings.mode == "all")
        statements = DdlStatements(target, source.name, self._follows)
        for statement in self._topics.history(self._order, state.begin):
            if statement.table is None or ".".join(statement.table) not in state.kept:
                state = statements.run(statement, state)
        if state.request and not state.is_asked:
            self._topics.ask(state.request, source)
            state = replace(state, is_asked=True)
            with target.transaction():
                target.put_state(source.name, state)
        return Applier(target, source.name, state, self._order, self._decoder, statements, self._follows, settings.apply)

    def _follows(self, database: str, table: str) -> bool:
        name, source = f"{database}.{table}", self._source
        is_named = not source.tables or any(compiled(pattern).fullmatch(name) for pattern in source.tables)
        return is_named and not any(compiled(pattern).fullmatch(name) for pattern in source.exclude_tables)

    @staticmethod
    def _batch(reader: StreamReader, rows: int, delay_s: float) -> list[KafkaTransaction]:
        """Return the Kafka transactions that are there, up to so many rows; of a busy source what comes within the delay."""
        first = reader.next(_WAITS_S)
        if first is None:
            return []
        batch, count, deadline = [first], len(first.records), time.monotonic() + delay_s
        while count < rows and time.monotonic() < deadline:
            another = reader.next(0.0)
            if another is None:
                break
            batch.append(another)
            count += len(another.records)
        return batch
