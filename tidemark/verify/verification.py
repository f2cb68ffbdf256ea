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
from schemas.identity import SourceId, SourceTable, TableName
from schemas.names import adjusted_field_name, folder_name, name_of_folder
from schemas.settings import Settings, SinkSettings
from spark_jobs.pipeline.table_plan import plan_of
from spark_jobs.pipeline.table_routes import Routes
from tidemark.verify.bulk_comparison import BulkResult, TablePlan, compare
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.delta_reader import POSITION_COLUMN, DeltaSink, read_applied
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
_CHANGED: Final = (
    "a transform changes its rows, or a route puts them together with those of other tables: verify does not compare such yet"
)
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
        where = _SinkFolders(settings, known)
        gone = {name: path for name, path in _only_in_sink(settings, where.folders).items() if _wanted(name, tables)}
        if not names and not gone:
            message = "no captured table to verify: " + ", ".join(tables or settings.source.tables)
            raise ConfigError(message)
        with ThreadPoolExecutor(_JUDGES, thread_name_prefix="judge") as pool:
            verifier = _Verifier(settings, source, where, pool, rounds, patience_s, on_progress or _silent, awaited or _nothing)
            pending = [verifier.table(*name) for name in names]
            reports = [report.result() for report in pending]
        reports += [verifier.gone(".".join(name), path) for name, path in gone.items()]
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


class _SinkFolders:
    """Where the captured tables are in the sink, by its routes."""

    def __init__(self, settings: Settings, names: Sequence[tuple[str, str]]) -> None:
        self._settings = settings
        routes, source = Routes.of("sink", settings.sink), SourceId(settings.name)
        tables = [SourceTable.of(source, *name) for name in names]
        self._plan = plan_of(routes, tables)
        targets = {feed.target for table in tables if table not in self._plan.failed for feed in routes.feeds(table)}
        named = [TableName.parse(target.name) for target in targets]
        self.folders = {(folder_name(one.database), folder_name(one.table)) for one in named}
        """The folders of all targets: database and table."""

    def path(self, database: str, name: str) -> str:
        """Return the path of a table; `IncomparableError` for one that is changed on its way, joined with others, or left out."""
        table = SourceTable.of(SourceId(self._settings.name), database, name)
        if not self._plan.has(table):
            raise IncomparableError("no route takes it into this sink")
        if table not in self._plan.alone:
            raise IncomparableError(self._plan.failed.get(table) or _CHANGED)
        target = TableName.parse(self._plan.alone[table].name)
        return self._settings.sink.table_path(target.database, target.table)


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

    plan: TablePlan
    bulk: BulkResult
    report: TableReport


class _Verifier:
    """Compares one table after the other in bulk; judges them side by side, for that is mostly waiting."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        folders: _SinkFolders,
        pool: ThreadPoolExecutor,
        rounds: int,
        patience_s: float,
        on_progress: OnProgress,
        awaited: Awaited,
    ) -> None:
        self._settings = settings
        self._sink: SinkSettings = settings.sink
        self._source = source
        self._folders = folders
        self._pool = pool
        self._rounds = rounds
        self._patience_s = patience_s
        self._on_progress = on_progress
        self._awaited = awaited

    def table(self, database: str, name: str) -> Future[TableReport]:
        """Compare one table; what is in the way becomes the report's reason."""
        started = time.monotonic()
        case = self._compare_with_patience(database, name)
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

    def _compare_with_patience(self, database: str, name: str) -> _Case:
        """Return the bulk comparison; retried after an ALTER TABLE in between, or a broken connection."""
        full_name = f"{database}.{name}"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._compare(database, name)
            except IncomparableError as error:
                return _refused(full_name, str(error))
            except _TROUBLE as error:
                self._source.reconnect()
                if attempt == _ATTEMPTS:
                    return _refused(full_name, _reason(error))
        raise AssertionError("unreachable")

    def _compare(self, database: str, name: str) -> _Case:
        sink = DeltaSink(self._folders.path(database, name))
        plan = self._plan(database, name, sink)
        full_name = plan.table.schema.full_name
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
        return _Case(plan, bulk, report)

    def _judge(self, case: _Case, started: float) -> TableReport:
        """On a thread of the pool, with a connection of its own."""
        schema, suspects = case.plan.table.schema, case.bulk.suspects
        table = SourceTable.of(SourceId(self._settings.name), schema.database, schema.name)
        end = SinkEnd(table, self._folders.path(schema.database, schema.name), self._sink.progress_path)
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

    def _plan(self, database: str, name: str, sink: DeltaSink) -> TablePlan:
        table = self._source.table(database, name)
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
        for column in table.schema.columns:
            field = adjusted_field_name(column.name, self._settings.format.field_names)
            found = sink.find(field) or sink.find(avro_field_name(field))
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


def _refused(full_name: str, reason: str) -> _Case:
    """Return a table that was not compared."""
    report = TableReport(table=full_name, not_compared=reason)
    return _Case(_NO_PLAN, BulkResult(0, 0, 0), report)


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
    ours = {rule.sink_name for rule in plan.rules} | {POSITION_COLUMN}
    return tuple(name for name in sink.schema.names if name not in ours)


def _reason(error: Exception) -> str:
    if isinstance(error, pymysql.err.MySQLError):
        return f"the source answered: {error}"
    return f"a value could not be read: {error}" if isinstance(error, pa.ArrowException) else str(error)
