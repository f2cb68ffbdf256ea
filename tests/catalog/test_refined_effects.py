"""Effects of DDL, refined by the columns that the log showed before."""

from __future__ import annotations

import pytest

from mysqlio.information_schema import read_rules
from producer.catalog import TrackedTables
from producer.catalog.effects import parse_ddl
from tests.catalog.logged_source import Source, catalog_of, known_now
from tests.catalog.server_log import end_of_log, events_since


def test_effects_are_refined_by_the_columns_the_log_showed(source: Source) -> None:
    insert = "INSERT INTO t (id) VALUES ({})"
    source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, v VARCHAR(10), k CHAR(5) CHARACTER SET latin1, gone INT)",
        insert.format(1),
    )
    steps = [
        ("ALTER TABLE t MODIFY a BIGINT FIRST", "none"),
        ("ALTER TABLE t MODIFY v VARCHAR(20), ADD INDEX (v)", "none"),
        ("ALTER TABLE t ADD INDEX (a)", "none"),
        ("ALTER TABLE t MODIFY v VARCHAR(5)", "snapshot"),
        ("ALTER TABLE t MODIFY v VARCHAR(5) NOT NULL", "snapshot"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", "none"),
        ("ALTER TABLE t MODIFY k CHAR(5) CHARACTER SET latin1", "snapshot"),
        ("ALTER TABLE t DROP COLUMN gone", "none"),
        ("ALTER TABLE t ADD COLUMN gone INT", "snapshot"),  # the sink still has the old values
        ("ALTER TABLE t CHANGE a b BIGINT", "snapshot"),
        ("ALTER TABLE t RENAME COLUMN b TO c", "snapshot"),
        ("ALTER TABLE t ADD COLUMN b INT DEFAULT 7", "snapshot"),
        ("ALTER TABLE t MODIFY id BIGINT", "none"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "snapshot"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id), DROP COLUMN gone", "snapshot"),
    ]
    for number, (statement, effect) in enumerate(steps, start=2):
        _, (change,) = source.version_after(statement, insert.format(number))
        assert (statement, change.effect) == (statement, effect)


def test_a_change_of_columns_not_seen_since_the_start_wants_a_snapshot(source: Source) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)")
    _, (change,) = source.version_after("ALTER TABLE t MODIFY a BIGINT", "INSERT INTO t VALUES (2, 2)")
    assert change.effect == "snapshot"


def test_a_default_dropped_before_any_row_showed_it_wants_a_snapshot(source: Source) -> None:
    """Django's migrations: rows that were there have 7, and no version of the table ever says so."""
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    _, changes = source.version_after(
        "ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 7",
        "ALTER TABLE t ALTER COLUMN a DROP DEFAULT",
        "INSERT INTO t VALUES (2, 2)",
    )
    assert [change.effect for change in changes] == ["fill", "snapshot"]
    _, (change,) = source.version_after(
        "ALTER TABLE t ALTER COLUMN a SET DEFAULT 9", "INSERT INTO t VALUES (3, 3)"
    )
    assert change.effect == "none"


def test_a_name_given_up_by_a_rename_and_added_again_wants_a_snapshot(source: Source) -> None:
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)")
    _, changes = source.version_after(
        "ALTER TABLE t CHANGE a b INT", "ALTER TABLE t ADD COLUMN a INT DEFAULT 7", "INSERT INTO t VALUES (2, 2, 2)"
    )
    assert changes[-1].effect == "snapshot"


def test_a_column_that_takes_the_character_set_of_its_table_may_lose_characters(source: Source) -> None:
    source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET utf8mb4, w VARCHAR(9)) CHARSET latin1",
        "INSERT INTO t VALUES (1, _utf8mb4 X'E697A5', 'a')",
    )
    _, (change,) = source.version_after("ALTER TABLE t MODIFY w VARCHAR(10)", "INSERT INTO t VALUES (2, 'b', 'b')")
    assert change.effect == "none"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY v VARCHAR(10)", "INSERT INTO t VALUES (3, 'c', 'c')")
    assert source.ask("SELECT HEX(v) FROM t WHERE id = 1") == "3F"
    assert change.effect == "snapshot"


