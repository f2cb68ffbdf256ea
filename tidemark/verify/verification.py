"""`verify`: every captured table of the source against its Delta table."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pymysql

from schemas.avro import avro_field_name
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect import TimeMode
from schemas.errors import ConfigError, SourceError
from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.names import adjusted_field_name, folder_name, name_of_folder
from schemas.settings import Settings, SinkSettings
from spark_jobs.pipeline.select_items import columns_as_they_are
from spark_jobs.pipeline.table_plan import plan_of
from spark_jobs.pipeline.table_routes import Feed, Routes
from tidemark.verify.bulk_comparison import BulkResult, TablePlan, compare
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.delta_reader import POSITION_COLUMN, SOURCE_COLUMN, DeltaSink, read_applied
from tidemark.verify.judge import CannotJudgeError, Judge, Judgement, SinkEnd
from tidemark.verify.report import TableReport, VerifyReport
from tidemark.verify.rules import rule
from tidemark.verify.source import Key, ReadTable, Source

_MOST_SHOWN: Final = 100
_ATTEMPTS: Final = 2
_JUDGES: Final = 8
_MILLISECONDS: Final = 3
_POLL_S: Final = 0.5
_TROUBLE: Final = (pymysql.err.MySQLError, SourceError, pa.ArrowException, OSError)
_CASCADES: Final = (
    "foreign keys change its rows, which servers before MySQL 9.6 do not log: what is read again for them comes to the sink "
    "some seconds later (tidemark status: inexact until then). Rows that differ now and not a minute later were only late"
)
_FILTERED: Final = "rows are left out by the condition {}, and verify does not compare such yet"
_KEPT: Final = "rows that are deleted at the source stay, with {} true, and verify does not compare such yet"
_NO_PLAN: Final = TablePlan(ReadTable(TableSchema("", "", ()), 0), (), ())


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
        message = (
            "records.column_*: with columns that are left out or masked the sink is not meant to equal the source; "
            "verify compares whole rows only"
        )
        raise ConfigError(message)


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
    started = time.monotonic()
    source = Source(settings.source)
    try:
        known = source.table_names()
        names = [name for name in known if _wanted(name, tables)]
        ways = _Ways(settings, known)
        gone = {name: path for name, path in _only_in_sink(settings, ways.folders).items() if _wanted(name, tables)}
        if not names and not gone:
            message = "no captured table to verify: " + ", ".join(tables or settings.source.tables)
            raise ConfigError(message)
        with ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge") as pool:
            verifier = _Verifier(settings, source, pool, rounds, patience_s, on_progress or _silent, awaited or _nothing)
            pending = [verifier.table(way) for name in names for way in ways.of(*name)]
            reports = [report.result() for report in pending]
        reports += [verifier.gone(".".join(name), path) for name, path in gone.items()]
        if tables is None:
            reports += [report for path, texts in ways.sources.items() if (report := _of_others(path, texts)) is not None]
    finally:
        source.close()
    return VerifyReport(tuple(reports), time.monotonic() - started)


def _silent(_progress: VerifyProgress) -> None:
    """There is nobody to notify."""


def _nothing(_table: str) -> str:
    """Return no reason: no rows are known to be on their way."""
    return ""


def _wanted(name: tuple[str, str], tables: Sequence[str] | None) -> bool:
    if tables is None:
        return True
    return any(re.fullmatch(pattern, ".".join(name), re.IGNORECASE) for pattern in tables)


@dataclass(frozen=True, slots=True)
class _Way:
    """A captured table on its way into one target: where that is, whether others go into it, and what the rows become.

    `reason` says why the rows cannot be compared; None where they can.
    """

    table: SourceTable
    target: str
    path: str
    is_shared: bool = False
    select: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def name(self) -> str:
        """The name of the table, and of the target where it has another."""
        own = self.table.name.plain
        return own if self.target == own else f"{own} → {self.target}"

    def sink(self) -> DeltaSink:
        """Return the rows of the table in the target; `IncomparableError` where they cannot be compared."""
        if self.reason is not None:
            raise IncomparableError(self.reason)
        return DeltaSink(self.path, self.table.text if self.is_shared else None)


class _Ways:
    """Where the captured tables go in the sink, by its routes."""

    def __init__(self, settings: Settings, names: Sequence[tuple[str, str]]) -> None:
        self._sink = settings.sink
        self._routes, self._source = Routes.of("sink", settings.sink), SourceId(settings.name)
        tables = [SourceTable.of(self._source, *name) for name in names]
        self._plan = plan_of(self._routes, tables)
        self.sources: dict[str, list[str]] = {}
        """The texts of the tables that go into each target that has more than one, by its path."""
        fed_by: dict[Target, list[SourceTable]] = {}
        for table in tables:
            for feed in () if table in self._plan.failed else self._routes.feeds(table):
                fed_by.setdefault(feed.target, []).append(table)
        self._shared = {target for target, found in fed_by.items() if len(found) > 1}
        named = [TableName.parse(target.name) for target in fed_by]
        self.folders = {(folder_name(one.database), folder_name(one.table)) for one in named}
        """The folders of all targets: database and table."""
        self.sources = {self._path(target): [table.text for table in fed_by[target]] for target in self._shared}

    def of(self, database: str, name: str) -> list[_Way]:
        """Return the ways of a table; one with the reason where it has none."""
        table = SourceTable.of(self._source, database, name)
        if table in self._plan.failed:
            return [_Way(table, table.name.plain, "", reason=self._plan.failed[table])]
        return [self._way(feed) for feed in self._routes.feeds(table)]

    def _way(self, feed: Feed) -> _Way:
        transform = feed.transform
        select = () if transform is None else transform.select
        reason = None if transform is None or transform.where is None else _FILTERED.format(transform.where)
        if transform is not None and transform.soft_delete is not None:
            reason = _KEPT.format(transform.soft_delete)
        target = TableName.parse(feed.target.name).plain
        return _Way(feed.table, target, self._path(feed.target), feed.target in self._shared, select, reason)

    def _path(self, target: Target) -> str:
        named = TableName.parse(target.name)
        return self._sink.table_path(named.database, named.table)


def _only_in_sink(settings: Settings, known: AbstractSet[tuple[str, str]]) -> dict[tuple[str, str], Path]:
    """Return captured tables of a sink folder on this machine that the source does not have (any more), and where they lie.

    `known` are the folders of tables that it has.
    """
    found: dict[tuple[str, str], Path] = {}
    for log in sorted(Path(settings.sink.path).glob("[!_]*/*/_delta_log")):  # no database's folder begins with `_`
        database, name = log.parent.parent.name, log.parent.name
        full_name_parts = name_of_folder(database), name_of_folder(name)
        if (database, name) not in known and settings.source.captures(*full_name_parts):
            found[full_name_parts] = log.parent
    return found


@dataclass(frozen=True, slots=True)
class _Case:
    """A table with suspects, to be judged."""

    way: _Way
    plan: TablePlan
    bulk: BulkResult
    report: TableReport


class _Verifier:
    """Compares one table after the other in bulk; judges them side by side, for that is mostly waiting."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        pool: ThreadPoolExecutor,
        rounds: int,
        patience_s: float,
        on_progress: OnProgress,
        awaited: Awaited,
    ) -> None:
        self._settings = settings
        self._sink: SinkSettings = settings.sink
        self._source = source
        self._pool = pool
        self._rounds = rounds
        self._patience_s = patience_s
        self._on_progress = on_progress
        self._awaited = awaited

    def table(self, way: _Way) -> Future[TableReport]:
        """Compare one table with its rows in a target; what prevents that becomes the report's reason."""
        started = time.monotonic()
        case = self._compare_with_patience(way)
        if case.bulk.suspects:
            self._report_step(case.report.table, "judge", len(case.bulk.suspects))
            return self._pool.submit(self._judge, case, started)
        finished: Future[TableReport] = Future()
        finished.set_result(replace(case.report, seconds=time.monotonic() - started))
        return finished

    def gone(self, full_name: str, path: Path) -> TableReport:
        """Return a table that only the sink has: right when it holds no row."""
        try:
            rows = DeltaSink(str(path)).count()
        except IncomparableError as error:
            return TableReport(table=full_name, not_compared=str(error))
        reason = f"the source has no such table, the sink still holds {rows} rows" if rows else None
        return TableReport(table=full_name, source_rows=0, sink_rows=rows, not_compared=reason)

    def _compare_with_patience(self, way: _Way) -> _Case:
        """Return the bulk comparison; retried after an ALTER TABLE in between, or a broken connection."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._compare(way)
            except IncomparableError as error:
                return _refused(way, str(error))
            except _TROUBLE as error:
                self._source.reconnect()
                if attempt == _ATTEMPTS:
                    return _refused(way, _reason(error))
        raise AssertionError("unreachable")

    def _compare(self, way: _Way) -> _Case:
        sink = way.sink()
        plan = self._plan(way, sink)
        full_name = way.name
        bulk = compare(plan, self._source, sink, lambda side, rows: self._report_step(full_name, side, rows))
        report = TableReport(
            table=full_name,
            source_rows=bulk.source_rows,
            sink_rows=bulk.sink_rows,
            ranges=bulk.ranges,
            suspects=len(bulk.suspects),
            sink_only_columns=_sink_only(plan, sink),
            absent_columns=tuple(rule.name for rule in plan.rules if rule.sink_name is None),
        )
        return _Case(way, plan, bulk, report)

    def _judge(self, case: _Case, started: float) -> TableReport:
        """On a thread of the pool, with a connection of its own."""
        schema, suspects, way = case.plan.table.schema, case.bulk.suspects, case.way
        end = SinkEnd(way.table, way.path, self._sink.progress_path, way.is_shared)
        try:
            source = Source(self._settings.source)
            try:
                judge = Judge(case.plan, source, end, patience_s=self._patience_s)
                report = _judged(case, self._decided(judge, suspects, schema.full_name), end)
            finally:
                source.close()
        except (CannotJudgeError, IncomparableError, *_TROUBLE) as error:
            reason = f"{len(suspects)} rows differed as read, and {_reason(error)}"
            report = replace(case.report, not_compared=reason)
        return replace(report, seconds=time.monotonic() - started)

    def _decided(self, judge: Judge, suspects: Sequence[Key], table: str) -> Judgement:
        """Return the judgement, of a time at whose beginning and end no row was on its way outside of the log.

        Raises `CannotJudgeError` when such rows do not arrive in time.
        """
        awaited, deadline = self._awaited(table), time.monotonic() + self._patience_s
        while True:
            judgement = judge.decide(suspects, self._rounds)
            was, awaited = awaited, self._awaited(table) if judgement.differences else ""
            if not judgement.differences or not (was or awaited):
                return judgement
            while awaited and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                awaited = self._awaited(table)
            if awaited:
                message = f"they are not judged yet: {awaited}. Verify again when that is over"
                raise CannotJudgeError(message)

    def _plan(self, way: _Way, sink: DeltaSink) -> TablePlan:
        table = self._source.table(way.table.name.database, way.table.name.table)
        if not table.schema.columns:
            raise IncomparableError("the table is gone from the source")
        if not table.schema.record_key:
            raise IncomparableError(
                "it has no primary key and no unique key of NOT NULL columns: add a primary key"
            )
        if sink.find(POSITION_COLUMN) is None:
            message = f"the sink's table has no column {POSITION_COLUMN}: it is not one of ours"
            raise IncomparableError(message)
        rules = []
        mode = self._settings.format.field_names
        fields = {column.name: adjusted_field_name(column.name, mode) for column in table.schema.columns}
        names = {avro_field_name(field): field for field in fields.values()}
        keys = [avro_field_name(fields[name]) for name in table.schema.record_key]
        kept = columns_as_they_are(way.select, list(names), keys)
        for column in table.schema.columns:
            field = fields[column.name]
            if avro_field_name(field) not in kept:
                continue
            target = kept[avro_field_name(field)]
            found = (sink.find(field) if target == avro_field_name(field) else None) or sink.find(target)
            require_exact(column, self._settings.format.time)
            rules.append(rule(column, found and found.name, found and found.type))
        indexes = tuple([r.name for r in rules].index(key) for key in table.schema.record_key)
        for index in indexes:
            if rules[index].sink_name is None:
                message = f"the sink's table has no key column {rules[index].name}"
                raise IncomparableError(message)
        return TablePlan(table, tuple(rules), indexes)

    def _report_step(self, table: str, step: str, rows: int) -> None:
        self._on_progress(VerifyProgress(table, step, rows))


def require_exact(column: Column, mode: TimeMode) -> None:
    """Refuse a column whose values `format.time` cannot all hold: its sink is not meant to equal the source."""
    digits = column.precision or 0
    lossy = {
        "connect": column.type is ColumnType.TIME or (column.type is ColumnType.DATETIME and digits > _MILLISECONDS),
        "isostring": column.type is ColumnType.TIME,
        "nanoseconds": column.type is ColumnType.DATETIME,
    }
    if lossy.get(mode, False):
        message = (
            f"column {column.name}: format.time {mode} cannot hold every {column.type.upper()}({digits}), so the sink is "
            "not meant to equal the source; verify needs microseconds"
        )
        raise IncomparableError(message)


def _refused(way: _Way, reason: str) -> _Case:
    """Return a table that was not compared."""
    return _Case(way, _NO_PLAN, BulkResult(0, 0, 0), TableReport(table=way.name, not_compared=reason))


def _of_others(path: str, sources: Sequence[str]) -> TableReport | None:
    """Return a report of rows in a target that are of no captured table; None where there are none."""
    try:
        rows = DeltaSink(path).count_of_others(sources)
    except IncomparableError:
        return None  # the reports of its tables say so
    name = "/".join(Path(path).parts[-2:])
    reason = f"{rows} rows are of source tables that are not captured, or do not go into it"
    return TableReport(table=name, sink_rows=rows, not_compared=reason) if rows else None


def _judged(case: _Case, judgement: Judgement, end: SinkEnd) -> TableReport:
    reason, note = None, None
    if case.bulk.cut_short:
        reason = f"more than {len(case.bulk.suspects)} rows differed as read; only those were judged"
    if judgement.differences and not read_applied(end.progress_path, end.table).consistent:
        note = "its snapshot is not complete in the sink: rows that are missing may only be late"
    elif judgement.differences and case.plan.table.cascades:
        note = _CASCADES
    return replace(
        case.report,
        differing=len(judgement.differences),
        moving=len(judgement.moving),
        differences=tuple(judgement.differences[:_MOST_SHOWN]),
        not_compared=reason,
        note=note,
    )


def _sink_only(plan: TablePlan, sink: DeltaSink) -> tuple[str, ...]:
    ours = {rule.sink_name for rule in plan.rules} | {POSITION_COLUMN, SOURCE_COLUMN}
    return tuple(name for name in sink.schema.names if name not in ours)


def _reason(error: Exception) -> str:
    if isinstance(error, pymysql.err.MySQLError):
        return f"the source answered: {error}"
    return f"a value could not be read: {error}" if isinstance(error, pa.ArrowException) else str(error)
