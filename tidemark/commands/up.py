"""`tidemark up`: everything on this machine, for a trial: broker and registry if there are none, and our jobs."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from tidemark.process import config
from tidemark.process.shutdown import stop_on_signals

HELP: Final = "run the whole pipeline on this machine: broker and registry if there are none, producer, merge job, page"
_LOOK_S: Final = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Where data and logs are."""
    parser.add_argument(
        "--folder", type=Path, default=Path("tidemark-data"), metavar="DIR",
        help="logs, and the data of broker and registry; it stays for the next time (default: ./%(default)s)",
    )  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT: 0; 1 when a job or a server ends by itself."""
    settings = config.load(arguments.config)
    stop = threading.Event()
    began_s = time.monotonic()

    def say(line: str) -> None:
        print(f"up: {time.monotonic() - began_s:5.1f} s  {line}", flush=True)

    with stop_on_signals(stop):
        from tidemark.local.local_jobs import LocalJobs, Milestones
        from tidemark.local.local_servers import LocalServers

        folder: Path = arguments.folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        verbs = ["run", *(["merge"] if settings.sinks else []), "page"]
        with LocalServers(settings, folder, say) as servers, LocalJobs(verbs, arguments.config, folder) as jobs:
            say(f"{', '.join(verbs)}: started, logs in {folder}")
            said_page = False
            with closing(Milestones(settings)) as milestones:
                while not stop.wait(_LOOK_S):
                    jobs.check()
                    servers.check()
                    if not said_page:
                        said_page = _repeat_page(jobs.log_path("page"))
                    for line in milestones.look():
                        say(line)
            say("ending")
    return 0


def _repeat_page(log_path: Path) -> bool:
    """Print what the page says of itself: its address and its token; whether it has said that."""
    lines = [line for line in log_path.read_text("utf-8", "replace").splitlines() if line.startswith("page: ")]
    for line in lines:
        print(line, file=sys.stdout, flush=True)
    return bool(lines)
