"""Columns that come, change and go at the source, and what the Delta table makes of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from spark_jobs import merge
from spark_jobs.decode import DELETED, POSITION
from spark_jobs.evolve import Evolution, apply

NTZ = T.TimestampNTZType()
DAY = datetime(2024, 2, 29)  # noqa: DTZ001 - DATETIME has no zone


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (Evolution((("c", NTZ, None),), ()), {"c": None}),
        (Evolution((("c", NTZ, None), ("n", T.IntegerType(), 7)), ()), {"c": None, "n": 7}),
        (Evolution((("c", NTZ, DAY),), ()), {"c": DAY}),
        (Evolution((), (("d", NTZ),)), {"d": DAY}),
        (Evolution((("c", NTZ, None),), (("i", T.LongType()),)), {"i": 1, "c": None}),
        (Evolution((("c", T.TimestampType(), None),), ()), {"c": None}),
    ],
    ids=["added", "added beside a default", "added with a default", "DATE widened", "added beside a widened one", "TIMESTAMP"],
)
@pytest.mark.parametrize("maker", ["this version", "an older version"])
def test_a_table_that_had_no_datetime_takes_one(
    maker: str, change: Evolution, row: dict[str, object], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if maker == "an older version":
        properties = {name: value for name, value in merge._TABLE_PROPERTIES.items() if "feature" not in name}  # noqa: SLF001
        monkeypatch.setattr(merge, "_TABLE_PROPERTIES", properties)
    path = str(tmp_path / "table")
    first = spark.sql("SELECT 1 AS i, DATE '2024-02-29' AS d").withColumn(POSITION, F.lit("p")).withColumn(DELETED, F.lit(False))
    merge.append(first, path, merge.Commit("query", 0, "shop.table", {}))

    apply(spark, path, change)

    (found,) = spark.read.format("delta").load(path).collect()
    assert {name: found[name] for name in row} == row
    read = DeltaTable(path).to_pyarrow_table()
    assert {name: read.column(name)[0].as_py() for name in row} == row, "delta-rs reads it"
