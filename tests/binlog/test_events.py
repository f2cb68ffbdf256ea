"""Single events: each field at its place; bytes that cannot be right are a DecodeError and nothing else."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import numpy as np
import pytest

from producer.binlog import events
from producer.binlog.event_types import Verdict, classify, refusal
from producer.binlog.rowcount import count_partial_rows
from producer.binlog.tablemap import parse_table_map
from schemas.errors import DecodeError
from tests.binlog.build import (
    UUID_TEXT,
    event,
    field,
    format_description,
    gtid,
    packed,
    rotate,
    rows,
    table_map,
)

SEED = 20261121
NAMES = field(4, b"\x02id\x01n")


def parse(parser: Callable[..., Any], data: bytes, *more: Any) -> Any:
    return parser(data, 0, len(data) - 4, *more)


def test_a_rotate_names_the_file_and_the_position() -> None:
    assert parse(events.parse_rotate, rotate("mysql-bin.000123", 1 << 33)) == events.Rotate(
        "mysql-bin.000123", 1 << 33
    )
    for name in ("", "no-number", "b.000001\xff", "a\0.1"):
        with pytest.raises(DecodeError):
            parse(events.parse_rotate, rotate(name))


def test_a_format_description_reports_version_and_checksum() -> None:
    found = parse(events.parse_format_description, format_description(version="11.4.5-MariaDB-log"))
    assert (found.binlog_version, found.server_version) == (4, "11.4.5-MariaDB-log")
    assert (found.header_size, found.checksum_algorithm) == (19, 1)
    old = event(15, struct.pack("<H50sIB", 3, b"4.1", 0, 13) + bytes(30))
    with pytest.raises(DecodeError, match="version 3"):
        parse(events.parse_format_description, old)


def test_a_gtid_of_mysql_5_7_has_no_times() -> None:
    found = parse(events.parse_gtid, gtid(77))
    assert found.gtid == f"{UUID_TEXT}:77"
    assert (found.last_committed, found.sequence_number) == (3, 4)
    assert found.original_commit_us is None


def test_a_gtid_of_mysql_8_has_times_and_length() -> None:
    now = 1_795_261_919_335_401
    found = parse(events.parse_gtid, gtid(times=now.to_bytes(7, "little") + packed(70_000) + bytes(4)))
    assert (found.immediate_commit_us, found.original_commit_us) == (now, now)
    assert found.transaction_length == 70_000
    both = (now | 1 << 55).to_bytes(7, "little") + (now - 5).to_bytes(7, "little") + packed(300)
    found = parse(events.parse_gtid, gtid(times=both))
    assert (found.immediate_commit_us, found.original_commit_us) == (now, now - 5)
    assert found.transaction_length == 300


def test_an_anonymous_gtid_has_times_but_no_text() -> None:
    found = parse(events.parse_gtid, gtid(0, kind=34, times=(55).to_bytes(7, "little")))
    assert found.gtid is None
    assert found.original_commit_us == 55


def number(value: int) -> bytes:
    """The serialization format: as many 1 bits at the bottom as bytes follow."""
    for extra in range(8):
        if value < 1 << (7 + 7 * extra):
            return (value << (extra + 1) | (1 << extra) - 1).to_bytes(extra + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def tagged(tag: bytes = b"some_tag", uuid: bytes = UUID(UUID_TEXT).bytes, count: int = 9) -> bytes:
    now = 1_795_261_919_335_401
    fields = [
        number(0) + number(1),
        number(1) + b"".join(number(byte) for byte in uuid),
        number(2) + number(count * 2),
        number(3) + number(len(tag)) + tag,
        number(4) + number(2 * 6),
        number(5) + number(2 * 7),
        number(6) + number(now),
        number(8) + number(363),
        number(9) + number(90704),
    ]
    body = b"".join(fields)
    return event(42, number(1) + number(len(body)) + number(8) + body)


def test_a_tagged_gtid_is_read_from_the_serialization_format() -> None:
    found = parse(events.parse_gtid, tagged())
    assert found.gtid == f"{UUID_TEXT}:some_tag:9"
    assert (found.last_committed, found.sequence_number, found.transaction_length) == (6, 7, 363)
    assert found.original_commit_us == found.immediate_commit_us == 1_795_261_919_335_401
    assert parse(events.parse_gtid, tagged(b"")).gtid == f"{UUID_TEXT}:9"
    high = parse(events.parse_gtid, tagged(uuid=bytes(range(240, 256)), count=1 << 40))
    assert high.gtid == f"{UUID(bytes=bytes(range(240, 256)))}:some_tag:{1 << 40}"


def with_field(code: int, *, required: int = 8, version: int = 1) -> bytes:
    body = tagged()[22:-4] + number(code) + number(5)
    return event(42, number(version) + number(len(body)) + number(required) + body)


def test_a_tagged_gtid_is_refused_for_an_unknown_field_that_must_not_be_ignored() -> None:
    assert parse(events.parse_gtid, with_field(11)).gtid == f"{UUID_TEXT}:some_tag:9"
    assert parse(events.parse_gtid, with_field(12)).gtid == f"{UUID_TEXT}:some_tag:9"
    with pytest.raises(DecodeError, match="field 12 must not be ignored"):
        parse(events.parse_gtid, with_field(12, required=13))
    with pytest.raises(DecodeError, match="version 2"):
        parse(events.parse_gtid, with_field(11, version=2))


def test_a_log_whose_rows_begin_elsewhere_is_refused() -> None:
    plain = format_description()[:-4]
    for kind, size in ((19, 8), (30, 10), (24, 8), (2, 13)):
        at = 19 + 57 + kind - 1
        assert parse(events.parse_format_description, plain[:at] + bytes((size,)) + plain[at + 1 :] + bytes(4))
        with pytest.raises(DecodeError, match=f"events of type {kind} have 9 bytes before their body"):
            parse(events.parse_format_description, plain[:at] + b"\t" + plain[at + 1 :] + bytes(4))


def test_a_mariadb_gtid_has_domain_server_and_sequence() -> None:
    data = event(162, struct.pack("<QIB", 1 << 40, 3, 1 | 32), server_id=4_000_000_000)
    found = parse(events.parse_mariadb_gtid, data)
    assert found.gtid == f"3-4000000000-{1 << 40}"
    assert found.standalone
    assert not found.prepared_xa


def query(sql: bytes, *, database: bytes = b"shop", status: bytes = b"", error: int = 0) -> bytes:
    head = struct.pack("<IIBHH", 42, 1, len(database), error, len(status))
    return event(2, head + status + database + b"\0" + sql)


def test_a_query_is_read_in_its_session_s_character_set() -> None:
    status = (
        b"\0"
        + bytes(4)
        + b"\1"
        + (4).to_bytes(8, "little")
        + b"\6\3std"
        + b"\4"
        + struct.pack("<HHH", 8, 8, 8)
    )
    found = parse(events.parse_query, query("ALTER TABLE t ADD ö INT".encode("cp1252"), status=status))
    assert found.sql == "ALTER TABLE t ADD ö INT"
    assert (found.thread_id, found.database, found.sql_mode, found.error_code) == (42, "shop", 4, 0)


def test_a_query_that_is_no_text_is_escaped_not_lost() -> None:
    assert parse(events.parse_query, query(b"SET x = '\xff'")).sql == r"SET x = '\xff'"
    assert parse(events.parse_query, query(b"BEGIN", status=b"\xc8unknown")).sql == "BEGIN"
    assert parse(events.parse_query, query(b"x", status=b"\xc8unknown")).sql == "x"


LATIN1: Final = b"\4" + struct.pack("<HHH", 8, 8, 8)
KNOWN: Final = {
    "MySQL 5.7": "0000000000012000a055000000000603737464" + LATIN1.hex() + "0c0273686f70006f75747369646500",
    "MySQL 5.7, a foreign key": "0000000000012000a055000000000603737464" + LATIN1.hex() + "0cfe",
    "MySQL 8.0": "0000000000012000a04500000000060373746411200000000000000012ff001300140009" + "0100000000000000" + LATIN1.hex(),
    "MySQL 9.7, a data change": "0000000000012000a045000000000603737464" + "0c016f00" + "12ff00" + "1500" + LATIN1.hex(),
    "MySQL, invoker and time zone": "0b08746964656d61726b01250d0102030503434554" + LATIN1.hex(),
    "MariaDB 11.8, no collations": "8300" + LATIN1.hex() + "812700000000000000",
    "MariaDB 10.8, START ALTER": "8202" + LATIN1.hex(),
    "MariaDB 10.8, COMMIT ALTER": "8147000000000000008204" + "2000000000000000" + LATIN1.hex(),
    "MariaDB 11.8, collations": "000000000101000020540000000006037374648302" + "08002f0021005300" + LATIN1.hex() + "80010203",
}
"""Status variables of real servers, before or around the client's character set."""


