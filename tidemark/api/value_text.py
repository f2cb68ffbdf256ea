"""A value of a decoded row as text for a person (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
OPERATIONS: Final = {"c": "insert", "u": "update", "d": "delete", "r": "read", "t": "truncate"}
"""The words for Debezium's `op`."""
_DIGITS: Final = {1_000: 3, 1_000_000: 6, 1_000_000_000: 9}


def value_text(value: Any, kind: str = "") -> str:
    """Return a value: text as it is, bytes as `0x…`, None as NULL, structures as JSON, decimals as Python does.

    `kind` is Connect's name of its type, where it has one: numbers that are dates and times are written as such.
    """
    if value is None:
        return "NULL"
    if isinstance(value, int) and kind in _TIMES:
        return _TIMES[kind](value)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=value_text)
    return str(value)


def kinds_of(schema: Any) -> Mapping[str, str]:
    """Return Connect's names of the columns' types, where they have one, of a schema of change records (Avro or Connect's JSON).

    A flat row's columns are those of the record itself.
    """
    fields = _fields(schema)
    row = next((fields[side] for side in ("before", "after") if side in fields and _fields(fields[side])), schema)
    return {name: kind for name, part in _fields(row).items() if (kind := _name(part))}


def _fields(node: Any) -> dict[str, Any]:
    """Return the parts of a record by name, {} for anything else."""
    node = _branch(node)
    if not isinstance(node, Mapping) or not isinstance(node.get("fields"), list):
        return _fields(node["type"]) if isinstance(node, Mapping) and isinstance(node.get("type"), Mapping | list) else {}
    return {str(part.get("field", part.get("name"))): part if "field" in part else part.get("type") for part in node["fields"]}


def _branch(node: Any) -> Any:
    """Return the branch of a union that is not null."""
    return next((one for one in node if one != "null"), None) if isinstance(node, list) else node


def _name(node: Any) -> str:
    found = _branch(node)
    return str(found.get("connect.name") or found.get("name") or "") if isinstance(found, Mapping) else ""


def _instant(unit: int) -> Callable[[int], str]:
    """Return what writes a number of these parts of a second since 1970; a year that Python does not know stays a number."""

    def text(value: int) -> str:
        seconds, part = divmod(value, unit)
        try:
            return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}.{part:0{_DIGITS[unit]}}"
        except OverflowError:
            return str(value)

    return text


def _time(unit: int) -> Callable[[int], str]:
    """Return what writes a time, which MySQL has from -838:59:59 to 838:59:59."""

    def text(value: int) -> str:
        seconds, part = divmod(abs(value), unit)
        return f"{'-' if value < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{part:0{_DIGITS[unit]}}"

    return text


def _date(value: int) -> str:
    try:
        return f"{_EPOCH + timedelta(days=value):%Y-%m-%d}"
    except OverflowError:
        return str(value)


_TIMES: Final[Mapping[str, Callable[[int], str]]] = {
    "io.debezium.time.Date": _date,
    "io.debezium.time.Timestamp": _instant(1_000),
    "io.debezium.time.MicroTimestamp": _instant(1_000_000),
    "io.debezium.time.NanoTimestamp": _instant(1_000_000_000),
    "io.debezium.time.Time": _time(1_000),
    "io.debezium.time.MicroTime": _time(1_000_000),
    "io.debezium.time.NanoTime": _time(1_000_000_000),
    "org.apache.kafka.connect.data.Date": _date,
    "org.apache.kafka.connect.data.Timestamp": _instant(1_000),
    "org.apache.kafka.connect.data.Time": _time(1_000),
}
