"""The Iceberg sink: a Hadoop catalog of Iceberg tables, with state, quarantine and lock in its service folder."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from schemas.identity import SourceTable, TableName, Target
from schemas.names import folder_name
from schemas.overriding import override
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.contract import SinkTarget
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.folder_sink import FolderSink
from spark_jobs.sinks.iceberg import iceberg_writes
from spark_jobs.sinks.iceberg.iceberg_target import (
    IcebergTarget,
    KnownIceberg,
    TableAddress,
)
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.store.sink_layout import SinkLayout

_CATALOGS: Final = "spark.sql.catalog."
_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"


class IcebergSink(FolderSink):
    """Iceberg tables below a folder. `name` is that of the sink: it gives Spark's catalog its name."""

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], name: str) -> None:
        super().__init__(layout, query_id, DeltaQuarantine(layout.quarantine))
        self._catalog = catalog_name(name)

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        known = self._known_of(name, KnownIceberg)
        self._add_catalog(spark)
        return IcebergTarget(spark, self._address(name), name, tables, self._query_id(), known, shape)

    @override
    def passing(self, error: Exception) -> str | None:
        if iceberg_writes.is_conflict(error):
            return "conflict"
        return super().passing(error)

    def _address(self, name: Target) -> TableAddress:
        named = TableName.parse(name.name)
        folders = (folder_name(named.database), folder_name(named.table))
        return TableAddress(self._path(name), ".".join(map(quoted, (self._catalog, *folders))))

    def _add_catalog(self, spark: SparkSession) -> None:
        """Give a session the catalog of this sink. It keeps no tables: others may change them, and sessions do not share it."""
        key = f"{_CATALOGS}{self._catalog}"
        if spark.conf.get(key, None) is None:
            for name, value in {"type": "hadoop", "warehouse": str(self._layout.sink), "cache-enabled": "false"}.items():
                spark.conf.set(f"{key}.{name}", value)
            spark.conf.set(key, _CATALOG)


def catalog_name(sink: str) -> str:
    """Return the name of Spark's catalog of a sink: one that SQL and Spark's settings accept, and that no other sink has."""
    plain = re.sub(r"\W", "_", sink, flags=re.ASCII).lower()
    return f"tidemark_{plain}" if plain == sink else f"tidemark_{plain}_{zlib.crc32(sink.encode()):08x}"
