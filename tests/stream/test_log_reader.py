"""The log reader on real servers: what was committed is published once, in order, and resumed."""

from __future__ import annotations

import json
from dataclasses import replace

from schemas.errors import DecodeError, FencedError, SourceError
from schemas.markers import MARKER_KEY, FloorMarker, parse_marker
from schemas.merge_rule import TableState
from schemas.settings import Settings
from tests.support.producers import Running, Source, running
from tests.support.topics import read_topic


def test_inserts_updates_deletes_and_key_changes_are_published_as_debezium_does(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    with running(source.settings()) as run:
        source.execute(
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
            "UPDATE t SET v = 'c' WHERE id = 1",
            "UPDATE t SET id = 7 WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
        )
        run.caught_up(source)
    changes = source.changes("t")
    seen = [(c.value["op"], c.value["before"], c.value["after"]) for c in changes]
    assert seen == [
        ("c", None, {"id": 1, "v": "a"}),
        ("c", None, {"id": 2, "v": "b"}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "c"}),
        ("d", {"id": 2, "v": "b"}, None),
        ("c", None, {"id": 7, "v": "b"}),
        ("d", {"id": 1, "v": "c"}, None),
    ]
    assert [c.headers for c in changes[3:5]] == [
        {"__debezium.newkey": '{"id":7}'},
        {"__debezium.oldkey": '{"id":2}'},
    ]
    tombstones = [record.key for record in source.records("t") if record.value is None]
    assert sorted(key["id"] for key in tombstones) == [1, 2]


def test_the_ordinal_counts_every_row_of_the_transaction_also_of_tables_not_captured(source, fresh_database):
    other = fresh_database(source.server)
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE TABLE {other}.u (id INT, d JSON)")
    with running(source.settings()) as run:
        source.execute(
            "BEGIN",
            "INSERT INTO t VALUES (1), (2)",
            f"INSERT INTO {other}.u VALUES (1, '{{}}'), (2, NULL), (3, '[1]')",
            "INSERT INTO t VALUES (3)",
            "COMMIT",
        )
        run.caught_up(source)
    positions = [change.value["source"]["sequence"] for change in source.changes("t")]
    assert [int(text[-10:]) for text in positions] == [1, 2, 6]
    assert len({text[:-10] for text in positions}) == 1


def test_rolled_back_rows_are_never_published(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute(
            "BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK",
            "BEGIN", "INSERT INTO t VALUES (2)", "SAVEPOINT s", "INSERT INTO t VALUES (3)", "ROLLBACK TO s",
            "INSERT INTO t VALUES (4)", "COMMIT",
        )  # fmt: skip
        run.caught_up(source)
    assert [change.value["after"]["id"] for change in source.changes("t")] == [2, 4]


def test_a_start_by_gtids_never_goes_back_behind_what_was_read(source, monkeypatch):
    """As beyond 4 GiB: the server begins at the file's beginning, and leaves out what was read."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        run.caught_up(source)
        position = run.producer.reader.committed.position
    with monkeypatch.context() as beyond:
        beyond.setattr("producer.resume.LARGEST_DUMP_POSITION", 0)
        with running(source.settings()) as run:
            run.until(lambda: run.producer.reader.progress.checkpoints > 0, "the first commit")
            assert run.producer.reader.committed.position >= position
            source.execute("INSERT INTO t VALUES (3)")
            run.caught_up(source)
    with running(source.settings()) as run:
        source.execute("INSERT INTO t VALUES (4)")
        run.caught_up(source)
    assert [change.value["after"]["id"] for change in source.changes("t")] == [1, 2, 3, 4]


def test_resume_starts_after_the_last_committed_transaction(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    for start in range(0, 20, 10):
        with running(source.settings()) as run:
            source.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(start, start + 5)))
            run.caught_up(source)
        source.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(start + 5, start + 10)))
    with running(source.settings()) as run:
        run.caught_up(source)
    assert [change.value["after"]["id"] for change in source.changes("t")] == list(range(20))


def test_columns_follow_ddl_while_rows_keep_flowing(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    with running(source.settings()) as run:
        source.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT 5",
            "INSERT INTO t VALUES (2, 'b', 6)",
            "ALTER TABLE t CHANGE v w VARCHAR(40)",
            "INSERT INTO t VALUES (3, 'c', 7)",
            "ALTER TABLE t MODIFY n BIGINT FIRST",
            "INSERT INTO t VALUES (8, 4, 'd')",
            "ALTER TABLE t DROP COLUMN w",
            "INSERT INTO t VALUES (9, 5)",
            "RENAME TABLE t TO u",
            "INSERT INTO u VALUES (10, 6)",
            "CREATE TABLE t (id INT PRIMARY KEY, x INT)",
            "INSERT INTO t VALUES (1, 1)",
            "DROP TABLE u",
            "CREATE TABLE v LIKE t",
            "INSERT INTO v VALUES (1, 2)",
        )
        run.caught_up(source)
    assert [change.value["after"] for change in source.changes("t")] == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b", "n": 6},
        {"id": 3, "w": "c", "n": 7},
        {"n": 8, "id": 4, "w": "d"},
        {"n": 9, "id": 5},
        {"id": 1, "x": 1},
    ]
    assert [change.value["after"] for change in source.changes("u")] == [{"n": 10, "id": 6}]
    assert [change.value["after"] for change in source.changes("v")] == [{"id": 1, "x": 2}]


def test_defaults_are_those_of_the_row_also_for_a_reader_that_is_behind(source):
    """The table is older than the first start, and no process meets its rows before the server has other columns."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b INT DEFAULT 8)")
    settings = source.settings()
    settings = replace(settings, format=replace(settings.format, schemas=True))
    with running(settings) as run:
        run.caught_up(source)
    source.execute(
        "INSERT INTO t (id) VALUES (1)",
        "ALTER TABLE t ALTER b SET DEFAULT 9",
        "INSERT INTO t (id) VALUES (2)",
        "ALTER TABLE t CHANGE a c INT NOT NULL DEFAULT 7",
        "INSERT INTO t (id) VALUES (3)",
        "ALTER TABLE t CHANGE c d INT NOT NULL, DROP b",
        "RENAME TABLE t TO u",
    )
    with running(settings) as run:
        run.caught_up(source)
    written = sorted(source.records("t"), key=lambda record: record.key["payload"]["id"])
    fields = [record.value["schema"]["fields"][1]["fields"] for record in written]
    assert [{column["field"]: column.get("default") for column in row} for row in fields] == [
        {"id": None, "a": 7, "b": 8},
        {"id": None, "a": 7, "b": 9},
        {"id": None, "c": 7, "b": 9},
    ]


