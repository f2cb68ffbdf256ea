"""Rules of times: days or microseconds. What is no date is what records have for it: NULL, or the default of the column. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from mysqlio.quoting import quoted
from schemas.columns import Column, ColumnType
from schemas.types.semantic_types import column_default
from tidemark.verify import temporal
from tidemark.verify.column_rule import Parts, refuse

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US: Final = 86_400_000_000
_YEAR_ZERO: Final = -719_528  # its first day
_YEAR_ONE: Final = -719_162
_DAYS_OF_400_YEARS: Final = 146_097
_MILLISECOND_DIGITS: Final = 3


def calendar_date_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a DATE."""
    if sink_type is not None and not pa.types.is_date32(sink_type):
        raise refuse(column, sink_type, "date")
    return {
        "common": pa.int64(),
        "expression": quoted(column.name),
        "from_source": lambda cells: _with_zero(temporal.dates(cells), column),
        "from_sink": lambda array: array.cast(pa.int32()).cast(pa.int64()),
        "literal": lambda value: f"'{_date_text(value)}'",
        "show": _date_text,
    }


def wall_time_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a DATETIME."""
    if sink_type is not None and not (pa.types.is_timestamp(sink_type) and sink_type.tz is None):
        raise refuse(column, sink_type, "timestamp without time zone")
    return _micros_parts(column)


def timestamp_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a TIMESTAMP."""
    if sink_type is not None and not (pa.types.is_timestamp(sink_type) and sink_type.tz is not None):
        raise refuse(column, sink_type, "timestamp with time zone")
    return _micros_parts(column)


def _micros_parts(column: Column) -> Parts:
    fraction = column.precision or 0
    return {
        "common": pa.int64(),
        "expression": quoted(column.name),
        "from_source": lambda cells: _with_zero(temporal.datetimes(cells, fraction), column),
        "from_sink": _micros,
        "literal": lambda value: f"'{_datetime_text(value)}'",
        "show": _datetime_text,
    }


def _with_zero(array: pa.Array, column: Column) -> pa.Array:
    """Return the dates that records have: a column that is NOT NULL has its default, else the epoch, for what is no date."""
    return array if column.nullable else array.fill_null(_zero(column))


def _zero(column: Column) -> int:
    default = column_default(column)
    if isinstance(default, str):  # a TIMESTAMP
        return (datetime.fromisoformat(default) - _EPOCH) // timedelta(microseconds=1)
    if not isinstance(default, int):
        return 0
    in_milliseconds = column.type is ColumnType.DATETIME and (column.precision or 0) <= _MILLISECOND_DIGITS
    return default * 1000 if in_milliseconds else default


def _micros(array: pa.Array) -> pa.Array:
    return array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64())


def clock_time_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a TIME."""
    if sink_type is not None and not pa.types.is_int64(sink_type):
        raise refuse(column, sink_type, "bigint")
    fraction = column.precision or 0
    return {
        "common": pa.int64(),
        "expression": quoted(column.name),
        "from_source": lambda cells: temporal.times(cells, fraction),
        "from_sink": lambda array: array,
        "literal": lambda value: f"'{_time_text(value)}'",
        "show": _time_text,
    }


def _date_text(days: int) -> str:
    if _YEAR_ZERO <= days < _YEAR_ONE:  # the server has this year, Python has not
        return f"0000{_date_text(days + _DAYS_OF_400_YEARS)[4:]}"
    try:
        return (_EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return f"day {days} from 1970-01-01"


def _datetime_text(micros: int) -> str:
    days, clock = divmod(micros, _DAY_US)
    return f"{_date_text(days)} {_time_text(clock)}"


def _time_text(micros: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