@pytest.mark.parametrize("status", KNOWN.values(), ids=KNOWN)
def test_every_status_variable_of_the_servers_is_passed_over_by_its_size(status: str) -> None:
    found = parse(events.parse_query, query("RENAME TABLE t TO ü".encode("cp1252"), status=bytes.fromhex(status)))
    assert (found.sql, found.unclear) == ("RENAME TABLE t TO ü", "")


def test_the_databases_that_a_statement_changes_are_those_that_the_server_reports() -> None:
    def databases(status: str) -> tuple[str, ...] | None:
        found: events.QueryEvent = parse(events.parse_query, query(b"DELETE FROM t", status=bytes.fromhex(status)))
        return found.databases

    assert databases("0c0273686f70006f75747369646500") == ("shop", "outside")
    assert databases("0cfe") == ()
    assert databases("0c0100") == ()
    assert databases("") is None


def test_a_statement_with_an_unknown_status_variable_or_character_set_is_unclear() -> None:
    unknown = parse(events.parse_query, query(b"DROP TABLE \xfc", status=b"\xc8unknown" + LATIN1))
    assert unknown.sql == r"DROP TABLE \xfc"
    assert unknown.unclear == "its status variable 200 is not known"
    utf8 = parse(events.parse_query, query("DROP TABLE ü".encode(), status=b"\xc8unknown" + LATIN1))
    assert utf8.sql == r"DROP TABLE \xc3\xbc", "bytes that are UTF-8 as well may be another text"
    collation = parse(events.parse_query, query(b"DROP TABLE \xfc", status=b"\4" + struct.pack("<HHH", 1000, 8, 8)))
    assert "collation 1000" in collation.unclear
    ascii_only = parse(events.parse_query, query(b"DROP TABLE t", status=b"\4" + struct.pack("<HHH", 1000, 8, 8)))
    assert (ascii_only.sql, ascii_only.unclear) == ("DROP TABLE t", "")


