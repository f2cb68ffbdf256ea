"""`python -m conformance`: the topics of two prefixes record by record, Tidemark's beside those of Debezium or of another.

It runs from a clone of the repository; a wheel has no package `conformance`. Exit codes are those of `tidemark`: 0 without a
difference, 1 with one, 2 for wrong usage or a configuration that cannot be used.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from conformance.prefixes import Broker, Choice, Prefix, compare_prefixes
from schemas.applied.kafka_security import client_options
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import ConfigError, TidemarkError
from tidemark.process import config

if TYPE_CHECKING:
    from schemas.settings import Settings

USAGE: Final = 2
DESCRIPTION: Final = (
    "Compare the topics of two prefixes whose producers read the same tables of the same server: keys, values, schemas, "
    "headers, order per key. Differences of docs/differences.md are counted, any other one is printed and ends with "
    "exit code 1. Broker and registry are those of the configuration, unless they are named here."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two prefixes as the arguments say, and return the exit code."""
    try:
        return _compare(_parser().parse_args(arguments))
    except ConfigError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return USAGE
    except TidemarkError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    """Return the parser: the two sides, their addresses, and which topics are compared."""
    parser = argparse.ArgumentParser(prog="python -m conformance", description=DESCRIPTION)
    parser.add_argument("--config", "-c", default=config.DEFAULT_PATH, metavar="FILE", help="settings (default: %(default)s)")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="only these: regular expressions on database.table")
    parser.add_argument("--left", required=True, metavar="PREFIX", help="what is to be equal to: Debezium's prefix, or another")
    parser.add_argument("--right", required=True, metavar="PREFIX", help="Tidemark's prefix")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="the broker; no configuration is needed then")
    parser.add_argument("--registry", metavar="URL", help="the schema registry of both sides, where records are Avro")
    parser.add_argument("--left-registry", metavar="URL", help="that of the left side, where it has its own")
    parser.add_argument("--until", choices=("now",), default="now", help="read to the topics' ends as they are now")
    parser.add_argument("--snapshots", action="store_true", help="compare rows of snapshots, too: where nothing changed between")
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="TABLE",
        help="leave tables out: a regular expression on database.table (the configuration's signal table is); or "
        "schema-changes, transaction, heartbeat: these topics",
    )
    parser.add_argument("--show", type=int, default=20, metavar="N", help="differences to print (default: %(default)s)")
    return parser


def _compare(arguments: argparse.Namespace) -> int:
    """Print what was found; 1 when something differs that is not meant to, and when nothing could be compared."""
    settings = None if arguments.bootstrap_servers else config.load(arguments.config)
    config.patterns_of((*arguments.tables, *arguments.exclude))
    registry = arguments.registry or (settings.format.registry if settings is not None else None)
    report = compare_prefixes(
        Broker(arguments.bootstrap_servers)
        if settings is None
        else Broker(settings.kafka.bootstrap_servers, client_options(settings.kafka)),
        _prefix(arguments.left, arguments.left_registry or registry, settings),
        _prefix(arguments.right, registry, settings),
        Choice(
            tables=arguments.tables,
            left_out=[*arguments.exclude, *_signal_table(settings)],
            snapshots=arguments.snapshots,
            shown=arguments.show,
        ),
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(report.to_text())
    return 0 if report.ok else 1


def _prefix(name: str, registry: str | None, settings: Settings | None) -> Prefix:
    """Return one side; the settings' credentials are for the settings' registry only."""
    if settings is None or registry != settings.format.registry:
        return Prefix(name, registry)
    return Prefix(name, registry, RegistryAccess.of(settings.format))


def _signal_table(settings: Settings | None) -> list[str]:
    """Return what the two sides write to their signal tables differs."""
    names = None if settings is None else settings.source.signal_names
    return [] if names is None else [re.escape(".".join(names))]


if __name__ == "__main__":
    sys.exit(main())
