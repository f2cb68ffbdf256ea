"""`tidemark status`: how far log, snapshot and sink are, as Kafka and the sink report it."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any, Final

from schemas.json_codec import encode
from schemas.readable import ago, aligned, count, duration
from tidemark.api.source_log import UNSEEN, producer_of, source_of
from tidemark.commands.action import add_output, add_sink, add_tasks, settings_of, tasks_of
from tidemark.commands.group_text import replication_text
from tidemark.commands.redraw import add_watch, show
from tidemark.status.captured_tables import consistency
from tidemark.status.replication_status import NOTHING_REPLICATED
from tidemark.status.status_tree import RELEASED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.settings import Settings, TaskSettings
    from tidemark.api.source_log import SourceLog
    from tidemark.status.replication_status import ReplicationStatus
    from tidemark.status.status_tree import Status, TableStatus

HELP: Final = "show how far log, snapshots and sink are"
_RATE_S: Final = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Form, repetition, sink, tasks."""
    add_options(parser)
    add_tasks(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the commands have in common that show how far everything is: form, repetition, sink."""
    add_sink(parser)
    add_output(parser)
    add_watch(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the status, once or repeatedly; always 0: whether a standstill is bad, the reader knows."""
    settings, tasks = settings_of(arguments), tasks_of(arguments)
    from tidemark.api.observe import Observer

    with Observer(settings) as observer:
        last = observer.read_each()
        if any(status.snapshot_running for status in last.values()):
            time.sleep(_RATE_S)  # a rate needs two looks
        as_words = as_json_of_sinks if arguments.output == "json" else as_text_of_sinks

        def rendering() -> str:
            nonlocal last
            before, last = last, observer.settled_each()
            source = source_of(settings, next(iter(last.values())))
            return as_words(last, before, source, _replication(settings, tasks))

        show(rendering, arguments.watch, redraws=arguments.output == "text")
    return 0


def _replication(settings: Settings, tasks: Sequence[TaskSettings]) -> ReplicationStatus:
    if settings.order.group is None and not tasks:
        return NOTHING_REPLICATED
    from tidemark.api.replication_reader import read_replication

    return read_replication(tasks, settings)


def as_json_of_sinks(
    statuses: Mapping[str, Status],
    before: Mapping[str, Status],
    source: SourceLog | None = None,
    replication: ReplicationStatus = NOTHING_REPLICATED,
) -> str:
    """Return one JSON document on one line: of one sink as `as_json`, of several `{"sinks": {name: document}}`.

    It also has `groups` and `tasks`, if there are any.
    """
    documents = {name: _document(status.with_rates(before[name]), source) for name, status in statuses.items()}
    document = {"sinks": documents} if len(documents) > 1 else next(iter(documents.values()))
    return json.dumps(document if replication == NOTHING_REPLICATED else {**document, **encode(replication)})


def as_text_of_sinks(
    statuses: Mapping[str, Status],
    before: Mapping[str, Status],
    source: SourceLog | None = None,
    replication: ReplicationStatus = NOTHING_REPLICATED,
) -> str:
    """Return the text of `as_text`; of several sinks each with its line and its table; then groups and tasks."""
    text = _text_of_sinks(statuses, before, source)
    return text if replication == NOTHING_REPLICATED else f"{text}\n\n{replication_text(replication)}"


def _text_of_sinks(statuses: Mapping[str, Status], before: Mapping[str, Status], source: SourceLog | None) -> str:
    if len(statuses) == 1:
        return next(as_text(status, before[name], source) for name, status in statuses.items())
    first = next(iter(statuses.values()))
    lines = [*_head_lines(first, source), *_note_lines(first)]
    for name, status in statuses.items():
        lines += ["", f"sink {name}: {_sink_words(status)}", _lag_line(status, source)]
        lines += _table_lines(status.with_rates(before[name]))
    return "\n".join(lines)


def as_json(status: Status, before: Status, source: SourceLog | None = None) -> str:
    """Return one JSON document on one line; rates are those since an earlier look."""
    return as_json_of_sinks({"": status}, {"": before}, source)


def _document(status: Status, source: SourceLog | None) -> dict[str, Any]:
    lags, merge = (source or UNSEEN).lags(status), status.merge
    return {
        "read_ms": status.read_ms,
        "log": encode(status.log),
        "source": source and source.document,
        "snapshot_paused": status.paused,
        "lag": encode(lags),
        "producer": {**encode(producer_of(status, source)), "sign_of_life_ms": status.sign and status.sign.at_ms},
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
                "commit_to_kafka": encode(status.to_kafka(table)),
                "commit_to_lake": encode(status.to_lake(table)),
            }
            for table in status.tables
        },
    }


