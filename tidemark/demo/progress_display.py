"""Live progress: a table that redraws itself on a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from schemas.readable import count, duration
from tidemark.demo.workload import WorkloadCounts
from tidemark.status.status_tree import Status, TableStatus

LogEnd = tuple[int, int]
"""Number of the log file, and where in it."""

_LINE_SECONDS: Final = 4.0
_RATE_SECONDS: Final = 10.0
_SAMPLES: Final = 4096


class LagMeter:
    """How long ago the source's log ended where a reader is now.

    `sample` notes where the log ends at a moment; `lag_s` is then the age of the oldest sample that the
    reader has not reached. No clocks of two machines are compared, and an idle log gives no lag.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, LogEnd]] = deque(maxlen=_SAMPLES)

    def sample(self, now: float, end: LogEnd) -> None:
        """Note that the log now ends at `end`; coordinates that repeat keep their first time."""
        if not self._samples or self._samples[-1][1] != end:
            self._samples.append((now, end))

    def lag_s(self, now: float, reached: LogEnd | None) -> float | None:
        """Return seconds; None while nothing has been reached."""
        if reached is None:
            return None
        for taken, end_then in self._samples:
            if end_then > reached:
                return now - taken
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """What is shown at one moment. Lags in seconds, None while not known."""

    elapsed_s: float
    phase: str
    status: Status
    load: WorkloadCounts
    log_lag_s: float | None
    sink_lag_s: float | None


class Display:
    """Shows views; `say` prints a line that stays, above the table where there is one."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout)
        self._live: Live | None = None
        self._seen: deque[tuple[float, Status]] = deque()
        self._began = time.monotonic()
        self._line_due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the display was made."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(f"{self.elapsed_s:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    def show(self, view: ProgressView) -> None:
        """Redraw the table, or print a line when the last one is old enough."""
        self._seen.append((view.elapsed_s, view.status))
        while self._seen[0][0] < view.elapsed_s - _RATE_SECONDS:
            self._seen.popleft()
        view = replace(view, status=view.status.with_rates(self._seen[0][1]))
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(self._table(view), refresh=True)
        elif view.elapsed_s >= self._line_due:
            self._line_due = view.elapsed_s + _LINE_SECONDS
            self.say(self._line(view))

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, view: ProgressView) -> Table:
        table = Table(title=f"{view.phase}, {view.elapsed_s:.0f} s", caption=_caption(view), box=None)
        for heading in ("table", "rows read", "of about", "", "rows/s", "ETA", "in the sink", "consistent"):
            table.add_column(heading, justify="left" if heading in {"table", "consistent"} else "right")
        for one in view.status.tables:
            table.add_row(
                one.table,
                f"{one.rows_read:,}",
                count(one.rows_estimated),
                _percent(one),
                f"{one.rows_per_s:,.0f}",
                _eta(one),
                count(one.sink_rows),
                "yes" if one.is_consistent else "not yet",
            )
        return table

    def _line(self, view: ProgressView) -> str:
        reading = [one for one in view.status.tables if one.is_snapshotting]
        return f"{view.phase}: {_caption(view)}" + "".join(f" | {_reading(one)}" for one in reading)


def _reading(table: TableStatus) -> str:
    of_about = count(table.rows_estimated, "?")
    pace = f" {table.rows_per_s:,.0f}/s ETA {_eta(table)}" if table.rows_per_s else ""
    return f"{table.table.partition('.')[2]} {table.rows_read:,} of {of_about} {_percent(table)}{pace}"


def _caption(view: ProgressView) -> str:
    tables = view.status.tables
    read = sum(table.rows_read for table in tables)
    consistent = sum(table.is_consistent for table in tables)
    return (
        f"{read:,} rows read, {view.load.changes:,} changed by the load; "
        f"lag to Kafka {duration(view.log_lag_s, unknown='-')}, to the lake {duration(view.sink_lag_s, unknown='-')}; "
        f"{consistent} of {len(tables)} tables consistent"
    )


def _percent(table: TableStatus) -> str:
    return "-" if table.share is None else f"{table.share:.0%}"


def _eta(table: TableStatus) -> str:
    return "done" if table.share == 1.0 else duration(table.eta_s, 0, "-")
