"""`tidemark import-debezium`: writes our settings from the configuration of a Debezium connector."""

from __future__ import annotations

import argparse
from typing import Final

from tidemark.commands.imported_settings import deliver, text_of
from tidemark.importers.debezium import parse_offset, read_properties, translate

HELP: Final = "write settings from a Debezium connector's configuration, and report what has no equivalent"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the connector, its offset, the output file."""
    parser.add_argument("connector", metavar="CONNECTOR", help="its configuration: JSON or .properties")
    parser.add_argument(
        "--offset",
        metavar="FILE",
        help="the offset it has come to, as GET /connectors/<name>/offsets answers: Tidemark continues from there, without a "
        "snapshot",
    )
    parser.add_argument("--output", metavar="FILE", help="write the settings there; else to standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Return settings to the file or standard output, findings to standard error; 0 also where there are findings."""
    properties = read_properties(text_of(arguments.connector), arguments.connector)
    start_at = None if arguments.offset is None else parse_offset(text_of(arguments.offset), arguments.offset)
    deliver(translate(properties, start_at), "import-debezium", arguments.output)
    return 0