def as_text(status: Status, before: Status, source: SourceLog | None = None) -> str:
    """Return a few lines and a table."""
    head = [*_head_lines(status, source), f"sink:  {_sink_words(status)}", _lag_line(status, source), *_note_lines(status)]
    return "\n".join([*head, "", *_table_lines(status.with_rates(before))])


def _head_lines(status: Status, source: SourceLog | None) -> list[str]:
    log = "nothing has been published yet"
    if status.log is not None:
        log = f"{status.log.file}:{status.log.pos} is in Kafka, committed {ago(status.read_ms - status.log.committed_ms)}"
    problem = [f"source: {source.problem}"] if source is not None and source.problem else []
    return [f"log:   {log}", f"producer: {producer_of(status, source).text}", *problem]


def _lag_line(status: Status, source: SourceLog | None) -> str:
    """Return how far Kafka is behind the source, and a sink behind Kafka."""
    lags = (source or UNSEEN).lags(status)
    to_sink = "" if lags.to_sink is None else f", Kafka to sink {lags.to_sink.text}"
    return f"lag:   source to Kafka {lags.to_kafka.text}{to_sink}"


def _note_lines(status: Status) -> list[str]:
    return [f"note:  {note}" for note in status.notes]


def _sink_words(status: Status) -> str:
    at_ms = status.sink_updated_ms
    return status.merge.text + ("" if at_ms is None else f", last batch {ago(status.read_ms - at_ms)}")


def _table_lines(status: Status) -> list[str]:
    rows = [("table", "snapshot", "rows read", "of about", "rows/s", "ETA", "merged", "to Kafka", "to lake", "sink")]
    for table in status.tables:
        to_kafka, to_lake = status.to_kafka(table), status.to_lake(table)
        rows.append(
            (
                table.table,
                ("paused" if status.paused and table.snapshot == "running" else table.snapshot) or "-",
                count(table.rows_read) if table.snapshot else "-",
                count(table.rows_estimated),
                f"{table.rows_per_s:,.0f}" if table.rows_per_s else "-",
                duration(table.eta_s, 0, "-"),
                count(table.sink_rows),
                "-" if to_kafka is None else to_kafka.text,
                "-" if to_lake is None else to_lake.text,
                consistency(table, status),
            )
        )
    notes = (f"{table.table}: {text}" for note in _NOTES for table in status.tables if (text := note(table)))
    return [*aligned(rows), *_delay_notes(status), *notes]


_NOTES: Final[tuple[Callable[[TableStatus], str | None], ...]] = (
    lambda table: table.waits and f"waiting: {table.waits}",
    lambda table: table.error,
    lambda table: "rows go straight into the sink" if table.via == "spark" and table.is_snapshotting else "",
    lambda table: table.via_reason and f"rows go through Kafka: {table.via_reason}",
    lambda table: table.inexact,
    lambda table: table.skipped,
    lambda table: RELEASED if table.released else "",
    lambda table: table.set_aside and f"set aside: {table.set_aside}",
    lambda table: f"{table.quarantined:,} records are in quarantine: tidemark quarantine list" if table.quarantined else "",
)


def _delay_notes(status: Status) -> list[str]:
    """Return the meaning of the columns `to Kafka` and `to lake`, if they have something."""
    delays = [delay for table in status.tables for delay in (status.to_kafka(table), status.to_lake(table)) if delay is not None]
    if not delays:
        return []
    window = f"{max(delay.window_s for delay in delays):.0f} s"
    notes = [f"to Kafka, to lake: half and 99 % of the changes of the last {window} took at most so long from their commit"]
    if any(delay.in_seconds for delay in delays):
        notes.append("to Kafka, to lake: the source's log has whole seconds, so each may be up to 1 s too long")
    return notes
