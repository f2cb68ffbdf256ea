"""The apply of one source: Kafka transactions enter, transactions of the target with their progress leave.

Rows are applied in the order of the log, at most `driver_rows` in one transaction of the target, which also commits how far the
source is applied. Statements are run one by one between such transactions (`ddl_statements`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_jobs.replicate.log_order import RowEvent

if TYPE_CHECKING:
    from spark_jobs.replicate.apply_target import ApplyTarget, SourceState
    from spark_jobs.replicate.ddl_statements import DdlStatements
    from spark_jobs.replicate.log_order import Event, LogOrder
    from spark_jobs.replicate.row_writer import RowWriter
    from spark_jobs.replicate.stream_reader import KafkaTransaction

_IDLE_S: Final = 10.0
"""How far a source without changes is read is written so often: a start reads no more of commit records than that."""


class Applier:
    """The apply of a source. `follows` returns whether a table is one of the task. Use it in one thread."""

    def __init__(
        self,
        target: ApplyTarget,
        source: str,
        state: SourceState,
        order: LogOrder,
        writer: RowWriter,
        statements: DdlStatements,
        follows: Callable[[str, str], bool],
    ) -> None:
        self.state = state
        self._target = target
        self._source = source
        self._order = order
        self._writer = writer
        self._statements = statements
        self._follows = follows
        self._waiting: list[RowEvent] = []
        self._loading = state.loading  # as the target has it
        self._written_s = time.monotonic()
        self.rows = 0
        """Rows that this object has applied."""

    def apply(self, transactions: Sequence[KafkaTransaction]) -> None:
        """Apply Kafka transactions, which follow `state`. `SinkError`: the target does not take a row or a statement.

        After an error `state` may be ahead of the target, whose own state counts.
        """
        for transaction in transactions:
            self._apply(transaction)
        if self._waiting or self.state.loading != self._loading or time.monotonic() - self._written_s > _IDLE_S:
            self._flush(self.state.done)  # of a Kafka transaction that an earlier start has begun, if none came

    def apply_events(self, events: Sequence[Event], behind: tuple[int, int]) -> None:
        """Apply events, which follow `state`, and commit them with `offset` and `n` of the state behind them."""
        self._apply_events(events)
        self.state = replace(self.state, offset=behind[0], n=behind[1])
        self._flush(0)

    def _apply(self, transaction: KafkaTransaction) -> None:
        events = self._order.events(transaction)
        self._apply_events(events)
        behind = self.state.behind(transaction)
        if behind.loading != self.state.loading:
            self._flush(len(events))  # with the rows that may be missing
        self.state = behind

    def _apply_events(self, events: Sequence[Event]) -> None:
        for index, event in enumerate(events):
            if index < self.state.done:
                continue
            if not isinstance(event, RowEvent) or event.op == "t":
                self._flush(index)
                self.state = self._statements.run(event, replace(self.state, done=index + 1))
                self._writer.forget_tables()
            elif self._is_wanted(event):
                self._waiting.append(event)
                if len(self._waiting) >= self._writer.most_rows:
                    self._flush(index + 1)

    def _is_wanted(self, event: RowEvent) -> bool:
        return self._follows(*event.table) and (event.op != "r" or event.request == self.state.request)

    def _flush(self, done: int) -> None:
        """Commit the rows that wait, with the state behind them: so many records of the present Kafka transaction are applied."""
        self.state = replace(self.state, done=done)
        with self._target.transaction():
            if self._waiting:
                self._writer.write(self._waiting, self.state.loading)
            self._target.put_state(self._source, self.state)
        self._loading, self._written_s = self.state.loading, time.monotonic()
        self.rows += len(self._waiting)
        self._waiting = []
