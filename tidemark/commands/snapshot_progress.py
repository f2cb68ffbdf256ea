"""How far a snapshot is, while a command waits for its end: bars on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from schemas.readable import duration
from tidemark.status.snapshot_list import SnapshotList, SnapshotRequest, SnapshotTask, snapshot_list

if TYPE_CHECKING:
    from tidemark.api.observe import Observer

_LOOK_S: Final = 0.5
_LINE_S: Final = 5.0
_WINDOW_S: Final = 10.0


def wait_for_end(observer: Observer, request_id: str, deadline: float) -> SnapshotRequest | None:
    """Wait until a request has ended, or until `deadline` (monotonic seconds); return it as it is then.

    None: the producer has not noted it. What is shown goes to standard error, so that standard output has the result alone.
    """
    listed: SnapshotList | None = None
    with SnapshotDisplay(Console(stderr=True)) as display:
        while True:
            listed = snapshot_list(observer.state(), time.time_ns() // 1_000_000, listed)
            request = listed.find(request_id)
            if request is not None:
                display.show(request, listed, "" if listed.producer.alive else f"the producer is {listed.producer.text}")
            if (request is not None and request.state.final) or time.monotonic() >= deadline:
                return request
            time.sleep(max(0.0, min(_LOOK_S, deadline - time.monotonic())))


class SnapshotDisplay:
    """A view of one request, in a `with` block: a bar for each table on a terminal, else lines now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        name, figures = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[figures]}"))
        self._progress = Progress(name, BarColumn(30), figures, console=console, auto_refresh=False)
        self._bars: dict[str, TaskID] = {}
        self._seen: deque[SnapshotList] = deque()
        self._line_due = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def show(self, request: SnapshotRequest, listed: SnapshotList, problem: str = "") -> None:
        """Show how far the request is; `listed` is the list that it is of. `problem` is why nothing may move."""
        self._seen.append(listed)
        while len(self._seen) > 2 and listed.read_ms - self._seen[1].read_ms >= _WINDOW_S * 1000:
            self._seen.popleft()
        request = listed.with_rates(self._seen[0]).find(request.id) or request
        figures = {task.table: figures_of(task) for task in request.tasks}
        if self._console.is_terminal:
            for task in request.tasks:
                self._draw(task, figures[task.table], problem)
            self._progress.refresh()
        elif time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + _LINE_S
            parts = [f"{task.table} {figures[task.table]}" for task in request.tasks if not task.state.final]
            counted = f"{sum(task.state.final for task in request.tasks)} of {len(request.tasks)} tables ended"
            text = " | ".join([f"{request.id}: {request.outcome}, {counted}", *parts, *([problem] if problem else [])])
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _draw(self, task: SnapshotTask, figures: str, problem: str) -> None:
        share = task.share
        if task.table not in self._bars:
            self._bars[task.table] = self._progress.add_task(task.table, total=None, figures="")
        total = None if share is None and not task.state.final else 1.0
        text = f"{figures}, {problem}" if problem and not task.state.final else figures
        self._progress.update(self._bars[task.table], total=total, completed=share or 0.0, figures=text)


def figures_of(task: SnapshotTask) -> str:
    """Return state, rows, rate and time left as one text; what is not known is left out."""
    of_about = "" if task.estimate is None else f" of about {task.estimate:,}"
    rows = f"{task.rows:,} rows" if task.state.final else f"{task.rows:,}{of_about} rows"
    share = "" if task.share is None or task.state.final else f" ({task.share:.0%})"
    rate, eta = task.rows_per_s, task.eta_s
    parts = [
        f"{task.state.value}, {rows}{share}",
        f"{rate:,.0f} rows/s" if rate else "",
        "" if eta is None else f"{duration(eta, 0)} left",
        f"waiting: {task.waits}" if task.waits else "",
        task.error,
    ]
    return ", ".join(part for part in parts if part)
