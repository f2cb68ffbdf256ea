"""`tidemark snapshot`: ask for a snapshot, pause, resume and stop it, and list all with how far they are."""

from __future__ import annotations

import argparse
import json
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from schemas import signals
from schemas.json_codec import encode
from schemas.readable import aligned, count, counted, duration, moment
from tidemark.api import sending
from tidemark.commands import numbers, signal
from tidemark.commands.action import Action, add_output
from tidemark.commands.redraw import add_watch, show
from tidemark.process import config

if TYPE_CHECKING:
    from tidemark.status.snapshot_list import SnapshotList, SnapshotRequest, SnapshotTask

HELP: Final = "start a snapshot, pause, resume or stop it, and list all of them with rows, rate and time left"
_RATE_S: Final = 2.0
_NONE: Final = "no snapshot is known: none was asked for, or all are long done"
_NONE_RUNNING: Final = "no snapshot is queued, running or paused"
_ORIGINS: Final = {"signal": "asked for by a signal", "initial": "at the first start", "automatic": "by itself"}


def _configure_start(parser: argparse.ArgumentParser) -> None:
    _add_tables(parser, "+")
    signal.add_snapshot_options(parser)
    signal.add_way(parser)
    parser.add_argument(
        "--wait",
        nargs="?",
        type=numbers.seconds,
        const=math.inf,
        metavar="SECONDS",
        help="wait until all rows are read, or for so many seconds, and show how far it is; exit code 1 when that does not happen. "
        "When this command is interrupted the snapshot continues",
    )
    add_output(parser)
    parser.set_defaults(type=signals.EXECUTE_SNAPSHOT, data=None, message=None)


def _configure_control(parser: argparse.ArgumentParser, kind: str) -> None:
    if kind == signals.STOP_SNAPSHOT:
        _add_tables(parser, "*")
    else:
        parser.set_defaults(tables=[])
    signal.add_way(parser)
    signal.add_wait(parser)
    unused = {"where": [], "blocking": False, "merge": None, "via": None, "surrogate_key": None}
    parser.set_defaults(type=kind, data=None, message=None, **unused)


def _add_tables(parser: argparse.ArgumentParser, count: str) -> None:
    parser.add_argument(
        "tables",
        nargs=count,
        metavar="TABLE",
        help="database.table, or a regular expression for it" + ("; none: all" if count == "*" else ""),
    )


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--running", action="store_true", help="only those that have not ended")
    add_output(parser)
    add_watch(parser)


def _start(arguments: argparse.Namespace) -> int:
    """Ask for the snapshot; with `--wait` 0 only when every table is read."""
    if arguments.wait is None:
        return signal.execute(arguments)
    signal_id, data = signal.prepared(arguments)
    settings = config.load(arguments.config)
    from tidemark.api.notification_reader import NotificationReader
    from tidemark.api.observe import Observer
    from tidemark.commands.snapshot_progress import wait_for_end

    deadline = time.monotonic() + arguments.wait
    with NotificationReader(settings) as reader, Observer(settings) as observer:
        sending.send(arguments.channel, settings, signal_id, arguments.type, data, arguments.url)
        patience_s = min(arguments.wait, signal.ANSWER_S)
        answer = reader.answer(signal_id, time.monotonic() + patience_s)
        if answer is None or answer.type != "ACCEPTED":
            return signal.report_answer(arguments, signal_id, answer, patience_s)
        request = wait_for_end(observer, signal_id, deadline)
    has_ended = request is not None and request.state.final
    if arguments.output == "json":
        print(_end_as_json(signal_id, request))
    else:
        unknown = [f"{signal_id}: its tables are not known yet"]
        print("\n".join(unknown if request is None else _end_lines(request, has_ended=has_ended)))
    return 0 if request is not None and request.state.value == "done" and not request.failed else 1


def _end_as_json(signal_id: str, request: SnapshotRequest | None) -> str:
    return json.dumps({"id": signal_id, "answer": "ACCEPTED", "request": encode(request)})


def _end_lines(request: SnapshotRequest, *, has_ended: bool) -> list[str]:
    """Return what became of a request: a line, and one for each table that was not read."""
    tables, rows = counted(len(request.tasks), "table"), counted(request.rows, "row")
    seconds = "" if request.finished_ms is None else f" in {(request.finished_ms - request.created_ms) / 1000:.1f} s"
    tail = "" if has_ended else ", and it continues: tidemark snapshot list"
    error = f": {request.error}" if request.error else ""
    lines = [f"{request.id}: {request.outcome}, {rows} read of {tables}{seconds}{tail}{error}"]
    return lines + [f"{task.table}: {task.state.value}: {task.error}" for task in request.tasks if task.error]


