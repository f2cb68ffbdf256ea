"""Bytes to the rows before and after a change: every type, records without one of them, and what files have of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkaio.schema_registry import RegisteredSchema
from schemas.avro import to_avro
from schemas.columns import ColumnType
from schemas.identity import SourceId, SourceTable, Target
from schemas.types.connect import key_schema
from spark_jobs.decode.avro_records import decoded_changes
from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, COMMITTED, KEYS, POSITION, REASON
from spark_jobs.decode.table_layout import layout
from spark_jobs.decode.writer_schemas import key_writer
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.files.files_sink import FilesSink
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.lake import column
from tests.merge.test_decode import (
    ID,
    KEY_ID,
    OLD,
    TYPES,
    envelope,
    framed,
    key_writers,
    raw,
    table,
    value_writers,
)
from tests.support.changelogs import events_of_files

TABLE = SourceTable.of(SourceId("p"), "shop", "things")


def versions() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What one row is written as, version by version, and what it is read as."""
    found = []
    for number in range(max(len(values) for _, _, values in TYPES) + 1):
        pairs = {item.name: values[number] if number < len(values) else (None, None) for item, _, values in TYPES}
        found.append(({"id": 1} | {name: pair[0] for name, pair in pairs.items()}, {"id": 1} | {name: pair[1] for name, pair in pairs.items()}))
    return found


def values_of(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else row.asDict()


def without_zone(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: value for name, value in row.items() if name != "instant"}


def test_a_change_has_both_rows_of_every_type_and_files_have_them(spark: SparkSession, tmp_path: Path) -> None:
    source = table(*[item for item, _, _ in TYPES])
    (writer,), keys = value_writers(source), key_writers(source)
    rows = versions()
    pairs = list(zip([None, *rows], [*rows, None], strict=True))
    records = []
    for before, after in pairs:
        op = "c" if before is None else "d" if after is None else "u"
        record = envelope(op, before and before[0], after and after[0])
        records.append((framed(keys[0], {"id": 1}), framed(writer, record)))
    plan = layout(keys, [writer])
    frame = decoded_changes(raw(spark, records), plan, "s")
    found = frame.collect()
    assert {row[REASON] for row in found} == {None}
    assert [row[CHANGE] for row in found] == ["c", *"u" * (len(rows) - 1), "d"]
    assert [(without_zone(values_of(row[BEFORE])), without_zone(values_of(row[AFTER]))) for row in found] == [
        (without_zone(before and before[1]), without_zone(after and after[1])) for before, after in pairs
    ]
    events = Events(TABLE, frame.select(POSITION, COMMITTED, CHANGE, BEFORE, AFTER), len(found), ("id",), plan.columns, Appended())
    for form in ("parquet", "changelog-json"):
        folder = SinkLayout(tmp_path / form)
        target = FilesSink(folder, lambda: "q", form).target(spark, Target("lake", "shop.things"), [TABLE])
        with target.commit(Stamp("q", 0, "shop.things", {})) as to:
            to.append(events)
        written = events_of_files(folder.table("shop", "things"))
        assert [one["_tm_op"] for one in written] == ["+I", *["-U", "+U"] * (len(rows) - 1), "-D"]
        assert [one["text"] for one in written] == [text for row in rows for text in (row[1]["text"], row[1]["text"])]
        if form == "parquet":
            (file,) = folder.table("shop", "things").rglob("*.parquet")
            assert pq.read_schema(file).field("instant").type.unit == "us"
            for name in ("moment", "precise", "day", "dec", "wide", "raw", "big_u"):
                assert [one[name] for one in written[::2]] == [row[1][name] for row in rows], name
            seconds = [one["instant"] and one["instant"].isoformat() for one in written[::2]]
            assert seconds[:2] == ["2014-09-08T17:51:04.780000+00:00", "1970-01-01T00:00:01+00:00"]
        else:
            assert written[0]["instant"] == "2014-09-08 17:51:04.780000Z"
            assert [str(one["big_u"]) for one in written[:1]] == [str(2**64 - 1)]
            assert written[0]["place"] == {"srid": None, "wkb": "AQ=="}


@pytest.mark.parametrize(("op", "change"), [("u", "u"), ("d", "d")])
def test_a_row_before_that_a_record_lacks_is_not_known(op: str, change: str, spark: SparkSession) -> None:
    source = table()
    (writer,), keys = value_writers(source), key_writers(source)
    record = envelope(op, None, {"id": 7} if op == "u" else None)
    frame = decoded_changes(raw(spark, [(framed(keys[0], {"id": 7}), framed(writer, record))]), layout(keys, [writer]), "s")
    (found,) = frame.select(CHANGE, BEFORE, F.col(KEYS)["id"].alias("id"), REASON).collect()
    assert tuple(found) == (change, None, 7, None)


def test_a_delete_under_a_key_that_the_table_no_longer_has_is_an_event_of_the_row_before_it(spark: SparkSession) -> None:
    wide = replace(OLD, columns=(ID, column("a", ColumnType.INT, nullable=False)), primary_key=("id", "a"))
    writers, (old,) = value_writers(OLD, wide), key_writers(OLD)
    schema = key_schema(wide, "p")
    assert schema is not None
    plan = layout([old, key_writer(RegisteredSchema(KEY_ID + 1, to_avro(schema)))], writers)
    records = [envelope("d", {"id": 5, "a": 6}, None), envelope("d", None, None)]
    found = decoded_changes(raw(spark, [(framed(old, {"id": 5}), framed(writers[0], one)) for one in records]), plan, "s").collect()
    assert {row[REASON]: row[BEFORE] and row[BEFORE].asDict() for row in found} == {
        None: {"id": 5, "a": 6}, "deleted under a key the table no longer has": None,
    }  # fmt: skip
