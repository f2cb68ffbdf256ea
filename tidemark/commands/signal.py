"""`tidemark signal`: inserts a row into the signal table, and waits for the answer when asked to."""

from __future__ import annotations

import argparse
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from schemas import signals
from schemas.errors import ConfigError, SignalError
from tidemark import config

if TYPE_CHECKING:
    from schemas.settings import Settings

HELP: Final = "insert a signal into the signal table and print its id"
TYPES: Final = (
    signals.EXECUTE_SNAPSHOT,
    signals.STOP_SNAPSHOT,
    signals.PAUSE_SNAPSHOT,
    signals.RESUME_SNAPSHOT,
    signals.LOG,
)
_ANSWER_S: Final = 30.0
_WIDEST_DATA: Final = 2048


def configure(parser: argparse.ArgumentParser) -> None:
    """Type, tables, conditions; or the data as it stands."""
    parser.add_argument("type", choices=TYPES, help="what is to be done")
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="database.table, or a regular expression for it"
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="TABLE:PREDICATE",
        help="execute-snapshot: read only these rows of a table, for example 'shop.orders: id > 500'",
    )
    parser.add_argument(
        "--blocking",
        action="store_true",
        help="execute-snapshot: read all tables as of one position, while the log waits",
    )
    parser.add_argument("--message", help="log: the text for the producer's log")
    parser.add_argument("--data", metavar="JSON", help="the signal's data as it stands, instead of the above")
    parser.add_argument("--id", help="the signal's id (default: a random one)")
    parser.add_argument(
        "--wait",
        nargs="?",
        type=float,
        const=_ANSWER_S,
        metavar="SECONDS",
        help="wait for the answer, 30 s by default; exit code 1 when it is a refusal",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of what is printed")


def execute(arguments: argparse.Namespace) -> int:
    """Insert the signal; 1 when an awaited answer is a refusal or does not come."""
    signal_id = arguments.id or f"cli-{secrets.token_hex(6)}"
    data = arguments.data if arguments.data is not None else data_of(arguments)
    _check(signal_id, arguments.type, data)
    settings = config.load(arguments.config)
    if arguments.wait is None:
        insert(settings, signal_id, arguments.type, data)
        _print(arguments, {"id": signal_id}, signal_id)
        return 0
    from tidemark.notifications import NotificationReader

    with NotificationReader(settings) as reader:
        insert(settings, signal_id, arguments.type, data)
        answer = reader.answer(signal_id, time.monotonic() + arguments.wait)
    if answer is None:
        text = f"{signal_id}: no answer within {arguments.wait:g} s; is `tidemark run` running?"
        _print(arguments, {"id": signal_id, "answer": None}, text)
        return 1
    reason = answer.additional_data.get("reason")
    text = f"{signal_id}: {answer.type.lower()}" + (f": {reason}" if reason else "")
    _print(arguments, {"id": signal_id, "answer": answer.type, "reason": reason}, text)
    return 0 if answer.type == "ACCEPTED" else 1


def data_of(arguments: argparse.Namespace) -> str | None:
    """The signal's JSON for the arguments; None where a signal has no data."""
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
    return json.dumps(document, ensure_ascii=False) if document else None


def insert(settings: Settings, signal_id: str, signal_type: str, data: str | None) -> None:
    """Commit one row in the signal table."""
    names = settings.source.signal_names
    if names is None:
        message = "source.signal_table: is not set, so there is no table to put a signal into"
        raise ConfigError(message)
    from producer.source.connection import connect

    table = ".".join(f"`{name.replace('`', '``')}`" for name in names)
    connection = connect(settings.source)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", (signal_id, signal_type, data))  # noqa: S608
        connection.commit()
    finally:
        connection.close()


def _check(signal_id: str, signal_type: str, data: str | None) -> None:
    """Say here what the producer would answer."""
    try:
        signals.parse_signal(signal_id, signal_type, data)
    except SignalError as error:
        message = f"signal {signal_type}: {error}"
        raise ConfigError(message) from None
    if data is not None and len(data) > _WIDEST_DATA:
        message = f"signal {signal_type}: its data has {len(data)} characters, more than {_WIDEST_DATA}"
        raise ConfigError(message)


def _condition(text: str) -> dict[str, str]:
    table, colon, predicate = text.partition(":")
    if not colon:
        message = f"--where {text!r}: expected TABLE:PREDICATE, for example 'shop.orders: id > 500'"
        raise ConfigError(message)
    return {"data-collection": table.strip(), "filter": predicate.strip()}


def _print(arguments: argparse.Namespace, document: dict[str, object], text: str) -> None:
    print(json.dumps(document) if arguments.output == "json" else text)
