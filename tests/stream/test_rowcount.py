"""Rows of tables that are not captured are counted, whatever their types: ordinals depend on it."""

from __future__ import annotations

import numpy as np
import pytest

from producer.binlog import events
from producer.binlog.rowcount import cell_sizes, count_rows
from producer.source.dump import BinlogStream, StreamStart
from schemas.errors import DecodeError
from schemas.settings import SourceSettings
from tests.support.producers import running
from tests.support.servers import database

TABLE = """CREATE TABLE {db}.t (id INT PRIMARY KEY, a TINYINT, b SMALLINT, c MEDIUMINT, d BIGINT, e FLOAT,
 f DOUBLE,
 g DECIMAL(30,7), h BIT(13), i YEAR, j DATE, k TIME(3), l DATETIME(6), m TIMESTAMP(2) NULL,
 n CHAR(200), o VARCHAR(300), p TINYTEXT, q TEXT, r LONGBLOB, s ENUM('x','y'), t SET('p','q'),
 u JSON, v POINT, w VARBINARY(9))"""
ROW = """(%s, 1, 2, 3, 4, 5.5, 6.5, 7.1234567, b'1010', 2024, '2024-01-01', '01:02:03.5',
 '2024-01-01 00:00:00.123456', '2024-01-01 00:00:00', 'c', REPEAT('v', 300), 't', REPEAT('q', 60000),
 'blob', 'x', 'p,q', '{"a": [1, 2]}', POINT(1, 2), 'w')"""

COMPRESSED = """ADD x VARCHAR(300) COMPRESSED NOT NULL DEFAULT 'x', ADD y TEXT COMPRESSED, ADD z VARBINARY(20) COMPRESSED,
 ADD zz MEDIUMBLOB COMPRESSED"""

@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_rows_of_every_type_are_counted_in_inserts_updates_and_deletes(name, fresh_database):
    server = database(name)
    schema = fresh_database(server)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, pos = cursor.fetchone()[:2]
        cursor.execute(TABLE.format(db=schema))
        rows = ", ".join(ROW % number for number in range(5))
        cursor.execute(f"INSERT INTO {schema}.t VALUES {rows}")
        cursor.execute(f"INSERT INTO {schema}.t (id) VALUES (100), (101)")
        if server.flavour == "mariadb":
            cursor.execute(f"ALTER TABLE {schema}.t {COMPRESSED}")
            cursor.execute(f"UPDATE {schema}.t SET a = 9, y = REPEAT('y', 5000), zz = REPEAT('z', 100000)")
        else:
            cursor.execute(f"UPDATE {schema}.t SET a = 9")
        cursor.execute(f"DELETE FROM {schema}.t WHERE id > 2")
    assert counted(server, file, pos, schema) == {"insert": 7, "update": 7, "delete": 4}


def counted(server, file: str, pos: int, schema: str) -> dict[str, int]:
    settings = SourceSettings(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        tables=(".*",),
        server_id=77123,
    )
    stream = BinlogStream(settings)
    stream.open(StreamStart(file=file, pos=pos))
    sizes: dict[int, np.ndarray] = {}
    found = {"insert": 0, "update": 0, "delete": 0}
    names = {30: "insert", 31: "update", 32: "delete", 23: "insert", 24: "update", 25: "delete"}
    try:
        while found["delete"] < 4:
            batch = stream.read(60)
            assert batch is not None, f"the log ended at {found}"
            for kind, start, end in zip(
                batch.types.tolist(), batch.starts.tolist(), batch.ends.tolist(), strict=True
            ):
                if kind == events.TABLE_MAP_EVENT:
                    table = events.parse_table_map(
                        batch.memory, start, end, server_version=stream.server_version
                    )
                    if table.database == schema:
                        sizes[table.table_id] = cell_sizes(table.types, table.metas)
                elif kind in names:
                    header = events.parse_rows_header(batch.memory, start, end, kind)
                    if header.table_id in sizes:
                        images = 2 if names[kind] == "update" else 1
                        rule = sizes[header.table_id]
                        found[names[kind]] += count_rows(batch.buf, header.rows_start, end, rule, images, "x")
                        check_truncation(batch.buf, header.rows_start, end, rule, images)
    finally:
        stream.close()
    return found


def check_truncation(buf, start: int, end: int, sizes, images: int) -> None:
    with pytest.raises(DecodeError, match="middle of a row"):
        count_rows(buf[: end - 1].copy(), start, end - 1, sizes, images, "binlog.000001:4")


OTHERS = (
    "CREATE TABLE other (id INT PRIMARY KEY, a VARCHAR(300), b MEDIUMTEXT, c INT, d DATE, e INT, f INT, g INT, h INT)",
    "SET SESSION binlog_row_image = 'MINIMAL'",
    "INSERT INTO other (id, a) VALUES (1, 'a'), (2, NULL)",
    "UPDATE other SET b = REPEAT('b', 70000), h = 1",
    "DELETE FROM other WHERE id = 2",
    "BEGIN",
    "INSERT INTO other (id, g) VALUES (3, 3), (4, 4), (5, 5)",
    "UPDATE other SET d = '2026-11-22' WHERE id > 2",
    "SET SESSION binlog_row_image = 'FULL'",
    "INSERT INTO kept VALUES (1)",
    "COMMIT",
)


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
def test_a_table_that_is_not_captured_stops_nothing_whatever_its_rows_leave_out(name, request):
    source = request.getfixturevalue(name)
    source.execute("CREATE TABLE kept (id INT PRIMARY KEY)")
    more = ("CREATE TABLE packed (id INT PRIMARY KEY)", f"ALTER TABLE packed {COMPRESSED}", "INSERT INTO packed (id) VALUES (1)")
    with running(source.settings(tables=[f"{source.schema}\\.kept"])) as run:
        source.execute(*OTHERS, *(more if name == "mariadb" else ()))
        run.caught_up(source)
    (kept,) = source.changes("kept")
    assert kept.value["source"]["sequence"].endswith(".0000000007")
