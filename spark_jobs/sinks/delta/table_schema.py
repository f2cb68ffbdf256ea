"""The columns of a Delta table, read and made by delta-rs: the JVM needs a second for the first table, and a job for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import POSITION
from spark_jobs.sinks.contract import Columns
from spark_jobs.sinks.delta.arrow_limits import open_table, why_not, why_not_path
from spark_jobs.sinks.delta.commit_identity import commit_properties
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape

PROPERTIES: Final[Mapping[str, str]] = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 7 days"}
"""The properties of every table that we make."""


def create_table(path: str, columns: Columns, stamp: Stamp, shape: TargetShape = PLAIN_SHAPE) -> None:
    """Make a table with these columns and our own at a path that `arrow_limits.why_not_path` accepts.

    The commit names no transaction: the rows of the batch are still to be put. `DeltaError` if there is a table already.
    """
    DeltaTable.create(
        Path(path).absolute().as_uri(),
        _schema((*columns, (POSITION, T.StringType()))),
        mode="error",
        partition_by=list(shape.partition_by) or None,
        configuration={**PROPERTIES, **shape.options},
        commit_properties=commit_properties(stamp.metadata),
    )


def add_columns(path: str, existing: Columns, added: Columns, stamp: Stamp) -> bool:
    """Add columns in which the rows have NULL, in one commit; return False where the JVM has to.

    `existing` are the source's columns that the table has. The commit enables the table feature that a new type needs.
    """
    if why_not(path, tuple(name for name, _ in existing), ()) is not None:
        return False
    open_table(path).alter.add_columns(list(_schema(added).fields), commit_properties=commit_properties(stamp.metadata))
    return True


def table_columns(path: str) -> tuple[tuple[str, T.DataType], ...] | None:
    """Return the columns of a table, ours included, as Spark has them; None where delta-rs cannot read it."""
    if why_not_path(path) is not None:
        return None
    try:
        document = open_table(path).schema().to_json()
    except DeltaError:
        return None
    return tuple((field.name, field.dataType) for field in T.StructType.fromJson(json.loads(document)).fields)


def _schema(columns: Columns) -> Schema:
    return Schema.from_json(T.StructType([T.StructField(name, kind) for name, kind in columns]).json())
