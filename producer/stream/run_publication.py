"""Runs of small transactions into records: one call of the codec and one of each handler per table, not per rows event.

What enters: a run that the assembler's `RunFinder` found. What leaves: the records that its transactions would become one by one,
in the same order in each topic. Nothing is published before all rows of the run are encoded: where a run does not fit, or a row
is damaged, its transactions go their ordinary way, step by step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from producer.binlog.run_kernels import T_END, T_FIRST, T_ID, T_OPS, T_START, number_rows
from producer.stream.ports import EncodedRun
from rowcodec import RowsOfRun
from rowcodec.run_items import I_TABLE, I_TS_US
from schemas.errors import DecodeError
from schemas.position import Position

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.binlog.transaction_runs import RunFinder, TransactionRun
    from producer.stream.ports import Route, RunPlan
    from producer.stream.reader_progress import LogProgress
    from producer.stream.routes import Router

_NOT_AT_ALL: Final = -1
_NOT_ENCODED: Final = -1
_PREFIX_OF_FILE: Final = 16  # epoch and file of a position


class RunPublication:
    """The publication of runs. Owned by the log reader's thread."""

    def __init__(self, router: Router, progress: LogProgress, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._router = router
        self._progress = progress
        self._now_ns = now_ns

    def publish(self, run: TransactionRun, finder: RunFinder, boundary: Position, file: str) -> int:
        """Publish the run, which follows `boundary` in `file`, and return its number of transactions.

        A smaller number says that nothing was published: so many of its first transactions can be, or, negative, none as a run.
        """
        planned = self._planned(run, finder)
        if isinstance(planned, int):
            return planned
        groups: dict[int, int] = {}
        group_of = np.full(len(planned), _NOT_ENCODED, np.int64)
        routes: list[tuple[Route, RunPlan]] = []
        for index, (route, plan) in enumerate(planned):
            if plan.encodes:
                group = group_of[index] = groups.setdefault(id(route), len(routes))
                if group == len(routes):
                    routes.append((route, plan))
        if len({route.topic for route, _ in routes}) < len(routes):
            return _NOT_AT_ALL
        is_numbered = run.longest < 2 and _NOT_ENCODED not in group_of
        if not is_numbered and not _number(run, [route for route, _ in planned], group_of):
            return _NOT_AT_ALL
        events = self._encoded(run, finder, routes, group_of, boundary.prefix[:_PREFIX_OF_FILE], file)
        if events is None:
            return _NOT_AT_ALL
        for event, (_, plan) in zip(events, routes, strict=True):
            for handle in plan.handlers:
                handle(event)
        self._progress.transactions += run.count
        return run.count

    def _planned(self, run: TransactionRun, finder: RunFinder) -> list[tuple[Route, RunPlan]] | int:
        """Return the route of each table version of the run, and what happens to all its rows; else what `publish` returns."""
        view, fitting = run.batch.memory, run.count
        tables = run.tables.tolist()
        routes = [self._router.known(bytes(view[one[T_START] : one[T_END]])) for one in tables]
        ops: dict[int, int] = {}
        for route, one in zip(routes, tables, strict=True):
            ops[id(route)] = ops.get(id(route), 0) | one[T_OPS]
        found: list[tuple[Route, RunPlan]] = []
        for route, one in zip(routes, tables, strict=True):
            plan = None if route is None else route.run_plans[ops[id(route)]]
            if route is not None and plan is not None:
                found.append((route, plan))
                continue
            if route is not None:
                finder.leave_out(one[T_ID])
            fitting = min(fitting, one[T_FIRST])
        return found if len(found) == len(tables) else fitting

    def _encoded(
        self,
        run: TransactionRun,
        finder: RunFinder,
        routes: list[tuple[Route, RunPlan]],
        groups: npt.NDArray[np.int64],
        prefix: str,
        file: str,
    ) -> list[EncodedRun] | None:
        """Return the records of each route; None if a row is damaged: read one by one, the rows before it are published.

        Also None if a record has a header of its own. Its table is in no run until the next commit: more such rows may follow.
        """
        events: list[EncodedRun] = []
        items, count, now_ns = run.items.reshape(-1), len(run.items), self._now_ns()
        ts_ms = _last_time(run, groups) // 1000
        first_us, last_us = _times(run, groups, len(routes))
        try:
            for group, (route, _) in enumerate(routes):
                rows = RowsOfRun(run.batch.buf, items, count, groups, group, prefix, file, now_ns)
                assert route.codec is not None
                records = route.codec.encode_run(rows)
                if records.zeros and route.codec.exact:
                    for table in run.tables[groups == group, T_ID].tolist():
                        finder.leave_out(table)
                    return None
                events.append(EncodedRun(route, rows, records, ts_ms, first_us[group], last_us[group]))
        except DecodeError:
            return None
        return events


def _last_time(run: TransactionRun, groups: npt.NDArray[np.int64]) -> int:
    """Return the source's time of the last rows event that is encoded, in µs; 0 where none is."""
    for item in run.items[::-1]:
        if groups[item[I_TABLE]] != _NOT_ENCODED:
            return int(item[I_TS_US])
    return 0


def _times(run: TransactionRun, groups: npt.NDArray[np.int64], count: int) -> tuple[list[int], list[int]]:
    """Return the source's time of the first and of the last rows event of each group, in µs."""
    last = np.zeros(count + 1, np.int64)  # behind the groups: what is not encoded
    first = last.copy()
    group_of, times = groups[run.items[:, I_TABLE]], run.items[:, I_TS_US]
    last[group_of] = times  # of several values for one index the last one is kept
    first[group_of[::-1]] = times[::-1]
    return first.tolist(), last.tolist()


def _number(run: TransactionRun, routes: list[Route], groups: npt.NDArray[np.int64]) -> bool:
    """Write the ordinals of the rows of each transaction; False where those of a table cannot be measured."""
    sizes = [route.sizes for route in routes]
    sizes_at = np.cumsum([0, *(one.size for one in sizes)], dtype=np.int64)
    rules = np.concatenate(sizes).astype(np.int64, copy=False)
    encoded = (groups != _NOT_ENCODED).astype(np.int64)
    return bool(number_rows(run.batch.buf, run.items, run.transactions, run.count, rules, sizes_at, encoded) == 0)
