"""`tidemark run`: the producer, from the log and the tables of one source into Kafka, until it is stopped."""

from __future__ import annotations

import argparse
import threading
from typing import Final

from tidemark import config
from tidemark.shutdown import stop_on_signals

HELP: Final = "copy the source's log, and its tables when asked, to Kafka until stopped"


def configure(_parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def execute(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; the exit code is 0 then."""
    settings = config.load(arguments.config)
    from producer import app

    stop = threading.Event()
    with stop_on_signals(stop):
        app.run(settings, stop=stop)
    return 0
