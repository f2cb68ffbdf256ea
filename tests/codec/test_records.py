"""Which records rows become: operations, keys, tombstones, key changes, source block, and large events."""

from __future__ import annotations

import os
import re
import struct

import numpy as np
import pytest

from rowcodec import BinlogLayout, ChunkContext, EventContext
from rowcodec.types import Format
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import DecodeError, SchemaMismatchError, TidemarkError, UnsupportedTypeError
from tests.codec.oracle import NOW_NS, TS_US, Reader, event_context, keys_of, make_codec, values_of
from tests.codec.orders import COLUMNS, FORMATS, LAYOUT, TABLE, T, decoded, encode, image, packet

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
KEYLESS = TableSchema("shop", "orders", COLUMNS)
UNIQUE = TableSchema("shop", "orders", COLUMNS, (), ("tenant",))


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_insert_gives_one_record_per_row_with_the_key_in_key_order(fmt: Format) -> None:
    records = encode(make_codec(TABLE, LAYOUT, fmt), "c", image(1, "é", 7), image(2, None, 8))
    found = decoded(fmt, records)
    assert [list(key.items()) for key, _ in found] == [
        [("tenant", 7), ("id", 1)],
        [("tenant", 8), ("id", 2)],
    ]
    assert [value["after"] for _, value in found] == [
        {"id": 1, "name": "é", "tenant": 7},
        {"id": 2, "name": None, "tenant": 8},
    ]
    assert [value["before"] for _, value in found] == [None, None]
    assert (records.count, records.rows, bytes(records.ops)) == (2, 2, b"cc")
    assert list(records.is_tombstone) == [0, 0]
    assert list(records.related) == [-1, -1]


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_source_block_and_the_times_are_debeziums(fmt: Format) -> None:
    records = encode(make_codec(TABLE, LAYOUT, fmt), "c", image(1, "a", 7), image(2, "b", 7))
    values = [value for _, value in decoded(fmt, records)]
    assert list(values[0]) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert values[1]["source"] == {
        "version": "3.6.1.Final",
        "connector": "mysql",
        "name": "srv",
        "ts_ms": TS_US // 1000,
        "snapshot": "false",
        "db": "shop",
        "sequence": "0001.0000000003.000000000154.0000000002",
        "ts_us": TS_US,
        "ts_ns": TS_US * 1000,
        "table": "orders",
        "server_id": 9,
        "gtid": "uuid:17",
        "file": "binlog.000003",
        "pos": 1155,
        "row": 1,
        "thread": 12,
        "query": None,
    }
    assert list(values[1]["source"])[:7] == [
        "version",
        "connector",
        "name",
        "ts_ms",
        "snapshot",
        "db",
        "sequence",
    ]
    assert values[0]["source"]["sequence"].endswith(".0000000001")
    assert (values[0]["transaction"], values[0]["op"]) == (None, "c")
    times = [values[0][name] for name in ("ts_ms", "ts_us", "ts_ns")]
    assert times == [NOW_NS // 1_000_000, NOW_NS // 1000, NOW_NS]


@pytest.mark.parametrize("fmt", FORMATS)
def test_optional_facts_of_an_event_may_be_absent_or_present(fmt: Format) -> None:
    context = EventContext(
        "c", "0001.0000000003.000000000154", 10, TS_US, 0, None, "b.1", 4, None, 'SELECT "x"\n\\', NOW_NS
    )
    records = encode(make_codec(TABLE, LAYOUT, fmt), "c", image(1, "a", 7), context=context)
    source = decoded(fmt, records)[0][1]["source"]
    assert (source["gtid"], source["thread"], source["query"]) == (None, None, 'SELECT "x"\n\\')
    assert source["sequence"].endswith(".0000000010")


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_update_has_both_images(fmt: Format) -> None:
    records = encode(make_codec(TABLE, LAYOUT, fmt), "u", image(1, "a", 7), image(1, None, 7))
    [(key, value)] = decoded(fmt, records)
    assert key == {"tenant": 7, "id": 1}
    assert value["op"] == "u"
    assert value["before"] == {"id": 1, "name": "a", "tenant": 7}
    assert value["after"] == {"id": 1, "name": None, "tenant": 7}


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_changed_key_gives_delete_tombstone_and_create_that_name_each_other(fmt: Format) -> None:
    images = (
        image(1, "a", 7),
        image(1, "b", 7),
        image(2, "a", 7),
        image(2000, "b", 8),
        image(3, "", 7),
        image(3, "c", 7),
    )
    records = encode(make_codec(TABLE, LAYOUT, fmt), "u", *images)
    found = decoded(fmt, records)
    assert [None if value is None else value["op"] for _, value in found] == ["u", "d", None, "c", "u"]
    assert [key["id"] for key, _ in found] == [1, 2, 2, 2000, 3]
    assert list(records.related) == [-1, 3, 3, 1, -1]
    assert list(records.is_tombstone) == [0, 0, 1, 0, 0]
    assert bytes(records.ops) == b"ud\0cu"
    assert found[1][1]["before"] == {"id": 2, "name": "a", "tenant": 7}
    assert found[1][1]["after"] is None
    assert found[3][1]["before"] is None
    assert found[3][1]["after"] == {"id": 2000, "name": "b", "tenant": 8}
    rows = [value["source"]["row"] for _, value in found if value]
    assert rows == [0, 1, 1, 2]
    assert (records.count, records.rows) == (5, 3)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_delete_is_followed_by_a_tombstone_with_the_same_key(fmt: Format) -> None:
    records = encode(make_codec(TABLE, LAYOUT, fmt), "d", image(1, "a", 7), image(2, "b", 7))
    keys, values = keys_of(records), values_of(records)
    assert (keys[0], keys[2]) == (keys[1], keys[3])
    assert [value is None for value in values] == [False, True, False, True]
    assert bytes(records.ops) == b"d\0d\0"
    assert decoded(fmt, records)[2][1]["before"] == {"id": 2, "name": "b", "tenant": 7}


def test_a_table_without_a_key_has_null_keys_also_on_tombstones_and_never_a_changed_key() -> None:
    codec = make_codec(KEYLESS, LAYOUT, "avro")
    deleted = encode(codec, "d", image(1, "a", 7))
    assert not deleted.has_key
    assert keys_of(deleted) == [None, None]
    assert list(deleted.is_tombstone) == [0, 1]
    assert bytes(encode(codec, "u", image(1, "a", 7), image(2, "a", 7)).ops) == b"u"


def test_without_a_primary_key_a_unique_index_is_the_key() -> None:
    records = encode(make_codec(UNIQUE, LAYOUT, "json"), "c", image(1, "a", 7))
    assert keys_of(records) == [b'{"tenant":7}']


@pytest.mark.parametrize("fmt", FORMATS)
def test_snapshot_rows_carry_the_position_low_and_row_zero(fmt: Format) -> None:
    data = np.frombuffer(packet(1, "a", 7) + packet(2, "b", 8), np.uint8).copy()
    position = "0001.0000000003.000000000099.0000000000"
    context = ChunkContext(position, "true", TS_US, "binlog.000003", 99, "uuid:5", NOW_NS)
    records = make_codec(TABLE, None, fmt).encode_resultset(data, 0, data.size, context)
    found = decoded(fmt, records)
    assert bytes(records.ops) == b"rr"
    for _, value in found:
        assert value["op"] == "r"
        source = value["source"]
        assert (source["snapshot"], source["sequence"], source["row"]) == ("true", position, 0)
        assert (source["server_id"], source["thread"], source["gtid"]) == (0, None, "uuid:5")
    assert [key for key, _ in found] == [{"tenant": 7, "id": 1}, {"tenant": 8, "id": 2}]


def test_key_and_after_of_log_and_chunk_are_the_same_bytes() -> None:
    reader = Reader(TABLE, "avro")
    codec = make_codec(TABLE, LAYOUT, "avro")
    logged = encode(codec, "c", image(1, "a", 7))
    data = np.frombuffer(packet(1, "a", 7), np.uint8).copy()
    context = ChunkContext("0001.0000000003.000000000099.0000000000", "true", TS_US, "b.3", 99, None, NOW_NS)
    read = codec.encode_resultset(data, 0, data.size, context)
    assert keys_of(logged) == keys_of(read)
    assert reader.after_bytes(logged.values) == reader.after_bytes(read.values)


def test_an_event_without_rows_gives_no_records() -> None:
    records = encode(make_codec(TABLE, LAYOUT, "avro"), "c")
    assert (records.count, records.rows, records.values, records.keys) == (0, 0, b"", b"")
    assert list(records.value_offsets) == [0]


@pytest.mark.parametrize("fmt", ["avro", "json"])
def test_buffers_grow_with_the_event(fmt: Format) -> None:
    codec = make_codec(TABLE, LAYOUT, fmt)
    count = 6000 if JIT else 300
    records = encode(
        codec, "u", *(part for n in range(count) for part in (image(n, "x", 7), image(n + count, "y", 7)))
    )
    assert records.count == 3 * count
    reader = Reader(TABLE, fmt)
    keys = [reader.key(key)["id"] for key in keys_of(records)[:: 3 * 100] if key is not None]
    assert keys == list(range(0, count, 100))
    last = values_of(records)[-1]
    assert last is not None
    assert reader.value(last)["after"] == {"id": 2 * count - 1, "name": "y", "tenant": 7}


def test_a_row_of_16_mib_is_alone_in_its_block() -> None:
    text = b'a"' * ((9 << 20) if JIT else 2000)
    table = TableSchema(
        "shop",
        "big",
        (Column("id", T.INT, nullable=False), Column("t", T.LONGTEXT, nullable=False, charset="utf8mb4")),
        ("id",),
    )
    payload = b"\0\0" + struct.pack("<i", 5) + b"\xfe" + struct.pack("<Q", len(text)) + text
    data = np.frombuffer(b"\xff\xff\xff\0" + payload, np.uint8).copy()
    context = ChunkContext("0001.0000000003.000000000099.0000000000", "true", TS_US, "b.3", 99, None, NOW_NS)
    for fmt in ("avro", "json"):
        records = make_codec(table, None, fmt).encode_resultset(data, 0, data.size, context)
        [value] = values_of(records)
        assert value is not None
        assert Reader(table, fmt).value(value)["after"] == {"id": 5, "t": text.decode()}


def test_one_codec_serves_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    codec = make_codec(TABLE, LAYOUT, "json")

    def run(start: int) -> list[bytes | None]:
        return [key for n in range(20) for key in keys_of(encode(codec, "c", image(start + n, "x", 1)))]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(0, 4000, 100)))
    assert found == [
        [b'{"tenant":1,"id":%d}' % (start + n) for n in range(20)] for start in range(0, 4000, 100)
    ]


