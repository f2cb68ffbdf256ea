"""`verify`: every captured table of the source against its targets in the sink."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from mysqlio.server_errors import ServerError
from schemas.columns import TableSchema
from schemas.errors import ConfigError, SourceError
from schemas.identity import TableName
from schemas.settings import Settings
from tidemark.status.status_tree import ASIDE
from tidemark.verify.applied import read_applied
from tidemark.verify.bulk_comparison import BulkResult, TablePlan, compare
from tidemark.verify.column_rule import NO_KEY, IncomparableError
from tidemark.verify.comparisons import Comparison, Comparisons
from tidemark.verify.expected_rows import ExpectedRows, TextRows
from tidemark.verify.judge import CannotJudgeError, Judge, Judgement, SinkEnd
from tidemark.verify.local_session import LocalSession
from tidemark.verify.report import DifferenceKind, TableReport, VerifyReport
from tidemark.verify.shared_keys import shared_keys
from tidemark.verify.sink_reader import POSITION_COLUMN, SOURCE_COLUMN, SinkReader, TargetRows
from tidemark.verify.sink_types import open_reader
from tidemark.verify.source import Key, ReadTable, Source
from tidemark.verify.ways import Way, Ways

_MOST_SHOWN: Final = 100
_ATTEMPTS: Final = 2
_JUDGES: Final = 8
_MOST_NAMED: Final = 3
_POLL_S: Final = 0.5
_TROUBLE: Final = (ServerError, SourceError, pa.ArrowException, OSError)
_CASCADES: Final = (
    "foreign keys change its rows, which servers before MySQL 9.6 do not log: what is read again for them comes to the sink "
    "some seconds later (tidemark status: inexact until then). Rows that differ now and not a minute later were only late"
)
_WITHOUT_ROWS: Final = "BLACKHOLE"
_NO_ROWS: Final = "its engine BLACKHOLE keeps no rows: the sink has those that were logged, and nothing to compare them with"
_ROWS_OF_OTHERS: Final = frozenset({"FEDERATED", "MRG_MYISAM", "CONNECT", "SPIDER"})
_NOT_LOGGED: Final = "its engine {} shows rows of other tables or servers, whose changes are not logged under its name"
_MISPLACED: Final = (
    "rows may be in a partition that is not the one of their key (EXCHANGE PARTITION ... WITHOUT VALIDATION), where a condition on "
    "the key does not find them: ALTER TABLE ... REPAIR PARTITION ALL moves them, then read the table again"
)
_NO_PLAN: Final = TablePlan(ReadTable(TableSchema("", "", ()), 0), (), ())
_NO_COMPARISON: Final = Comparison(_NO_PLAN, lambda source: TextRows(source, _NO_PLAN))


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """A step of the work: rows read so far from the "source" or "sink" of a table, or suspects to "judge"."""

    table: str
    step: str
    rows: int


OnProgress = Callable[[VerifyProgress], None]
Awaited = Callable[[str], str]
"""Which rows of a table are on their way to the sink, outside of the log; "" for none."""


def _require_whole_rows(settings: Settings) -> None:
    records = settings.records
    if records.column_include_list or records.column_exclude_list or records.masks():
        raise ConfigError(
            "records.column_*: with columns that are left out or masked the sink is not meant to equal the source; "
            "verify compares whole rows only"
        )


def verify(
    settings: Settings,
    *,
    tables: Sequence[str] | None = None,
    rounds: int = 5,
    patience_s: float = 60.0,
    on_progress: OnProgress | None = None,
    awaited: Awaited | None = None,
) -> VerifyReport:
    """Compare every captured table with its sink, while both may move.

    `tables` are regular expressions on `database.table` that choose among the captured tables. One table after
    the other is compared in bulk (`compare`); the keys that differ there are judged one by one in at most
    `rounds` rounds, each of which waits up to `patience_s` for the sink (`judge`), on threads of their own.
    `on_progress` is called from this thread. `awaited` is asked, from any thread, about tables with rows that differ: while
    rows of a snapshot are on their way (a DDL changed values without logging rows), nothing is judged to be wrong.

    The report is `ok` only if every table was compared and no row differs. Raises `ConfigError` when no
    table is chosen or there is no sink, `SourceError` when the source cannot be reached.
    """
    _require_whole_rows(settings)
    started, reader = time.monotonic(), open_reader(settings)
    with closing(Source(settings.source)) as source, closing(LocalSession(settings)) as session:
        known = source.table_names()
        names = [name for name in known if _wanted(name, tables)]
        ways = Ways(settings, known)
        gone = [name for name in ways.gone(reader) if _wanted((name.database, name.table), tables)]
        if not names and not gone:
            message = "no captured table to verify: " + ", ".join(tables or settings.source.tables)
            raise ConfigError(message)
        with ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge") as pool:
            waiting = Waiting(rounds, patience_s, awaited or (lambda _table: ""))
            comparisons = Comparisons(settings, session)
            listens = on_progress or (lambda _step: None)
            verifier = _Verifier(settings, source, reader, comparisons, pool, waiting, listens)
            pending = [verifier.table(way) for name in names for way in ways.of(*name)]
            reports = [report.result() for report in pending]
        reports += [_gone(reader, name) for name in gone]
        notes = [note for target, plan in verifier.shared.items() if (note := _shared(reader, target, plan)) is not None]
        if tables is None:
            found = [_of_others(reader, target, texts) for target, texts in ways.sources.items()]
            reports += [report for report in found if report is not None]
    return VerifyReport(tuple(reports), time.monotonic() - started, notes=tuple(notes))


def _wanted(name: tuple[str, str], tables: Sequence[str] | None) -> bool:
    if tables is None:
        return True
    return any(re.fullmatch(pattern, ".".join(name), re.IGNORECASE) for pattern in tables)


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long suspects are judged: rounds, seconds of each wait for the sink, and what reports rows that are on their way."""

    rounds: int
    patience_s: float
    awaited: Awaited