def test_a_table_captured_later_is_read_at_the_next_start(mysql):
    mysql.execute("CREATE TABLE first (id INT PRIMARY KEY)", "CREATE TABLE later (id INT PRIMARY KEY)")
    mysql.execute(
        "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
    )
    mysql.execute("INSERT INTO later VALUES (1), (2)")

    def settings(*tables: str) -> Settings:
        named = mysql.settings(tables=[f"{mysql.schema}\\.{table}" for table in tables])
        return replace(named, snapshot=replace(named.snapshot, mode="initial"))

    def read(run: Running) -> dict[str, str]:
        return {table.table: table.state for table in run.producer.coordinator.progress()}

    with running(settings("first")) as run:
        run.until(lambda: read(run) == {f"{mysql.schema}.first": "done"}, "the first table is read")
    with running(settings("first", "later")) as run:
        run.until(lambda: read(run).get(f"{mysql.schema}.later") == "done", "the later table is read")
    rows = read_topic(mysql.bootstrap_servers, f"{mysql.name}-snapshot.{mysql.schema}.later")
    assert sorted(row.value["after"]["id"] for row in rows if row.key != MARKER_KEY) == [1, 2]


def test_a_statement_logged_as_text_stops_the_reader_with_a_clear_error(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings()) as run:
        mysql.execute("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO t VALUES (1)")
        mysql.execute("SET SESSION binlog_format = 'ROW'")
        run.until_ended()
        assert isinstance(run.error, DecodeError)
    assert "binlog_format=STATEMENT" in str(run.error)
    assert "`tidemark repair --anew` leaves it behind" in str(run.error)
    assert "binlog.0" in str(run.error)


def test_a_second_instance_fences_the_first(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings(server_id=4711)) as first:
        mysql.execute("INSERT INTO t VALUES (1)")
        first.caught_up(mysql)
        with running(mysql.settings(server_id=4712)) as second:
            mysql.execute("INSERT INTO t VALUES (2)")
            second.caught_up(mysql)
            first.until_ended()
            assert isinstance(first.error, FencedError)
            mysql.execute("INSERT INTO t VALUES (3)")
            second.caught_up(mysql)
    assert [change.value["after"]["id"] for change in mysql.changes("t")] == [1, 2, 3]


