"""Iceberg tables on the tests' Spark session, read back by pyiceberg: another implementation than the one that wrote them."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from schemas.errors import SinkError
from spark_jobs.sinks.contract import Columns, Evolution, Sink, TargetRecord
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.faulty import Faults, faulty
from spark_jobs.sinks.iceberg.iceberg_sink import IcebergSink, catalog_name
from spark_jobs.sinks.iceberg.snapshot_log import COMPACT, STEP, newest_stamp, read_metadata
from spark_jobs.sinks.target_shape import TargetShape
from spark_jobs.store.sink_layout import SinkLayout
from tests.sinks.behaviour import (
    COLUMNS,
    FIRST,
    ID,
    NAME,
    QUERY,
    TABLE,
    Batch,
    Change,
    Lab,
    SinkBehaviour,
    change,
    delete,
)
from tests.sinks.kept_behaviour import KeptRowsBehaviour
from tests.sinks.missing_files_behaviour import MissingFilesBehaviour
from tests.sinks.schema_behaviour import SchemaBehaviour
from tests.sinks.shared_behaviour import SharedTargetBehaviour
from tests.support.iceberg_tables import open_iceberg


class IcebergLab(Lab):
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark.newSession()  # a catalog keeps the warehouse that it was made with
        self._layout = SinkLayout(folder)
        self._layout.service.mkdir(parents=True)
        self.path = self._layout.table(TABLE.name.database, TABLE.name.table)
        self.table = f"{catalog_name('lake')}.shop.orders"
        self._copy = folder / "copy"
        self.target(self.open())  # gives the session the catalog

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = IcebergSink(self._layout, lambda: query, "lake")
        return sink if faults is None else faulty(sink, faults)

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        return self.spark.createDataFrame(list(rows), T.StructType([T.StructField(name, kind) for name, kind in columns]))

    def rows(self) -> list[dict[str, Any]]:
        return open_iceberg(self.path).scan().to_arrow().to_pylist()

    def stamps(self) -> list[Mapping[str, Any]]:
        metadata = read_metadata(self.path)
        assert metadata is not None
        own = [one for one in metadata.lineage() if one.summary.get(STEP) != COMPACT]
        return [one.stamp for one in reversed(own) if one.stamp is not None]

    def quarantined(self) -> list[int]:
        found = DeltaQuarantine(self._layout.quarantine).records(self.spark)
        return [] if found is None else [row["offset"] for row in found.select("offset").collect()]

    def keep_copy(self) -> None:
        shutil.copytree(self.path, self._copy)

    def put_back(self) -> None:
        shutil.rmtree(self.path)
        self._copy.rename(self.path)

    def replace(self) -> None:
        self.spark.table(self.table).limit(0).writeTo(self.table).using("iceberg").replace()

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def meddle(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('kept.by' = 'somebody')")

    def make_foreign(self) -> None:
        self.frame([], COLUMNS).writeTo(self.table).using("iceberg").create()

    def second_writer(self) -> AbstractContextManager[None]:
        return self.open(query="second").exclusive(self.spark, 1)


@pytest.mark.slow
class TestIceberg(SinkBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour, MissingFilesBehaviour):
    """Each step is one snapshot: a crash before one leaves what a crash after the step before it leaves."""

    crash_points: ClassVar[tuple[str, ...]] = tuple(
        f"after {step}" for step in ("quarantine", "evolve", "put", "delete_between", "sweep", "compact")
    )

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> Lab:
        return IcebergLab(spark, tmp_path)


class TestIcebergInShort(MissingFilesBehaviour):
    """What of the suite `make test` runs: every statement of the sink once, a crash, and a table that somebody replaced."""

    crash_points: ClassVar[tuple[str, ...]] = ("after put",)
    test_a_crash = SinkBehaviour.test_a_batch_that_is_repeated_after_a_crash_takes_effect_once
    test_a_crash_of_the_first_batch = SinkBehaviour.test_the_first_batch_that_is_repeated_after_a_crash_takes_effect_once
    test_composite_sweeps = SinkBehaviour.test_a_sweep_takes_rows_of_composite_values_below_its_bound
    test_a_replacement = SinkBehaviour.test_a_target_that_is_replaced_between_two_steps_of_a_batch_is_refused
    test_tables_of_one_target = SharedTargetBehaviour.test_floors_and_sweeps_concern_the_rows_of_their_own_table

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> Lab:
        return IcebergLab(spark, tmp_path)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> IcebergLab:
    return IcebergLab(spark, tmp_path)


NOON = dt.datetime(1000, 1, 1, 12, 0, 0, 123456)
SHAPE = T.StructType([T.StructField("srid", T.IntegerType()), T.StructField("wkb", T.BinaryType())])
TYPED: dict[str, tuple[T.DataType, Any, Any]] = {
    "tiny": (T.ByteType(), -128, 127),
    "small": (T.ShortType(), -32768, 7),
    "int": (T.IntegerType(), -(2**31), 5),
    "long": (T.LongType(), -(2**63), 7),
    "float": (T.FloatType(), 0.5, -1.5),
    "double": (T.DoubleType(), 5e-324, 0.1),
    "dec": (T.DecimalType(38, 10), Decimal("-9999999999999999999999999999.9999999999"), Decimal("1.5000000000")),
    "short dec": (T.DecimalType(20, 0), Decimal(2**64 - 1), Decimal(3)),
    "text": (T.StringType(), "日本 🌊 ", "it's \\ `x`"),
    "bytes": (T.BinaryType(), b"\0\xff", b"\xfe\0"),
    "yes": (T.BooleanType(), True, False),
    "day": (T.DateType(), dt.date(9999, 12, 31), dt.date(1000, 1, 1)),
    "naive": (T.TimestampNTZType(), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), NOON),
    "aware": (T.TimestampType(), dt.datetime(2038, 1, 19, 3, 14, 7, 999999, dt.UTC), dt.datetime(1970, 1, 1, 0, 0, 1, 0, dt.UTC)),
    "a.b": (T.IntegerType(), 1, 2),
    "order `by`": (T.IntegerType(), 3, 4),
    "pos": (T.StringType(), "a name that Iceberg uses elsewhere", ""),
}
"""Columns by name: type, a value, and another one that is the default of a column that comes later."""
NESTED: dict[str, tuple[T.DataType, Any]] = {
    "shape": (SHAPE, {"srid": 4326, "wkb": b"\1"}),
    "vector": (T.ArrayType(T.FloatType()), [1.5, -0.5]),
}


def typed_columns() -> Columns:
    return [ID, *((name, kind) for name, (kind, *_) in (TYPED | NESTED).items())]


def test_every_type_and_name_comes_back_as_it_was_written_first_merged_and_by_default(lake: IcebergLab) -> None:
    one = {name: values[0] for name, (_, *values) in (TYPED | NESTED).items()}
    two = one | {name: values[1] for name, (_, *values) in TYPED.items()}
    columns = typed_columns()
    record = lake.play(Batch(0, [Change(1, 100, one), Change(2, 100, dict.fromkeys(one))], columns))
    record = lake.play(Batch(1, [Change(1, 200, two), Change(3, 200, one)], columns), record)
    assert lake.values() == {1: two, 2: dict.fromkeys(one), 3: one}

    added = [(f"more {name}", kind, values[1]) for name, (kind, *values) in TYPED.items()]
    later = Evolution((*added, ("more.shape", SHAPE, None)), (("float", T.DoubleType()), ("int", T.LongType())))
    wider = [*later.applied_to(columns)]
    news = {name: value for name, _, value in later.added}
    record = lake.play(Batch(2, [Change(4, 300, {})], wider, later), record)
    files = lake.spark.sql(f"SELECT count(*) AS n FROM {lake.table}.files").collect()[0]["n"]
    assert lake.values() == {1: two | news, 2: dict.fromkeys(one) | news, 3: one | news, 4: dict.fromkeys(one | news)}
    stored = {name: kind for name, kind in wider if name != "id"}
    assert {name for name, kind in lake.target(lake.open()).columns() or () if stored.get(name, kind) != kind} == {
        "tiny", "small", "more tiny", "more small",
    }, "Iceberg has no shorter integers than those of 32 bits"  # fmt: skip
    assert not lake.target(lake.open()).fitting([("tiny", T.ByteType())]), "what is narrower in Spark alone is no change"

    texts = Evolution((("other", SHAPE, None),), (("aware", T.StringType()), ("dec", T.StringType())))
    lake.play(Batch(3, columns=texts.applied_to(wider), evolution=texts), record)
    assert lake.values()[2] == dict.fromkeys(one) | news | {"other": None}
    assert lake.values()[3]["dec"] == "-9999999999999999999999999999.9999999999"
    assert lake.spark.sql(f"SELECT count(*) AS n FROM {lake.table}.files").collect()[0]["n"] < files, "this one wrote the rows again"
    assert open_iceberg(lake.path).metadata.format_version == 3


@pytest.mark.parametrize("name", ["_Pos", *(pytest.param(name, marks=pytest.mark.slow) for name in ("_file", "_row_id"))])
def test_a_column_with_a_name_that_iceberg_reserves_is_refused_before_anything_is_written(lake: IcebergLab, name: str) -> None:
    columns = (ID, (name, T.StringType()))
    with pytest.raises(SinkError, match=f"reserves the name of its column {name}"):
        lake.play(Batch(0, [Change(1, 100, {name: "x"})], columns))
    assert not lake.path.exists()
    record = lake.play(FIRST)
    before = read_metadata(lake.path)
    with pytest.raises(SinkError, match=f"reserves the name of its column {name}"):
        lake.play(Batch(1, columns=(*COLUMNS, columns[1]), evolution=Evolution(((name, T.StringType(), None),), ())), record)
    assert read_metadata(lake.path) == before


def test_a_floor_removes_whole_files_where_it_can(lake: IcebergLab) -> None:
    record = lake.play(FIRST)
    record = lake.play(Batch(1, [change(1, 200, 10), delete(2, 200), change(4, 200, 4)]), record)
    lake.play(Batch(2, floor=150), record)
    assert lake.amounts() == {1: 10, 4: 4}
    metadata = read_metadata(lake.path)
    assert metadata is not None
    newest = next(metadata.lineage())
    assert (newest.operation, newest.summary.get("added-delete-files"), newest.summary["total-delete-files"]) == ("delete", None, "0")


@pytest.mark.slow
def test_a_table_stays_ours_when_others_compact_it_and_have_its_snapshots_expire(lake: IcebergLab) -> None:
    record = lake.play(FIRST)
    for number in range(1, 8):
        record = lake.play(Batch(number, [change(1, 100 + number, number)]), record)
    path, table = str(lake.path), lake.table
    catalog = table.partition(".")[0]
    others: Any = lake.spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
    tables = lake.spark._jvm.org.apache.iceberg.hadoop.HadoopTables(lake.spark._jsc.hadoopConfiguration())
    others.rewriteDataFiles(tables.load(path)).option("rewrite-all", "true").execute()
    lake.target(lake.open()).compact(Batch(7).stamp)
    lake.spark.sql(f"CALL {catalog}.system.expire_snapshots(table => 'shop.orders', older_than => now(), retain_last => 1)")
    metadata = read_metadata(lake.path)
    assert metadata is not None
    assert len(metadata.snapshots) == 1
    assert '"batch_id":7' in (newest_stamp(metadata) or "")
    record = lake.play(Batch(8, [change(2, 200, 8)]), record)
    assert lake.amounts() == {1: 7, 2: 8, 3: 3}

    others.rewriteDataFiles(tables.load(path)).option("rewrite-all", "true").execute()
    lake.spark.sql(f"CALL {catalog}.system.expire_snapshots(table => 'shop.orders', older_than => now(), retain_last => 1)")
    record = lake.play(Batch(9, [change(3, 200, 9)]), record)
    assert lake.amounts() == {1: 7, 2: 8, 3: 9}, "others removed every stamp, and the property says whose table it is"
    with pytest.raises(SinkError, match="last written by batch 9"):
        lake.target(lake.open(query="another")).trust(TargetRecord(last_commit=8), 9)


@pytest.mark.slow
def test_a_table_that_is_rolled_back_is_refused_also_within_a_batch(lake: IcebergLab) -> None:
    sink = lake.open()
    record = lake.play(FIRST, sink=sink)
    record = lake.play(Batch(1, [change(1, 200, 9)], floor=150), record, sink)
    metadata = read_metadata(lake.path)
    assert metadata is not None
    put = list(metadata.lineage())[1]
    catalog = lake.table.partition(".")[0]
    lake.spark.sql(f"CALL {catalog}.system.set_current_snapshot('shop.orders', {put.id})")
    with pytest.raises(SinkError, match="put back to an earlier snapshot"):
        lake.target(sink).trust(record, 2)
    lake.spark.sql(f"CALL {catalog}.system.set_current_snapshot('shop.orders', {list(metadata.lineage())[2].id})")
    with pytest.raises(SinkError, match="last written by batch 0"):
        lake.target(lake.open()).trust(record, 2)
    retried = replace(record, last_commit=0)
    lake.play(Batch(1, [change(1, 200, 9)], floor=150), retried)
    assert lake.amounts() == {1: 9}, "a step that was rolled back with its batch is none that was done"


@pytest.mark.slow
def test_a_target_keeps_its_partitions_and_properties_when_its_rows_are_written_again(lake: IcebergLab) -> None:
    shape = TargetShape(partition_by=("Amount",), options={"history.expire.min-snapshots-to-keep": "5", "kept": "x"})
    target = lake.open().target(lake.spark, NAME, (TABLE,), shape)
    with target.commit(FIRST.stamp) as writer:
        writer.put(lake.winners(FIRST))
    batch = Batch(1, [change(1, 200, 2, maybe="x")], (*COLUMNS, ("maybe", T.StringType())))
    target.trust(TargetRecord(last_commit=0), 1)
    target.evolve(Evolution((("maybe", T.StringType(), None),), (("id", T.StringType()),)), batch.stamp)
    found = open_iceberg(lake.path)
    assert [field.name for field in found.spec().fields] == ["Amount"]
    assert (found.properties["kept"], found.properties["history.expire.min-snapshots-to-keep"]) == ("x", "5")
    assert found.properties["write.merge.mode"] == "merge-on-read"
    assert sorted((row["id"], row["Amount"]) for row in lake.rows()) == [("1", 1), ("2", 2), ("3", 3)]


@pytest.mark.slow
def test_a_version_hint_that_a_crash_left_behind_or_damaged_is_not_relied_on(lake: IcebergLab) -> None:
    record = lake.play(FIRST)
    record = lake.play(Batch(1, [change(1, 200, 10)]), record)
    hint, checksum = lake.path / "metadata" / "version-hint.text", lake.path / "metadata" / ".version-hint.text.crc"
    hint.write_text("1", encoding="utf-8")
    checksum.unlink(missing_ok=True)
    record = lake.play(Batch(2, [change(2, 200, 20)]), record)
    assert lake.amounts() == {1: 10, 2: 20, 3: 3}
    hint.write_text("7x", encoding="utf-8")
    checksum.write_bytes(b"crc\0\0\0\2\0\0\0\0\0")
    lake.play(Batch(3, [change(3, 200, 30)]), record)
    assert lake.amounts() == {1: 10, 2: 20, 3: 30}


def test_a_repeated_batch_writes_nothing_at_all(lake: IcebergLab) -> None:
    record = lake.play(FIRST)
    batch = Batch(1, [change(1, 200, 9), delete(2, 200), change(5, 120, 5)], floor=110)
    lake.play(batch, record)
    before = read_metadata(lake.path)
    lake.play(batch, record)
    assert read_metadata(lake.path) == before


def test_the_catalog_of_each_sink_has_a_name_of_its_own() -> None:
    names = ["lake", "Lake", "my-lake", "my.lake", "my_lake", "日本"]
    assert len({catalog_name(name).lower() for name in names}) == len(names)
    assert catalog_name("lake") == "tidemark_lake"
    assert all(catalog_name(name).replace("_", "a").isalnum() for name in names)
