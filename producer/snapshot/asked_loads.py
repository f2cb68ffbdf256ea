"""Tables that the merge job reads itself: chosen, asked for, answered, and given up (pure).

The choice (`LoadRule`) rests on the facts of the moment in which a table is first planned: the settings, the request, the server's
statistics. It is made once for each plan of a table, and remembered with the task.

A chunk keeps the protocol of its window; only who reads it differs. The merge job is asked by a marker in the table's snapshot
topic and answers by a row of the signal table. A task whose rows cannot come that way goes through Kafka: windows that were handed
over are void then, and their chunks are read in new ones. What the merge job reads for a void window does no harm: later versions
win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from producer.snapshot.snapshot_state import ReadTask, Tries, Window, WindowState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from producer.snapshot.outbox import CheckpointOutbox
    from producer.snapshot.tasks import TableTasks
    from producer.snapshot.window_register import WindowRegister
    from schemas.loads import LoadAnswer
    from schemas.position import Position
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

MOST_FAILED: Final = 3
"""So many answers that a chunk could not be read, and its table goes through Kafka."""
LOAD_PATIENCE_S: Final = 120.0
"""With "auto", a table goes through Kafka if the merge job has answered nothing for so long."""
SHOWN_AFTER_S: Final = 15.0
WAITS_FOR_MERGE: Final = "it waits for the merge job (tidemark merge), which reads its rows and has not answered yet"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What the merge job is asked for: the marker of a load, without the fields of its window."""

    low: Position
    file: str
    snapshot: str
    query: str
    server: str
    key_schema: int | None
    value_schema: int

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the marker's draft; positions are texts."""
        return {
            "low": self.low.text,
            "file": self.file,
            "snapshot": self.snapshot,
            "query": self.query,
            "server": self.server,
            "key_schema": self.key_schema,
            "value_schema": self.value_schema,
        }


@dataclass(frozen=True, slots=True)
class LoadRule:
    """What the settings say: `via` of requests that do not say it themselves.

    "auto" means the merge job for tables of `min_rows` or more. `impossible` says why it can read no table, "" if it can.
    `chunk_rows` are the rows of a chunk that goes through Kafka.
    """

    via: str = "kafka"
    min_rows: int = 0
    impossible: str = ""
    chunk_rows: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the rule of the settings."""
        snapshot = settings.snapshot
        return cls(snapshot.via, snapshot.spark_min_rows, settings.why_no_loads, snapshot.chunk_rows)

    def asked(self, task: ReadTask) -> str:
        """Return the way that is asked for: "auto", "kafka" or "spark"."""
        return task.asked_via or self.via

    def choose(self, task: ReadTask) -> tuple[str, str]:
        """Return the way of a task's rows, "kafka" or "spark", and why it is not the one that was asked for, "" if it is."""
        asked = self.asked(task)
        if asked == "kafka":
            return "kafka", ""
        reason = self.impossible or _refusal(task)
        if reason:
            return "kafka", reason if asked == "spark" else ""
        is_chosen = asked == "spark" or (task.estimate is not None and task.estimate >= self.min_rows)
        return "spark" if is_chosen else "kafka", ""

    def refusal(self, task: ReadTask) -> str:
        """Return why the merge job may read no more of a table that it began with, "" if it may: settings have changed."""
        if self.asked(task) == "kafka":
            return "snapshot.via is kafka"
        return self.impossible or _refusal(task)


