"""The events of the dump protocol: what they contain on each server, compressed ones too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from devservers import Database
from mysqlio.server_facts import LogPosition
from producer.binlog import events
from producer.source.dump import StreamStart
from producer.source.gtid_bytes import decode_gtids
from rowcodec.charsets import charset_of
from schemas.errors import DecodeError
from schemas.gtid_sets import MysqlGtidSet
from tests.source.reading import (
    SERVERS,
    end_of_log,
    events_by_the_server,
    execute,
    read_all,
    read_to,
    stream_of,
)
from tests.source.stream_cases import Case, FreshDatabase, positions, start_at
from tests.support.servers import database, wait_until_gone


@pytest.fixture(params=SERVERS)
def case(request: pytest.FixtureRequest, fresh_database: FreshDatabase) -> Case:
    """(server, an empty schema, the end of the log behind its creation)."""
    server = database(request.param)
    schema = fresh_database(server)
    return server, schema, end_of_log(server)


@pytest.fixture
def case97(mysql97: Database, fresh_database: FreshDatabase) -> Case:
    schema = fresh_database(mysql97)
    return mysql97, schema, end_of_log(mysql97)


def test_events_of_many_mebibytes_are_read(case: Case) -> None:
    server, schema, start = case
    execute(server, "SET GLOBAL max_allowed_packet = 1073741824")
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)",
        "INSERT INTO t VALUES (1, REPEAT('x', 40000000))",
        "INSERT INTO t VALUES (2, 'small')",
        "INSERT INTO t VALUES (3, REPEAT('y', 16777215))",
        database=schema,
    )
    found = read_all(server, start_at(start))
    assert positions(found) == events_by_the_server(server, start)
    sizes = [one.size for one in found if one.kind in events.ROWS_EVENTS]
    assert sizes[0] > 40_000_000
    assert sizes[1] < 1000
    assert sizes[2] > 16_777_215
    assert b"x" * 40_000_000 in next(one.data for one in found if one.kind in events.ROWS_EVENTS)


def test_times_and_transactions_are_the_server_s(case: Case) -> None:
    server, schema, start = case
    before_us = time.time_ns() // 1000
    execute(server, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=schema)
    after_us = time.time_ns() // 1000
    found = read_all(server, start_at(start))
    for one in found:
        if one.kind in events.GTID_EVENTS:
            gtid = events.parse_gtid(one.data, 0, len(one.data))
            assert before_us <= (gtid.original_commit_us or 0) <= after_us
            assert gtid.transaction_length is not None
            assert (one.file, one.offset + gtid.transaction_length) <= (
                found[-1].file,
                found[-1].offset + found[-1].size,
            )

COLUMNS = """CREATE TABLE t (
  id BIGINT UNSIGNED NOT NULL, y YEAR, n INT UNSIGNED, m MEDIUMINT, f FLOAT UNSIGNED,
  d DECIMAL(12,3) UNSIGNED NOT NULL, v VARCHAR(70) CHARACTER SET latin1, c CHAR(20) CHARACTER SET utf8mb3,
  bi BINARY(9), vb VARBINARY(500), t TEXT, tb TINYBLOB, e ENUM('a','ö','x,y') CHARACTER SET latin1,
  s SET('p','q') CHARACTER SET utf8mb4, u ENUM('1'), j JSON, ti TIME(3), dt DATETIME(6), ts TIMESTAMP(1) NULL,
  b BIT(13), g POINT, big CHAR(255) CHARACTER SET utf8mb4, part VARCHAR(50) NOT NULL, z SMALLINT UNSIGNED,
  PRIMARY KEY (part(10), id))"""


def test_a_table_map_says_what_information_schema_says(case: Case) -> None:
    server, schema, start = case
    execute(server, COLUMNS, "INSERT INTO t (id, d, part) VALUES (1, 1, 'x')", database=schema)
    end = end_of_log(server)
    with stream_of(server, start_at(start)) as stream:
        (one,) = [one for one in read_to(stream, end) if one.kind == events.TABLE_MAP_EVENT]
        table = events.parse_table_map(one.data, 0, len(one.data), stream.server_version)
    columns = execute(
        server,
        f"""SELECT COLUMN_NAME, IS_NULLABLE = 'YES', COLUMN_TYPE LIKE '%unsigned%' OR DATA_TYPE = 'year',
        CHARACTER_SET_NAME, DATA_TYPE FROM information_schema.COLUMNS
        WHERE TABLE_SCHEMA = '{schema}' ORDER BY ORDINAL_POSITION""",
    )
    found = table.metadata
    assert found is not None
    assert found.is_full
    assert (table.database, table.table) == (schema, "t")
    assert found.names == tuple(row[0] for row in columns)
    assert table.nullable == tuple(bool(row[1]) for row in columns)
    assert found.unsigned == tuple(bool(row[2]) for row in columns)
    for name, collation, row in zip(found.names, found.collations, columns, strict=True):
        charset = row[3] or ("binary" if row[4] in ("binary", "varbinary", "tinyblob") else None)
        if charset and name != "j":
            assert charset_of(collation) == {"utf8": "utf8mb3"}.get(charset, charset), name
    assert found.member_texts(found.names.index("e")) == ("a", "ö", "x,y")
    assert found.member_texts(found.names.index("s")) == ("p", "q")
    key = {"part": 10, "id": 0}
    assert {found.names[column]: prefix for column, prefix in found.primary_key} == key
    metas = dict(zip(found.names, table.metas, strict=True))
    assert (metas["d"], metas["v"], metas["b"], metas["dt"]) == (12 << 8 | 3, 70, 1 << 8 | 5, 6)
    assert (metas["big"], metas["e"], metas["tb"]) == (1020, 1, 1)


def test_row_headers_are_read_and_a_minimal_image_is_refused(case: Case) -> None:
    server, schema, start = case
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, w INT AS (a + 2) STORED)",
        "INSERT INTO t (id, a) VALUES (1, 1), (2, 2)",
        "UPDATE t SET a = 5",
        database=schema,
    )
    found = read_all(server, start_at(start))
    headers = [
        events.parse_rows_header(one.data, 0, len(one.data), one.kind, 4)
        for one in found
        if one.kind in events.ROWS_EVENTS
    ]
    assert [header.columns for header in headers] == [4, 4]
    middle = end_of_log(server)
    execute(server, "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET a = 6", database=schema)
    (bad,) = [one for one in read_all(server, start_at(middle)) if one.kind in events.ROWS_EVENTS]
    with pytest.raises(DecodeError, match="binlog_row_image"):
        events.parse_rows_header(bad.data, 0, len(bad.data), bad.kind, 4)


def test_the_log_continues_when_checksums_are_switched(case: Case) -> None:
    server, schema, start = case
    execute(server, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=schema)
    try:
        execute(server, "SET GLOBAL binlog_checksum = 'NONE'")
        execute(server, "INSERT INTO t VALUES (2)", database=schema)
        assert positions(read_all(server, start_at(start))) == events_by_the_server(server, start)
    finally:
        execute(server, "SET GLOBAL binlog_checksum = 'CRC32'")
    execute(server, "INSERT INTO t VALUES (3)", database=schema)
    found = read_all(server, start_at(start))
    assert positions(found) == events_by_the_server(server, start)
    assert sum(one.kind in events.ROWS_EVENTS for one in found) == 3


# ---- MySQL 9.7: compressed transactions, tagged GTIDs, new heartbeats


def test_compressed_transactions_hold_the_events_of_plain_ones(case97: Case) -> None:
    server, schema, start = case97
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY, b TEXT)",
        "SET SESSION binlog_transaction_compression = ON",
        "BEGIN",
        *(f"INSERT INTO t VALUES ({n}, REPEAT('x', 3000))" for n in range(300)),
        "COMMIT",
        "SET SESSION binlog_transaction_compression = OFF",
        "DELETE FROM t",
        database=schema,
    )
    found = read_all(server, start_at(start))
    assert positions(found) == events_by_the_server(server, start)
    (payload,) = [one for one in found if one.kind == events.TRANSACTION_PAYLOAD_EVENT]
    kinds: Counter[int] = Counter()
    for batch in events.payload_batches(payload.data, 0, len(payload.data), 10_000):
        kinds.update(batch.types.tolist())
    assert kinds == {2: 1, 19: 300, 30: 300, 16: 1}


def test_tagged_gtids_are_read_and_a_stream_begins_behind_them(case97: Case) -> None:
    server, schema, _ = case97
    execute(server, "CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    start = end_of_log(server)
    execute(
        server,
        "SET gtid_next = 'AUTOMATIC:some_tag'",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2)",
        "SET gtid_next = 'AUTOMATIC'",
        "INSERT INTO t VALUES (3)",
        "FLUSH BINARY LOGS",
        database=schema,
    )
    end = end_of_log(server)
    found = read_all(server, start_at(start))
    gtids = MysqlGtidSet.parse(start.gtid_set)
    for one in found:
        if one.kind in events.GTID_EVENTS:
            gtid = events.parse_gtid(one.data, 0, len(one.data))
            assert gtid.gtid is not None
            assert gtid.transaction_length is not None
            assert gtid.original_commit_us is not None
            gtids.add(gtid.gtid)
    assert str(gtids) == end.gtid_set
    assert ":some_tag:" in end.gtid_set
    (previous,) = [one for one in found if one.kind == events.PREVIOUS_GTIDS_EVENT]
    assert decode_gtids(previous.data, 19) == gtids
    execute(server, "INSERT INTO t VALUES (4)", database=schema)
    rest = read_all(server, StreamStart(gtid_set=end.gtid_set))
    assert sum(one.kind in events.ROWS_EVENTS for one in rest) == 1


def test_invisible_columns_are_reported(case97: Case) -> None:
    server, schema, start = case97
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY, hidden INT INVISIBLE, seen INT)",
        "INSERT INTO t VALUES (1, 2)",
        database=schema,
    )
    (one,) = [one for one in read_all(server, start_at(start)) if one.kind == events.TABLE_MAP_EVENT]
    metadata = events.parse_table_map(one.data, 0, len(one.data)).metadata
    assert metadata is not None
    assert metadata.visible == (True, False, True)


# ---- what stops the reader


@pytest.fixture
def xa_ended(case: Case) -> Iterator[Case]:
    yield case
    server, _, _ = case
    execute(server, "XA ROLLBACK 'tidemark-test'")


def test_an_xa_prepare_in_the_log_names_its_xid(xa_ended: Case) -> None:
    server, schema, start = xa_ended
    with server.connect(database=schema) as session, session.cursor() as cursor:
        for statement in (
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "XA START 'tidemark-test'",
            "INSERT INTO t VALUES (1)",
            "XA END 'tidemark-test'",
            "XA PREPARE 'tidemark-test'",
        ):
            cursor.execute(statement)
    with server.connect() as connection, connection.cursor() as cursor:
        wait_until_gone(cursor, session.thread_id())
    (one,) = [one for one in read_all(server, start_at(start)) if one.kind == events.XA_PREPARE_EVENT]
    xid = f"X'{b'tidemark-test'.hex()}',X'',1"
    assert events.parse_xa_prepare(one.data, 0, len(one.data)) == events.XaPrepare(xid, one_phase=False)


def test_compressed_mariadb_events_are_the_plain_ones(
    mariadb114: Database, fresh_database: FreshDatabase
) -> None:
    schema = fresh_database(mariadb114)
    statements = (
        "SET SESSION timestamp = 1700000000",
        f"CREATE TABLE t (id INT PRIMARY KEY, b MEDIUMTEXT COMMENT '{'c' * 900}')",
        "INSERT INTO t VALUES (1, REPEAT('x', 3000)), (2, REPEAT('y', 70000)), (3, 'z')",
        "UPDATE t SET b = REPEAT('z', 400)",
        "DELETE FROM t",
        "DROP TABLE t",
    )

    def rows_and_queries(start: LogPosition) -> list[bytes]:
        found = []
        for one in read_all(mariadb114, start_at(start)):
            kind, data = one.kind, one.data
            if kind in events.MARIADB_COMPRESSED_EVENTS:
                plain = events.decompress_event(data, 0, len(data))
                kind, data = int(plain.types[0]), bytes(plain.memory[: int(plain.ends[0])])
                assert int.from_bytes(data[9:13], "little") == len(data)
            if kind in events.ROWS_EVENTS:
                found.append(data[4:5] + data[25:])  # without time, position and table id
            elif kind == events.QUERY_EVENT:
                found.append(events.parse_query(data, 0, len(data)).sql.encode())
        return found

    start = end_of_log(mariadb114)
    execute(mariadb114, *statements, database=schema)
    plain = rows_and_queries(start)
    start = end_of_log(mariadb114)
    try:
        execute(mariadb114, "SET GLOBAL log_bin_compress = ON")
        execute(mariadb114, *statements, database=schema)
    finally:
        execute(mariadb114, "SET GLOBAL log_bin_compress = OFF")
    kinds = {one.kind for one in read_all(mariadb114, start_at(start))}
    assert kinds >= {165, 166, 167, 168}
    assert rows_and_queries(start) == plain


def test_mariadb_streams_annotations_that_are_the_statements(
    mariadb114: Database, fresh_database: FreshDatabase
) -> None:
    schema = fresh_database(mariadb114)
    start = end_of_log(mariadb114)
    statement = "INSERT INTO t VALUES (1)"
    execute(mariadb114, "CREATE TABLE t (id INT PRIMARY KEY)", statement, database=schema)
    found = read_all(mariadb114, start_at(start))
    (one,) = [one for one in found if one.kind == events.MARIADB_ANNOTATE_EVENT]
    assert events.parse_annotate(one.data, 0, len(one.data)) == statement
    assert one.log_pos == 0


def test_only_groups_that_may_roll_back_say_so(case: Case) -> None:
    server, schema, start = case
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        "INSERT INTO t VALUES (1, 'a')",
        "BEGIN",
        "INSERT INTO t VALUES (2, 'a')",
        "SAVEPOINT s",
        "UPDATE t SET v = UUID()",
        "RELEASE SAVEPOINT s",
        "DELETE FROM t WHERE id = 1",
        "COMMIT",
        database=schema,
    )
    found = read_all(server, start_at(start))
    said = [
        events.parse_mariadb_gtid(one.data, 0, len(one.data)).may_roll_back
        if one.kind == events.MARIADB_GTID_EVENT
        else events.parse_gtid(one.data, 0, len(one.data)).may_roll_back
        for one in found
        if one.kind in events.GTID_EVENTS or one.kind == events.MARIADB_GTID_EVENT
    ]
    assert said[1:] == [False, False]