def test_a_row_with_0_is_numbered_when_its_column_becomes_a_counter(source: Source) -> None:
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (0, 1)")
    _, (change,) = source.version_after("ALTER TABLE t MODIFY id INT AUTO_INCREMENT", "INSERT INTO t VALUES (5, 2)")
    assert source.ask("SELECT id FROM t WHERE n = 1") == 1
    assert change.effect == "snapshot"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY id BIGINT AUTO_INCREMENT", "INSERT INTO t VALUES (6, 3)")
    assert change.effect == "none"


def test_expressions_may_see_another_value_in_a_column_that_keeps_its_values(source: Source) -> None:
    columns = "id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(5,1), h VARCHAR(40) AS (HEX(v)) STORED, c VARCHAR(9) AS (CONCAT(d))"
    source.version_after(
        f"CREATE TABLE t ({columns}) CHARSET latin1", "INSERT INTO t (id, v, d) VALUES (1, _latin1 X'E9', 1.5)"
    )
    insert = "INSERT INTO t (id, v) VALUES ({}, 'a')"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY v VARCHAR(10)", insert.format(2))
    assert change.effect == "none"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY d DECIMAL(7,2)", insert.format(3))
    assert source.ask("SELECT c FROM t WHERE id = 1") == "1.50"
    assert change.effect == "snapshot"
    _, (change,) = source.version_after("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", insert.format(4))
    assert source.ask("SELECT h FROM t WHERE id = 1") == "C3A9"
    assert change.effect == "snapshot"


def test_a_default_from_a_server_ahead_of_the_log_wants_a_snapshot(source: Source) -> None:
    """The process that read the ADD has ended; the one that reads the first row with it cannot know what it was."""
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source.run("ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 7")
    position = end_of_log(source.user)
    source.run("INSERT INTO t (id) VALUES (2)", "ALTER TABLE t ALTER COLUMN a SET DEFAULT 9")
    source.catalog = catalog_of(source.server)
    _, (change,) = source.replay(position)
    assert change.effect == "snapshot"
    source.version_after("INSERT INTO t (id) VALUES (4)")
    _, (change,) = source.version_after("ALTER TABLE t ALTER COLUMN a SET DEFAULT 11", "INSERT INTO t (id) VALUES (3)")
    assert change.effect == "none"


RESTARTED = {
    "drop": (("ALTER TABLE t DROP a", "none"), ("ALTER TABLE t DROP v, ADD n INT", "fill"), ("ALTER TABLE t ADD a INT", "snapshot")),
    "drop_a_key_column": (("ALTER TABLE t DROP id", "snapshot"),),
    "modify": (
        ("ALTER TABLE t MODIFY a BIGINT", "none"),
        ("ALTER TABLE t MODIFY v VARCHAR(20) AFTER id", "none"),
        ("ALTER TABLE t MODIFY v VARCHAR(20) NOT NULL", "snapshot"),
    ),
    "convert": (("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", "none"), ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "snapshot")),
    "default": (
        ("ALTER TABLE t ALTER a SET DEFAULT 9", "none"),
        ("ALTER TABLE t ALTER a DROP DEFAULT, DROP v", "none"),
        ("ALTER TABLE t ADD n INT NOT NULL DEFAULT 7", "fill"),
        ("ALTER TABLE t CHANGE n m INT NOT NULL DEFAULT 7", "snapshot"),
        ("ALTER TABLE t ALTER m SET DEFAULT 8", "snapshot"),  # no version has shown 7, which the rows have
    ),
    "rename": (("ALTER TABLE t RENAME COLUMN a TO b", "snapshot"), ("ALTER TABLE t DROP b", "none")),
    "gh_ost": (
        ("CREATE TABLE _t_gho LIKE t", "floor"),
        ("ALTER TABLE _t_gho DROP a", "none"),
        ("RENAME TABLE t TO _t_del, _t_gho TO t", "snapshot none"),
    ),
    "pt_osc": (
        ("CREATE TABLE _t_new (id INT PRIMARY KEY, a INT DEFAULT 5, v VARCHAR(10)) CHARSET latin1", "floor"),
        ("ALTER TABLE _t_new DROP a", "none"),
        ("CREATE TRIGGER pt_osc_t_del AFTER DELETE ON t FOR EACH ROW DELETE IGNORE FROM _t_new WHERE id <=> OLD.id", ""),
        ("RENAME TABLE t TO _t_old, _t_new TO t", "snapshot none"),
    ),
    "by_hand": (("CREATE TABLE _t_new LIKE t", "floor"), ("RENAME TABLE t TO _t_old, _t_new TO t", "snapshot snapshot")),
    "lossy": (
        ("CREATE TABLE _t_gho LIKE t", "floor"),
        ("ALTER TABLE _t_gho ADD UNIQUE (v)", "none"),
        ("RENAME TABLE t TO _t_del, _t_gho TO t", "snapshot snapshot"),
        ("CREATE TABLE _u_gho LIKE t", "floor"),  # after the swap `t` is nobody's copy
        ("RENAME TABLE t TO u", "snapshot"),
    ),
}


