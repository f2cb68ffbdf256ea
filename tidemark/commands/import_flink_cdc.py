"""`tidemark import-flink-cdc`: writes our settings from the YAML of a Flink CDC pipeline."""

from __future__ import annotations

import argparse
from typing import Final

from tidemark.commands.imported_settings import deliver, text_of
from tidemark.importers.flink_cdc import read_pipeline, translate_pipeline

HELP: Final = "write settings from a Flink CDC pipeline, and report every option, function and sink without an equivalent"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the pipeline, the output file."""
    parser.add_argument("pipeline", metavar="PIPELINE", help="its YAML")
    parser.add_argument("--output", metavar="FILE", help="write the settings there; else to standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Return settings to the file or standard output, findings to standard error; 0 also where there are findings."""
    values = read_pipeline(text_of(arguments.pipeline), arguments.pipeline)
    deliver(translate_pipeline(values), "import-flink-cdc", arguments.output)
    return 0
