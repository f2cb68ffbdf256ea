"""Filling the cache ahead of use."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devservers import apicurio, broker, databases, postgres_server
from devservers.bundles import bundle_files
from tidemark.runtime.jars import spark_jars
from tidemark.runtime.java import java_home


def announce(text: str) -> None:
    """One line of progress, for people."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def fetch(names: Iterable[str], say: Callable[[str], None] = announce) -> None:
    """Fill the cache with what the named servers need ("spark" for its jars), two at a time.

    Raises DevServerError for an unknown name, ArtifactError when a file is unavailable.
    """
    tasks = [_task(name, say) for name in dict.fromkeys(names)]
    java_home(17)  # Ivy needs it, so it comes first
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()


def warm(names: Iterable[str]) -> None:
    """Start and stop each named server once: data directories and class archives are then in the cache."""
    with tempfile.TemporaryDirectory(prefix="tidemark-warm-") as folder:
        for name in dict.fromkeys(names):
            run_dir = Path(folder)
            announce(f"{name}: starting once")
            if name == "kafka":
                broker.start_kafka(run_dir, record_classes=True).close()
            elif name == "registry":
                apicurio.start_registry(run_dir, record_classes=True).close()
            elif name in postgres_server.VERSIONS:
                postgres_server.start_postgres(name, run_dir).close()
            elif name in databases.KINDS:
                databases.start_database(name, run_dir).close()


def _task(name: str, say: Callable[[str], None]) -> Callable[[], object]:
    if name == "kafka":
        return lambda: bundle_files("kafka", say)
    if name == "registry":
        return lambda: apicurio.program(say)
    if name == "spark":
        return lambda: spark_jars(say=say)
    if name == "java":
        return lambda: java_home(17)
    if name in postgres_server.VERSIONS:
        return lambda: postgres_server.install(name, say)
    kind = databases.kind_of(name)
    return lambda: kind.install(say)
