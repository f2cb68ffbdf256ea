"""`tidemark reload`: the running producer takes `source.tables` and `source.exclude_tables` from its file again."""

from __future__ import annotations

import argparse
import json
import secrets
import time
from typing import Final

from schemas.signals import RELOAD_TABLES
from tidemark.api import sending
from tidemark.commands import numbers
from tidemark.commands.action import add_output, emit
from tidemark.process import config

HELP: Final = "have the running producer take source.tables and source.exclude_tables from its file again, and print what changed"
_ANSWER_S: Final = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the way there, and how long to wait."""
    parser.add_argument(
        "--channel",
        choices=sending.CHANNELS,
        help="the way to the producer, as for `signal` (default: the signal table; a channel of signal.channels where the source "
        "is only read)",
    )
    parser.add_argument("--url", help="http: where the endpoint is, http://host:port (default: service.host and service.port)")
    parser.add_argument(
        "--wait", type=numbers.seconds, default=_ANSWER_S, metavar="SECONDS",
        help="how long to wait for the answer (default: %(default)g)",
    )  # fmt: skip
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Ask by a signal and wait; 1 where the producer refuses its file, or does not answer."""
    settings = config.load(arguments.config)  # a wrong file is refused here already, where it is the same
    signal_id = f"cli-{secrets.token_hex(6)}"
    channel = arguments.channel or sending.lasting(settings)
    from tidemark.api.notification_reader import NotificationReader

    with NotificationReader(settings) as reader:
        sending.send(channel, settings, signal_id, RELOAD_TABLES, None, arguments.url)
        answer = reader.answer(signal_id, time.monotonic() + arguments.wait)
    if answer is None:
        text = f"no answer within {arguments.wait:g} s; is `tidemark run` running? It reads its file when it comes to the signal"
        emit(arguments, {"id": signal_id, "answer": None}, text)
        return 1
    data = answer.additional_data
    if answer.type != "ACCEPTED":
        reason = data.get("reason", "")
        emit(arguments, {"id": signal_id, "answer": answer.type, "reason": reason}, f"refused, nothing is changed: {reason}")
        return 1
    entered, left = (json.loads(data.get(name, "[]")) for name in ("entered", "left"))
    lines = [*(f"{table}: captured from now on" for table in entered), *(f"{table}: not captured any more" for table in left)]
    document = {"id": signal_id, "answer": answer.type, "entered": entered, "left": left}
    emit(arguments, document, "\n".join(lines) or "no table comes in, and none leaves")
    return 0
