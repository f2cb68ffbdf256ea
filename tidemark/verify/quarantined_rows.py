"""The quarantine table through delta-rs: what is in it, beside a running merge job and without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.errors import SinkError
from schemas.settings import Settings
from schemas.topics import SNAPSHOT_SUFFIX, sanitise

_GROUP = ("table", "topic", "partition", "reason")


def groups(settings: Settings) -> list[dict[str, Any]]:
    """Return one document per table, topic, partition and reason: how many records, first and last offset and Kafka time (ms).

    Raises `SinkError` when the table cannot be read.
    """
    path = Path(settings.sink.service_path) / "quarantine"
    try:
        table = DeltaTable(str(path))
        there = {field.name for field in table.schema().fields}
        found = table.to_pyarrow_table(columns=[name for name in (*_GROUP, "offset", "timestamp") if name in there])
    except TableNotFoundError:
        if not Path(settings.sink.path).is_dir():
            message = f"there is no folder {settings.sink.path}: nothing has been merged into it, or it is not mounted"
            raise SinkError(message) from None
        return []
    except (DeltaError, OSError) as error:
        raise SinkError(f"the quarantine table {path} cannot be read: {error}") from error
    found = _complete(found, settings)
    times = pc.cast(pc.cast(found["timestamp"], pa.timestamp("ms", "UTC"), safe=False), pa.int64())
    asked = [("offset", "count"), *((name, side) for name in ("offset", "ms") for side in ("min", "max"))]
    summed = found.append_column("ms", times).group_by(list(_GROUP)).aggregate(asked)
    ordered = summed.sort_by([(name, "ascending") for name in ("table", "topic", "partition", "offset_min")])
    return [
        {name: row[name] for name in _GROUP}
        | {
            "records": row["offset_count"],
            "first_offset": row["offset_min"],
            "last_offset": row["offset_max"],
            "first_ms": row["ms_min"],
            "last_ms": row["ms_max"],
        }
        for row in ordered.to_pylist()
    ]


def _complete(found: pa.Table, settings: Settings) -> pa.Table:
    """Return the records with table and Kafka time: a quarantine of an earlier build has neither."""
    if "timestamp" not in found.column_names:
        found = found.append_column("timestamp", pa.nulls(len(found), pa.timestamp("us", "UTC")))
    tables = found["table"].to_pylist() if "table" in found.column_names else [None] * len(found)
    tables = [
        name or _table_of(topic, settings) for name, topic in zip(tables, found["topic"].to_pylist(), strict=True)
    ]
    rest = found.drop_columns([name for name in ("table",) if name in found.column_names])
    return rest.append_column("table", pa.array(tables, pa.string()))


def _table_of(topic: str, settings: Settings) -> str:
    """Return the table as the topic's name has it: without what is before it."""
    name, delimiter = sanitise(settings.name), settings.kafka.topic_delimiter
    for head in (f"{name}{SNAPSHOT_SUFFIX}{delimiter}", f"{name}{delimiter}"):
        if topic.startswith(head):
            return topic.removeprefix(head).replace(delimiter, ".", 1)
    return topic
