"""`tidemark verify`: compares every captured table with its table in the sink, while both move."""

from __future__ import annotations

import argparse
from typing import Final

from schemas.errors import ConfigError
from schemas.json_codec import encode
from tidemark.commands.action import add_output, add_sink, add_tables, emit
from tidemark.process import config

HELP: Final = "compare source and sink row by row; exit code 1 on any difference"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which tables, and the form of the report."""
    add_tables(parser)
    add_sink(parser, "the sink to compare, where there are several")
    add_output(parser, "form of the report")


def execute(arguments: argparse.Namespace) -> int:
    """Print the report; 1 when a row differs or a table could not be compared."""
    settings = config.load(arguments.config).of_sink(arguments.sink)
    if settings.sink.mode == "changelog":
        message = f"sinks: {settings.sink.name}: mode: a changelog has no current rows that could be compared; verify a mirror"
        raise ConfigError(message)
    config.patterns_of(arguments.tables)
    from tidemark.verify import verify
    from tidemark.verify.awaited import AwaitedRows

    with AwaitedRows(settings) as awaited:
        report = verify(settings, tables=arguments.tables or None, awaited=awaited)
    emit(arguments, encode(report), report.to_text(), indent=2)
    return 0 if report.ok else 1
