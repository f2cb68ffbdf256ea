"""Rows of tables that are not captured are counted, whatever their types: ordinals depend on it."""

from __future__ import annotations

import numpy as np
import pytest

from producer.binlog import events
from producer.binlog.rowcount import cell_sizes, count_rows
from producer.source.dump import BinlogStream, StreamStart
from schemas.errors import DecodeError
from schemas.settings import SourceSettings
from tests.support.servers import database

TABLE = """CREATE TABLE {db}.t (id INT PRIMARY KEY, a TINYINT, b SMALLINT, c MEDIUMINT, d BIGINT, e FLOAT,
 f DOUBLE,
 g DECIMAL(30,7), h BIT(13), i YEAR, j DATE, k TIME(3), l DATETIME(6), m TIMESTAMP(2) NULL,
 n CHAR(200), o VARCHAR(300), p TINYTEXT, q TEXT, r LONGBLOB, s ENUM('x','y'), t SET('p','q'),
 u JSON, v POINT, w VARBINARY(9))"""
ROW = """(%s, 1, 2, 3, 4, 5.5, 6.5, 7.1234567, b'1010', 2024, '2024-01-01', '01:02:03.5',
 '2024-01-01 00:00:00.123456', '2024-01-01 00:00:00', 'c', REPEAT('v', 300), 't', REPEAT('q', 60000),
 'blob', 'x', 'p,q', '{"a": [1, 2]}', POINT(1, 2), 'w')"""


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
            batch = stream.read(10)
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
