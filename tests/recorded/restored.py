"""The servers of a recording, and its pipeline with both processes of today, not started yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devservers import Database, Kafka, Registry
from tests.e2e.pipeline import Pipeline
from tests.recorded.archive import unpack
from tests.recorded.recorded_workload import DATABASE
from tests.recorded.table_dump import load

_PATIENT = {"broker.session.timeout.ms": "120000", "log.retention.ms": "-1"}
"""The records are older than a broker keeps them by default."""
_SIGNALS_SENT = 1_000
"""More than the recording has sent, whose ids are in use."""


@contextmanager
def restored(recording: Path, folder: Path) -> Iterator[Pipeline]:
    """Start database, broker and registry on what was recorded.

    Only addresses and the sink's folder differ from the recording. The server's log has its old name, uuid and files, and
    continues in the next file; its tables are loaded without a trace in it.
    """
    database = Database("mysql80", folder, {"binlog_expire_logs_seconds": "0"})
    broker, registry = Kafka(folder, properties=_PATIENT), Registry(folder)
    database._prepare()
    unpack(recording / "source.tar.xz", database.data_dir)
    unpack(recording / "broker.tar.xz", broker.data_dir)
    unpack(recording / "registry.tar.xz", registry.folder / "data")
    statements = (database.data_dir / "tables.sql").read_text(encoding="utf-8").split(";\n")[:-1]
    settings = json.loads((recording / "settings.json").read_text(encoding="utf-8"))
    name = settings["name"]
    unpack(recording / "sink.tar.xz", folder / name / "lake")
    with database.start(), broker.start(), registry.start():
        load(database, statements)
        more = {
            "kafka": settings["kafka"] | {"bootstrap_servers": broker.bootstrap_servers},
            "snapshot": settings["snapshot"],
        }
        with Pipeline(name, folder / name, database, DATABASE, broker, registry, more) as pipeline:
            pipeline._signals = _SIGNALS_SENT
            yield pipeline
        database.kill()  # its data go with the folder; an orderly end takes seconds
        broker.kill()
        registry.kill()
