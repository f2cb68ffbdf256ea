"""The Arrow decoder beside the JVM's: the same records are bad for the same reason, the same rows win, with the same values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from kafkaio.schema_registry import RegisteredSchema
from schemas.avro import to_avro
from schemas.columns import ColumnType
from schemas.connect_types import TimeMode, ValueModes
from schemas.markers import MARKER_KEY
from schemas.merge_rule import TableState
from schemas.types.connect import key_schema
from spark_jobs.arrow.arrow_decoder import REASONS, ArrowDecoder, DecoderPlan, Judged
from spark_jobs.arrow.arrow_types import UnsupportedBatchError
from spark_jobs.arrow.newest import admitted, newest
from spark_jobs.decode.avro_records import decoded
from spark_jobs.decode.record_columns import DELETED, OFFSET, POSITION, REASON
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout, layout
from spark_jobs.decode.writer_schemas import key_writer
from spark_jobs.merge import rule
from spark_jobs.merge.rows_file import RowsFile
from tests.merge.lake import at
from tests.merge.test_decode import (
    DEFAULT_CHANGED,
    KEY_ID,
    OLD,
    TIMES,
    TYPES,
    WITH_DEFAULT,
    Record,
    column,
    defaulted,
    envelope,
    framed,
    key_writers,
    raw,
    table,
    value_writers,
)

SNAPSHOT_TOPIC = "s"


def plain(value: Any) -> Any:
    if isinstance(value, (bytearray, bytes)):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {key: plain(item) for key, item in value.asDict().items()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return repr(value)
    return value


def judge(decoder: ArrowDecoder, records: Sequence[Record]) -> Judged:
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    return decoder.judge(keys, values, False, 0)


def as_text(table_of: pa.Table) -> list[dict[str, Any]]:
    """Rows with zoned timestamps as Spark's casts write them."""
    rows = []
    for row in table_of.to_pylist():
        for field in table_of.schema:
            if pa.types.is_timestamp(field.type) and field.type.tz and row[field.name] is not None:
                moment = row[field.name].replace(tzinfo=None)
                row[field.name] = moment.isoformat(" ").rstrip("0") if moment.microsecond else moment.isoformat(" ")
        rows.append({name: plain(value) for name, value in row.items()})
    return rows


def assert_same(spark: SparkSession, plan: TableLayout, records: Sequence[Record]) -> list[str | None]:
    """Judge, choose and decode by both; return the reasons."""
    decoder = ArrowDecoder(DecoderPlan.of(plan))
    judged = judge(decoder, records)
    frame = decoded(raw(spark, records), plan, SNAPSHOT_TOPIC)
    for name, kind in plan.columns:
        if isinstance(kind, T.TimestampType):
            frame = frame.withColumn(name, F.col(name).cast("string"))
    rows = {row[OFFSET]: row for row in frame.collect()}
    reasons: list[str | None] = []
    for number in range(len(records)):
        code = int(judged.reasons[number])
        assert (code >= 0) == (number in rows), f"record {number} is left out by one"
        if code < 0:
            reasons.append(None)
            continue
        reason = rows[number][REASON]
        assert (reason is not None) == (code > 0), (number, reason, code)
        assert code == 0 or reason.startswith(REASONS[code]), (number, reason, code)
        reasons.append(reason)
    good = np.flatnonzero(judged.good)
    found = as_text(decoder.columns(judged, good))
    names = [*plan.names, POSITION, DELETED]
    for number, row in zip(good, found, strict=True):
        assert row == {name: plain(rows[number][name]) for name in names}, number
    state = TableState()
    winners = rule.winners(rule.admitted(decoded(raw(spark, records), plan, SNAPSHOT_TOPIC), state, state), plan.keys)
    expected = sorted(tuple(str(plain(row[name])) for name in (*plan.keys, POSITION, DELETED)) for row in winners.collect())
    chosen = decoder.columns(judged, newest(decoder, judged, admitted(judged, {}, "")), [*plan.keys, POSITION, DELETED])
    assert sorted(tuple(str(plain(value)) for value in row.values()) for row in chosen.to_pylist()) == expected
    return reasons


