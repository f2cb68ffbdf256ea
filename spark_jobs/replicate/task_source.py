"""A source of a task: its topics, the tables that the task follows, and its begin at the target."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import structlog

from schemas import topics
from schemas.settings.declaration import compiled
from spark_jobs.replicate.apply.applier import FollowedSource
from spark_jobs.replicate.loading import SourceTopics, begun, new_request
from spark_jobs.replicate.order.log_order import LogOrder
from spark_jobs.replicate.order.skipped_transactions import SkippedTransactions
from spark_jobs.replicate.start_search import StartSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.settings import KafkaSettings
    from schemas.settings.task_section import TaskSource
    from spark_jobs.replicate.apply.apply_target import SourceState
    from spark_jobs.replicate.destination import ChangeWriter, Destination
    from spark_jobs.replicate.loading import CommitStart, LoadAnswers
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_values import RowDecoder

log = structlog.get_logger()


class SourceOfTask:
    """One source in one attempt of a task."""

    def __init__(
        self, settings: TaskSource, kafka: KafkaSettings, consumer_group: str, decoder: RowDecoder, skipped: Sequence[str]
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._answers: LoadAnswers | None = None
        self.name = settings.name
        self.topics = SourceTopics(kafka, settings.name, consumer_group)
        self._search = StartSearch(kafka, settings.name, consumer_group, decoder)
        self.skipped = SkippedTransactions(settings.name, skipped)
        self.order = LogOrder(
            decoder, settings.name, topics.schema_change_topic(settings.name), self.skipped if skipped else None
        )
        self.follows = cache(self._is_of_task)

    def begin(self, target: Destination, changes: ChangeWriter, start: CommitStart, *, loads: bool) -> SourceState:
        """Begin or continue the source, and return its state: behind the history of the tables that the target lacked.

        It begins at `start` if the target has no state of it.
        """
        states = dict(target.states())
        state = states.pop(self.name, None)
        if state is not None and state.consistent:
            log.warning("task.continued_behind_its_end", source=self.name, position=state.position)
            state = replace(state, consistent=False)
            with target.transaction():
                target.put_state(self.name, state)
        if state is not None and self._settings.start.given:
            log.info("task.start_passed", source=self.name, position=state.position, reason="the target has a state, which counts")
        is_begun = state is not None
        if state is None:
            start = self._sought(start)
            taken = {table for other in states.values() for table in (*other.kept, *other.loading)}
            state = begun(self.topics, target, self.order, self._settings, self.follows, start, taken, loads=loads)
        followed = FollowedSource(self.name, self.order, changes.statements(self.name, self.follows), self.follows, state)
        changes.add(followed)
        for statement in self.topics.history(self.order, state.begin, state.ddl_offset):
            is_kept = statement.table is not None and ".".join(statement.table) in state.kept
            if not (is_kept or statement.is_skipped):
                followed.state = followed.statements.run(statement, followed.state)
        if state.request and not state.asked_ms:
            if is_begun:  # it may have asked: a request of this name may be refused
                self._keep(target, followed, replace(followed.state, request=new_request(target.task)))
            asked_ms = time.time_ns() // 1_000_000
            self.topics.ask(followed.state.request, self._settings, followed.state.loading)
            self._keep(target, followed, replace(followed.state, asked_ms=asked_ms))
        return followed.state

    def _keep(self, target: Destination, followed: FollowedSource, state: SourceState) -> None:
        with target.transaction():
            target.put_state(self.name, state)
        followed.state = state

    def _sought(self, newest: CommitStart) -> CommitStart:
        """Return the start that the settings ask for."""
        if not self._settings.start.given:
            return newest
        start = self._search.find(self._settings.start, newest)
        log.info("task.start_found", source=self.name, position=start.begin, commit_record=start.n)
        return start

    def wants(self, event: RowEvent, state: SourceState) -> bool:
        """Return whether a row is for the target."""
        return self.follows(*event.table) and state.expects(event)

    def watch(self, state: SourceState, stack: ExitStack) -> None:
        """Read the answers to the request of a state from now on, if tables are loaded."""
        if state.loading:
            self._answers = stack.enter_context(closing(self.topics.watch(state, self._decoder)))

    def require_hope(self, state: SourceState) -> None:
        """Raise an error if a table that is loaded still will not be. Errors as `LoadAnswers`."""
        if self._answers is not None and state.loading:
            self._answers.require_hope()

    def _is_of_task(self, database: str, table: str) -> bool:
        name, source = f"{database}.{table}", self._settings
        is_named = not source.tables or any(compiled(pattern).fullmatch(name) for pattern in source.tables)
        return is_named and not any(compiled(pattern).fullmatch(name) for pattern in source.exclude_tables)
