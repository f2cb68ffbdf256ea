"""`tidemark lag`: how many seconds each sink is behind the source, where, and one word for the whole."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Final

from schemas.json_codec import encode
from schemas.readable import counted
from tidemark.api.source_log import source_of
from tidemark.commands.action import settings_of
from tidemark.commands.redraw import show
from tidemark.commands.status import add_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemark.status.lags import Lag, Lags

HELP: Final = "show how many seconds each sink is behind the source, and whether anything needs a person"
_SHOWN: Final = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Form, repetition, sink."""
    add_options(parser)
    parser.add_argument("--all", action="store_true", help="each table, not only those that are behind")


def execute(arguments: argparse.Namespace) -> int:
    """Print the lags, once or repeatedly; always 0: how much is too much, the reader knows."""
    settings = settings_of(arguments)
    from tidemark.api.observe import Observer

    with Observer(settings) as observer:

        def rendering() -> str:
            statuses = observer.settled_each()
            source = source_of(settings, next(iter(statuses.values())))
            lags_of_sinks = {name: source.lags(status) for name, status in statuses.items()}
            return as_json(lags_of_sinks) if arguments.output == "json" else as_text(lags_of_sinks, shows_all=arguments.all)

        show(rendering, arguments.watch, redraws=arguments.output == "text")
    return 0


def as_json(lags_of_sinks: Mapping[str, Lags]) -> str:
    """Return one JSON document on one line: `{"sinks": {name: lags}}`."""
    tables = {name: {table: encode(lag) for table, lag in lags.tables.items()} for name, lags in lags_of_sinks.items()}
    return json.dumps({"sinks": {name: {**encode(lags), "tables": tables[name]} for name, lags in lags_of_sinks.items()}})


def as_text(lags_of_sinks: Mapping[str, Lags], *, shows_all: bool = False) -> str:
    """Return for each sink its word with the reasons, both lags, and the tables that are behind: unknown ones, then the oldest."""
    return "\n\n".join("\n".join(_lines(name or "sink", lags, shows_all=shows_all)) for name, lags in lags_of_sinks.items())


def _lines(name: str, lags: Lags, *, shows_all: bool) -> list[str]:
    lines = [f"{name}: {lags.verdict.word.value.replace('_', ' ')}", *(f"  {reason}" for reason in lags.verdict.reasons)]
    lines.append(f"  source to Kafka  {lags.to_kafka.text}{_left(lags.to_kafka, 'byte')}")
    if lags.to_sink is None:
        return lines
    lines.append(f"  Kafka to sink    {lags.to_sink.text}{_left(lags.to_sink, 'record')}")
    late = sorted(lags.tables.items(), key=lambda one: (-(float("inf") if one[1].seconds is None else one[1].seconds), one[0]))
    late = late if shows_all else [(table, lag) for table, lag in late if lag.seconds != 0 and table not in lags.left_out]
    shown = late if shows_all else late[:_SHOWN]
    width = max((len(table) for table, _ in shown), default=0)
    lines += [f"    {table.ljust(width)}  {lag.text}{_left(lag, 'record')}" for table, lag in shown]
    if len(late) > len(shown):
        lines.append(f"    and {len(late) - len(shown)} more tables: --all")
    return lines


def _left(lag: Lag, noun: str) -> str:
    return f", {counted(lag.left, noun)} left" if lag.left else ""