def assert_kept(spark: SparkSession, plan: TableLayout, records: Sequence[Record], folder: Path) -> None:
    """Give the rows to Spark in a file, as a worker does, and compare them with those that Spark decodes."""
    decoder = ArrowDecoder(DecoderPlan.of(plan))
    judged = judge(decoder, records)
    file = RowsFile.new(folder, plan.names, 1 << 30)
    file.run(decoder.columns(judged, np.flatnonzero(judged.good)))
    names = [quoted(name) for name in (*plan.names, POSITION, DELETED)]
    by_spark = decoded(raw(spark, records), plan, SNAPSHOT_TOPIC).where(F.col(REASON).isNull()).select(*names)
    found = file.read(spark, plan.columns)
    assert [(field.name, field.dataType) for field in found.select(*names).schema] == [
        (field.name, field.dataType) for field in by_spark.schema
    ]
    zoned = [name for name, kind in plan.columns if isinstance(kind, T.TimestampType)]
    texts = {name: F.col(quoted(name)).cast("string") for name in zoned}
    both = [sorted(repr(plain(row)) for row in rows.withColumns(texts).select(*names).collect()) for rows in (found, by_spark)]
    assert both[0] == both[1]
    assert both[0]


def placed(record: dict[str, Any], offset: int, ordinal: int = 1) -> dict[str, Any]:
    record["source"]["sequence"] = at(offset, ordinal).text
    return record


def test_every_type_is_what_spark_makes_of_it(spark: SparkSession, tmp_path: Path) -> None:
    source = table(*[item for item, _, _ in TYPES])
    (writer,), keys = value_writers(source), key_writers(source)
    records = []
    for number in range(max(len(values) for _, _, values in TYPES) + 1):
        after = {i.name: values[number][0] if number < len(values) else None for i, _, values in TYPES}
        records.append((framed(keys[0], {"id": number}), framed(writer, envelope("c", None, {"id": number, **after}))))
    records.append((framed(keys[0], {"id": 1}), framed(writer, placed(envelope("d", None, None), 600))))
    assert set(assert_same(spark, layout(keys, [writer]), records)) == {None}
    assert_kept(spark, layout(keys, [writer]), records, tmp_path)


@pytest.mark.parametrize("mode", TIMES)
def test_times_of_every_mode_are_what_spark_makes_of_them(spark: SparkSession, mode: TimeMode, tmp_path: Path) -> None:
    source = table(
        column("day", ColumnType.DATE),
        column("moment", ColumnType.DATETIME, precision=6),
        column("time", ColumnType.TIME, precision=6),
    )
    (writer,), keys = value_writers(source, modes=ValueModes(time=mode)), key_writers(source)
    records = [
        (framed(keys[0], {"id": 1}), framed(writer, envelope("c", None, {"id": 1, "day": day, "moment": moment, "time": time})))
        for day, moment, time in TIMES[mode]
    ]
    assert_same(spark, layout(keys, [writer]), records)
    assert_kept(spark, layout(keys, [writer]), records, tmp_path)


def test_several_schemas_become_one_set_of_columns(spark: SparkSession) -> None:
    retyped = table(column("a", ColumnType.VARCHAR, length=9), defaulted("day", ColumnType.DATE, "1000-01-01"),
                    defaulted("n", ColumnType.DECIMAL, "1.50", precision=5, scale=2),
                    defaulted("stamp", ColumnType.TIMESTAMP, "2024-11-03 06:30:00.25", precision=6))  # fmt: skip
    writers, keys = value_writers(OLD, WITH_DEFAULT, DEFAULT_CHANGED, retyped), key_writers(OLD)
    rows: list[dict[str, Any]] = [
        {"id": 1, "a": 1}, {"id": 2, "a": 2**40, "n": 6}, {"id": 3, "a": None, "n": 7},
        {"id": 4, "a": "x", "day": -5, "n": Decimal("-3.25"), "stamp": "1970-01-01T00:00:01Z"},
    ]  # fmt: skip
    records = [
        (framed(keys[0], {"id": row["id"]}), framed(writer, envelope("c", None, row)))
        for writer, row in zip(writers, rows, strict=True)
    ]
    records.append((framed(keys[0], {"id": 9}), framed(writers[0], envelope("d", None, None))))
    assert_same(spark, layout(keys, writers), records)


