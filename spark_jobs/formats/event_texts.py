"""Events as texts of `changelog-json`, `debezium-json`, `canal-json` and `maxwell-json`, as Flink's formats of these names read.

Every text has `_tm_position` and `_tm_source` besides, which those formats skip. Values are those of Flink's JSON: a DATETIME
is `2024-02-29 12:00:00.000000`, a TIMESTAMP ends with `Z`, bytes are base64. Texts are made by Spark's expressions, in the JVM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.identity import SourceTable, TableName
from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, COMMITTED, POSITION, SOURCE
from spark_jobs.formats.event_columns import DETAIL, OP
from spark_jobs.formats.row_kinds import kinds_of, row_of

KEY: Final = "key"
VALUE: Final = "value"
_SQL_TIME: Final = "yyyy-MM-dd HH:mm:ss.SSSSSS"
_OPTIONS: Final = {
    "ignoreNullFields": "false", "timestampNTZFormat": _SQL_TIME, "timestampFormat": f"{_SQL_TIME}'Z'", "dateFormat": "yyyy-MM-dd",
}  # fmt: skip
_NESTED: Final = (T.StructType, T.ArrayType)
_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where events are from, and into which target they go: its name, and the columns of the key in it, `SOURCE` left out.

    `is_shared` says that several source tables go into the target: then the source is part of a message's key. `is_column` says
    that each event has its source table in the column `SOURCE`, which is part of the key too; of `table` only its source counts.
    """

    table: SourceTable
    target: TableName
    keys: tuple[str, ...]
    is_shared: bool = False
    is_column: bool = False

    @property
    def name(self) -> Column:
        """The text of the source table."""
        return F.col(SOURCE) if self.is_column else F.lit(self.table.text)


def texts(events: DataFrame, name: str, source: EventSource) -> DataFrame:
    """Return `KEY` and `VALUE`, both texts, of events in the format of a name, with `POSITION`. The order of the events is kept."""
    return _FORMATS[name](events, source)


def names() -> tuple[str, ...]:
    """Return the names of the formats."""
    return tuple(_FORMATS)


def notice(op: str, position: str, source: str, detail: str | None = None) -> str:
    """Return the text of a floor or of a sweep: the key of a message without a value, or a line of its own."""
    document = {OP: op, POSITION: position, SOURCE: source} | ({} if detail is None else {DETAIL: json.loads(detail)})
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


# ── the formats ────────────────────


def _changelog(events: DataFrame, source: EventSource) -> DataFrame:
    rows = row_of(kinds_of(events))
    value = _object({"data": json_of(F.col("row")), "op": _text(F.col(OP)), **_own(source)})
    return rows.select(_key(F.col("row"), source).alias(KEY), value.alias(VALUE), POSITION)


def _debezium(events: DataFrame, source: EventSource) -> DataFrame:
    snapshot = F.when(F.col(CHANGE) == F.lit("r"), F.lit('"true"')).otherwise(F.lit('"false"'))
    block = {
        "name": _constant(source.table.source.name),
        "ts_ms": _number(F.col(COMMITTED)),
        "snapshot": snapshot,
        "db": _constant(source.target.database),
        "table": _constant(source.target.table),
        "sequence": _text(F.col(POSITION)),
    }
    value = {
        "before": json_of(F.col(BEFORE)),
        "after": json_of(F.col(AFTER)),
        "source": _object(block),
        "op": _text(F.col(CHANGE)),
        "ts_ms": _number(F.col(COMMITTED)),
    }
    return _messages(events, source, value)


def _canal(events: DataFrame, source: EventSource) -> DataFrame:
    before, after = (_as_texts(F.col(side), _fields(events)) for side in (BEFORE, AFTER))
    newest = F.when(F.col(CHANGE) == F.lit("d"), json_of(before)).otherwise(json_of(after))
    old = _old(events, before, after)
    value = {
        "data": F.concat(F.lit("["), newest, F.lit("]")),
        "old": F.when(old.isNull(), F.lit("null")).otherwise(F.concat(F.lit("["), old, F.lit("]"))),
        "type": _type({"d": "DELETE", "u": "UPDATE"}, "INSERT"),
        "database": _constant(source.target.database),
        "table": _constant(source.target.table),
        "pkNames": _constant(list(source.keys)),
        "isDdl": F.lit("false"),
        "es": _number(F.col(COMMITTED)),
        "ts": _number(F.col(COMMITTED)),
    }
    return _messages(events, source, value)


