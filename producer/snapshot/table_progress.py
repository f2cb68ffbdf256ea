"""How far each table of each request is, for status and metrics."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from producer.snapshot.snapshot_state import State, TableTask

if TYPE_CHECKING:
    from producer.snapshot.shared_ledger import SharedLedger

RATE_WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far one table of one request is. `rate` is rows per second of late, `eta_s` a guess from it; `via` as in its document."""

    request: str
    table: str
    state: str
    rows: int
    estimate: int | None
    chunks_done: int
    chunks_open: int
    planned: bool
    rate: float
    eta_s: float | None
    status: str
    error: str
    via: str = "kafka"
    via_reason: str = ""


class ProgressReport:
    """The progress of every remembered table; it remembers samples of rows for the rates."""

    def __init__(self, shared: SharedLedger) -> None:
        self._shared = shared
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def __call__(self) -> list[TableProgress]:
        """Return the progress of every table of every remembered request, in order of arrival."""
        with self._shared.changed:
            return [self._of(task) for task in self._shared.ledger.tasks.values()]

    def _of(self, task: TableTask) -> TableProgress:
        windows = [chunk.window for chunk in task.chunks.values() if chunk.window is not None]
        rows = task.rows + sum(window.rows_read for window in windows)
        rate = 0.0 if task.state.final else self._rate(task.key, rows)
        left = None if task.estimate is None or task.state.final else max(0, task.estimate - rows)
        paused = self._shared.ledger.requests[task.request].state is State.PAUSED
        return TableProgress(
            request=task.request,
            table=task.table,
            state=str(State.PAUSED if paused and not task.state.final else task.state),
            rows=rows,
            estimate=task.estimate,
            chunks_done=task.chunks_done,
            chunks_open=len(task.chunks),
            planned=task.plan.complete,
            rate=rate,
            eta_s=None if left is None or rate <= 0 else left / rate,
            status=task.status,
            error=task.error,
            via=task.via,
            via_reason=task.via_reason,
        )

    def _rate(self, key: str, rows: int) -> float:
        now = self._shared.clock()
        samples = self._samples.setdefault(key, deque())
        samples.append((now, rows))
        while len(samples) > 2 and samples[0][0] < now - RATE_WINDOW_S:
            samples.popleft()
        then, before = samples[0]
        return max(0.0, (rows - before) / (now - then)) if now > then else 0.0
