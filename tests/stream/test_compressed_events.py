"""MariaDB's log_bin_compress: rows come out as from a plain log, also when they are pending until an XA COMMIT."""

from __future__ import annotations

from tests.support.producers import Source, running


def test_rows_in_compressed_events_are_published_as_plain_ones_are(mariadb: Source) -> None:
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    with running(mariadb.settings()) as run:
        try:
            mariadb.execute(
                "SET GLOBAL log_bin_compress = ON", f"ALTER TABLE t ADD n INT COMMENT '{'c' * 900}'",
                "INSERT INTO t VALUES (1, REPEAT('x', 5000), 1), (2, 'short', 2)",
                "UPDATE t SET v = REPEAT('y', 600)", "DELETE FROM t WHERE id = 2",
                "XA START 'z'", "INSERT INTO t VALUES (3, REPEAT('z', 5000), 3)", "XA END 'z'",
                "XA PREPARE 'z'", "XA COMMIT 'z'",
            )  # fmt: skip
        finally:
            mariadb.execute("SET GLOBAL log_bin_compress = OFF")
        run.caught_up(mariadb)
    seen = [(c.value["op"], c.value["before"], c.value["after"]) for c in mariadb.changes("t")]
    one, two = ({"id": 1, "v": "y" * 600, "n": 1}, {"id": 2, "v": "y" * 600, "n": 2})
    assert seen == [
        ("c", None, {"id": 1, "v": "x" * 5000, "n": 1}),
        ("c", None, {"id": 2, "v": "short", "n": 2}),
        ("u", {"id": 1, "v": "x" * 5000, "n": 1}, one),
        ("u", {"id": 2, "v": "short", "n": 2}, two),
        ("d", two, None),
        ("c", None, {"id": 3, "v": "z" * 5000, "n": 3}),
    ]