def test_a_load_data_is_the_statement_that_it_was() -> None:
    head = struct.pack("<IIBHH", 3, 0, 4, 0, 0) + struct.pack("<IIIB", 1, 9, 53, 0)
    found = parse(events.parse_query, event(18, head + b"shop\0LOAD DATA INFILE 'x' INTO TABLE t"))
    assert (found.thread_id, found.database, found.sql) == (3, "shop", "LOAD DATA INFILE 'x' INTO TABLE t")


@pytest.mark.parametrize(
    ("flags", "rest", "extra"),
    [
        (0x29, "000000000000", 0),
        (0x29, "100500000000", 16),
        (0x29, "020000000000", 2),
        (0x29, "042000000000000000", 4),
        (0x29, "18220000000000000005000000", 24),
        (0x2B, "0100000000000000020000", 2),
        (0x40, "01000000" + "0201" + "616263" + "08" + "0000", 8),
        (0x29, "", 0),
    ],
)
def test_the_extra_flags_of_a_mariadb_gtid_are_behind_commit_id_and_xid(flags: int, rest: str, extra: int) -> None:
    found = parse(events.parse_mariadb_gtid, event(162, struct.pack("<QIB", 7, 0, flags) + bytes.fromhex(rest)))
    assert found.extra == extra
    assert found.has_not_happened is bool(extra & 10)
    assert not found.unknown_flags


def test_an_extra_flag_that_is_not_known_is_reported() -> None:
    assert parse(events.parse_mariadb_gtid, event(162, struct.pack("<QIB", 7, 0, 0x29) + b"\x20" + bytes(5))).unknown_flags == 32


def test_annotations_and_row_queries_are_text() -> None:
    assert parse(events.parse_annotate, event(160, b"insert \xc3\xb6")) == "insert ö"
    assert parse(events.parse_rows_query, event(29, b"\x05insert into t")) == "insert into t"