def _list(arguments: argparse.Namespace) -> int:
    """Print all requests that the producer remembers; 0."""
    settings = config.load(arguments.config)
    from tidemark.api.observe import Observer
    from tidemark.status.snapshot_list import snapshot_list

    with Observer(settings) as observer:

        def seen(before: SnapshotList | None) -> SnapshotList:
            listed = snapshot_list(observer.state(), time.time_ns() // 1_000_000, before)
            return listed.running_only if arguments.running else listed

        last = seen(None)
        if last.is_running:
            time.sleep(_RATE_S)  # a rate needs two looks

        def rendering() -> str:
            nonlocal last
            last = seen(last).with_rates(last)
            none = _NONE_RUNNING if arguments.running else _NONE
            return json.dumps(encode(last)) if arguments.output == "json" else as_text(last, none)

        show(rendering, arguments.watch, redraws=arguments.output == "text")
    return 0


def as_text(listed: SnapshotList, none: str = _NONE) -> str:
    """Return each request as a line with its tables below it, `none` without any; first that nobody reads, where that is so."""
    is_stuck = listed.is_running and not listed.producer.alive
    lines = [f"the producer is {listed.producer.text}", ""] if is_stuck else []
    for request in listed.requests:
        lines += [_head(request), *_task_lines(request.tasks), ""]
    if listed.children:
        lines += ["rows of children whose parents changed, to be read again", *_task_lines(listed.children), ""]
    return "\n".join(lines[:-1]) or none


def _head(request: SnapshotRequest) -> str:
    kind = ", all tables as of one position" if request.blocking else ""
    end = "" if request.finished_ms is None else f", ended {moment(request.finished_ms)}"
    why = "".join(f": {text}" for text in (request.reason, request.error) if text)
    origin = _ORIGINS[request.origin.value]
    return f"{request.id}  {request.outcome}  {origin}{kind} {moment(request.created_ms)}{end}{why}"


def _task_lines(tasks: tuple[SnapshotTask, ...]) -> list[str]:
    if not tasks:
        return ["  no table"]
    rows: list[tuple[str, ...]] = [("table", "state", "rows read", "of about", "read", "rows/s", "ETA", "chunks", "via")]
    rows += [_cells(task) for task in tasks]
    lines = aligned(rows, "  ")
    for task in tasks:
        notes = [
            f"only rows with {task.condition}" if task.condition else "",
            f"rows go through Kafka: {task.via_reason}" if task.via_reason else "",
            f"waiting: {task.waits}" if task.waits else "",
            task.error,
        ]
        lines += [f"  {task.table}: {note}" for note in notes if note]
    return lines


def _cells(task: SnapshotTask) -> tuple[str, ...]:
    rate, eta = task.rows_per_s, task.eta_s
    more = "" if task.is_planned or task.state.final else " or more"
    return (
        task.table,
        task.state.value,
        f"{task.rows:,}",
        count(task.estimate),
        "-" if task.share is None else f"{task.share:.0%}",
        "-" if not rate else f"{rate:,.0f}",
        duration(eta, 0, "-"),
        f"{task.chunks_done:,}" if task.state.final else f"{task.chunks_done:,} of {task.chunks_done + task.chunks_open:,}{more}",
        task.via,
    )


ACTIONS: Final[dict[str, Action]] = {
    "start": Action("ask for a snapshot of tables; --wait shows how far it is until all rows are read", _configure_start, _start),
    "pause": Action(
        "pause all snapshots; chunks that are being read are read to their end",
        partial(_configure_control, kind=signals.PAUSE_SNAPSHOT),
        signal.execute,
    ),
    "resume": Action(
        "continue snapshots that are paused", partial(_configure_control, kind=signals.RESUME_SNAPSHOT), signal.execute
    ),
    "stop": Action(
        "stop snapshots, of all tables or of some; rows that were read stay",
        partial(_configure_control, kind=signals.STOP_SNAPSHOT),
        signal.execute,
    ),
    "list": Action("list every request and its tables: state, rows, estimate, rate, time left, way", _configure_list, _list),
}
