"""`tidemark repair`: start over where the source's log cannot be read further, and have all captured tables read again."""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from schemas.overriding import override
from tidemark.process import config
from tidemark.process.shutdown import stop_on_signals

if TYPE_CHECKING:
    from producer.stream.log_reader import LogReader

HELP: Final = "start over at the end of the source's log where it was purged, reset or is another server's"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments. What is not broken is left alone, unless it is asked for."""
    parser.add_argument(
        "--anew",
        action="store_true",
        help="also where the log could be read further: to leave a change behind that the producer stops at (logged as a "
        "statement, or damaged)",
    )
    parser.epilog = (
        "Stop the producer first; start it again afterwards. Then all captured tables are read, and rows that no longer "
        f"exist leave the sinks once a table is read whole. {parser.epilog}"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Say what was broken and where reading continues; nothing is changed where the log can be read further."""
    settings = config.load(arguments.config)
    settings = replace(settings, snapshot=replace(settings.snapshot, mode="when_needed"))
    from producer.app import Producer

    reason = "asked for with `tidemark repair --anew`" if arguments.anew else ""
    stop = threading.Event()
    with stop_on_signals(stop), Producer(settings, restart_reason=reason, stop=stop) as producer:
        reader = producer.reader
        assert reader is not None
        offset = reader.committed
        if not producer.lost:
            print(f"repair: nothing to do, the log continues from {offset.file}:{offset.pos} (--anew: start over all the same)")
            return 0
        reader.run(_FirstCheckpoint(stop, reader))
    if not reader.progress.checkpoints:
        print("repair: interrupted before anything was changed; run it again", file=sys.stderr)
        return 1
    print(f"repair: {producer.lost}")
    print(f"repair: started over at {offset.file}:{offset.pos}, epoch {offset.epoch}. `tidemark run` reads the tables again")
    return 0


class _FirstCheckpoint(threading.Event):
    """Set when another event is, or when the new beginning is durable."""

    def __init__(self, stop: threading.Event, reader: LogReader) -> None:
        super().__init__()
        self._stop = stop
        self._reader = reader

    @override
    def is_set(self) -> bool:
        return self._stop.is_set() or self._reader.progress.checkpoints > 0
