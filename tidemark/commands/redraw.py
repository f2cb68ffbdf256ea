"""`--watch`: the same again every so many seconds, in place on a terminal, one after the other elsewhere; tables of text."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tidemark.commands import numbers

EVERY_S: Final = 2.0


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add `--watch`."""
    parser.add_argument(
        "--watch",
        nargs="?",
        type=numbers.seconds_above_0,
        const=EVERY_S,
        metavar="SECONDS",
        help="show it again every so many seconds (%(const)g), until interrupted; a terminal is redrawn",
    )


def show(render: Callable[[], str], every_s: float | None, *, redraws: bool = True) -> None:
    """Print what `render` returns, once or every so many seconds; with `redraws` a terminal shows the newest text only."""
    if every_s is not None and redraws and sys.stdout.isatty():
        _redraw(render, every_s)
        return
    print(render(), flush=True)
    while every_s is not None:
        time.sleep(every_s)
        print(render(), flush=True)


def _redraw(render: Callable[[], str], every_s: float) -> None:
    """Show the text in place; it is cut where the terminal ends, and the last one stays when the command is interrupted."""
    from rich.live import Live
    from rich.text import Text

    def drawn() -> Text:
        now = f"every {every_s:g} s, {datetime.now(UTC):%H:%M:%S} UTC; Ctrl-C ends it"
        return Text(f"{now}\n{render()}", no_wrap=True, overflow="ellipsis")

    with Live(drawn(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            time.sleep(every_s)
            live.update(drawn(), refresh=True)