class AskedLoads:
    """The life of tasks whose rows the merge job reads; it has no state but when an answer was last read."""

    def __init__(self, rule: LoadRule, tasks: TableTasks, windows: WindowRegister, outbox: CheckpointOutbox) -> None:
        self._rule = rule
        self._tasks = tasks
        self._windows = windows
        self._outbox = outbox
        self._answered_at = float("-inf")

    # ---- which way

    def choose(self, task: ReadTask) -> None:
        """Choose the way of a task that has no plan yet, unless it was given up before."""
        if task.plan.key or task.chunks or task.via_reason or task.state.final:
            return
        before = task.via
        task.via, task.via_reason = self._rule.choose(task)
        if task.via == before and not task.via_reason:
            return
        if task.via_reason:
            log.warning("snapshot.not_by_spark", request=task.request, table=task.table, reason=task.via_reason)
        elif task.is_loaded:
            log.info("snapshot.by_spark", request=task.request, table=task.table, estimate=task.estimate)
        self._outbox.touch(task.key)

    def check(self, tasks: Iterable[ReadTask]) -> None:
        """Have tasks of an earlier process continue through Kafka if the settings forbid the other way now."""
        for task in tasks:
            reason = self._rule.refusal(task) if task.is_loaded and not task.state.final else ""
            if reason:
                self.give_up(task, reason)

    def give_up(self, task: ReadTask, reason: str) -> None:
        """Have the rest of a task go through Kafka: open questions to the merge job are void, the rows that it has read stay."""
        log.warning("snapshot.not_by_spark", request=task.request, table=task.table, reason=reason)
        task.via, task.via_reason, task.error = "kafka", reason, ""
        task.chunk_rows = min(task.plan.rows_per_chunk, self._rule.chunk_rows)
        for chunk in task.chunks.values():
            chunk.tries, chunk.not_before, chunk.loads_failed, chunk.error = Tries(), 0.0, 0, ""
        self._windows.give_back(task)
        self._outbox.touch(task.key)

    # ---- one chunk

    def answered(self, answer: LoadAnswer, now_s: float) -> bool:
        """Note an answer; return False if no window waits for it: it was given up, or is of an earlier process."""
        window = self._windows.get(answer.window)
        load = None if window is None else window.load
        if window is None or load is None or load.asked_at is None or window.state is not WindowState.RUNNING:
            return False
        self._answered_at = now_s
        load.answer = load.answer or answer
        window.rows_read = load.answer.rows
        task = self._tasks.task_of(window)
        if task is not None and task.error == WAITS_FOR_MERGE:
            task.error = ""
            self._outbox.touch(task.key)
        return True

    def unanswered(self, window: Window, now_s: float) -> None:
        """Note that the answer is missing: the status says so after a while, and "auto" gives up after a longer one."""
        task, load = self._tasks.task_of(window), window.load
        if task is None or load is None or load.asked_at is None:
            return
        silent_s = now_s - max(load.asked_at, self._answered_at)
        if silent_s >= LOAD_PATIENCE_S and self._rule.asked(task) == "auto":
            self.give_up(task, f"the merge job (tidemark merge) has answered nothing for {silent_s:.0f} s")
        elif silent_s >= SHOWN_AFTER_S and task.error != WAITS_FOR_MERGE:
            task.error = WAITS_FOR_MERGE
            self._outbox.touch(task.key)

    def refused(self, window: Window, answer: LoadAnswer, now_s: float) -> None:
        """Release a window that the merge job could not read: the chunk is asked for again, or its table goes through Kafka."""
        task = self._tasks.task_of(window)
        chunk = None if task is None else task.chunks.get(window.chunk)
        log.warning("snapshot.load_failed", table=window.table, chunk=window.chunk, error=answer.error, retry=answer.retry)
        self._tasks.fail(window, answer.error, now_s, heals=True)
        if task is None or chunk is None or not task.is_loaded:
            return
        chunk.loads_failed += 1
        if not answer.retry:
            self.give_up(task, answer.error)
        elif chunk.loads_failed >= MOST_FAILED:
            self.give_up(task, f"the merge job could not read a chunk {chunk.loads_failed} times: {answer.error}")


def _refusal(task: ReadTask) -> str:
    """Return why the rows of this task cannot be read by the merge job."""
    if task.merge == "producer":
        return "the producer merges its rows (merge: producer)"
    if task.condition is not None:
        return "the request has a condition"
    if task.surrogate is not None:
        return "the request has a surrogate key"
    return "these are rows of changed parents" if task.children is not None else ""
