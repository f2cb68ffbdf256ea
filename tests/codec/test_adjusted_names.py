"""Field names of `format.field_names` in JSON, from log and chunk, in rows and keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mysqlio.information_schema import read_table_schema
from rowcodec import SourceConstants, TableCodec, WireSchemas
from schemas.connect_types import ValueModes
from tests.codec.oracle import (
    chunk_records,
    event_context,
    keys_of,
    log_position,
    rows_events,
    session,
    values_of,
)


def test_rows_and_keys_have_the_adjusted_names(mysql80: Any, fresh_database: Callable[[Any], str]) -> None:
    name = fresh_database(mysql80)
    start = log_position(mysql80)
    constants = SourceConstants("v", "mysql", "p", ValueModes(field_names="avro_unicode"))
    with session(mysql80, name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (`co l` INT PRIMARY KEY, `sel.ect` VARCHAR(5), `ü` INT)")
        cursor.execute("INSERT INTO t VALUES (1, 'd', 2)")
        table = read_table_schema(connection, name, "t")
        assert table is not None
        (event,) = rows_events(mysql80, start, "t")
        logged = TableCodec(table, event.layout, WireSchemas("json"), constants)
        records = [logged.encode_rows(event.buf, event.start, event.end, event_context("c"))]
        records += chunk_records(TableCodec(table, None, WireSchemas("json"), constants), connection, "SELECT * FROM t")
    assert len(records) == 2
    for record in records:
        (key,), (value,) = keys_of(record), values_of(record)
        assert json.loads(key or b"") == {"co_u0020l": 1}
        assert json.loads(value or b"")["after"] == {"co_u0020l": 1, "sel_u002eect": "d", "_u00fc": 2}
