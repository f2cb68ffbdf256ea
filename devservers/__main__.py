"""`python -m devservers up NAMES | fetch NAMES`: servers for a shell, a demo or a CI job."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devservers.apicurio import Registry, start_registry
from devservers.broker import Kafka, start_kafka
from devservers.databases import KINDS, Database, start_database
from devservers.fetching import announce, fetch, warm
from devservers.postgres_server import VERSIONS, Postgres, start_postgres
from tidemark.runtime.artifacts import UnavailableError

AnyServer = Database | Kafka | Postgres | Registry
SERVERS = (*KINDS, *VERSIONS, "kafka", "registry")
WATCH_SECONDS = 0.5


def start(name: str, run_dir: Path) -> AnyServer:
    """Start any server by its name."""
    if name == "kafka":
        return start_kafka(run_dir)
    if name == "registry":
        return start_registry(run_dir)
    return start_postgres(name, run_dir) if name in VERSIONS else start_database(name, run_dir)


def address(server: AnyServer) -> str:
    """Return what a client of that server is configured with."""
    if isinstance(server, Database):
        return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}"
    if isinstance(server, Postgres):
        return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{server.database}"
    return server.bootstrap_servers if isinstance(server, Kafka) else server.url


def up(names: Sequence[str], run_dir: Path) -> int:
    """Start, print a line `export TIDEMARK_<NAME>=<address>` each, run until a signal or a server's death."""
    fetch(names)
    with ThreadPoolExecutor(len(names)) as pool:
        starting = [pool.submit(start, name, run_dir) for name in names]
        try:
            servers = [one.result() for one in starting]
            for server in servers:
                print(f"export TIDEMARK_{server.name.upper()}={address(server)}")
            sys.stdout.flush()
            announce(f"ready; files are in {run_dir}; Ctrl-C stops")
            while all(server.running for server in servers):
                time.sleep(WATCH_SECONDS)
            dead = next(server for server in servers if not server.running)
            announce(f"{dead.name} ended by itself; see {dead.log_path}")
        except KeyboardInterrupt:
            announce("stopping")
            return 0
        else:
            return 1
        finally:
            started = [one.result() for one in starting if one.exception() is None]
            list(pool.map(lambda server: server.close(), started))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line; the exit status is 0 for a wish, 1 for a failure."""
    parser = argparse.ArgumentParser(prog="python -m devservers", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("up", help="start servers and print their addresses as export lines")
    verb.add_argument("names", nargs="+", choices=SERVERS, metavar="NAME", help=", ".join(SERVERS))
    verb.add_argument("--run-dir", type=Path, help="data and logs; kept (default: a new temporary folder)")
    verb = verbs.add_parser("fetch", help="only fill the cache")
    verb.add_argument(
        "names",
        nargs="+",
        choices=(*SERVERS, "spark", "java"),
        metavar="NAME",
        help=", ".join((*SERVERS, "spark", "java")),
    )
    verb.add_argument("--warm", action="store_true", help="start each once, so that later starts are quick")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # a shell ignores SIGINT for what it runs in the background
        signal.signal(number, signal.default_int_handler)
    try:
        if chosen.verb == "fetch":
            fetch(chosen.names)
            if chosen.warm:
                warm(chosen.names)
            return 0
        return up(chosen.names, chosen.run_dir or Path(tempfile.mkdtemp(prefix="tidemark-run-")))
    except UnavailableError as error:
        announce(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
