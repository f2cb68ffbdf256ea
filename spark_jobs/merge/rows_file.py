"""The newest rows of a table in a file: a worker writes them, and Spark puts them into a sink whose rows no worker can put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.overriding import override
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.arrival import require_all
from spark_jobs.sinks.contract import Columns
from spark_jobs.sinks.worker_writes import WorkerPut

_GONE, _AT = "gone", "position"
_GROUP_ROWS: Final = 1 << 16
"""Rows of a part that one task of Spark reads."""
_COPIES: Final = 2
"""The records of a table are there twice, while those of all Spark batches become one array."""
_AS_WRITTEN: Final = {"datetimeRebaseMode": "CORRECTED", "mergeSchema": "false"}


@dataclass(frozen=True, slots=True)
class RowsFile(WorkerPut):
    """A file with the newest rows of a table in one batch. It can be pickled.

    `names` are the columns of the target. They have names of our own in the file, since a file of Parquet does not take all names.
    """

    path: str
    names: tuple[str, ...]
    memory_bytes: int

    @classmethod
    def new(cls, folder: Path, names: Sequence[str], memory_bytes: int) -> RowsFile:
        """Return a file of this attempt alone: a worker of one that is dead may still write."""
        return cls(str(folder / f"{uuid4()}.parquet"), tuple(names), memory_bytes)

    @property
    @override
    def most_bytes(self) -> int | None:
        return self.memory_bytes // _COPIES

    @property
    @override
    def takes_effect(self) -> bool:
        return False

    @override
    def run(self, rows: pa.Table) -> None:
        path = Path(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{uuid4()}.tmp")  # Spark may run a task twice
        own = [f"c{number}" for number in range(len(self.names))]
        table = rows.select([*self.names, DELETED, POSITION]).rename_columns([*own, _GONE, _AT])
        pq.write_table(table, beside, row_group_size=_GROUP_ROWS, compression="none", use_dictionary=False, write_statistics=False)
        beside.replace(path)

    @override
    def require_arrived(self, rows: int) -> None:
        found = pq.read_metadata(self.path).num_rows if Path(self.path).is_file() else 0
        require_all(f"rows to {self.path}", rows, found)

    def read(self, spark: SparkSession, columns: Columns) -> DataFrame:
        """Return the rows, with the columns of the target, `DELETED` and `POSITION`."""
        fields = [T.StructField(f"c{number}", kind) for number, (_, kind) in enumerate(columns)]
        fields += [T.StructField(_GONE, T.BooleanType()), T.StructField(_AT, T.StringType())]
        rows = spark.read.options(**_AS_WRITTEN).schema(T.StructType(fields)).parquet(self.path)
        named = [F.col(f"c{number}").alias(name) for number, (name, _) in enumerate(columns)]
        return rows.select(*named, F.col(_GONE).alias(DELETED), F.col(_AT).alias(POSITION))

    def remove(self) -> None:
        """Remove the file, if it was written."""
        Path(self.path).unlink(missing_ok=True)
