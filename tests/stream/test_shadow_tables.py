"""gh-ost and pt-online-schema-change: shadow tables are not captured, the swap is the change of the real table.

The statements are those the tools issue (gh-ost 1.1, pt-online-schema-change 3.5).
"""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError
from tests.support.producers import Running, Source, running

TABLE = "CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT, v VARCHAR(20) DEFAULT NULL, n INT DEFAULT 3, PRIMARY KEY (id))"


def gh_ost(alter: str, copy: str) -> list[str]:
    """A migration by gh-ost; the journal, the copied rows, the sentry and the switch."""
    return [
        ("create /* gh-ost */ table `_t_ghc` (id bigint unsigned auto_increment, last_update timestamp not null DEFAULT "
        "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null, value varchar(4096) "
        "charset ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256"),
        "create /* gh-ost */ table `_t_gho` like `t`",
        f"alter /* gh-ost */ table `_t_gho` {alter}",
        "insert /* gh-ost */ into `_t_ghc` (id, hint, value) values (2, 'state', 'GhostTableMigrated')",
        f"insert /* gh-ost */ ignore into `_t_gho` ({copy}) (select {copy} from `t` lock in share mode)",
        "create /* gh-ost */ table `_t_del` (id int auto_increment primary key) engine=InnoDB comment='ghost-cut-over-sentry'",
        "drop /* gh-ost */ table if exists `_t_del`",
        "rename /* gh-ost */ table `t` to `_t_del`, `_t_gho` to `t`",
        "drop /* gh-ost */ table if exists `_t_ghc`",
        "drop /* gh-ost */ table if exists `_t_del`",
    ]


def pt_osc(source: Source, alter: str, copy: str) -> list[str]:
    """A migration by pt-online-schema-change: triggers, copied rows, swap."""
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW CREATE TABLE t")
        create = cursor.fetchone()[1].replace("CREATE TABLE `t`", f"CREATE TABLE `{source.schema}`.`_t_new`")
    db = f"`{source.schema}`"
    return [
        create,
        f"ALTER TABLE {db}.`_t_new` {alter}",
        (f"CREATE TRIGGER `pt_osc_t_del` AFTER DELETE ON {db}.`t` FOR EACH ROW DELETE IGNORE FROM {db}.`_t_new` "
        f"WHERE {db}.`_t_new`.`id` <=> OLD.`id`"),
        (f"INSERT LOW_PRIORITY IGNORE INTO {db}.`_t_new` ({copy}) SELECT {copy} FROM {db}.`t` LOCK IN SHARE MODE "
        "/*pt-online-schema-change 4711 copy table*/"),
        f"RENAME TABLE {db}.`t` TO {db}.`_t_old`, {db}.`_t_new` TO {db}.`t`",
        f"DROP TABLE IF EXISTS {db}.`_t_old`",
        f"DROP TRIGGER IF EXISTS {db}.`pt_osc_t_del`",
    ]


def asked(run: Running) -> list[str]:
    """Tables a snapshot was asked for."""
    return [table.table for table in run.producer.coordinator.progress()]


@pytest.mark.parametrize("tool", ["gh-ost", "pt-osc"])
def test_a_swap_is_a_change_of_the_real_table_without_a_snapshot(source: Source, tool: str) -> None:
    source.execute(TABLE)
    with running(source.settings()) as run:
        source.execute("INSERT INTO t (v) VALUES ('a')")
        run.caught_up(source)
        alter = "ADD COLUMN c INT NOT NULL DEFAULT 7 AFTER id, MODIFY v VARCHAR(40)"
        statements = gh_ost(alter, "id, v, n") if tool == "gh-ost" else pt_osc(source, alter, "id, v, n")
        source.execute(*statements, "INSERT INTO t (v) VALUES ('b')")
        run.caught_up(source)
        assert asked(run) == []
        known = run.producer.tables.known()
    assert known == [(source.schema, "t")]
    changes = source.changes("t")
    assert [list(change.value["after"].items()) for change in changes] == [
        [("id", 1), ("v", "a"), ("n", 3)],
        [("id", 2), ("c", 7), ("v", "b"), ("n", 3)],
    ]


@pytest.mark.parametrize(
    "alter",
    [
        "ADD COLUMN c TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
        "MODIFY v VARCHAR(2)",
        "ADD UNIQUE KEY u (v)",  # copying into it may pass over rows
        "DROP COLUMN n, ADD COLUMN n INT",
    ],
)
def test_a_swap_that_may_change_values_asks_for_a_snapshot(mysql: Source, alter: str) -> None:
    source = mysql
    source.execute(TABLE)
    with running(source.settings()) as run:
        source.execute("INSERT INTO t (v) VALUES ('a')")
        run.caught_up(source)
        source.execute(*gh_ost(alter, "id, v"))
        run.caught_up(source)
        assert asked(run) == [f"{source.schema}.t"]


def test_a_table_that_only_looks_like_a_shadow_can_be_captured(mysql: Source) -> None:
    source = mysql
    source.execute("CREATE TABLE _t_new (id INT PRIMARY KEY)")
    with running(source.settings(exclude_tables=[])) as run:
        source.execute("INSERT INTO _t_new VALUES (1)")
        run.caught_up(source)
    assert [change.value["after"] for change in source.changes("_t_new")] == [{"id": 1}]
    with pytest.raises(ConfigError, match="exclude_tables"):
        source.settings(exclude_tables=["("])


def test_a_swap_by_hand_has_the_table_read_again(mysql: Source) -> None:
    """The way to get rid of old rows; only its names are those of a tool."""
    source = mysql
    source.execute(TABLE)
    with running(source.settings()) as run:
        source.execute("INSERT INTO t (v) VALUES ('a'), ('b')")
        run.caught_up(source)
        source.execute(
            "CREATE TABLE _t_new LIKE t",
            "INSERT INTO _t_new SELECT * FROM t WHERE id > 1",
            "RENAME TABLE t TO _t_old, _t_new TO t",
        )
        run.caught_up(source)
        assert asked(run) == [f"{source.schema}.t"]
