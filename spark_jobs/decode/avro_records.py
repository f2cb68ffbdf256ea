"""Bytes of Kafka records to columns of the sink: frame check, Avro, one layout for all writer schemas.

Every record leaves with its columns or with the reason why it has none; nothing here raises an error for a bad record.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name
from pyspark.sql.avro.functions import from_avro

from schemas.markers import MARKER_KEY
from spark_jobs.decode.record_columns import (
    AFTER,
    BEFORE,
    CHANGE,
    COMMITTED,
    DELETED,
    KEYS,
    OFFSET,
    ORIGIN,
    PARTITION,
    POSITION,
    REASON,
    SNAPSHOT,
    TOPIC,
    WRITER,
)
from spark_jobs.decode.spark_types import converted, holds, literal, widened
from spark_jobs.decode.table_layout import TableLayout, fill_value
from spark_jobs.decode.writer_schemas import WriterSchema

_FRAME_BYTES: Final = 5
_POSITION_CHARACTERS: Final = 39
_POSITION_PATTERN: Final = r"^\d{4}\.\d{10}\.\d{12}\.\d{10}$"
_NO_FIT: Final = "schema_changes keeps the types of the columns, and the value does not fit"
_OLD_KEY: Final = "deleted under a key the table no longer has"
_OPS: Final = ("c", "u", "d", "r")


def decoded(
    raw: DataFrame, plan: TableLayout, snapshot_topic: str, *, keeps_deleted: bool = False, keeps_change: bool = False
) -> DataFrame:
    """Return the records as sink columns; with `keeps_deleted` a delete has the values of the row that it deletes.

    In: topic, partition, offset, key, value. Out: `ORIGIN` (topic, partition, offset, whether it is a snapshot row), `REASON` (null
    for a good record), `POSITION`, `DELETED`, `WRITER` (the id of its value schema), `COMMITTED` (when the source committed the
    change, in Unix milliseconds; null for a row that a snapshot has read), with `keeps_change` `CHANGE` (the record's op), and
    the columns of `plan`. Tombstone records, markers and truncates (op t without a key; their floor is a marker) are left out.
    """
    opened = _opened(raw, plan, snapshot_topic, of_both=keeps_deleted)
    if keeps_deleted:
        opened = _with_deleted_rows(opened, plan.value_writers)
    return opened.select(
        *_own_columns(plan),
        (_op(plan) == F.lit("d")).alias(DELETED),
        *([_op(plan).alias(CHANGE)] if keeps_change else []),
        *[_column(plan, name, kind).alias(name) for name, kind in plan.columns],
    )


def decoded_changes(raw: DataFrame, plan: TableLayout, snapshot_topic: str) -> DataFrame:
    """Return the records with the rows before and after them: as `decoded`, but with other columns for the row.

    `CHANGE` is the record's op. `AFTER` and `BEFORE` are structs of the columns of `plan`: NULL where there is no such row, and
    where the record lacks the row before a change. `KEYS` is a struct of the key's columns.
    """
    keys = [_column(plan, name, plan.types[name]).alias(name) for name in plan.keys]
    sides = (("after", AFTER, _op(plan) != F.lit("d")), ("before", BEFORE, _op(plan).isin("u", "d")))

    def image(part: str, exists: Column) -> Column:
        there = exists & _chosen("value", plan.value_writers, lambda _, record: record[part].isNotNull())
        return F.when(there, F.struct(*[_column(plan, name, kind, part).alias(name) for name, kind in plan.columns]))

    return _opened(raw, plan, snapshot_topic, of_both=True).select(
        *_own_columns(plan),
        _op(plan).alias(CHANGE),
        F.struct(*keys).alias(KEYS),
        *[image(part, exists).alias(name) for part, name, exists in sides],
    )


def _opened(raw: DataFrame, plan: TableLayout, snapshot_topic: str, *, of_both: bool) -> DataFrame:
    """Return the records with a column for each schema that they may have, `of_both` rows of a change, without truncates."""
    of_both = of_both or any(name.lower() not in key.by_name for key in plan.key_writers for name in plan.keys)
    opened = _records(raw, snapshot_topic).select(
        *ORIGIN,
        F.col("key").isNull().alias("_tm_keyless"),
        F.coalesce(
            _frame_problem("value", plan.value_writers), _frame_problem("key", plan.key_writers)
        ).alias("_tm_frame"),
        *_number_columns("key", plan.key_writers),
        *_number_columns("value", plan.value_writers),
        *_record_columns("key", plan.key_writers),
        *_record_columns("value", plan.value_writers, of_both=of_both),
    )
    opened = _with_fitting_writer(opened, plan.value_writers)
    truncates = F.col("_tm_keyless") & _op(plan).eqNullSafe(F.lit("t"))
    return opened.where(~truncates)


def _own_columns(plan: TableLayout) -> list[str | Column]:
    return [
        *ORIGIN,
        _reason(plan).alias(REASON),
        _position(plan).alias(POSITION),
        _chosen("value", plan.value_writers, lambda writer, _record: F.lit(writer.id)).alias(WRITER),
        _committed(plan).alias(COMMITTED),
    ]


@dataclass(frozen=True, slots=True)
class NewestPositions:
    """The highest position of the records with each key schema, and with each value schema, by the schema's id.

    A key's schema and a value's may have the same id: a registry that lost its memory gives ids again.
    """

    keys: Mapping[int, str]
    values: Mapping[int, str]


def newest_positions(raw: DataFrame, plan: TableLayout, snapshot_topic: str) -> NewestPositions:
    """Return the schemas of the newest records: a registry gives a schema that comes back its old rank."""
    opened = _records(raw, snapshot_topic).select(
        _number("key", plan.key_writers).alias("_tm_key_number"),
        _number("value", plan.value_writers).alias("_tm_value_number"),
        *_number_columns("value", plan.value_writers),
        *_record_columns("value", plan.value_writers),
    )
    opened = _with_fitting_writer(opened.withColumn("_tm_frame", F.lit(None).cast("string")), plan.value_writers)
    grouped = opened.groupBy("_tm_key_number", "_tm_value_number").agg(F.max(_position(plan)).alias("position"))
    keys: dict[int, str] = {}
    values: dict[int, str] = {}
    for key, value, position in grouped.where(F.col("position").isNotNull()).collect():
        for seen, number, writers in ((keys, key, plan.key_writers), (values, value, plan.value_writers)):
            if number is not None:
                ident = writers[number].id
                seen[ident] = max(position, seen.get(ident, ""))
    return NewestPositions(keys, values)


def undecodable(raw: DataFrame, snapshot_topic: str, why: str) -> DataFrame:
    """Return the records of a table whose schemas are not all known: origin and reason, as `decoded` has them."""
    return _records(raw, snapshot_topic).select(*ORIGIN, F.lit(why).alias(REASON))


def framed_parts(raw: DataFrame, snapshot_topic: str) -> tuple[frozenset[str], dict[int, int]]:
    """Return which of key and value some record has a schema id in, and where the records of the change topic end (exclusive).

    A schema whose id is in a record was registered, whatever the registry says now.
    """
    grouped = _records(raw, snapshot_topic).groupBy(SNAPSHOT, PARTITION)
    parts = ("key", "value")
    found = grouped.agg(*[F.max(_is_framed(part)).alias(part) for part in parts], F.max(OFFSET).alias("last")).collect()
    ends = {row[PARTITION]: row["last"] + 1 for row in found if not row[SNAPSHOT]}
    return frozenset(part for part in parts if any(row[part] for row in found)), ends


def _records(raw: DataFrame, snapshot_topic: str) -> DataFrame:
    """Return what is neither a tombstone record nor a marker, with its origin under our own names."""
    is_snapshot = F.col("topic") == F.lit(snapshot_topic)
    records = raw.where(
        F.col("value").isNotNull() & ~(is_snapshot & (F.col("key").eqNullSafe(F.lit(MARKER_KEY))))
    )
    return records.select(
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        is_snapshot.alias(SNAPSHOT),
        "key",
        "value",
    )


def _written_by(part: str, writer: WriterSchema) -> Column:
    return F.substring(F.col(part), 1, _FRAME_BYTES) == F.lit(writer.frame)


def _frame_problem(part: str, writers: Sequence[WriterSchema]) -> Column:
    """Return why a key or value cannot be opened, null if it can."""
    column = F.col(part)
    known = reduce(
        lambda one, other: one | other, [_written_by(part, item) for item in writers], F.lit(False)
    )
    number = F.conv(F.hex(F.substring(column, 2, _FRAME_BYTES - 1)), 16, 10)
    return (
        F.when(column.isNull(), F.lit(f"no {part}"))
        .when(~_is_framed(part), F.lit(f"{part} is not in Confluent wire format"))
        .when(~known, F.concat(F.lit(f"{part} has a schema id unknown to its subject: "), number))
    )


def _is_framed(part: str) -> Column:
    """Return whether a key or value has the length and the first byte of Confluent's wire format."""
    return (F.length(part) > F.lit(_FRAME_BYTES)) & (F.substring(part, 1, 1) == F.lit(b"\0"))


def _number_columns(part: str, writers: Sequence[WriterSchema]) -> list[Column]:
    """Return the column of the writer that a record is of, if there is a choice."""
    return [_number(part, writers).alias(f"_tm_{part}_writer")] if len(writers) > 1 else []


def _number(part: str, writers: Sequence[WriterSchema]) -> Column:
    """Return the number of the writer that a record is of."""
    choice = F.lit(None).cast("int")
    for number, writer in enumerate(writers):
        choice = F.when(_written_by(part, writer), F.lit(number)).otherwise(choice)
    return choice


def _with_fitting_writer(opened: DataFrame, writers: Sequence[WriterSchema]) -> DataFrame:
    """Return the records with the writer that fits, if a registry that lost its memory gave the id of one to another.

    An envelope has its position after the row: it is well-formed if the row before it was read to its last byte. If it is with both
    schemas, it is unknown which one was meant, and the record has that as its reason.
    """
    numbers: dict[int, list[int]] = {}
    for number, writer in enumerate(writers):
        numbers.setdefault(writer.id, []).append(number)
    for ident, group in numbers.items():
        if len(group) == 1:
            continue
        fits = [_fits(F.col(f"_tm_value_{number}")) for number in group]
        count = reduce(lambda one, other: one + other, [fit.cast("int") for fit in fits])
        chosen = F.coalesce(*[F.when(fit, F.lit(number)) for number, fit in zip(group, fits, strict=True)])
        mine = F.col("_tm_value_writer").isin(group)
        why = f"value has a schema id that the registry gave to two schemas, and fits both: {ident}"
        opened = opened.withColumns(
            {
                "_tm_value_writer": F.when(mine & (count == 1), chosen).otherwise(F.col("_tm_value_writer")),
                "_tm_frame": F.coalesce(F.col("_tm_frame"), F.when(mine & (count > 1), F.lit(why))),
            }
        )
    return opened


def _fits(record: Column) -> Column:
    position = record["source"]["sequence"]
    return F.coalesce(record["op"].isin(*_OPS, "t") & position.rlike(_POSITION_PATTERN), F.lit(False))


def _with_deleted_rows(opened: DataFrame, writers: Sequence[WriterSchema]) -> DataFrame:
    """Return the records with the row before a delete as the row after it."""
    names = [f"_tm_value_{number}" for number in range(len(writers))]
    is_delete = [F.col(name)["op"] == F.lit("d") for name in names]
    lacks = reduce(lambda one, other: one | other, [
        F.coalesce(deletes & F.col(name)["before"].isNull(), F.lit(False)) for name, deletes in zip(names, is_delete, strict=True)
    ])  # fmt: skip
    why = "no row before the delete, which a target with soft_delete keeps: set binlog_row_image to FULL"
    kept = {
        name: F.col(name).withField("after", F.when(deletes, F.col(name)["before"]).otherwise(F.col(name)["after"]))
        for name, deletes in zip(names, is_delete, strict=True)
    }
    framed = F.coalesce(F.col("_tm_frame"), F.when(lacks, F.lit(why)))
    return opened.withColumn("_tm_frame", framed).withColumns(kept)


def _record_columns(part: str, writers: Sequence[WriterSchema], *, of_both: bool = False) -> list[Column]:
    """Return one column per writer: the decoded record, null for a record of another writer.

    The optimizer copies an expression into every filter above that uses it, and the record would be decoded
    a dozen times; one that is not deterministic stays where it is.
    """
    once = F.monotonically_increasing_id() >= F.lit(0)
    body = F.substring(F.col(part), _FRAME_BYTES + 1, 2**31 - 1 - _FRAME_BYTES)
    return [
        F.when(
            _written_by(part, writer) & once,
            from_avro(body, writer.text, {"mode": "PERMISSIVE", "avroSchema": writer.reader_of_both if of_both else writer.reader}),
        ).alias(f"_tm_{part}_{number}")
        for number, writer in enumerate(writers)
    ]


def _chosen(part: str, writers: Sequence[WriterSchema], pick: Callable[[WriterSchema, Column], Column]) -> Column:
    """Return the column that `pick` returns for the record and the writer that wrote it."""
    picked = [pick(writer, F.col(f"_tm_{part}_{number}")) for number, writer in enumerate(writers)]
    if len(picked) == 1:
        return picked[0]
    chosen = picked[-1]
    for number in range(len(picked) - 2, -1, -1):
        chosen = F.when(F.col(f"_tm_{part}_writer") == F.lit(number), picked[number]).otherwise(chosen)
    return chosen


def _op(plan: TableLayout) -> Column:
    return _chosen("value", plan.value_writers, lambda _writer, record: record["op"])


def _position(plan: TableLayout) -> Column:
    return _chosen("value", plan.value_writers, lambda _writer, record: record["source"]["sequence"])


def _committed(plan: TableLayout) -> Column:
    def time_of(writer: WriterSchema, record: Column) -> Column:
        return record["source"]["ts_ms"] if writer.has_time else F.lit(None).cast("bigint")

    return F.when(~F.col(SNAPSHOT) & (_op(plan) != F.lit("r")), _chosen("value", plan.value_writers, time_of))


def _reason(plan: TableLayout) -> Column:
    """Return why a record cannot be merged, null if it can."""
    op, position = _op(plan), _position(plan)
    after = _chosen("value", plan.value_writers, lambda _writer, record: record["after"].isNull())
    key = _chosen("key", plan.key_writers, lambda writer, record: record[writer.fields[0].name].isNull())
    return (
        F.when(F.col("_tm_frame").isNotNull(), F.col("_tm_frame"))
        .when(op.isNull(), F.lit("value does not fit its schema"))
        .when(key, F.lit("key does not fit its schema"))
        .when(_is_without_todays_key(plan) & (op == F.lit("d")), F.lit(_OLD_KEY))
        .when(~op.isin(*_OPS), F.concat(F.lit("unknown op "), op))
        .when(
            F.coalesce(F.length(position) != F.lit(_POSITION_CHARACTERS), F.lit(True)), F.lit("no position")
        )
        .when(after & (op != F.lit("d")), F.lit("no row after the change"))
        .otherwise(_unfit(plan))
    )


def _unfit(plan: TableLayout) -> Column:
    """Return which value of a record the column of the target does not have, where its type is fixed; null if it has all."""
    reasons: list[Column] = []
    for name in dict.fromkeys(name for name, _ in plan.unfit):
        kind = plan.types[name]
        if name in plan.keys:
            is_unfit = _chosen("key", plan.key_writers, _unfit_in(name, kind, ""))
        else:
            is_unfit = _chosen("value", plan.value_writers, _unfit_in(name, kind, "after")) & (_op(plan) != F.lit("d"))
        reasons.append(F.when(is_unfit, F.lit(f"{_NO_FIT} {name} {kind.simpleString()}")))
    return F.coalesce(*reasons) if reasons else F.lit(None).cast("string")


def _unfit_in(name: str, kind: T.DataType, part: str) -> Callable[[WriterSchema, Column], Column]:
    """Return what says of a record, or of a part of it, whether a value of a column does not fit a type."""

    def judge(writer: WriterSchema, record: Column) -> Column:
        item = writer.by_name.get(name.lower())
        if item is None or holds(kind, item.type):
            return F.lit(False)
        row = record[part] if part else record
        value = item.read(row[item.name])
        return ~value.eqNullSafe(converted(converted(value, item.type, kind), kind, item.type))

    return judge


def _is_without_todays_key(plan: TableLayout) -> Column:
    """Return whether a delete has a value of today's key neither in its key nor in the row that it deletes."""

    def lacks(writer: WriterSchema, record: Column) -> Column:
        others = [name for name in plan.keys if name.lower() not in writer.by_name]
        missing = [_key(plan, writer, record, name, plan.types[name], "before").isNull() for name in others]
        return reduce(operator.or_, missing, F.lit(False))

    return _chosen("key", plan.key_writers, lacks)


def _column(plan: TableLayout, name: str, kind: T.DataType, part: str = "after") -> Column:
    if name in plan.keys:
        return _chosen("key", plan.key_writers, lambda writer, record: _key(plan, writer, record, name, kind, part))
    return _chosen(
        "value", plan.value_writers, lambda writer, record: _value(plan, writer, record[part], name, kind)
    )


def _key(plan: TableLayout, writer: WriterSchema, record: Column, name: str, kind: T.DataType, part: str) -> Column:
    """Return a key column out of the key; out of the row if the record has the key that the table had before.

    Of a delete that is the row before it: a log with whole images has it there.
    """
    if name.lower() in writer.by_name:
        return _read(writer, record, name, kind, is_fixed=plan.is_fixed)

    def of_row(value: WriterSchema, envelope: Column) -> Column:
        before, row = (_value(plan, value, envelope[one], name, kind) for one in ("before", part))
        return F.when((envelope["op"] == F.lit("d")) & envelope["before"].isNotNull(), before).otherwise(row)

    return _chosen("value", plan.value_writers, of_row)


def _read(writer: WriterSchema, record: Column, name: str, kind: T.DataType, *, is_fixed: bool) -> Column:
    item = writer.by_name[name.lower()]
    value = item.read(record[item.name])
    if not holds(kind, item.type):  # a retired writer's: no record of it is admitted; of a fixed type: `_unfit` judges the value
        return converted(value, item.type, kind) if is_fixed else F.lit(None).cast(kind)
    return value if item.type == kind else widened(value, item.type, kind)


def _value(plan: TableLayout, writer: WriterSchema, row: Column, name: str, kind: T.DataType) -> Column:
    if name.lower() in writer.by_name:
        return _read(writer, row, name, kind, is_fixed=plan.is_fixed)
    return literal(fill_value(plan.versions, writer, name, kind), kind)