def test_both_heartbeats_are_read() -> None:
    assert parse(events.parse_heartbeat, event(27, b"b.1"), 27) == events.Heartbeat("b.1", 0)
    body = b"\1\3b.1\2\x09\xfe" + (5 << 32).to_bytes(8, "little") + b"\x63\2xx\0"
    assert parse(events.parse_heartbeat, event(41, body), 41) == events.Heartbeat("b.1", 5 << 32)


@pytest.mark.parametrize("kind", [23, 24, 25, 30, 31, 32])
def test_a_rows_header_ends_where_the_rows_begin(kind: int) -> None:
    data = rows(kind, 11, b"ROWS", extra=b"\0\1\2" if kind >= 30 else b"")
    found = parse(events.parse_rows_header, data, kind, 11)
    assert data[found.rows_start : -4] == b"ROWS"
    assert (found.table_id, found.columns, found.statement_end) == (7, 11, True)


def test_a_rows_header_of_many_columns_is_read() -> None:
    data = rows(31, 3000, b"ROWS")
    found = parse(events.parse_rows_header, data, 31, 3000)
    assert data[found.rows_start : -4] == b"ROWS"


def test_rows_without_all_columns_are_counted_where_nobody_needs_them() -> None:
    data = rows(31, 9, bytes.fromhex("00 01000000 00 02 6161") * 3, present=0b1_0000_0001)
    found = parse(lambda *given: events.parse_rows_header(*given, whole=False), data, 31, 9)
    assert found.present == (0b1_0000_0001, 0b1_0000_0001)
    sizes = np.array([4, 1, 1, 1, 1, 1, 1, 1, -1])
    with pytest.raises(DecodeError):
        count_partial_rows(data, found.rows_start, len(data) - 4, sizes, found.present)
    assert count_partial_rows(data, found.rows_start, len(data) - 4, sizes, (1, 1 << 8)) == 3
    with pytest.raises(DecodeError, match="without columns"):
        count_partial_rows(data, found.rows_start, len(data) - 4, sizes, (0, 0))


def test_a_table_may_have_the_number_of_the_event_without_table() -> None:
    data = rows(30, 2, b"ROWS", table_id=0xFFFFFF)
    found = parse(events.parse_rows_header, data, 30, 2)
    assert (data[found.rows_start : -4], found.columns) == (b"ROWS", 2)
    nothing = rows(30, 0, b"", table_id=0xFFFFFF)
    assert parse(events.parse_rows_header, nothing, 30).rows_start == len(nothing) - 4


def test_a_row_image_without_all_columns_stops_with_the_setting_s_name() -> None:
    with pytest.raises(DecodeError, match="binlog_row_image"):
        parse(events.parse_rows_header, rows(30, 9, b"", present=0b1_0111_1111), 30, 9)
    with pytest.raises(DecodeError, match="11 columns for a table of 12"):
        parse(events.parse_rows_header, rows(30, 11, b""), 30, 12)


def test_a_table_map_without_metadata_has_real_types() -> None:
    types = bytes((3, 254, 254, 254, 254, 15, 246, 16, 252, 18))
    meta = (
        bytes((247, 2, 248, 8, 254, 60, 0xCE, 0x20))
        + (1200).to_bytes(2, "little")
        + bytes((10, 2, 5, 1, 2, 6))
    )
    found = parse(parse_table_map, table_map(types, meta, nulls=0b1000000010))
    assert found.types == (3, 247, 248, 254, 254, 15, 246, 16, 252, 18)
    assert found.metas == (0, 2, 8, 60, 800, 1200, 10 << 8 | 2, 1 << 8 | 5, 2, 6)
    assert found.nullable == (False, True, *(False,) * 7, True)
    assert found.metadata is None
    assert parse(events.parse_table_name, table_map(b"\xf0", b"")) == (7, "d", "t")


def test_names_that_are_no_utf8_stop_no_other_table() -> None:
    """MariaDB takes halves of surrogate pairs for characters."""
    names = field(4, b"\x03\xed\xa0\x80\x01n")
    data = table_map(b"\3\3", b"", names).replace(b"\x01d\0\x01t\0", b"\x01d\0\x03\xed\xa0\x81\0")
    found = parse(parse_table_map, data)
    assert (found.database, found.table) == ("d", "\\xed\\xa0\\x81")
    assert found.metadata.names == ("\\xed\\xa0\\x80", "n")
    assert parse(events.parse_table_name, data)[1:] == ("d", "\\xed\\xa0\\x81")


