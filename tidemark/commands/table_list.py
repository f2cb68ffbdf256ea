"""`tidemark tables`: every captured table with its snapshot, its state in each sink, its last record and its version."""

from __future__ import annotations

import argparse
import re
import time
from typing import TYPE_CHECKING, Any, Final

from schemas import topics
from schemas.errors import TidemarkError
from schemas.json_codec import encode
from schemas.readable import ago, aligned, count, moment
from tidemark.commands.action import add_output, add_sink, add_tables, json_text, settings_of
from tidemark.commands.redraw import add_watch, show
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.settings import Settings
    from tidemark.api.observe import Observer
    from tidemark.api.schema_reader import SchemaReader
    from tidemark.status.captured_tables import CapturedTable, TableInSink

HELP: Final = "list every captured table: snapshot, consistent in each sink or why not, lag, last record, version of its columns"

_DAY_MS: Final = 86_400_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Which tables, which sink, whether rows are counted, form and repetition."""
    add_tables(parser)
    add_sink(parser)
    parser.add_argument(
        "--count", action="store_true", help="count the rows in the sinks: reads them, as `tidemark verify` does"
    )
    add_output(parser)
    add_watch(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the tables, once or repeatedly; 0: whether a table that is not consistent yet is bad, the reader knows."""
    wanted = config.patterns_of(arguments.tables, re.IGNORECASE)
    settings = settings_of(arguments)
    from tidemark.api.observe import Observer
    from tidemark.api.schema_reader import SchemaReader

    with Observer(settings) as observer, SchemaReader(settings) as schemas:

        def rendering() -> str:
            tables, notes = _read_tables(settings, observer, schemas, counts_rows=arguments.count)
            tables = [table for table in tables if not wanted or any(one.fullmatch(table.table) for one in wanted)]
            now_ms = time.time_ns() // 1_000_000
            return as_json(tables, notes, now_ms) if arguments.output == "json" else as_text(tables, notes, now_ms)

        show(rendering, arguments.watch, redraws=arguments.output == "text")
    return 0


def _read_tables(
    settings: Settings, observer: Observer, schemas: SchemaReader, *, counts_rows: bool
) -> tuple[list[CapturedTable], list[str]]:
    """Return the tables, and why something of them is not known."""
    from kafkaio.topic_admin import TopicAdmin
    from tidemark.status.captured_tables import captured_tables
    from tidemark.status.reckoning import tables_with_topics

    statuses = observer.settled_each()
    names = tables_with_topics(observer.state())
    delimiter = settings.kafka.topic_delimiter
    by_topic = {topics.change_topic(settings.name, *name, delimiter): table for table, name in names.items()}
    admin = TopicAdmin(settings.kafka)
    newest = {by_topic[topic]: at for topic, at in admin.newest_ms(by_topic).items()}
    versions, note = _versions(schemas, names)
    rows = _rows(settings, list(names.values())) if counts_rows else None
    return list(captured_tables(statuses, newest, versions, rows)), [note] if note else []


def _versions(schemas: SchemaReader, names: Mapping[str, tuple[str, str]]) -> tuple[dict[str, int | None], str]:
    """Return the version of each table's columns; none with the reason where the records cannot be read."""
    from schemas.identity import TableName
    from tidemark.api.schema_history import histories_of

    try:
        topic = schemas.read()
        histories = histories_of((TableName(*name) for name in names.values()), topic.records)
        versions = {table: histories[TableName(*name)].version for table, name in names.items()}
    except TidemarkError as error:
        return {}, f"versions of columns are not known: {error}"
    return versions, f"versions of columns are not known: {topic.missing}" if topic.missing else ""


def _rows(settings: Settings, names: list[tuple[str, str]]) -> dict[str, Mapping[str, Mapping[str, int | str]]]:
    from tidemark.verify.row_counts import row_counts

    return {sink.name: row_counts(settings.of_sink(sink.name), names) for sink in settings.sinks}


def as_json(tables: list[CapturedTable], notes: list[str], now_ms: int) -> str:
    """Return one JSON document on one line."""
    return json_text({"read_ms": now_ms, "tables": [encode(table) for table in tables], "notes": notes})


def as_text(tables: list[CapturedTable], notes: list[str], now_ms: int) -> str:
    """Return a line for each table and sink, then why tables are not consistent."""
    if not tables:
        return "\n".join(["no captured table has topics yet: is `tidemark run` running, does source.tables name one?", *notes])
    counted = any(sink.rows is not None for table in tables for sink in table.sinks.values())
    more = ["rows"] if counted else []
    head = ("table", "columns", "snapshot", "read", "last record", "sink", *more, "merged", "consistent", "lag")
    lines = [line for table in tables for line in _lines(table, now_ms, counted=counted)]
    sinks = [
        (f"{table.table}: {f'in {name}: ' if len(table.sinks) > 1 else ''}", sink)
        for table in tables
        for name, sink in table.sinks.items()
    ]
    reasons = [f"{head_of}{sink.why_not}" for head_of, sink in sinks if sink.why_not]
    unknown = [
        f"{head_of}lag unknown: {sink.lag.unknown}"
        for head_of, sink in sinks
        if sink.lag.seconds is None and sink.lag.unknown and sink.lag.unknown not in sink.why_not
    ]
    counts = ((head_of, rows) for head_of, sink in sinks for rows in (sink.rows or {}).values())
    uncounted = [f"{head_of}rows not counted: {rows}" for head_of, rows in counts if isinstance(rows, str)]
    return "\n".join([*aligned([head, *lines]), *reasons, *unknown, *uncounted, *(f"note: {note}" for note in notes)])


def _lines(table: CapturedTable, now_ms: int, *, counted: bool) -> list[tuple[str, ...]]:
    estimate = "" if table.rows_estimated is None else f" of about {table.rows_estimated:,}"
    own = (
        table.table,
        "-" if table.version is None else f"version {table.version}",
        "released" if table.released else table.snapshot or "-",
        f"{table.rows_read:,}{'' if table.snapshot == 'done' else estimate}" if table.snapshot else "-",
        "-" if table.last_record_ms is None else _age(table.last_record_ms, now_ms),
    )
    no_sink: tuple[str, ...] = ("-",) * (5 if counted else 4)
    cells = [_sink_cells(name, sink, counted=counted) for name, sink in table.sinks.items()] or [no_sink]
    blank = ("",) * len(own)
    return [(*(blank if index else own), *cell) for index, cell in enumerate(cells)]


def _sink_cells(name: str, sink: TableInSink, *, counted: bool) -> tuple[str, ...]:
    return (
        name,
        *([_rows_text(sink.rows)] if counted else []),
        count(sink.merged),
        "no" if sink.why_not else "yes",
        "unknown" if sink.lag.seconds is None else sink.lag.text,
    )


def _rows_text(rows: Mapping[str, Any] | None) -> str:
    """Return the rows, of several targets with their names."""
    if not rows:
        return "-"
    texts = {target: f"{count:,}" if isinstance(count, int) else "unknown" for target, count in rows.items()}
    return next(iter(texts.values())) if len(texts) == 1 else ", ".join(f"{target}: {text}" for target, text in texts.items())


def _age(at_ms: int, now_ms: int) -> str:
    """Return how long ago something was; the time itself if that is more than a day, or in the future by this clock."""
    return ago(now_ms - at_ms, 0) if 0 <= now_ms - at_ms < _DAY_MS else moment(at_ms)