@pytest.mark.parametrize("case", RESTARTED)
@pytest.mark.parametrize("restarts", ["once", "at each statement"])
def test_a_process_that_has_seen_no_row_decides_as_one_that_has(source: Source, case: str, restarts: str) -> None:
    """What is known at the position is in the state topic: a table that is read again without need loses what sinks keep."""
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 5, v VARCHAR(10)) CHARSET latin1", "INSERT INTO t VALUES (1, 1, 'x')")
    documents = known_now(source)
    found: list[tuple[str, str]] = []
    for statement, _ in RESTARTED[case]:
        position = end_of_log(source.user)
        source.run(statement)
        if not found or restarts != "once":
            tracked = TrackedTables(read_rules(source.user), lambda database, _: database == source.database)
            tracked.restore(documents)
            source.catalog = catalog_of(source.server, tracked)
        changes = [
            change for event in events_since(position) if isinstance(event, str)
            for change in source.catalog.apply(parse_ddl(event, source.database, source.server.flavour))
        ]  # fmt: skip
        found.append((statement, " ".join(change.effect for change in changes if change.kind != "other")))
        documents = {key: one for key, one in (documents | tracked.pop_unsaved()).items() if one is not None}
    assert tuple(found) == RESTARTED[case]


def test_a_table_whose_state_was_lost_is_known_again_after_its_next_row(source: Source) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 5, v VARCHAR(10))", "INSERT INTO t VALUES (1, 1, 'x')")
    tracked = TrackedTables(read_rules(source.user), lambda database, _: database == source.database)
    source.catalog = catalog_of(source.server, tracked)
    source.version_after("INSERT INTO t VALUES (2, 2, 'y')")
    documents = tracked.pop_unsaved()
    again = TrackedTables(read_rules(source.user), lambda database, _: database == source.database)
    again.restore({key: one for key, one in documents.items() if one is not None})
    source.catalog = catalog_of(source.server, again)
    _, (change,) = source.version_after("ALTER TABLE t DROP a", "INSERT INTO t VALUES (3, 'z')")
    assert change.effect == "none"


def test_columns_of_a_document_that_does_not_say_whether_rows_have_shown_them_count_as_not_shown(source: Source) -> None:
    """Documents of older versions: a column was added, and no row was written before the upgrade."""
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD a INT DEFAULT 5")
    documents = known_now(source)
    (document,) = (one for key, one in documents.items() if key.endswith(".t") and one is not None and "columns" in one)
    del document["unshown"]
    for rows, effect in (((), "snapshot"), (("INSERT INTO t (id) VALUES (2)",), "none")):
        tracked = TrackedTables(read_rules(source.user), lambda database, _: database == source.database)
        tracked.restore(documents)
        source.catalog = catalog_of(source.server, tracked)
        _, changes = source.version_after(*rows, "ALTER TABLE t ALTER a SET DEFAULT 9", f"INSERT INTO t (id) VALUES ({3 + len(rows)})")
        assert [change.effect for change in changes] == [effect]
        source.run("ALTER TABLE t ALTER a SET DEFAULT 5")
