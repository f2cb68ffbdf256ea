"""`tidemark quarantine`: what could not be merged, merged again or given up."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError
from schemas.readable import counted, moment
from tidemark.commands.action import add_output, add_sink, add_tables, emit
from tidemark.commands.merge import with_java
from tidemark.process import config

if TYPE_CHECKING:
    from schemas.settings import Settings
    from spark_jobs.merge.retried_table import Retried

HELP: Final = "show the records that could not be merged, merge them again (retry), or give them up (discard)"
ACTIONS: Final = ("list", "retry", "discard")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the action, and the tables."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="list: which records, and why; retry: read them again from Kafka and merge those that can be read now; "
        "discard: remove them. Stop the merge job for the last two",
    )
    add_tables(parser)
    parser.add_argument("--yes", action="store_true", help="discard: do it, and not only say what would be lost")
    add_sink(parser, "the sink to look at, where there are several")
    add_output(parser, "list: form of what is printed")


def execute(arguments: argparse.Namespace) -> int:
    """0 when nothing that was asked for is left undone."""
    settings = config.load(arguments.config).of_sink(arguments.sink)
    config.patterns_of(arguments.tables)
    if arguments.action == "list":
        groups = listed(settings, arguments.tables)
        emit(arguments, groups, as_text(groups))
        return 0
    if arguments.action == "retry":
        if settings.sink.mode != "mirror":
            raise ConfigError(
                f"sinks: {settings.sink.name}: mode: records of quarantine are not appended to a changelog later; snapshot their "
                "tables again (tidemark signal execute-snapshot), then: tidemark quarantine discard"
            )
        return _retry(settings, arguments.tables)
    return _discard(settings, arguments.tables, confirmed=arguments.yes)


def listed(settings: Settings, patterns: list[str]) -> list[dict[str, Any]]:
    """Topic, partition and reason of the records in quarantine: how many, from which offset and time to which."""
    from tidemark.verify.quarantined_rows import groups

    wanted = config.patterns_of(patterns)
    found = groups(settings)
    return [one for one in found if not wanted or any(text.fullmatch(one["table"]) for text in wanted)]


def as_text(groups: list[dict[str, Any]]) -> str:
    """Return a line for each."""
    if not groups:
        return "quarantine: empty"
    lines = [
        f"{one['topic']}[{one['partition']}] offset {one['first_offset']} to {one['last_offset']}: "
        f"{counted(one['records'], 'record')}, {_times(one)}: {one['reason']}"
        for one in groups
    ]
    total = sum(one["records"] for one in groups)
    return "\n".join([*lines, f"quarantine: {counted(total, 'record')}"])


def _times(group: dict[str, Any]) -> str:
    first, last = (moment(group[name], "at an unknown time") for name in ("first_ms", "last_ms"))
    return f"written {first}" if first == last else f"written {first} to {last}"


def _retry(settings: Settings, patterns: list[str]) -> int:
    from spark_jobs.jobs.redrive import redrive

    with redrive(with_java(settings)) as quarantine:
        results = quarantine.retry(patterns)
    for result in results:
        print(retried_text(result))
    if not results:
        print("quarantine: nothing to retry")
    return 1 if any(result.left for result in results) else 0


def retried_text(result: Retried) -> str:
    """Return what became of a table's records, and what can be done about those that stay."""
    lines = [f"{result.table}: {result.settled:,} merged and out of quarantine, {result.left:,} still in it"]
    lines += [f"  {count:,} stay: {reason}" for reason, count in sorted((result.reasons or {}).items())]
    if result.gone:
        lines.append(f"  {result.gone:,} are no longer in Kafka: {_repair(result.table)}")
    if result.unproven:
        lines.append(
            f"  {result.unproven:,} may have been changed later, which Kafka no longer has: {_repair(result.table)}"
        )
    return "\n".join(lines)


def _repair(table: str) -> str:
    """Return the way to a table that equals its source without the records."""
    pattern = re.escape(table)
    return (
        f"have the table read again (tidemark signal execute-snapshot '{pattern}'), then "
        f"tidemark quarantine discard '{pattern}' --yes"
    )


def _discard(settings: Settings, patterns: list[str], *, confirmed: bool) -> int:
    groups = listed(settings, patterns)
    print(as_text(groups))
    if not groups:
        return 0
    tables = sorted({one["table"] for one in groups})
    print(
        "quarantine: what these records say is not in the sink, and cannot be retried once they are discarded. Tables "
        f"that may lack rows until they are read again: {', '.join(tables)}"
    )
    if not confirmed:
        print("quarantine: nothing was discarded; say --yes to do it")
        return 1
    from spark_jobs.jobs.redrive import redrive

    with redrive(with_java(settings)) as quarantine:
        removed = quarantine.discard(patterns)
    for table, count in removed.items():
        print(f"{table}: {counted(count, 'record')} discarded")
    return 0
