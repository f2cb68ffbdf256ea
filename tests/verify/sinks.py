"""What the tests of verify stand on: settings, Delta tables written by hand, and a progress file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pymysql.connections import Connection

from devservers import Database
from schemas.position import Position, file_number
from schemas.settings import Settings, SinkSettings, SourceSettings, from_mapping

SIGNAL_DDL = "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
EPOCH = 3


def settings_for(server: Database, database: str, folder: Path, sink: Mapping[str, Any] | None = None) -> Settings:
    """All tables of a database, mirrored below a folder, or into a sink of these settings."""
    return from_mapping(
        {
            "name": "verify",
            "source": {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "tables": [rf"{database}\..*"],
                "signal_table": f"{database}.tidemark_signal",
            },
            "sinks": [{"name": "lake", **({"path": str(folder)} if sink is None else sink)}],
        }
    )


def of_sink(**sink: Any) -> Settings:
    """Settings with this sink, of a source that nobody reads."""
    return Settings(name="verify", source=SourceSettings(tables=(".*",)), sinks=(SinkSettings(**sink),))


def run_sql(connection: Connection[Any], *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def end_of_log(connection: Connection[Any], flavour: str) -> Position:
    """The current end of the binlog (8.0 and MariaDB; 8.4 and later have another statement)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        new = flavour == "mysql" and not cursor.fetchone()[0].startswith(("5.", "8.0"))  # type: ignore[index]
        cursor.execute("SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS")
        name, offset, *_ = cursor.fetchone() or ("", 0)
    return Position(EPOCH, file_number(name), int(offset))


def write_table(settings: Settings, database: str, name: str, rows: pa.Table) -> None:
    """Replace the table in the sink. Rows need `_tm_position`."""
    write_deltalake(settings.sink.table_path(database, name), rows, mode="overwrite", schema_mode="overwrite")


def read_table(settings: Settings, database: str, name: str) -> pa.Table:
    return DeltaTable(settings.sink.table_path(database, name)).to_pyarrow_table()


def write_progress(settings: Settings, tables: dict[str, dict[str, Any]]) -> None:
    """The merge job's file, replaced in one step."""
    path = Path(settings.sink.progress_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"query_id": "q", "batch_id": 1, "tables": tables}))
    draft.replace(path)


def caught_up(connection: Connection[Any], flavour: str, settings: Settings, *tables: str) -> None:
    """A progress file that says: these tables hold everything, whatever comes to the signal table."""
    end = end_of_log(connection, flavour)
    far = Position(end.epoch, end.file + 1000, 0)
    entry = {"applied_position": far.text, "change_offsets": {"0": 17}, "floor": None}
    write_progress(settings, dict.fromkeys(tables, entry))