# ── refusals ────────────────────


def test_a_position_of_another_width_is_refused_before_it_reaches_a_record() -> None:
    context = EventContext("c", "1.3.154", 1, TS_US, 0, None, "b.1", 4, None, None, NOW_NS)
    with pytest.raises(ValueError, match=re.escape("not the first 28 characters of a position: '1.3.154'")):
        encode(make_codec(TABLE, LAYOUT, "avro"), "c", image(1, "a", 7), context=context)


def test_a_codec_without_a_layout_refuses_rows_events() -> None:
    with pytest.raises(TidemarkError, match="without a binlog layout"):
        encode(make_codec(TABLE, None, "avro"), "c", image(1, "a", 7))


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [(7, T.TIMESTAMP, "TIMESTAMP"), (11, T.TIME, "TIME"), (12, T.DATETIME, "DATETIME")],
)
def test_temporal_formats_from_before_mysql_56_are_refused_with_a_clear_error(
    code: int, kind: ColumnType, name: str
) -> None:
    table = TableSchema("shop", "old", (Column("t", kind, nullable=True, precision=0),))
    with pytest.raises(
        UnsupportedTypeError, match=rf"shop\.old\.t: {name} .*mysql56_temporal_format=ON.*FORCE"
    ):
        make_codec(table, BinlogLayout((code,), (0,)), "avro", "mariadb")


