"""`tidemark signal`: puts a signal where the producer hears it, and waits for the answer when asked to."""

from __future__ import annotations

import argparse
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from schemas import signals
from schemas.errors import ConfigError, SignalError
from tidemark.api import sending
from tidemark.commands import numbers
from tidemark.commands.action import add_output, emit
from tidemark.process import config

if TYPE_CHECKING:
    from schemas.notifications import Notification

HELP: Final = "give the producer a signal, by a row in the signal table or another channel, and print its id"
TYPES: Final = (
    signals.EXECUTE_SNAPSHOT,
    signals.STOP_SNAPSHOT,
    signals.PAUSE_SNAPSHOT,
    signals.RESUME_SNAPSHOT,
    signals.LOG,
    signals.RELOAD_TABLES,
    signals.PAUSE_SOURCE,
    signals.RESUME_SOURCE,
    signals.CLOSE_SOURCE,
)
# Which of the arguments that make a signal's data its type has.
_TAKES: Final = {
    signals.EXECUTE_SNAPSHOT: ("tables", "where", "blocking", "merge", "via", "surrogate_key"),
    signals.STOP_SNAPSHOT: ("tables",),
    signals.PAUSE_SNAPSHOT: (),
    signals.RESUME_SNAPSHOT: (),
    signals.LOG: ("message",),
    signals.RELOAD_TABLES: (),
    signals.PAUSE_SOURCE: (),
    signals.RESUME_SOURCE: (),
    signals.CLOSE_SOURCE: (),
}
_DATA_ARGUMENTS: Final = ("tables", "where", "blocking", "merge", "via", "surrogate_key", "message")
ANSWER_S: Final = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Type, tables, conditions; or the data as it is. And the way there."""
    parser.add_argument("type", choices=TYPES, help="what is to be done")
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="database.table, or a regular expression for it"
    )
    add_snapshot_options(parser, "execute-snapshot: ")
    parser.add_argument("--message", help="log: the text for the producer's log")
    parser.add_argument("--data", metavar="JSON", help="the signal's data as it is, instead of the above")
    add_way(parser)
    add_wait(parser)


def add_snapshot_options(parser: argparse.ArgumentParser, head: str = "") -> None:
    """Add what a snapshot may be asked for with; each help begins with `head`."""
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="TABLE:PREDICATE",
        help=f"{head}read only these rows of a table, for example 'shop.orders: id > 500'",
    )
    parser.add_argument(
        "--blocking",
        action="store_true",
        help=f"{head}read all tables as of one position, while the log waits",
    )
    parser.add_argument(
        "--merge",
        choices=("spark", "producer"),
        help=f"{head}who merges the rows with the log (default: snapshot.merge); `producer` writes them "
        "into the change topics, as Debezium does",
    )
    parser.add_argument(
        "--via",
        choices=("auto", "kafka", "spark"),
        help=f"{head}the way of the rows (default: snapshot.via); with `spark` the merge job reads them itself",
    )
    parser.add_argument(
        "--surrogate-key",
        metavar="COLUMN",
        help=f"{head}cut the tables by this column instead of their key; it may repeat and be NULL",
    )


def add_way(parser: argparse.ArgumentParser) -> None:
    """Add the signal's id, and the way to the producer."""
    parser.add_argument("--id", help="the signal's id (default: a random one)")
    parser.add_argument(
        "--channel",
        choices=sending.CHANNELS,
        default="source",
        help="the way to the producer: a row in the signal table (source), its topic or file of signals (kafka, file; "
        "where signal.channels names them), its HTTP endpoint (http) (default: %(default)s)",
    )
    parser.add_argument(
        "--url", help="http: where the endpoint is, http://host:port (default: service.host and service.port)"
    )


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add whether to wait for the answer, and the form of what is printed."""
    parser.add_argument(
        "--wait",
        nargs="?",
        type=numbers.seconds,
        const=ANSWER_S,
        metavar="SECONDS",
        help="wait for the answer, 30 s by default; exit code 1 when it is a refusal",
    )
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Send the signal; 1 when an awaited answer is a refusal or does not come."""
    signal_id, data = prepared(arguments)
    settings = config.load(arguments.config)
    if arguments.wait is None:
        sending.send(arguments.channel, settings, signal_id, arguments.type, data, arguments.url)
        emit(arguments, {"id": signal_id}, signal_id)
        return 0
    from tidemark.api.notification_reader import NotificationReader

    with NotificationReader(settings) as reader:
        sending.send(arguments.channel, settings, signal_id, arguments.type, data, arguments.url)
        answer = reader.answer(signal_id, time.monotonic() + arguments.wait)
    return report_answer(arguments, signal_id, answer, arguments.wait)


