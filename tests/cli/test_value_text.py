"""Values for a person: dates and times are written as such, by the kinds that the schemas of both formats name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tidemark.api.value_text import kinds_of, value_text

KINDS = {"day": "io.debezium.time.Date", "added": "io.debezium.time.Timestamp", "zoned": "io.debezium.time.ZonedTimestamp"}
TYPES = {"day": "int", "added": "long", "zoned": "string"}


def avro_envelope() -> dict[str, Any]:
    named = [{"name": name, "type": ["null", {"type": TYPES[name], "connect.name": kind}]} for name, kind in KINDS.items()]
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, *named]}
    sides = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    return {"type": "record", "name": "Envelope", "fields": [*sides, {"name": "op", "type": "string"}]}


def connect_envelope() -> dict[str, Any]:
    named = [{"type": "int64", "optional": True, "name": kind, "version": 1, "field": name} for name, kind in KINDS.items()]
    fields = [{"type": "int32", "optional": False, "field": "id"}, *named]
    sides = [{"type": "struct", "name": "a.Value", "fields": fields, "field": side} for side in ("before", "after")]
    return {"type": "struct", "fields": [*sides, {"type": "string", "field": "op"}], "name": "a.Envelope"}


@pytest.mark.parametrize("schema", [avro_envelope(), connect_envelope(), avro_envelope()["fields"][0]["type"][1]])
def test_the_kinds_of_columns_are_those_of_the_schema(schema: dict[str, Any]) -> None:
    assert dict(kinds_of(schema)) == KINDS


@pytest.mark.parametrize("schema", [None, "string", {"type": "record"}, ["null"], {"fields": [{"name": "x", "type": "int"}]}])
def test_a_schema_without_kinds_has_none(schema: Any) -> None:
    assert dict(kinds_of(schema)) == {}


def test_dates_and_times_are_written_as_such_and_years_that_python_does_not_know_as_numbers() -> None:
    moment = dt.datetime(2026, 11, 26, 17, 40, 1, tzinfo=dt.UTC)
    millis = int(moment.timestamp() * 1000) + 7
    assert value_text(millis, "io.debezium.time.Timestamp") == "2026-11-26 17:40:01.007"
    assert value_text(-1, "io.debezium.time.MicroTimestamp") == "1969-12-31 23:59:59.999999"
    assert value_text(20_783, "io.debezium.time.Date") == "2026-11-26"
    assert value_text(-3_020_399_000_000, "io.debezium.time.MicroTime") == "-838:59:59.000000"
    assert value_text(-10**9, "io.debezium.time.Date") == "-1000000000"
    assert value_text(10**15, "io.debezium.time.Timestamp") == "1000000000000000"
    assert value_text("2026-11-26T17:40:01Z", "io.debezium.time.ZonedTimestamp") == "2026-11-26T17:40:01Z"
    assert value_text(millis) == str(millis)
    assert value_text(None, "io.debezium.time.Date") == "NULL"
