"""`tidemark import-debezium`: writes our settings from the configuration of a Debezium connector."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import yaml

from schemas.errors import ConfigError
from tidemark.importers.debezium import Finding, Translation, parse_offset, read_properties, translate

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
    properties = read_properties(_text(arguments.connector), arguments.connector)
    start_at = None if arguments.offset is None else parse_offset(_text(arguments.offset), arguments.offset)
    translation = translate(properties, start_at)
    settings = to_yaml(translation)
    if arguments.output is None:
        sys.stdout.write(settings)
    else:
        try:
            Path(arguments.output).write_text(settings, encoding="utf-8")
        except OSError as error:
            message = f"--output: {arguments.output} cannot be written: {error.strerror}"
            raise ConfigError(message) from None
    sys.stderr.write(report(translation))
    return 0


def to_yaml(translation: Translation) -> str:
    """Return the settings as a file to be read by people; what is left to do is on top."""
    head = ["# Written by `tidemark import-debezium`. Left to do:"]
    head += [f"#   {_line(finding)}" for finding in translation.findings]
    body: str = yaml.safe_dump(translation.settings, sort_keys=False, allow_unicode=True, width=110)
    return "\n".join(head if translation.findings else head[:1]) + "\n" + body


def report(translation: Translation) -> str:
    """Return what a person has to look at, and what is not needed any more."""
    lines = [_line(finding) for finding in translation.findings]
    if translation.not_needed:
        lines.append(f"not needed: {', '.join(translation.not_needed)}")
    return "".join(f"{line}\n" for line in lines)


def _line(finding: Finding) -> str:
    value = f" = {finding.value}" if finding.value else ""
    return " ".join(f"{finding.name}{value}: {finding.what}".split())


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigError(message) from None