def test_an_unknown_field_of_the_metadata_is_refused_for_its_table() -> None:
    with pytest.raises(DecodeError, match="field 77 of a table map's metadata is not known"):
        parse(parse_table_map, table_map(b"\3\3", b"", NAMES + field(77, b"????") + field(1, b"\x40")))
    vector = parse(parse_table_map, table_map(b"\3\xf2", b"\4", NAMES + field(13, packed(3))))
    assert vector.metadata.names == ("id", "n")


def test_character_sets_come_by_default_and_exception_or_one_by_one() -> None:
    types, meta = bytes((15, 3, 252, 15)), (40).to_bytes(2, "little") + b"\2" + (40).to_bytes(2, "little")
    by_default = field(2, packed(255) + b"\1" + packed(63))
    found = parse(parse_table_map, table_map(types, meta, by_default))
    assert found.metadata.collations == (255, None, 63, 255)
    one_by_one = field(3, packed(8) + packed(63) + packed(2304))
    found = parse(parse_table_map, table_map(types, meta, one_by_one))
    assert found.metadata.collations == (8, None, 63, 2304)


def test_members_are_decoded_by_their_character_set() -> None:
    members = field(6, b"\2" + b"\1\xf6" + b"\0") + field(10, b"\x08")
    found = parse(parse_table_map, table_map(b"\xfe", b"\xf7\1", members))
    assert found.metadata.member_texts(0) == ("ö", "")
    unknown = field(6, b"\1\1x") + field(10, packed(700))
    with pytest.raises(DecodeError, match="column 0"):
        parse(parse_table_map, table_map(b"\xfe", b"\xf7\1", unknown)).metadata.member_texts(0)


def test_primary_keys_keep_their_order_and_prefixes() -> None:
    simple = parse(parse_table_map, table_map(b"\3\3\3", b"", field(8, b"\2\0")))
    assert simple.metadata.primary_key == ((2, 0), (0, 0))
    prefix = parse(parse_table_map, table_map(b"\3\3\3", b"", field(9, b"\1\x0a\0\0")))
    assert prefix.metadata.primary_key == ((1, 10), (0, 0))
    with pytest.raises(DecodeError):
        parse(parse_table_map, table_map(b"\3\3\3", b"", field(8, b"\3")))


@pytest.mark.parametrize(
    ("bits", "version", "unsigned"),
    [
        (0b1101_0000, "9.7.4", (True, True, False, True)),
        (0b1101_0000, "11.4.5-MariaDB", (True, True, False, True)),
        (0b1010_0000, "8.0.15", (True, True, False, True)),
        (0b1010_0000, "", (True, True, False, True)),
        (0b1110_0000, "8.0.15", (True, True, True, True)),
        (0b1110_0000, "8.0.40", (True, True, True, False)),
    ],
)
def test_a_year_takes_a_bit_of_the_signs_only_on_servers_that_write_one(
    bits: int, version: str, unsigned: tuple[bool, ...]
) -> None:
    data = table_map(bytes((3, 13, 3, 3)), b"", field(1, bytes((bits,))))
    assert parse_table_map(data, 0, len(data) - 4, version).metadata.unsigned == unsigned


@pytest.mark.parametrize(
    "data",
    [
        table_map(b"\xf0", b""),
        table_map(b"\x0f", b"\1"),
        table_map(b"\3", b"\1"),
        table_map(b"", b""),
        table_map(b"\3\3", b"", field(4, b"\1a")),
        table_map(b"\3\3", b"", field(4, b"\1a\1b\1c")),
        table_map(b"\3\3", b"", b"\4\xfa"),
        table_map(b"\3\3", b"", field(4, b"\1\xff\1b")),
        table_map(b"\3\3", b"", field(1, b"")),
        table_map(b"\xfe", b"\xf7\1", field(6, b"\xfd\xff\xff\xff")),
    ],
)
def test_table_maps_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse(parse_table_map, data)


