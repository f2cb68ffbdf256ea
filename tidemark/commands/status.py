"""`tidemark status`: how far log, snapshot and sink are, as Kafka and the sink report it."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any, Final

from schemas.json_codec import encode
from schemas.readable import ago, count, duration
from tidemark.api.source_log import UNSEEN, producer_of, source_of
from tidemark.commands.action import add_output, add_sink, settings_of
from tidemark.commands.redraw import add_watch, aligned, show
from tidemark.status.captured_tables import consistency
from tidemark.status.tree import RELEASED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemark.api.source_log import SourceLog
    from tidemark.status.delay_status import DelayStatus
    from tidemark.status.tree import Status, TableStatus

HELP: Final = "show how far log, snapshots and sink are"
_RATE_S: Final = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Form, repetition, sink."""
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the commands have in common that show how far everything is: form, repetition, sink."""
    add_sink(parser)
    add_output(parser)
    add_watch(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the status, once or repeatedly; always 0: whether a standstill is bad, the reader knows."""
    settings = settings_of(arguments)
    from tidemark.api.observe import Observer

    with Observer(settings) as observer:
        last = observer.read_each()
        if any(status.snapshot_running for status in last.values()):
            time.sleep(_RATE_S)  # a rate needs two looks
        as_words = as_json_of_sinks if arguments.output == "json" else as_text_of_sinks

        def look() -> str:
            nonlocal last
            before, last = last, observer.settled_each()
            return as_words(last, before, source_of(settings, next(iter(last.values()))))

        show(look, arguments.watch, redraws=arguments.output == "text")
    return 0


def as_json_of_sinks(found: Mapping[str, Status], before: Mapping[str, Status], source: SourceLog | None = None) -> str:
    """Return one JSON document on one line: of one sink as `as_json`, of several `{"sinks": {name: document}}`."""
    documents = {name: as_json(status, before[name], source) for name, status in found.items()}
    if len(documents) == 1:
        return next(iter(documents.values()))
    return json.dumps({"sinks": {name: json.loads(document) for name, document in documents.items()}})


def as_text_of_sinks(found: Mapping[str, Status], before: Mapping[str, Status], source: SourceLog | None = None) -> str:
    """Return what `as_text` does; of several sinks each with its line and its table."""
    if len(found) == 1:
        return next(as_text(status, before[name], source) for name, status in found.items())
    first = next(iter(found.values()))
    lines = [*_head_lines(first, source), *_note_lines(first)]
    for name, status in found.items():
        lag = _lag_line(status, source)
        lines += ["", f"sink {name}: {_sink_words(status)}", f"lag:   {lag}", *_table_lines(status.with_rates(before[name]))]
    return "\n".join(lines)


def as_json(status: Status, before: Status, source: SourceLog | None = None) -> str:
    """Return one JSON document on one line."""
    lags, producer, merge = (source or UNSEEN).lags(status), producer_of(status, source), status.merge
    document = {
        "read_ms": status.read_ms,
        "log": status.log and encode(status.log),
        "source": source and source.document,
        "snapshot_paused": status.paused,
        "lag": encode(lags),
        "producer": {**encode(producer), "sign_of_life_ms": None if status.sign is None else status.sign.at_ms},
        "sink": {
            **encode(merge),
            "caught_up": merge.caught_up,
            "behind_records": status.behind,
            "updated_ms": status.sink_updated_ms,
            "applied_position": status.applied and status.applied.text,
        },
        "notes": list(status.notes),
        "tables": {
            table.table: {
                **encode(table),
                "lag": encode(lags.tables[table.table]),
                "commit_to_kafka": _delay_document(status.to_kafka(table)),
                "commit_to_lake": _delay_document(status.to_lake(table)),
            }
            for table in status.with_rates(before).tables
        },
    }
    return json.dumps(document)


def as_text(status: Status, before: Status, source: SourceLog | None = None) -> str:
    """Return a few lines and a table."""
    lag = _lag_line(status, source)
    head = [*_head_lines(status, source), f"sink:  {_sink_words(status)}", f"lag:   {lag}", *_note_lines(status)]
    return "\n".join([*head, "", *_table_lines(status.with_rates(before))])