def test_unknown_charsets_are_refused_by_name() -> None:
    strange = Column("c", T.VARCHAR, nullable=True, charset="klingon")
    for layout in (BinlogLayout((15,), (40,)), None):
        with pytest.raises(UnsupportedTypeError, match=r"shop\.t\.c: character set klingon"):
            make_codec(TableSchema("shop", "t", (strange,)), layout, "avro")


@pytest.mark.parametrize(
    ("column", "code", "meta"),
    [
        (Column("c", T.INT, nullable=True), 8, 0),
        (Column("c", T.DECIMAL, nullable=True, precision=10, scale=2), 246, 12 << 8 | 2),
        (Column("c", T.DATETIME, nullable=True, precision=3), 18, 6),
        (Column("c", T.BIT, nullable=True, length=9), 16, 1 << 8),
        (Column("c", T.ENUM, nullable=True, charset="utf8mb4", members=("a",)), 247, 2),
    ],
)
def test_a_layout_of_another_table_version_is_refused(column: Column, code: int, meta: int) -> None:
    with pytest.raises(SchemaMismatchError, match=r"shop\.t\.c"):
        make_codec(TableSchema("shop", "t", (column,)), BinlogLayout((code,), (meta,)), "avro")
    with pytest.raises(SchemaMismatchError, match="1 columns, the binlog 2"):
        make_codec(TableSchema("shop", "t", (column,)), BinlogLayout((code, code), (meta, meta)), "avro")


def test_errors_name_table_column_row_and_position() -> None:
    codec = make_codec(TABLE, LAYOUT, "avro")
    with pytest.raises(DecodeError) as caught:
        encode(codec, "c", image(1, "a", 7), image(2, "a", 7).replace(b"a", b"\xff"))
    assert str(caught.value) == (
        "shop.orders.name (varchar): the text is not valid in its character set, row 1 (at binlog.000003:1155)"
    )
    assert caught.value.position == "binlog.000003:1155"
    with pytest.raises(DecodeError, match="outside the buffer"):
        codec.encode_rows(np.zeros(4, np.uint8), 2, 9, event_context("c"))
