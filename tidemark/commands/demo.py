"""`tidemark demo`: the whole path on real servers of its own, under load, verified at the end."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

HELP: Final = "run the whole path on real servers of its own, under load, and verify it"


def configure(parser: argparse.ArgumentParser) -> None:
    """How much, how long, where."""
    parser.add_argument(
        "--db", choices=("mysql", "mariadb"), default="mysql", help="MySQL 8.0 or MariaDB 11.4"
    )
    parser.add_argument(
        "--rows", type=int, default=210_000, help="rows before the start (default: %(default)s)"
    )
    parser.add_argument(
        "--load-seconds",
        type=float,
        default=25.0,
        help="least length of the write load (default: %(default)s)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=100.0,
        help="transactions a second of the write load (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of rows and load (default: %(default)s)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("demo-data"),
        help="where lake, logs and configuration stay (default: ./%(default)s)",
    )
    scenes = parser.add_mutually_exclusive_group()
    scenes.add_argument(
        "--pipeline", action="store_true", help="shards and a whole database, by routes and transforms, into several sinks at once"
    )
    scenes.add_argument(
        "--sources",
        action="store_true",
        help="sources on MySQL and MariaDB, applied to another server in one order; a third one joins, each process is killed once",
    )


def execute(arguments: argparse.Namespace) -> int:
    """0 when source equals sink, 1 on any difference."""
    from tidemark.demo.scenario import DemoPlan, play, play_pipeline, play_sources

    plan = DemoPlan(
        database=arguments.db,
        rows=arguments.rows,
        load_seconds=arguments.load_seconds,
        rate=arguments.rate,
        seed=arguments.seed,
        folder=arguments.folder,
    )
    scene = play_sources if arguments.sources else play_pipeline if arguments.pipeline else play
    return scene(plan)