def samples() -> dict[str, bytes]:
    big = field(4, b"\2id\1n\1s\1e") + field(5, b"\2\1a\1b") + field(6, b"\1\1x") + field(8, b"\0")
    map_meta = (40).to_bytes(2, "little") + bytes((248, 1, 247, 1))
    return {
        "rotate": rotate("binlog.000001"),
        "format": format_description(),
        "gtid": gtid(times=bytes(6) + b"\x81" + bytes(12)),
        "tagged": tagged(),
        "mariadb_gtid": event(162, bytes(19)),
        "gtid_list": event(163, struct.pack("<I", 2) + bytes(32)),
        "query": query(b"CREATE TABLE t (id INT)", status=b"\0" + bytes(4) + b"\4" + bytes(6)),
        "heartbeat_v2": event(41, b"\1\3b.1\2\x09\xfe" + bytes(8) + b"\0"),
        "heartbeat": event(27, b"b.1"),
        "xid": event(16, bytes(8)),
        "rows": rows(31, 300, bytes(40), extra=b"123"),
        "rows_v1": rows(23, 9, bytes(40)),
        "map": table_map(bytes((3, 15, 254, 254)), map_meta, big),
        "annotate": event(160, b"x"),
        "rows_query": event(29, b"\1x"),
        "previous": event(35, (1).to_bytes(8, "little") + bytes(16) + struct.pack("<QQQ", 1, 1, 9)),
        "payload": event(40, b"\2\1\0\3\1\x40\1\1\x10\0" + bytes(16)),
    }


PARSERS = (
    events.parse_rotate,
    events.parse_format_description,
    events.parse_gtid,
    events.parse_mariadb_gtid,
    events.parse_query,
    events.parse_annotate,
    events.parse_rows_query,
    events.parse_table_name,
    parse_table_map,
)


def run_all(data: bytes) -> None:
    end = len(data) - 4
    for parser in PARSERS:
        attempt(parser, data, 0, end)
    attempt(events.parse_heartbeat, data, 0, end, 27)
    attempt(events.parse_heartbeat, data, 0, end, 41)
    for kind in (23, 24, 31, 32):
        attempt(events.parse_rows_header, data, 0, end, kind)
    attempt(lambda *args: list(events.payload_batches(*args)), data, 0, end)


def attempt(parser: Callable[..., Any], *arguments: Any) -> None:
    with suppress(DecodeError):
        parser(*arguments)


def test_random_and_damaged_events_give_only_decode_errors() -> None:
    chance = random.Random(SEED)
    known = samples()
    for data in known.values():
        run_all(data)
    for _ in range(4000):
        data = bytearray(chance.choice(list(known.values())))
        if chance.random() < 0.3:
            data = data[:19] + chance.randbytes(chance.randrange(120))
        else:
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(19, len(data))] = chance.choice(
                    (0, 1, 250, 252, 254, 255, chance.randrange(256))
                )
            data = data[: chance.randrange(19, len(data) + 1)]
        data += bytes(max(0, 23 - len(data)))
        run_all(bytes(data))


def test_event_types_are_decoded_passed_over_or_refused() -> None:
    decoded = [2, 4, 16, 18, 19, 23, 31, 32, 33, 34, 40, 42, 162]
    harmless = [3, 5, 9, 11, 13, 14, 15, 17, 27, 29, 35, 41, 160, 161, 163]
    assert all(classify(kind, 0, "mariadb") is Verdict.DECODED for kind in decoded)
    assert all(classify(kind, 0, "mariadb") is Verdict.HARMLESS for kind in harmless)
    for kind in (6, 8, 12, 20, 26, 99, 164, 250):
        assert classify(kind, 0, "mariadb") is Verdict.REFUSED
        assert classify(kind, 0, "mysql") is Verdict.REFUSED
        assert refusal(kind, "mariadb")
    assert classify(99, 0x80, "mysql") is Verdict.HARMLESS
    assert classify(26, 0x80, "mysql") is Verdict.REFUSED
    assert classify(39, 0, "mysql") is Verdict.DECODED
    assert classify(162, 0, "mysql") is Verdict.REFUSED
    assert classify(166, 0, "mysql") is Verdict.REFUSED
    assert classify(166, 0, "mariadb") is Verdict.DECODED