def prepared(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """Return id and data of the signal. `ConfigError` for what the producer would refuse, and for arguments that do not fit."""
    signal_id = arguments.id or f"cli-{secrets.token_hex(6)}"
    _require_fitting(arguments)
    data = arguments.data if arguments.data is not None else data_of(arguments)
    _check(arguments.channel, signal_id, arguments.type, data)
    return signal_id, data


def report_answer(arguments: argparse.Namespace, signal_id: str, answer: Notification | None, seconds: float) -> int:
    """Print the answer to a signal, or that there was none in that time; return the exit code."""
    if answer is None:
        text = (
            f"{signal_id}: no answer within {seconds:g} s; is `tidemark run` running? The signal stays where "
            "it is, and is carried out when the producer comes to it"
        )
        emit(arguments, {"id": signal_id, "answer": None}, text)
        return 1
    reason = answer.additional_data.get("reason")
    text = f"{signal_id}: {answer.type.lower()}" + (f": {reason}" if reason else "")
    emit(arguments, {"id": signal_id, "answer": answer.type, "reason": reason}, text)
    return 0 if answer.type == "ACCEPTED" else 1


def data_of(arguments: argparse.Namespace) -> str | None:
    """Return the signal's JSON for the arguments; None where a signal has no data."""
    if arguments.type == signals.LOG:
        return json.dumps({"message": arguments.message}, ensure_ascii=False)
    document: dict[str, Any] = {}
    if arguments.tables:
        document["data-collections"] = arguments.tables
    if arguments.type == signals.EXECUTE_SNAPSHOT:
        document["type"] = "BLOCKING" if arguments.blocking else "INCREMENTAL"
        conditions = [_condition(text) for text in arguments.where]
        if conditions:
            document["additional-conditions"] = conditions
        if arguments.merge is not None:
            document["merge"] = arguments.merge
        if arguments.via is not None:
            document["via"] = arguments.via
        if arguments.surrogate_key is not None:
            document["surrogate-key"] = arguments.surrogate_key
    return json.dumps(document, ensure_ascii=False) if document else None


def _require_fitting(arguments: argparse.Namespace) -> None:
    """Refuse arguments that this type, or this channel, would leave unused."""
    takes = () if arguments.data is not None else _TAKES[arguments.type]
    who = "--data" if arguments.data is not None else arguments.type
    for name in _DATA_ARGUMENTS:
        if getattr(arguments, name) not in (None, [], False) and name not in takes:
            option = "TABLE" if name == "tables" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option}: does not go with {who}")
    if arguments.url is not None and arguments.channel != "http":
        raise ConfigError(f"--url: does not go with --channel {arguments.channel}; give --channel http")


def _check(channel: str, signal_id: str, signal_type: str, data: str | None) -> None:
    """Say here what the producer, or the signal table, would answer."""
    try:
        signals.parse_signal(signal_id, signal_type, data)
    except SignalError as error:
        raise ConfigError(f"signal {signal_type}: {error}") from None
    if channel not in ("source", "http"):
        return
    if len(signal_id) > sending.WIDEST_ID:
        raise ConfigError(f"--id: has {len(signal_id)} characters, the signal table holds {sending.WIDEST_ID}")
    if data is not None and len(data) > sending.WIDEST_DATA:
        raise ConfigError(f"signal {signal_type}: its data has {len(data)} characters, more than {sending.WIDEST_DATA}")


def _condition(text: str) -> dict[str, str]:
    table, colon, predicate = text.partition(":")
    if not colon:
        raise ConfigError(f"--where {text!r}: expected TABLE:PREDICATE, for example 'shop.orders: id > 500'")
    return {"data-collection": table.strip(), "filter": predicate.strip()}
