"""Plans: a large batch enters, a share of its rows for each worker leaves.

A plan names the end of the batch, and commits before its first row. Each worker commits the rows of its share with their
number. The states of the sources follow when all are done, in the transaction that closes the plan. Until then a start reads the
batch again from the states on, and divides it in the same way: that is a pure function of the rows, the keys of the target and
the number of workers in the plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from schemas.json_codec import Form, decode, encode
from spark_jobs.replicate.apply.apply_target import SourceState, StreamProgress

if TYPE_CHECKING:
    from spark_jobs.replicate.apply.apply_target import ApplyTarget

DIVISION: Final = 1
"""The version of `divided`, and of the entries that components are made of: raise it with each change of them."""

_ALL: Final = (1 << 63) - 1
"""Rows: more than a share has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch that workers apply: up to these states, and to `stream` with `order: global`.

    `tables`, `links` (foreign keys and triggers of the server) and `rules` (settings) are digests: by these the rows are divided.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})

    workers: int
    rows: int
    states: Mapping[str, SourceState]
    stream: StreamProgress | None = None
    tables: Mapping[str, str]
    links: str
    rules: str


class PlanStore:
    """The open plan of a task, in its target. Use it in one thread; writers need a transaction of the task."""

    def __init__(self, target: ApplyTarget) -> None:
        self._target = target

    def read(self) -> tuple[int, BatchPlan] | None:
        """Return number and plan; None unless one is open."""
        number, text = self._row()
        return None if text is None else (number, decode(BatchPlan, json.loads(text)))

    def begin(self, plan: BatchPlan) -> int:
        """Open a plan, of which no row is applied; return its number."""
        target = self._target
        number = self._row()[0] + 1
        target.execute("REPLACE INTO tidemark_meta.plan VALUES (%s, %s, %s)", target.task, number, json.dumps(encode(plan)))
        target.execute("DELETE FROM tidemark_meta.worker WHERE task = %s", target.task)
        shares = ",".join(["(%s, %s, %s, %s, 0)"] * plan.workers)
        values = [value for worker in range(plan.workers) for value in (target.task, worker, target.epoch, number)]
        target.execute(f"INSERT INTO tidemark_meta.worker VALUES {shares}", *values)  # noqa: S608
        return number

    def complete_workers(self) -> None:
        """Note that each worker has applied its share: one that still runs in another process waits for this, and ends."""
        self._target.execute("UPDATE tidemark_meta.worker SET done = %s WHERE task = %s", _ALL, self._target.task)

    def close(self) -> None:
        """Remove the plan; its number is not used again."""
        self._target.execute("UPDATE tidemark_meta.plan SET plan = NULL WHERE task = %s", self._target.task)

    def _row(self) -> tuple[int, str | None]:
        rows = self._target.rows("SELECT number, plan FROM tidemark_meta.plan WHERE task = %s", self._target.task)
        return (int(rows[0][0]), rows[0][1]) if rows else (0, None)


def divided(components: Sequence[int], workers: int) -> list[list[int]]:
    """Return for each worker the indices of its rows, in order. `components` has the first row of each row's component.

    A component is of one worker. Neighbours are, too, so that the workers write to different pages of a table.
    """
    firsts = np.asarray(components, np.int64)
    sizes = np.bincount(firsts, minlength=len(firsts))
    middles = np.cumsum(sizes) - (sizes + 1) // 2
    owners = (middles * workers // max(1, len(firsts)))[firsts]
    return [np.flatnonzero(owners == worker).tolist() for worker in range(workers)]