@dataclass(frozen=True, slots=True)
class _Case:
    """A table with suspects, to be judged."""

    way: Way
    comparison: Comparison
    bulk: BulkResult
    report: TableReport


class _Verifier:
    """Compares one table after the other in bulk; judges them side by side, for that is mostly waiting."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        reader: SinkReader,
        comparisons: Comparisons,
        pool: ThreadPoolExecutor,
        waiting: Waiting,
        on_progress: OnProgress,
    ) -> None:
        self._settings = settings
        self._source = source
        self._reader = reader
        self._comparisons = comparisons
        self._pool = pool
        self._waiting = waiting
        self._on_progress = on_progress
        self.shared: dict[TableName, TablePlan] = {}
        """The targets that several tables go into, each with the plan of one of them."""

    def table(self, way: Way) -> Future[TableReport]:
        """Compare one table with its rows in a target; what prevents that becomes the report's reason."""
        started = time.monotonic()
        case = self._compare_with_patience(way)
        if case.bulk.suspects:
            self._report_step(case.report.table, "judge", len(case.bulk.suspects))
            return self._pool.submit(self._judge, case, started)
        finished: Future[TableReport] = Future()
        finished.set_result(replace(without_contradiction(case.report), seconds=time.monotonic() - started))
        return finished

    def _compare_with_patience(self, way: Way) -> _Case:
        """Return the bulk comparison; retried after an ALTER TABLE in between, or a broken connection."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._compare(way)
            except IncomparableError as error:
                return self._without_mirror(way) or _uncompared(way, not_compared=str(error))
            except _TROUBLE as error:
                self._source.reconnect()
                if attempt == _ATTEMPTS:
                    return _uncompared(way, not_compared=_reason(error))
        raise AssertionError("unreachable")

    def _without_mirror(self, way: Way) -> _Case | None:
        """Return the case of a table without a key that the sink does not have: no mirror of it is made. None for any other."""
        try:
            schema = self._source.table(way.table.name.database, way.table.name.table).schema
        except IncomparableError:  # it is gone, or has a column that is not captured: the first error says so
            return None
        if schema.record_key or way.target in set(self._reader.targets()):
            return None
        return _uncompared(way, left_out=NO_KEY)

    def _compare(self, way: Way) -> _Case:
        sink = way.rows(self._reader)
        comparison = self._comparisons.of(way, self._source, sink)
        plan, expected = comparison.plan, comparison.rows(self._source)
        if plan.table.engine == _WITHOUT_ROWS:
            return _uncompared(way, left_out=_NO_ROWS)
        if way.is_shared:
            self.shared[way.target] = plan
        full_name = way.name
        bulk = compare(plan, expected, sink, lambda side, rows: self._report_step(full_name, side, rows))
        bulk.suspects = [key for key in bulk.suspects if key not in expected.failing]
        report = TableReport(
            table=full_name,
            source_rows=bulk.source_rows,
            sink_rows=bulk.sink_rows,
            ranges=bulk.ranges,
            suspects=len(bulk.suspects),
            sink_only_columns=_sink_only(comparison, sink),
            absent_columns=tuple(rule.name for rule in plan.rules if rule.sink_name is None),
            record_columns=comparison.uncompared,
            kept_column=way.kept,
            not_compared=_failing(plan, expected),
        )
        return _Case(way, comparison, bulk, report)

    def _judge(self, case: _Case, started: float) -> TableReport:
        """On a thread of the pool, with a connection of its own."""
        plan, suspects, way = case.comparison.plan, case.bulk.suspects, case.way
        end = SinkEnd(way.table, lambda: way.rows(self._reader), self._settings.sink.progress_path)
        try:
            with closing(Source(self._settings.source)) as source:
                expected = case.comparison.rows(source)
                judge = Judge(plan, source, expected, end, patience_s=self._waiting.patience_s)
                report = _judged(case, self._decided(judge, suspects, plan.table.schema.full_name), end, _failing(plan, expected))
        except (CannotJudgeError, IncomparableError, *_TROUBLE) as error:
            reason = f"{len(suspects)} rows differed as read, and {_reason(error)}"
            report = replace(case.report, not_compared=reason)
        return replace(without_contradiction(report), seconds=time.monotonic() - started)

    def _decided(self, judge: Judge, suspects: Sequence[Key], table: str) -> Judgement:
        """Return the judgement, of a time at whose beginning and end no row was on its way outside of the log.

        Raises `CannotJudgeError` when such rows do not arrive in time.
        """
        awaited, deadline = self._waiting.awaited(table), time.monotonic() + self._waiting.patience_s
        while True:
            if awaited.startswith(ASIDE):  # the sink does not follow, and nobody knows until when
                raise CannotJudgeError(f"they are not judged: {awaited}. Verify again when it is taken up")
            judgement = judge.decide(suspects, self._waiting.rounds)
            was, awaited = awaited, self._waiting.awaited(table) if judgement.differences else ""
            if not judgement.differences or not (was or awaited):
                return judgement
            while awaited and not awaited.startswith(ASIDE) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                awaited = self._waiting.awaited(table)
            if awaited:
                raise CannotJudgeError(f"they are not judged yet: {awaited}. Verify again when that is over")

    def _report_step(self, table: str, step: str, rows: int) -> None:
        self._on_progress(VerifyProgress(table, step, rows))


def _uncompared(way: Way, *, not_compared: str | None = None, left_out: str | None = None) -> _Case:
    """Return a table that could not be compared, or has nothing to compare."""
    report = TableReport(table=way.name, not_compared=not_compared, left_out=left_out)
    return _Case(way, _NO_COMPARISON, BulkResult(0, 0, 0), report)


def _gone(reader: SinkReader, name: TableName) -> TableReport:
    """Return the report of a table that only the sink has: right when it holds no row."""
    try:
        rows = reader.rows(name).count()
    except IncomparableError as error:
        return TableReport(table=name.plain, not_compared=str(error))
    reason = f"the source has no such table, the sink still holds {rows} rows" if rows else None
    return TableReport(table=name.plain, source_rows=0, sink_rows=rows, not_compared=reason)


def _of_others(reader: SinkReader, target: TableName, sources: Sequence[str]) -> TableReport | None:
    """Return a report of rows in a target that are of no captured table; None where there are none."""
    try:
        rows = reader.rows(target).count_of_others(sources)
    except IncomparableError:
        return None  # the reports of its tables say so
    reason = f"{rows} rows are of source tables that are not captured, or do not go into it"
    return TableReport(table=target.plain, sink_rows=rows, not_compared=reason) if rows else None


def _shared(reader: SinkReader, target: TableName, plan: TablePlan) -> str | None:
    """Return which keys of a target are of several source tables; None for none, and where it cannot be read."""
    try:
        keys = shared_keys(reader.rows(target), plan)
    except (IncomparableError, *_TROUBLE):
        return None  # the reports of its tables say so
    return None if keys is None else f"{target.plain}: {keys}"


def without_contradiction(report: TableReport) -> TableReport:
    """Return the report; one whose counts differ by more rows than were found to differ is no verdict."""
    if report.not_compared is not None or report.differing:
        return report
    source, sink = report.source_rows or 0, report.sink_rows or 0
    if abs(source - sink) <= report.suspects:
        return report
    reason = (
        f"{source} rows were counted in the source and {sink} in the sink, but only {report.suspects} of them could be found by "
        "their key: check the table and its indexes (CHECK TABLE), then verify again"
    )
    return replace(report, not_compared=reason)


def _judged(case: _Case, judgement: Judgement, end: SinkEnd, reason: str | None) -> TableReport:
    note = None
    if case.bulk.cut_short and reason is None:
        reason = f"more than {len(case.bulk.suspects)} rows differed as read; only those were judged"
    if judgement.differences and not read_applied(end.progress_path, end.table).consistent:
        note = "its snapshot is not complete in the sink: rows that are missing may only be late"
    elif judgement.differences and case.comparison.plan.table.cascades:
        note = _CASCADES
    elif judgement.differences and case.comparison.plan.table.engine in _ROWS_OF_OTHERS:
        note = _NOT_LOGGED.format(case.comparison.plan.table.engine)
    if case.comparison.plan.table.is_partitioned and any(item.kind is DifferenceKind.MISSING for item in judgement.differences):
        note = _MISPLACED if note is None else f"{note}; {_MISPLACED}"
    return replace(
        case.report,
        differing=len(judgement.differences),
        moving=len(judgement.moving),
        differences=tuple(judgement.differences[:_MOST_SHOWN]),
        not_compared=reason,
        note=note,
    )


def _sink_only(comparison: Comparison, sink: TargetRows) -> tuple[str, ...]:
    ours = {rule.sink_name for rule in comparison.plan.rules} | {POSITION_COLUMN, SOURCE_COLUMN, *comparison.uncompared}
    ours |= {sink.kept}
    return tuple(name for name in sink.schema.names if name not in ours)


def _failing(plan: TablePlan, expected: ExpectedRows) -> str | None:
    """Return what to say of rows on which an expression fails; None where there are none."""
    if not expected.failing:
        return None
    shown = sorted(
        ", ".join(f"{rule.name}={rule.shown(value)}" for rule, value in zip(plan.key_rules, key, strict=True))
        for key in expected.failing
    )
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    return (
        f"an expression fails on {len(shown)} rows of the source ({'; '.join(shown[:_MOST_NAMED])}{more}): they are in quarantine, "
        "and the target has them as they were before"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ServerError):
        return f"the source answered: {error}"
    return f"a value could not be read: {error}" if isinstance(error, pa.ArrowException) else str(error)
