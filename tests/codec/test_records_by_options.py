"""What `records` of the settings changes in records: tombstones, columns, keys, masks, flat rows."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np
import pytest

from rowcodec import ChunkContext, RecordOptions, Records
from rowcodec.types import Format
from schemas.columns import Mask, TableSchema
from schemas.connect_types import ValueModes
from schemas.errors import SchemaMismatchError
from schemas.types.connect import flat_schema
from tests.codec.oracle import NOW_NS, TS_US, Reader, event_context, keys_of, make_codec, values_of, wire
from tests.codec.orders import FORMATS, LAYOUT, TABLE, decoded, encode, image, packet

# ── options ────────────────────────────────


@pytest.mark.parametrize("fmt", FORMATS)
def test_without_tombstones_a_changed_key_is_a_delete_and_a_create(fmt: Format) -> None:
    codec = make_codec(TABLE, LAYOUT, fmt, options=RecordOptions(tombstones=False))
    records = encode(codec, "u", image(2, "a", 7), image(2000, "b", 8), image(3, "", 7), image(3, "c", 7))
    found = decoded(fmt, records)
    assert [key["id"] for key, _ in found] == [2, 2000, 3]
    assert bytes(records.ops) == b"dcu"
    assert list(records.related) == [1, 0, -1]
    assert list(records.is_tombstone) == [0, 0, 0]
    deleted = encode(codec, "d", image(1, "a", 7), image(2, "b", 7))
    assert bytes(deleted.ops) == b"dd"
    assert [key["id"] for key, _ in decoded(fmt, deleted)] == [1, 2]


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_update_that_changes_no_written_column_can_be_left_out(fmt: Format) -> None:
    images = (image(1, "a", 7), image(1, "a", 7), image(2, "a", 7), image(2, "b", 7), image(3, None, 7))
    images = (*images, image(3, None, 7))
    codec = make_codec(TABLE, LAYOUT, fmt, options=RecordOptions(skip_unchanged=True))
    records = encode(codec, "u", *images)
    [(key, value)] = decoded(fmt, records)
    assert (key["id"], value["source"]["row"], records.rows) == (2, 1, 3)
    filtered = replace(TABLE, dropped=frozenset({"name"}))
    codec = make_codec(filtered, LAYOUT, fmt, options=RecordOptions(skip_unchanged=True))
    assert encode(codec, "u", *images).count == 0
    assert encode(codec, "u", image(1, "a", 7), image(2, "a", 7)).count == 3


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_truncate_is_a_record_without_key_and_rows(fmt: Format) -> None:
    codec = make_codec(TABLE, LAYOUT, fmt, options=RecordOptions(transactions=True))
    records = codec.encode_truncate(replace(event_context("c"), op="t"))
    [(key, value)] = decoded(fmt, records)
    assert (key, value["before"], value["after"], value["op"]) == (None, None, None, "t")
    assert (value["transaction"], value["source"]["row"], value["source"]["snapshot"]) == (None, 0, "false")


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_transaction_block_counts_records_and_not_tombstones(fmt: Format) -> None:
    codec = make_codec(TABLE, LAYOUT, fmt, options=RecordOptions(transactions=True))
    context = replace(event_context("u"), transaction="uuid:17", total_order=200, table_order=3)
    images = (image(1, "a", 7), image(1, "b", 7), image(2, "a", 7), image(9, "b", 8))
    found = decoded(fmt, encode(codec, "u", *images, context=context))
    blocks = [value["transaction"] for _, value in found if value]
    assert blocks == [
        {"id": "uuid:17", "total_order": 200 + n, "data_collection_order": 3 + n} for n in range(3)
    ]
    data = np.frombuffer(packet(1, "a", 7), np.uint8).copy()
    chunk = ChunkContext("0001.0000000003.000000000099.0000000000", "true", TS_US, "b.3", 99, None, NOW_NS)
    [(_, row)] = decoded(fmt, codec.encode_resultset(data, 0, data.size, chunk))
    assert row["transaction"] is None


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_dropped_column_is_not_written_and_stays_in_the_key(fmt: Format) -> None:
    images = (image(1, "é", 7), image(2, "b", 8))
    for dropped in ({"name"}, {"id"}, {"id", "tenant"}, {"id", "name", "tenant"}):
        table = replace(TABLE, dropped=frozenset(dropped))
        codec = make_codec(table, LAYOUT, fmt)
        found = decoded(fmt, encode(codec, "u", *images), table)
        rows = ({"id": 1, "name": "é", "tenant": 7}, {"id": 2, "name": "b", "tenant": 8})
        old, new = ({name: row[name] for name in row if name not in dropped} for row in rows)
        assert [key for key, _ in found] == [{"tenant": 7, "id": 1}] * 2 + [{"tenant": 8, "id": 2}]
        assert (found[0][1]["before"], found[2][1]["after"]) == (old, new)
        data = np.frombuffer(packet(1, "x", 7), np.uint8).copy()
        chunk = ChunkContext("0001.0000000003.000000000099.0000000000", "true", TS_US, "b", 9, None, NOW_NS)
        [(key, row)] = decoded(fmt, codec.encode_resultset(data, 0, data.size, chunk), table)
        assert key == {"tenant": 7, "id": 1}
        assert list(row["after"]) == [name for name in rows[0] if name not in dropped]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_chosen_key_may_be_null(fmt: Format) -> None:
    table = replace(TABLE, message_key=("name",))
    records = encode(make_codec(table, LAYOUT, fmt), "c", image(1, "a", 7), image(2, None, 7))
    assert [key for key, _ in decoded(fmt, records, table)] == [{"name": "a"}, {"name": None}]


@pytest.mark.parametrize("fmt", FORMATS)
def test_masks_hold_in_values_and_keys_of_log_and_chunk(fmt: Format) -> None:
    digest = "936518152bf014af3e9529b4a0726541ae5eec1aaa21e740f44c716b0bd97147"
    for mask, expected in (
        (Mask("hash", algorithm="SHA-256", salt="abc"), digest),
        (Mask("asterisks", 10), "**********"),
        (Mask("truncate", 2), "ha"),
    ):
        table = replace(TABLE, message_key=("name", "id"), masks=(("name", mask),))
        codec = make_codec(table, LAYOUT, fmt)
        found = decoded(fmt, encode(codec, "c", image(1, "hash", 7), image(2, None, 7)), table)
        assert [key["name"] for key, _ in found] == [expected, None]
        assert [value["after"]["name"] for _, value in found] == [expected, None]
        data = np.frombuffer(packet(1, "hash", 7), np.uint8).copy()
        chunk = ChunkContext("0001.0000000003.000000000099.0000000000", "true", TS_US, "b", 9, None, NOW_NS)
        [(key, row)] = decoded(fmt, codec.encode_resultset(data, 0, data.size, chunk), table)
        assert (key["name"], row["after"]["name"]) == (expected, expected)


@pytest.mark.parametrize(
    ("length", "text", "kept"),
    [(1, "😀x", "😀"), (3, "😀😀😀", "😀😀"), (4, "😀😀😀", "😀😀"), (2, "a😀b", "a😀"), (3, "a😀b", "a😀"), (0, "a", "")],
)
def test_a_truncated_text_counts_as_debezium_and_keeps_whole_characters(length: int, text: str, kept: str) -> None:
    table = replace(TABLE, masks=(("name", Mask("truncate", length)),))
    [(_, value)] = decoded("json", encode(make_codec(table, LAYOUT, "json"), "c", image(1, text, 7)), table)
    assert value["after"]["name"] == kept


@pytest.mark.parametrize("fmt", FORMATS)
def test_flat_rows_say_what_became_of_them(fmt: Format) -> None:
    options = RecordOptions(unwrap=True, transactions=True)
    codec = make_codec(TABLE, LAYOUT, fmt, options=options)
    images = (image(1, "é", 7), image(1, None, 7), image(2, "b", 7), image(9, "b", 8))
    records = encode(codec, "u", *images)
    assert flat(fmt, records, options) == [
        {"id": 1, "name": None, "tenant": 7, "__deleted": "false", "__op": "u", "__source_ts_ms": TS_US // 1000},
        {"id": 2, "name": "b", "tenant": 7, "__deleted": "true", "__op": "d", "__source_ts_ms": TS_US // 1000},
        None,
        {"id": 9, "name": "b", "tenant": 8, "__deleted": "false", "__op": "c", "__source_ts_ms": TS_US // 1000},
    ]
    assert [reader_key["id"] for reader_key, _ in decoded_keys(fmt, records)] == [1, 2, 2, 9]
    data = np.frombuffer(packet(1, "a", 7), np.uint8).copy()
    chunk = ChunkContext("0001.0000000003.000000000099.0000000000", "true", TS_US, "b", 9, None, NOW_NS)
    [row] = flat(fmt, codec.encode_resultset(data, 0, data.size, chunk), options)
    assert row is not None
    assert (row["__op"], row["__deleted"], row["id"]) == ("r", "false", 1)
    empty = replace(TABLE, dropped=frozenset({"id", "name", "tenant"}))
    records = encode(make_codec(empty, LAYOUT, fmt, options=options), "d", images[0])
    assert flat(fmt, records, options, empty)[0] == {"__deleted": "true", "__op": "d", "__source_ts_ms": TS_US // 1000}


def test_a_column_that_has_the_name_of_a_field_of_flat_rows_is_refused_unless_it_is_not_written() -> None:
    for name in ("__deleted", "__op", "__source_ts_ms"):
        table = replace(TABLE, columns=(*TABLE.columns[:1], replace(TABLE.columns[1], name=name), *TABLE.columns[2:]))
        with pytest.raises(SchemaMismatchError, match=rf"has a column {name}, .*records\.unwrap"):
            flat_schema(table, "srv")
        left = flat_schema(replace(table, dropped=frozenset({name})), "srv")
        assert [field.name for field in left.fields].count(name) == 1
    adjusted = replace(TABLE, columns=(*TABLE.columns[:2], replace(TABLE.columns[2], name=" _op")), primary_key=("id",))
    with pytest.raises(SchemaMismatchError, match="has a column __op"):
        flat_schema(adjusted, "srv", ValueModes(field_names="avro"))


def decoded_keys(fmt: Format, records: Records) -> list[tuple[Any, None]]:
    reader = Reader(TABLE, fmt)
    return [(None if key is None else reader.key(key), None) for key in keys_of(records)]


def flat(
    fmt: Format, records: Records, options: RecordOptions, table: TableSchema = TABLE
) -> list[dict[str, Any] | None]:
    schema = wire(table, fmt, "mysql", options).value_schema_json
    assert schema is not None
    return [None if value is None else flat_row(fmt, value, json.loads(schema)) for value in values_of(records)]


def flat_row(fmt: Format, value: bytes, schema: Any) -> dict[str, Any]:
    if fmt == "avro":
        stream = io.BytesIO(value[5:])
        found = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema))
        assert stream.read() == b""
        return dict(found)  # type: ignore[arg-type]
    document = json.loads(value)
    if fmt == "json":
        return dict(document)
    assert document["schema"] == schema
    return dict(document["payload"])
