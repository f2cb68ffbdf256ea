"""Databases, Kafka and a schema registry without Docker and without an administrator's rights: for demo and tests.

::

    with start_database("mysql80", run_dir) as db, start_kafka(run_dir) as kafka, start_registry(run_dir) as
    registry:
        db.connect(); kafka.bootstrap_servers; registry.url

Files are fetched once into the cache of `tidemark.runtime`, each checked against `artifacts.lock`. Servers listen
on free loopback ports and never outlive the process that started them, however that ends. Linux on x86-64 with
glibc only.
"""

from __future__ import annotations

from devservers.apicurio import Registry, start_registry
from devservers.broker import Kafka, start_kafka
from devservers.databases import Database, start_database
from devservers.fetching import fetch
from devservers.postgres_server import Postgres, start_postgres
from devservers.processes import DevServerError, ServerStartError

__all__ = [
    "Database",
    "DevServerError",
    "Kafka",
    "Postgres",
    "Registry",
    "ServerStartError",
    "fetch",
    "start_database",
    "start_kafka",
    "start_postgres",
    "start_registry",
]
