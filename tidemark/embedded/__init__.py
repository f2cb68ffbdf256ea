"""Databases, Kafka, a schema registry and Spark's jars without Docker and without an administrator's rights.

::

    with start_database("mysql80", run_dir) as db, start_kafka(run_dir) as kafka, start_registry(run_dir) as
    registry:
        db.connect(); kafka.bootstrap_servers; registry.url

Files are fetched once into `$TIDEMARK_CACHE` (default `~/.cache/tidemark`), each checked against
`artifacts.lock`. Servers listen on free loopback ports and never outlive the process that started them,
however that ends. Linux on x86-64 with glibc only.
"""

from __future__ import annotations

from tidemark.embedded.broker import Kafka, start_kafka
from tidemark.embedded.databases import Database, start_database
from tidemark.embedded.errors import ArtifactError, EmbeddedError, ServerStartError
from tidemark.embedded.fetching import fetch, spark_jars
from tidemark.embedded.java import java_home
from tidemark.embedded.registry import Registry, start_registry

__all__ = [
    "ArtifactError",
    "Database",
    "EmbeddedError",
    "Kafka",
    "Registry",
    "ServerStartError",
    "fetch",
    "java_home",
    "spark_jars",
    "start_database",
    "start_kafka",
    "start_registry",
]
