"""Filling the cache ahead of use, and Spark's jars."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tidemark.embedded import broker, databases, registry
from tidemark.embedded.artifacts import bundle_files
from tidemark.embedded.errors import EmbeddedError
from tidemark.embedded.java import java_home

SPARK_BUNDLES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka": ("spark-delta",),
    "delta": ("spark-delta",),
    "delta-jdbc": ("spark-delta", "mysql-jdbc"),
}


def spark_jars(profile: str = "delta") -> list[Path]:
    """Jars for `spark.jars` that pyspark does not carry, fetched when missing, hashes checked.

    Profiles: "delta" (Kafka source, Avro, Delta), "delta-jdbc" (MySQL's JDBC driver besides).
    """
    if profile not in SPARK_BUNDLES:
        msg = f"no jars for the profile {profile!r}; there are: {', '.join(SPARK_BUNDLES)}"
        raise EmbeddedError(msg)
    return [path for bundle in SPARK_BUNDLES[profile] for path in bundle_files(bundle)]


def announce(text: str) -> None:
    """One line of progress, for people."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def fetch(names: Iterable[str], say: Callable[[str], None] = announce) -> None:
    """Fill the cache with what the named servers need ("spark" for its jars), two at a time.

    Raises EmbeddedError for an unknown name, ArtifactError when something cannot be had.
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
                registry.start_registry(run_dir, record_classes=True).close()
            elif name in databases.KINDS:
                databases.start_database(name, run_dir).close()


def _task(name: str, say: Callable[[str], None]) -> Callable[[], object]:
    if name == "kafka":
        return lambda: bundle_files("kafka", say)
    if name == "registry":
        return lambda: registry.program(say)
    if name == "spark":
        return lambda: [bundle_files(bundle, say) for bundle in SPARK_BUNDLES["delta-jdbc"]]
    if name == "java":
        return lambda: java_home(17)
    kind = databases.kind_of(name)
    return lambda: kind.install(say)