def _head_lines(status: Status, source: SourceLog | None) -> list[str]:
    problem = [f"source: {source.problem}"] if source is not None and source.problem else []
    return [_log_line(status), _producer_line(status, source), *problem]


def _lag_line(status: Status, source: SourceLog | None) -> str:
    """Return how far Kafka is behind the source, and a sink behind Kafka."""
    lags = (source or UNSEEN).lags(status)
    to_sink = "" if lags.to_sink is None else f", Kafka to sink {lags.to_sink.text}"
    return f"source to Kafka {lags.to_kafka.text}{to_sink}"


def _note_lines(status: Status) -> list[str]:
    return [f"note:  {note}" for note in status.notes]


def _log_line(status: Status) -> str:
    if status.log is None:
        return "log:   nothing has been published yet"
    return f"log:   {status.log.file}:{status.log.pos} is in Kafka, committed {ago(status.read_ms - status.log.committed_ms)}"


def _producer_line(status: Status, source: SourceLog | None) -> str:
    return f"producer: {producer_of(status, source).text}"


def _sink_words(status: Status) -> str:
    if status.sink_updated_ms is None:
        return status.merge.text
    return f"{status.merge.text}, last batch {ago(status.read_ms - status.sink_updated_ms)}"


def _table_lines(status: Status) -> list[str]:
    rows = [("table", "snapshot", "rows read", "of about", "rows/s", "ETA", "merged", "to Kafka", "to lake", "sink")]
    for table in status.tables:
        rate, eta = table.rows_per_s, table.eta_s
        rows.append(
            (
                table.table,
                ("paused" if status.paused and table.snapshot == "running" else table.snapshot) or "-",
                f"{table.rows_read:,}" if table.snapshot else "-",
                count(table.rows_estimated),
                f"{rate:,.0f}" if rate else "-",
                duration(eta, 0, "-"),
                count(table.sink_rows),
                _delay_cell(status.to_kafka(table)),
                _delay_cell(status.to_lake(table)),
                consistency(table, status),
            )
        )
    lines = [*aligned(rows), *_delay_notes(status)]
    lines.extend(f"{table.table}: waiting: {table.waits}" for table in status.tables if table.waits)
    lines.extend(f"{table.table}: {table.error}" for table in status.tables if table.error)
    lines.extend(f"{table.table}: rows go straight into the sink" for table in status.tables if _is_loading(table))
    lines.extend(f"{table.table}: rows go through Kafka: {table.via_reason}" for table in status.tables if table.via_reason)
    lines.extend(f"{table.table}: {table.inexact}" for table in status.tables if table.inexact)
    lines.extend(f"{table.table}: {table.skipped}" for table in status.tables if table.skipped)
    lines.extend(f"{table.table}: {RELEASED}" for table in status.tables if table.released)
    lines.extend(f"{table.table}: set aside: {table.set_aside}" for table in status.tables if table.set_aside)
    lines.extend(
        f"{table.table}: {table.quarantined:,} records are in quarantine: tidemark quarantine list"
        for table in status.tables
        if table.quarantined
    )
    return lines


def _delay_document(delay: DelayStatus | None) -> dict[str, Any] | None:
    return None if delay is None else encode(delay)


def _delay_cell(delay: DelayStatus | None) -> str:
    return "-" if delay is None else delay.text


def _delay_notes(status: Status) -> list[str]:
    """Return what the columns `to Kafka` and `to lake` mean, where they have something."""
    found = [delay for table in status.tables for delay in (status.to_kafka(table), status.to_lake(table)) if delay is not None]
    if not found:
        return []
    window = f"{max(delay.window_s for delay in found):.0f} s"
    notes = [f"to Kafka, to lake: half and 99 % of the changes of the last {window} took at most so long from their commit"]
    if any(delay.in_seconds for delay in found):
        notes.append("to Kafka, to lake: the source's log has whole seconds, so each may be up to 1 s too long")
    return notes


def _is_loading(table: TableStatus) -> bool:
    return table.via == "spark" and table.is_snapshotting
