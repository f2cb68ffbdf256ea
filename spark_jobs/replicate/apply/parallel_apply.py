"""The parallel apply of large batches: rows enter, the target has them when a plan is opened, worked off and closed.

1. Plan: the end of the batch, and workers that have done nothing, commit.
2. Work: each worker applies its share, in a thread (`share_workers`), or if there are very many rows by Spark (`share_executors`).
3. Close: the states behind the batch commit, and the plan goes. The caller does that.

A start that finds a plan open reads its rows again (`open_plan`), and continues with 2. If the tables or the settings are others
than those by which the rows were divided, it is not known which of them are applied: all are deleted, and applied in safe mode.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import structlog

from schemas.errors import SinkError, StateError
from spark_jobs.replicate.apply.components import Conflicts, components
from spark_jobs.replicate.apply.key_sets import KeySets
from spark_jobs.replicate.apply.plans import DIVISION, BatchPlan, PlanStore, divided
from spark_jobs.replicate.apply.row_writer import RowWriter
from spark_jobs.replicate.apply.share_workers import ShareThreads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.settings.task_section import TaskSettings
    from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState, StreamProgress
    from spark_jobs.replicate.apply.row_writer import Loading
    from spark_jobs.replicate.apply.share_executors import ShareExecutors
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_statements import TextedRow
    from spark_jobs.replicate.rows.row_values import RowDecoder

log = structlog.get_logger()

_LINKS: Final = (
    "SELECT VERSION()",
    """SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME
    FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL ORDER BY 1, 2, 3, 4, 5, 6""",
    """SELECT CONSTRAINT_SCHEMA, CONSTRAINT_NAME, TABLE_NAME, UPDATE_RULE, DELETE_RULE
    FROM information_schema.REFERENTIAL_CONSTRAINTS ORDER BY 1, 2, 3""",
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME FROM information_schema.TRIGGERS ORDER BY 1, 2, 3",
)
"""The server, its foreign keys and its triggers."""


class ParallelApply:
    """The plans of one attempt of a task. Use it in one thread, and close it."""

    def __init__(
        self, target: ApplyTarget, decoder: RowDecoder, settings: TaskSettings, executors: ShareExecutors | None = None
    ) -> None:
        self._target = target
        self._decoder = decoder
        self._settings = settings.apply
        self.store = PlanStore(target)
        self._rules = rules_of(settings)
        self._writer = RowWriter(target, decoder, settings.apply)
        self._keys = KeySets(target, decoder)
        self.conflicts: Conflicts | None = None
        """Of the last batch."""
        self._threads = ShareThreads(target, decoder, settings.apply)
        self._executors = executors
        self._table_digest = cache(lambda table: target.digest(*table))
        self._links = cache(lambda: _digest([target.rows(sql) for sql in _LINKS]))
        if executors is not None:
            executors.forget_tables()

    @property
    def most_rows(self) -> int:
        """Rows of a batch at most."""
        return self._settings.max_batch_rows

    def close(self) -> None:
        """Give the connections up."""
        self._threads.close()

    def forget_tables(self) -> None:
        """Ask the target for its tables again: a statement has run."""
        self._table_digest.cache_clear()
        self._links.cache_clear()
        self._writer.forget_tables()
        self._keys.forget_tables()
        self._threads.forget_tables()
        if self._executors is not None:
            self._executors.forget_tables()

    def apply(
        self, rows: Sequence[RowEvent], loading: Loading, states: Mapping[str, SourceState], stream: StreamProgress | None
    ) -> None:
        """Apply rows up to the states behind them by a plan, which stays open.

        Errors as `ShareThreads.apply` and `ShareExecutors.apply`.
        """
        tables, links = self._digests(rows), self._links()
        shares = self._shares(rows, loading, self._settings.workers)
        plan = BatchPlan(
            workers=len(shares), rows=len(rows), states=states, stream=stream, tables=tables, links=links, rules=self._rules
        )
        with self._target.transaction():
            number = self.store.begin(plan)
        self._work(number, shares, len(rows))

    def repeat(self, number: int, plan: BatchPlan, rows: Sequence[RowEvent], loading: Loading) -> None:
        """Apply the rows of an open plan that are not applied.

        `SinkError`: it cannot be repeated, and a table has no key. `StateError`: there are not as many rows as before.
        """
        digests = self._digests(rows), self._links(), self._rules
        is_same = (plan.tables, plan.links, plan.rules) == digests
        log.info("task.plan_repeated", plan=number, rows=len(rows), is_same=is_same)
        if not is_same:
            self._repeat_safely(rows)
        elif len(rows) != plan.rows:
            message = f"the open plan of the task has {plan.rows:,} rows, and Kafka has {len(rows):,} of them"
            raise StateError(message)
        else:
            self._work(number, self._shares(rows, loading, plan.workers), len(rows))

    def _work(self, number: int, shares: Sequence[Sequence[TextedRow]], rows: int) -> None:
        """Apply the shares of a plan. Which processes do it is not in the plan: each may continue the work of another."""
        if self._executors is not None and rows > self._executors.least_rows:
            self._executors.apply(self._target, self._decoder, number, shares)
        else:
            self._threads.apply(number, shares)

    def _repeat_safely(self, rows: Sequence[RowEvent]) -> None:
        """Apply all rows in order, whether they are applied already or not: each table ends in its rows behind the batch.

        The rows of the batch are deleted before. So those that are there equal the rows of the source, and no unique value clashes.
        """
        writer = RowWriter(self._target, self._decoder, replace(self._settings, safe_mode=True))
        for event in {event.table: event for event in rows}.values():
            if not writer.has_key(event):
                message = (
                    f"source {event.source}, {event.position}: tables of the target, or the tables that the task names, were "
                    f"changed while a batch was applied in parts, and {'.'.join(event.table)} has no key: it is not known which "
                    "of its rows are applied. Change them back, and start the task: it applies the rest of the batch"
                )
                raise SinkError(message)
        most, loading = self._settings.txn_rows, {event.source: () for event in rows}
        some = [rows[begin : begin + most] for begin in range(0, len(rows), most)]
        with self._target.transaction():
            self.store.complete_workers()
            for part in some:
                writer.remove(part)
            for part in some:
                writer.write(part, loading)

    def _shares(self, rows: Sequence[RowEvent], loading: Loading, workers: int) -> list[list[TextedRow]]:
        texted = self._writer.texted(rows, loading)
        groups = components(self._keys.entries(texted))
        sizes = Counter(groups).values()
        self.conflicts = Conflicts(len(sizes), max(sizes, default=0))
        return [[texted[index] for index in share] for share in divided(groups, workers)]

    def _digests(self, rows: Sequence[RowEvent]) -> dict[str, str]:
        """Return the digests of the rows' tables: read before the keys are, so that they are never the newer ones."""
        return {".".join(table): self._table_digest(table) for table in sorted({event.table for event in rows})}


def rules_of(settings: TaskSettings) -> str:
    """Return a digest of everything that chooses and divides rows, beside the tables of the target."""
    sources = sorted([one.name, one.tables, one.exclude_tables] for one in settings.sources)
    return _digest([DIVISION, sources, settings.apply.skip_transactions, settings.apply.safe_mode])


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
