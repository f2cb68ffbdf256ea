"""`tidemark up`: everything on this machine, for a trial: broker and registry if there are none, and our jobs."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from schemas.settings import why_no_merge
from tidemark.process import config
from tidemark.process.shutdown import end_children, stop_on_signals

if TYPE_CHECKING:
    from schemas.settings import Settings
    from tidemark.local.local_jobs import LocalJobs

HELP: Final = "run the whole pipeline on this machine: broker and registry if there are none, producer, merge job, page"
FOLDER: Final = "tidemark-data"
_CHECK_S: Final = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Where data and logs are."""
    parser.add_argument(
        "--folder", type=Path, metavar="DIR",
        help=f"logs, and the data of broker and registry; it stays for the next time (default: {FOLDER} beside the YAML file)",
    )  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT: 0; 1 when a job or a server ends by itself, or cannot work; 2 where folder or port is in use."""
    settings = config.load(arguments.config)
    if settings.sinks and (problems := why_no_merge(settings)):
        raise ConfigError(*problems)
    stop = threading.Event()
    with stop_on_signals(stop):
        from tidemark.local.local_servers import only_user_of, require_free_ports

        folder = (arguments.folder or Path(arguments.config).parent / FOLDER).absolute()
        with only_user_of(folder):
            require_free_ports(settings)
            try:
                _run(settings, arguments.config, folder, stop)
            except KeyboardInterrupt:  # a second signal: nobody waits for anything
                end_children()
                raise
    return 0


def _run(settings: Settings, config_path: str, folder: Path, stop: threading.Event) -> None:
    from tidemark.local.local_jobs import Complaints, LocalJobs, Milestones, compiled_ahead
    from tidemark.local.local_servers import LocalServers, require_ready

    say = _sayer()
    verbs = ["run", *(["merge"] if settings.sinks else []), "page"]
    with compiled_ahead(folder, for_workers=bool(settings.sinks)), LocalServers(settings, folder, say) as servers:
        require_ready(settings, stop)
        if not stop.is_set() and servers.start(stop):
            with LocalJobs(verbs, config_path, folder) as jobs, Milestones(settings, say):
                say(f"{', '.join(verbs)}: started, logs in {folder}")
                page, complaints = _PageLines(jobs), Complaints(jobs, verbs)
                while not stop.wait(_CHECK_S):
                    for line in complaints.new():
                        say(line)
                    jobs.check()
                    servers.check()
                    page.repeat()
                say("ending")
    end_children()  # what a job has left that had to be killed
    say("ended")


def _sayer() -> Callable[[str], None]:
    """Return what prints a line with the seconds since now."""
    began_s = time.monotonic()

    def say(line: str) -> None:
        print(f"up: {time.monotonic() - began_s:5.1f} s  {line}", flush=True)

    return say


class _PageLines:
    """What the page says of itself, printed once: its address and its token."""

    def __init__(self, jobs: LocalJobs) -> None:
        self._jobs = jobs
        self._printed = 0
        self._is_whole = False

    def repeat(self) -> None:
        """Print what is new. The last of it is there when the page logs that it listens."""
        if self._is_whole:
            return
        said = self._jobs.said("page")
        self._is_whole = "page.listening" in said
        lines = [line for line in said.splitlines(keepends=True) if line.startswith("page: ") and line.endswith("\n")]
        for line in lines[self._printed :]:
            print(line, end="", flush=True)
        self._printed = len(lines)
