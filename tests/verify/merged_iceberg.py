"""Iceberg tables of any rows, as the merge job leaves them: merge-on-read, with deletion vectors."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.names import folder_name
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.iceberg.iceberg_sink import IcebergSink, catalog_name
from spark_jobs.sinks.iceberg.iceberg_writes import PROPERTIES
from spark_jobs.store.sink_layout import SinkLayout

SPOILED, DELETED = "spoiled", -77
_SINK = "lake"


class MergedTables:
    """Tables below a folder, by column `id`. The session is a new one: a catalog keeps the warehouse that it was made with."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark.newSession()
        sink, table = IcebergSink(SinkLayout(folder), lambda: "query", _SINK), TableName("any", "table")
        sink.target(self._spark, Target(_SINK, table.text), [SourceTable(SourceId("any"), table)])  # gives the session the catalog

    def write(self, name: TableName, rows: pa.Table) -> None:
        """Make a table equal to rows by one MERGE. One that is new had other positions before, and a row that is deleted then."""
        table = _in_spark(name)
        with TemporaryDirectory() as folder:
            pq.write_table(rows, f"{folder}/rows.parquet")
            now = self._spark.read.parquet(f"{folder}/rows.parquet")
            now.createOrReplaceTempView("now")
            if not self._spark.catalog.tableExists(table):
                before = now.selectExpr(*(f"'{SPOILED}' AS {one}" if one == "_tm_position" else quoted(one) for one in now.columns))
                more = before.limit(1).selectExpr(*(f"INT({DELETED}) AS id" if one == "id" else quoted(one) for one in now.columns))
                writer = before.unionAll(more).coalesce(1).writeTo(table).using("iceberg")
                for key, value in PROPERTIES.items():
                    writer = writer.tableProperty(key, value)
                writer.create()
            self._spark.sql(
                f"MERGE INTO {table} t USING now s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                " WHEN NOT MATCHED BY SOURCE THEN DELETE"
            )

    def alter(self, name: TableName, change: str) -> None:
        self._spark.sql(f"ALTER TABLE {_in_spark(name)} {change}")


def _in_spark(name: TableName) -> str:
    return ".".join(map(quoted, (catalog_name(_SINK), folder_name(name.database), folder_name(name.table))))