def _maxwell(events: DataFrame, source: EventSource) -> DataFrame:
    before, after = F.col(BEFORE), F.col(AFTER)
    seconds = F.call_function("div", F.col(COMMITTED), F.lit(_MS).cast("bigint"))
    value = {
        "database": _constant(source.target.database),
        "table": _constant(source.target.table),
        "type": _type({"d": "delete", "u": "update"}, "insert"),
        "ts": _number(seconds),
        "data": F.when(F.col(CHANGE) == F.lit("d"), json_of(before)).otherwise(json_of(after)),
        "old": F.coalesce(_old(events, before, after), F.lit("null")),
        "primary_key_columns": _constant(list(source.keys)),
    }
    return _messages(events, source, value)


_FORMATS: Final[Mapping[str, Callable[[DataFrame, EventSource], DataFrame]]] = {
    "changelog-json": _changelog, "debezium-json": _debezium, "canal-json": _canal, "maxwell-json": _maxwell,
}  # fmt: skip


# ── parts ────────────────────


def _messages(events: DataFrame, source: EventSource, value: Mapping[str, Column]) -> DataFrame:
    row = F.when(F.col(CHANGE) == F.lit("d"), F.col(BEFORE)).otherwise(F.col(AFTER))
    return events.select(_key(row, source).alias(KEY), _object({**value, **_own(source)}).alias(VALUE), POSITION)


def _own(source: EventSource) -> dict[str, Column]:
    own = _value(source.name) if source.is_column else _constant(source.table.text)
    return {POSITION: _text(F.col(POSITION)), SOURCE: own}


def _key(row: Column, source: EventSource) -> Column:
    """Return the key of a row as JSON: what messages are distributed by."""
    parts = [row.getField(name).alias(name) for name in source.keys]
    own = [source.name.alias(SOURCE)] if source.is_shared or source.is_column else []
    return json_of(F.struct(*own, *parts))


def _object(members: Mapping[str, Column]) -> Column:
    """Return a JSON object of members that are JSON."""
    parts: list[Column] = []
    for number, (name, value) in enumerate(members.items()):
        parts += [F.lit(f"{'{' if number == 0 else ','}{json.dumps(name)}:"), value]
    return F.concat(*parts, F.lit("}"))


def json_of(value: Column) -> Column:
    """Return a struct as JSON, NULL as `null`."""
    return F.coalesce(F.to_json(value, _OPTIONS), F.lit("null"))


def _value(value: Column) -> Column:
    """Return any value as JSON: what a struct of it alone has between its colon and its brace."""
    whole = F.to_json(F.struct(value.alias("v")), _OPTIONS)
    return F.substring(whole, F.lit(len('{"v":') + 1), F.length(whole) - F.lit(len('{"v":}')))


def _text(value: Column) -> Column:
    """Return a text of ours, in which nothing needs an escape, as JSON."""
    return F.concat(F.lit('"'), value, F.lit('"'))


def _constant(value: Any) -> Column:
    return F.lit(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _number(value: Column) -> Column:
    return F.coalesce(value.cast("string"), F.lit("null"))


def _type(of: Mapping[str, str], other: str) -> Column:
    """Return what a format calls a change, as JSON."""
    found = F.lit(json.dumps(other))
    for change, name in of.items():
        found = F.when(F.col(CHANGE) == F.lit(change), F.lit(json.dumps(name))).otherwise(found)
    return found


def _old(events: DataFrame, before: Column, after: Column) -> Column:
    """Return the values that an update has replaced, as a JSON object; NULL where they are not known, or for another change."""
    members = [_changed(field.name, before.getField(field.name), after.getField(field.name)) for field in _fields(events)]
    joined = F.concat(F.lit("{"), F.array_join(F.array(*members), ","), F.lit("}"))
    return F.when((F.col(CHANGE) == F.lit("u")) & F.col(BEFORE).isNotNull(), joined)


def _changed(name: str, before: Column, after: Column) -> Column:
    """Return a member of a JSON object; NULL, which `array_join` leaves out, where the value is the same."""
    return F.when(~before.eqNullSafe(after), F.concat(F.lit(f"{json.dumps(name, ensure_ascii=False)}:"), _value(before)))


def _fields(events: DataFrame) -> Sequence[T.StructField]:
    kind = events.schema[AFTER].dataType
    assert isinstance(kind, T.StructType)
    return kind.fields


def _as_texts(image: Column, fields: Sequence[T.StructField]) -> Column:
    """Return an image with texts instead of values, as canal has them; NULL stays NULL, and what is nested stays as it is."""
    parts = [_as_text(image.getField(field.name), field.dataType).alias(field.name) for field in fields]
    return F.when(image.isNotNull(), F.struct(*parts))


def _as_text(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, (*_NESTED, T.StringType)):
        return value
    if isinstance(kind, T.BinaryType):
        return F.translate(F.base64(value), "\r\n", "")  # Spark breaks it into lines
    if isinstance(kind, T.TimestampNTZType):
        return F.date_format(value, _SQL_TIME)
    if isinstance(kind, T.TimestampType):
        return F.date_format(value, f"{_SQL_TIME}'Z'")
    return value.cast("string")
