"""`tidemark tail`: the changes as they come, decoded: which row, what was done, which columns have other values."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError
from tidemark.api.value_text import OPERATIONS, value_text
from tidemark.commands import numbers
from tidemark.commands.action import add_output, add_tables, json_text
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemark.api.change_reader import Change

HELP: Final = "print changes as they come, decoded: table, operation, key, and the columns with other values"
_COLOURS: Final = {"c": "32", "u": "33", "d": "31", "r": "36", "t": "35"}
_WAIT_S: Final = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Which changes, from when on, and the form."""
    add_tables(parser)
    parser.add_argument("--op", default="", metavar="LETTERS", help="only these operations, of c, u, d, r, t: for example cu")
    parser.add_argument("--key", action="append", default=[], metavar="NAME=VALUE", help="only rows with this key; may be repeated")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true", help="begin with the oldest record that Kafka has (default: now)")
    begin.add_argument("--since", type=numbers.seconds, metavar="SECONDS", help="begin with what was written so many seconds ago")
    parser.add_argument("--count", type=numbers.count, metavar="N", help="end after so many changes (default: never)")
    add_output(parser, "form of each change, which is one line")


def execute(arguments: argparse.Namespace) -> int:
    """Print changes until there are enough, or until interrupted."""
    if unknown := set(arguments.op) - OPERATIONS.keys():
        raise ConfigError(f"--op: there is no operation {''.join(sorted(unknown))}; there are {', '.join(OPERATIONS)}")
    keys = dict(_key_part(text) for text in arguments.key)
    settings = config.load(arguments.config)
    from tidemark.api.change_reader import ChangeReader

    begin: str | float = "earliest" if arguments.from_beginning else "latest"
    if arguments.since is not None:
        begin = time.time() - arguments.since
    is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    printed = 0
    with ChangeReader(settings, arguments.tables, begin) as reader:
        while arguments.count is None or printed < arguments.count:
            change = reader.next_change(_WAIT_S)
            if change is None or (arguments.op and change.op not in arguments.op) or not _has_key(change, keys):
                continue
            print(as_json(change) if arguments.output == "json" else as_text(change, is_coloured=is_coloured), flush=True)
            printed += 1
    return 0


def _key_part(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--key: {text!r} is not NAME=VALUE")
    return name, value


def _has_key(change: Change, keys: Mapping[str, str]) -> bool:
    return all(change.key is not None and value_text(change.key.get(name)) == value for name, value in keys.items())


def as_json(change: Change) -> str:
    """Return a change as a JSON document on one line."""
    document = {name: value for name, value in asdict(change).items() if name != "kinds"}
    return json_text(document, default=value_text)


def as_text(change: Change, *, is_coloured: bool = False) -> str:
    """Return a change as one line: time, table, operation, key, and the values; of an update those that are others than before."""
    when = "-" if change.committed_ms is None else f"{datetime.fromtimestamp(change.committed_ms / 1000, UTC):%H:%M:%S.%f}"[:-3]
    operation = OPERATIONS.get(change.op, change.op).ljust(8)
    if is_coloured:
        operation = f"\033[{_COLOURS.get(change.op, '0')}m{operation}\033[0m"
    return f"{when}  {change.table}  {operation}  {_row(change.key, change.kinds)}  {_values(change)}".rstrip()


def _values(change: Change) -> str:
    before, after = change.before, change.after
    if before is None or after is None:
        row = after if after is not None else before
        return _row({name: value for name, value in (row or {}).items() if name not in (change.key or {})}, change.kinds)
    changed = [name for name in after if after[name] != before.get(name)]
    kinds = change.kinds
    shown = ", ".join(
        f"{name}: {value_text(before.get(name), kinds.get(name, ''))} → {value_text(after[name], kinds.get(name, ''))}"
        for name in changed
    )
    return shown or "no column has another value"


def _row(values: Mapping[str, Any] | None, kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value_text(value, kinds.get(name, ''))}" for name, value in (values or {}).items())
