"""Verify of Iceberg tables that a MERGE left with deletion vectors, on a real server: it finds what is wrong, and only that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from schemas.identity import TableName
from tests.verify.conftest import Scene
from tests.verify.merged_iceberg import MergedTables
from tests.verify.test_verify import changed, prepare_types
from tidemark.verify import DifferenceKind, verify
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.iceberg_reader import IcebergReader, IcebergRows
from tidemark.verify.sink_reader import KeySpan, KeyValues

NAME = TableName("shop", "orders")


def vectors(rows: IcebergRows) -> int:
    """The number of deletion vectors in the snapshot."""
    return len({one.file_path for file in rows._table.scan().plan_files() for one in file.delete_files})


@pytest.mark.parametrize("scene", ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)], indirect=True)
def test_a_falsified_row_a_missing_row_and_a_row_too_many_of_an_iceberg_table_are_each_found(
    scene: Scene, spark: SparkSession
) -> None:
    settings = replace(scene.settings, sinks=(replace(scene.settings.sink, type="iceberg"),))
    tables, name = MergedTables(spark, Path(settings.sink.path)), TableName(scene.database, "types")
    right = prepare_types(scene)
    tables.write(name, right)
    assert vectors(IcebergReader(settings.sink.path).rows(name)) > 0
    report = verify(settings)
    assert report.ok, report.to_text()
    assert [(table.source_rows, table.sink_rows, table.differing) for table in report.tables] == [(40, 40, 0)]

    wrong = changed(changed(right, 7, "c_double", 0.1 + 2**-56), 12, "c_varchar", "日本 🌊")
    extra = changed(right.slice(3, 1), 0, "id", 1000)
    tables.write(name, pa.concat_tables([wrong.slice(0, 20), wrong.slice(21), extra]))
    (table,) = verify(settings, patience_s=5).tables
    found = {(part.kind, part.key["id"]): [column.column for column in part.columns] for part in table.differences}
    assert found.pop((DifferenceKind.MISSING, "20"))
    assert found.pop((DifferenceKind.EXTRA, "1000"))
    assert found == {(DifferenceKind.VALUE, "7"): ["c_double"], (DifferenceKind.VALUE, "12"): ["c_varchar"]}


def test_rows_are_those_of_one_snapshot_by_keys_of_any_size_and_an_unreadable_table_is_a_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, reader = MergedTables(spark, tmp_path), IcebergReader(tmp_path.as_uri())
    rows = pa.table({"order `by`": pa.array([-(2**31), 0, 5, None], pa.int32()), "id": [1, 2, 3, 4], "_tm_position": ["p"] * 4})
    tables.write(NAME, rows)
    opened = reader.rows(NAME)
    tables.write(NAME, rows.slice(1))
    tables.alter(NAME, "ALTER COLUMN `order ``by``` TYPE BIGINT")
    assert (vectors(opened), opened.total(), reader.rows(NAME).total()) == (1, 4, 3)

    def ids(near: KeySpan | KeyValues, rows: IcebergRows = opened) -> list[int]:
        return sorted(number for batch in rows.read(["id"], near) for number in batch["id"].to_pylist())

    key, far = "order `by`", 2**40
    assert [ids(KeySpan(key, *span)) for span in ((-far, 1), (0, far), (far, None), (None, -far), (None, None))] == [
        [1, 2], [2, 3], [], [], [1, 2, 3, 4],
    ]  # fmt: skip
    assert [ids(KeyValues(key, values)) for values in ((-far, -(2**31), 5, far), (far,), ())] == [[1, 3], [], []]

    wider = reader.rows(NAME)
    assert wider.schema.field(key).type == pa.int64()
    assert [ids(KeyValues(key, values), wider) for values in ((-far, 0, 5, far), (far, 2 * far))] == [[2, 3], []]
    assert [ids(KeySpan(key, *span), wider) for span in ((-far, 1), (0, far), (far, None))] == [[2], [2, 3], []]

    for file in (tmp_path / "shop" / "orders" / "data").glob("*.parquet"):
        file.rename(file.with_suffix(".away"))
    with pytest.raises(OSError, match="parquet"):
        ids(KeySpan(key, None, None))
    with pytest.raises(pa.ArrowException, match="cannot be read"):
        next(opened.scan(["no such column"]))
    metadata = tmp_path / "shop" / "orders" / "metadata"
    (metadata / "v99.metadata.json").write_text('{"format-version": 9}')
    with pytest.raises(IncomparableError, match=r"the Iceberg table at .*orders cannot be read"):
        reader.rows(NAME)
