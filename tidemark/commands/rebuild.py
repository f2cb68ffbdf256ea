"""`tidemark rebuild`: makes targets again from nothing, by the routes and transforms as they are now."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Final

from schemas import signals
from schemas.errors import ConfigError, SourceError
from tidemark.api import sending
from tidemark.commands.action import add_sink
from tidemark.commands.merge import with_java
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.identity import SourceTable
    from schemas.position import Position
    from schemas.settings import Settings

_NAMED: Final = 10
HELP: Final = "empty targets of a sink and have their source tables read again; stop the merge job first"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which targets, of which sink."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="database.table in the sink")
    add_sink(parser, "the sink, where there are several")
    parser.add_argument("--yes", action="store_true", help="do it, and not only say what would go")


def execute(arguments: argparse.Namespace) -> int:
    """0 when the targets are empty and the snapshot of their tables is asked for; 1 when the latter is left to do."""
    settings = config.load(arguments.config).of_sink(arguments.sink)
    _require_targets(settings, arguments.targets)
    if not arguments.yes:
        names = ", ".join(arguments.targets)
        print(f"rebuild: the rows of {names} would go until their tables are read again; say --yes to do it")
        return 1
    from spark_jobs.jobs.target_rebuild import rebuild

    tables = rebuild(with_java(settings), arguments.targets, end_of_log=lambda epoch: _end_of_log(settings, epoch))
    print(f"rebuild: {', '.join(arguments.targets)} emptied in sink {settings.sink.name}")
    return _ask_for_snapshot(settings, tables)


def _require_targets(settings: Settings, names: Sequence[str]) -> None:
    """Raise `ConfigError` for a name that no target has, as far as is known without Spark: with routes only the form is."""
    from tidemark.api.sink_folder import read_progress

    for name in names:
        if not all(name.partition(".")):
            raise ConfigError(f"{name!r} is not a target: it has the form database.table, as the sink has it")
    merged = sorted(read_progress(settings).tables)
    unknown = [name for name in names if name not in merged]
    if unknown and merged and not settings.sink.routes:
        close = difflib.get_close_matches(unknown[0], merged, n=1, cutoff=0.6)
        listed = ", ".join([*merged[:_NAMED], *(["..."] if merged[_NAMED:] else [])])
        hint = f"did you mean {close[0]!r}?" if close else f"there are {listed}"
        raise ConfigError(f"sink {settings.sink.name} has no target {unknown[0]!r}; {hint}")


def _end_of_log(settings: Settings, epoch: int) -> Position:
    """Return where the log of the source ends now."""
    from tidemark.verify.source import Source

    with closing(Source(settings.source)) as source:
        return source.position(epoch)


def _ask_for_snapshot(settings: Settings, tables: Sequence[SourceTable]) -> int:
    """Have the producer read the tables; say how, where that cannot be asked for from here."""
    if not tables:
        return 0
    patterns = [re.escape(table.name.plain) for table in tables]
    data = json.dumps({"data-collections": patterns, "type": "INCREMENTAL"})
    try:
        sending.send("source", settings, f"rebuild-{secrets.token_hex(6)}", signals.EXECUTE_SNAPSHOT, data, None)
    except (ConfigError, SourceError) as error:
        words = " ".join(f"'{pattern}'" for pattern in patterns)
        print(f"rebuild: their tables are still to be read again: tidemark signal execute-snapshot {words} ({error})")
        return 1
    names = ", ".join(table.name.plain for table in tables)
    print(f"rebuild: a snapshot of {names} is asked for; start the merge job again")
    return 0
