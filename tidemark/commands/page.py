"""`tidemark page`: the state of the pipeline in a browser: lag, tables, changes, snapshots, schemas, sinks, tasks, checks."""

from __future__ import annotations

import argparse
import threading
from dataclasses import replace
from typing import Final

import structlog

from tidemark.commands import numbers
from tidemark.commands.action import add_tasks, tasks_of
from tidemark.process import config
from tidemark.process.shutdown import stop_on_signals

log = structlog.get_logger(__name__)

HELP: Final = "show the state of the pipeline in a browser, and start and stop snapshots there"


def configure(parser: argparse.ArgumentParser) -> None:
    """Where it listens, and which tasks it shows."""
    add_tasks(parser)
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: service.host)")
    parser.add_argument("--port", type=numbers.port, metavar="PORT", help="TCP port (default: service.page_port); 0 for a free one")


def execute(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 then."""
    settings, tasks = config.load(arguments.config), tasks_of(arguments)
    service = settings.service if arguments.host is None else replace(settings.service, host=arguments.host)
    port = service.page_port if arguments.port is None else arguments.port
    stop = threading.Event()
    with stop_on_signals(stop):
        from tidemark.page.page_views import Views
        from tidemark.page.parts import Parts
        from tidemark.page.server import PageServer
        from tidemark.page.sign_in import Access

        access = Access(service, port)
        parts = Parts(settings, arguments.config, tasks)
        with PageServer(Views(settings, parts, access).application(), service.host, port) as server, parts:
            print(f"page: http://{_shown(service.host)}:{server.port}/", flush=True)
            if access.is_made_here:
                print(f"page: to act, sign in with the token {access.token} (service.token sets one that stays)", flush=True)
            log.info("page.listening", port=server.port)
            stop.wait()
    return 0


def _shown(host: str) -> str:
    """Return the host as a browser of this machine writes it."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - shown, not listened on
        return "localhost"
    return f"[{host}]" if ":" in host else host
