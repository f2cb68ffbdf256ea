"""Partial JSON updates: `after` is to the byte what the same update gives when whole values are logged."""

from __future__ import annotations

import pytest

from tests.support.producers import Source, running

UPDATES = [
    "UPDATE {t} SET j = JSON_REPLACE(j, '$.a', 'b')",
    "UPDATE {t} SET j = JSON_SET(j, '$.\"new \\u00e9 \\\\\"x\"', 1.5e300, '$.list[1]', CAST('12:13:14.5' AS TIME(3)))",
    "UPDATE {t} SET j = JSON_REMOVE(j, '$.list[0]', '$.o.p')",
    "UPDATE {t} SET j = JSON_SET(j, '$.list[99]', CAST('[1, {\"x\": null}]' AS JSON)), n = n + 1",
    "UPDATE {t} SET j = JSON_SET(j, '$.list[1]', -9223372036854775808), k = JSON_SET(k, '$[0]', true)",
    "UPDATE {t} SET j = JSON_REPLACE(j, '$.o.q', CAST(12.500 AS DECIMAL(10,3)), '$.a', REPEAT('long', 3000))",
    "UPDATE {t} SET j = JSON_SET(j, '$.list[last]', 'end', '$.list[last - 1]', 5, '$.list[last-99]', 'begin')",
    "UPDATE {t} SET k = JSON_REMOVE(k, '$[last]')",
    "UPDATE {t} SET n = n + 1",
    "UPDATE {t} SET k = NULL WHERE id = 1",
    "UPDATE {t} SET k = CAST('{\"whole\": [1, 2]}' AS JSON)",
    "UPDATE {t} SET k = JSON_SET(k, '$.whole[0]', CAST(x'00ff' AS BINARY)), id = id + 10",
]
ROWS = """INSERT INTO {t} VALUES
  (1, 0, JSON_OBJECT('a', REPEAT('x', 100), 'list', JSON_ARRAY(1, 2, 3), 'o', JSON_OBJECT('p', 1, 'q', 2.5),
   'pad', REPEAT('y', 400)), 'text', JSON_ARRAY(1, REPEAT('z', 300))),
  (2, NULL, JSON_OBJECT('a', 1, 'list', JSON_ARRAY('\u00e9', NULL), 'o', JSON_OBJECT('p', 4, 'q', true),
   'pad', REPEAT('y', 70000)), NULL, JSON_ARRAY(65536, REPEAT('z', 300))),
  (3, 7, NULL, 'x', NULL)"""


@pytest.mark.parametrize("name", ["mysql", "mysql97_source"])
def test_after_is_the_same_as_without_partial_json(name: str, request: pytest.FixtureRequest) -> None:
    source: Source = request.getfixturevalue(name)
    columns = "(id INT PRIMARY KEY, n INT, j JSON, v VARCHAR(30), k JSON)"
    for table in ("whole", "part"):
        source.execute(f"CREATE TABLE {table} {columns}", ROWS.replace("{t}", table))
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS" if source.server.name == "mysql97" else "SHOW MASTER STATUS")
        file, begin, *_ = cursor.fetchone()
    with running(source.settings()) as run:
        source.execute(*(update.replace("{t}", "whole") for update in UPDATES))
        source.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        source.execute(*(update.replace("{t}", "part") for update in UPDATES))
        if name == "mysql97_source":
            source.execute("SET SESSION binlog_transaction_compression = ON")
        source.execute("XA START 'p'", "UPDATE part SET j = JSON_SET(j, '$.a', 'xa') WHERE id = 11")
        source.execute("XA END 'p'", "XA PREPARE 'p'", "XA COMMIT 'p'")
        run.caught_up(source)
    with source.server.connect(use_unicode=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {begin}")  # with statements of other tests, in any charset
        assert b"Update_rows_partial" in {row[2] for row in cursor.fetchall()}
    seen = {
        table: [(c.value["op"], c.value["before"], c.value["after"]) for c in source.changes(table)]
        for table in ("whole", "part")
    }
    assert len(seen["whole"]) > 2 * len(UPDATES)
    assert seen["part"][:-1] == seen["whole"]
    assert '"a":"xa"' in seen["part"][-1][2]["j"]