def test_a_table_seen_at_its_creation_is_known_to_have_been_empty(source):
    """Not one that was there, that came by another name, or whose engine shows rows of other tables at once."""
    source.execute(
        "CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM", "INSERT INTO old VALUES (1)", f"CREATE DATABASE {source.schema}_x"
    )
    source.execute(f"CREATE TABLE {source.schema}_x.named (id INT PRIMARY KEY)", f"INSERT INTO {source.schema}_x.named VALUES (1)")
    made = ("plain", "if_new", "alike", "filled", "again")
    filled = ["CREATE TABLE filled (id INT PRIMARY KEY)", "INSERT INTO filled VALUES (7)"]
    if source.server.flavour == "mariadb":  # MySQL 8.0 of the tests refuses it beside GTIDs
        filled = ["CREATE TABLE filled (id INT PRIMARY KEY) ENGINE=InnoDB AS SELECT 7 AS id"]
    with running(source.settings()) as run:
        source.execute(
            "CREATE TABLE plain (id INT PRIMARY KEY)",
            "CREATE TABLE IF NOT EXISTS if_new (id INT PRIMARY KEY)",
            "CREATE TABLE alike LIKE plain",
            *filled,
            "CREATE TABLE again (id INT PRIMARY KEY)",
            "INSERT INTO again VALUES (1)",
            "DROP TABLE again",
            "CREATE TABLE again (id INT PRIMARY KEY)",
            "TRUNCATE TABLE again",
            "CREATE TABLE IF NOT EXISTS old (id INT PRIMARY KEY)",
            "CREATE TABLE merged (id INT, KEY (id)) ENGINE=MERGE UNION=(old)",
            f"RENAME TABLE {source.schema}_x.named TO renamed",
        )
        run.caught_up(source)
        run.until(lambda: run.producer.coordinator.progress() != (), "the renamed table is read")
        assert (source.schema, "merged") not in run.producer.tables.known(), "nothing is published of it"
    reported = {name: floors(source, name) for name in (*made, "old", "renamed")}
    assert {name for name, found in reported.items() if any(marker.empty for marker in found)} == set(made)
    causes = dict.fromkeys((marker.position, marker.cause) for marker in reported["again"])  # one per partition
    assert [cause for _, cause in causes] == ["create", "drop", "create", "truncate"]
    assert not reported["old"]
    assert not reported["renamed"]
    state = TableState().advance(reported["filled"], reported["filled"][0].change_offsets)
    assert state.consistent_at == reported["filled"][0].position.text < source.changes("filled")[0].value["source"]["sequence"]
    source.execute(f"DROP DATABASE {source.schema}_x")


def floors(source: Source, table: str) -> list[FloorMarker]:
    records = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{table}")
    found = [parse_marker(json.dumps(record.value).encode()) for record in records if record.key == MARKER_KEY]
    return [marker for marker in found if isinstance(marker, FloorMarker)]


def test_transactions_statements_and_truncates_are_reported_where_asked_for(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    logs_text = {"mysql": "binlog_rows_query_log_events", "mariadb": "binlog_annotate_row_events"}
    source.execute(f"SET SESSION {logs_text[source.server.flavour]} = ON")
    records = {
        "provide_transaction_metadata": True,
        "include_query": True,
        "skipped_operations": ["none"],
        "skip_messages_without_change": True,
    }
    with running(source.settings(records)) as run:
        source.execute(
            "BEGIN",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "INSERT INTO u VALUES (7)",
            "UPDATE t SET id = 3 WHERE id = 2",
            "COMMIT",
            "TRUNCATE TABLE t",
        )
        run.caught_up(source)
    changes = sorted(
        source.changes("t") + source.changes("u"), key=lambda change: change.value["source"]["sequence"]
    )
    changes.sort(key=lambda change: (change.value["transaction"] or {"total_order": 99})["total_order"])
    found = [
        (change.value["op"], block and (block["total_order"], block["data_collection_order"]))
        for change in changes
        for block in [change.value["transaction"]]
    ]
    assert found == [("c", (1, 1)), ("c", (2, 2)), ("c", (3, 1)), ("d", (4, 3)), ("c", (5, 4)), ("t", None)]
    statements = [change.value["source"]["query"] for change in changes]
    assert statements[1:4] == [
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO u VALUES (7)",
        "UPDATE t SET id = 3 WHERE id = 2",
    ]
    assert (changes[-1].key, statements[-1]) == (None, None)
    boundaries = [record.value for record in read_topic(source.bootstrap_servers, f"{source.name}.transaction")]
    assert [(boundary["status"], boundary["event_count"]) for boundary in boundaries] == [("BEGIN", None), ("END", 5)]
    assert boundaries[1]["data_collections"] == [
        {"data_collection": f"{source.schema}.t", "event_count": 4},
        {"data_collection": f"{source.schema}.u", "event_count": 1},
    ]
    assert {boundary["id"] for boundary in boundaries} == {changes[0].value["transaction"]["id"]}


def test_a_heartbeat_statement_that_can_never_run_ends_the_producer_with_a_clear_error(mysql):
    records = {"heartbeat_interval_ms": 50, "heartbeat_action_query": "INSERT INTO nowhere.beat VALUES (1)"}
    with running(mysql.settings(records)) as run:
        run.until_ended()
        assert isinstance(run.error, SourceError)
    assert "records.heartbeat_action_query answers: Unknown database 'nowhere'" in str(run.error)


def test_flat_rows_replace_envelopes(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    with running(mysql.settings({"unwrap": True})) as run:
        mysql.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "UPDATE t SET v = NULL WHERE id = 1",
            "UPDATE t SET id = 1, v = 'b'",
            "DELETE FROM t",
        )
        run.caught_up(mysql)
    rows = [record.value for record in mysql.records("t")]
    assert rows.pop() is None
    assert [type(row.pop("__source_ts_ms")) for row in rows] == [int] * 4
    assert rows == [
        {"id": 1, "v": "a", "__deleted": "false", "__op": "c"},
        {"id": 1, "v": None, "__deleted": "false", "__op": "u"},
        {"id": 1, "v": "b", "__deleted": "false", "__op": "u"},
        {"id": 1, "v": "b", "__deleted": "true", "__op": "d"},
    ]