def test_records_under_two_keys_are_compared_by_value(spark: SparkSession) -> None:
    wide = replace(OLD, columns=(OLD.columns[0], column("a", ColumnType.INT, nullable=False)), primary_key=("id", "a"))
    writers, (old,) = value_writers(OLD, wide), key_writers(OLD)
    schema = key_schema(wide, "p")
    assert schema is not None
    new = key_writer(RegisteredSchema(KEY_ID + 1, to_avro(schema)))
    records = [
        (framed(old, {"id": 1}), framed(writers[0], envelope("c", None, {"id": 1, "a": 3}))),
        (framed(new, {"id": 1, "a": 3}), framed(writers[1], placed(envelope("d", None, None), 700))),
        (framed(old, {"id": 1}), framed(writers[0], placed(envelope("c", None, {"id": 1, "a": 4}), 800))),
    ]
    plan = layout([old, new], writers)
    assert_same(spark, plan, records)
    deleted = (framed(old, {"id": 1}), framed(writers[0], placed(envelope("d", None, None), 900)))
    with pytest.raises(UnsupportedBatchError, match="a key that the table no longer has"):
        judge(ArrowDecoder(DecoderPlan.of(plan)), [*records, deleted])


def test_damaged_records_are_damaged_for_both(spark: SparkSession) -> None:
    seed = 20
    rng = random.Random(seed)
    source = table(*[item for item, _, _ in TYPES if item.name not in ("day", "moment", "precise", "instant")])
    (writer,), keys = value_writers(source), key_writers(source)
    records: list[Record] = [(framed(keys[0], {"id": 1}), None), (MARKER_KEY, b"{}"), (None, b"\0\0\0\0\x09abc")]
    records.append((None, framed(writer, envelope("t", None, None))))
    for number in range(400):
        after = {i.name: rng.choice([*[v for v, _ in values], None]) for i, _, values in TYPES if i in source.columns}
        op = rng.choice("cudrtx")
        record = envelope(op, None, None if op in "dt" else {"id": number % 20, **after})
        placed(record, rng.randrange(500, 520), rng.randrange(3))
        key, value = bytearray(framed(keys[0], {"id": number % 20})), bytearray(framed(writer, record))
        kind = rng.randrange(5)
        tail = value.rindex(b"p") if kind == 1 else 5
        if kind == 1:
            del value[rng.randrange(5, len(value)) :]
        elif kind == 2:
            value[rng.randrange(min(tail, 90))] ^= 1 << rng.randrange(8)
        elif kind == 3:
            key[rng.randrange(len(key))] = rng.randrange(256)
        elif kind == 4:
            value += rng.randbytes(3)
        records.append((bytes(key), bytes(value)))
    decoder = ArrowDecoder(DecoderPlan.of(layout(keys, [writer])))
    judged = judge(decoder, records)
    frame = decoded(raw(spark, records), layout(keys, [writer]), SNAPSHOT_TOPIC).select(OFFSET, REASON, POSITION)
    rows = {row[OFFSET]: row for row in frame.collect()}
    codes = set()
    for number, code in enumerate(judged.reasons.tolist()):
        codes.add(code)
        reason = rows[number][REASON] if number in rows else "left out"
        assert reason == (None if code == 0 else "left out") if code <= 0 else reason.startswith(REASONS[code]), (seed, number, code, reason)
    assert len(codes) > 6, codes
