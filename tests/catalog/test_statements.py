"""The parser of DDL: what a text says, clause by clause, and which records differ where Debezium's listeners do."""

from __future__ import annotations

import pytest

from mysqlio.definitions.table_parts import KeyPart
from producer.catalog.effects import changes_of, parse_ddl
from producer.catalog.model_records import TableModels
from producer.catalog.statements import Statement, parse_statement
from producer.catalog.statements.clauses import (
    AddColumn,
    AddKey,
    ChangeColumn,
    ChangeRows,
    Convert,
    Copy,
    DatabaseCharset,
    DropKey,
    FromQuery,
    RenameTable,
    SystemVersioning,
    TableCharset,
    TableComment,
    TableRef,
    Trigger,
    Unclear,
)


def parsed(sql: str, flavour: str = "mysql") -> Statement:
    return parse_statement(sql, "db", flavour)


def test_names_are_kept_as_written_beside_the_stored_ones() -> None:
    statement = parse_statement("RENAME TABLE `A``b` TO X.`c`", "Db", lower_case_names=True)
    assert statement.tables == (TableRef("db", "a`b", "`A``b`"),)
    assert statement.new_tables == (TableRef("x", "c", "X.`c`"),)


@pytest.mark.parametrize(
    ("sql", "words", "type_name", "default_word"),
    [
        ("a DOUBLE PRECISION DEFAULT 1", ("DOUBLE", "PRECISION"), "DOUBLE", ""),
        ("a NATIONAL CHARACTER VARYING(4)", ("NATIONAL", "CHARACTER", "VARYING"), "VARCHAR", ""),
        ("a BOOLEAN DEFAULT TRUE", ("BOOLEAN",), "TINYINT", "TRUE"),
        ("a SERIAL", ("BIGINT",), "BIGINT", ""),
        ("a INTEGER COLUMN_FORMAT DEFAULT DEFAULT FALSE", ("INTEGER",), "INT", "FALSE"),
    ],
)
def test_a_definition_has_the_words_of_the_text_and_the_name_of_the_server(
    sql: str, words: tuple[str, ...], type_name: str, default_word: str
) -> None:
    (clause, *_) = parsed(f"CREATE TABLE t ({sql})").clauses
    assert isinstance(clause, AddColumn)
    definition = clause.definition
    assert (definition.type_words, definition.type_name, definition.default_word) == (words, type_name, default_word)


def test_the_options_of_a_table_are_clauses_wherever_they_are() -> None:
    create = parsed("CREATE TABLE t (a INT) ENGINE=InnoDB CHARSET utf8 COMMENT 'x' PARTITION BY HASH (a) (PARTITION p COMMENT 'y')")
    assert create.clauses[1:] == (TableCharset("utf8", None), TableComment("x"))
    alter = parsed("ALTER TABLE t COMMENT '' DEFAULT CHARACTER SET = Latin1, CONVERT TO CHARACTER SET DEFAULT, RENAME u")
    assert alter.clauses == (
        TableCharset("latin1", None),
        TableComment(""),
        Convert(None, None),
        RenameTable(TableRef("db", "u", "u")),
    )


@pytest.mark.parametrize(
    ("sql", "clauses"),
    [
        ("ALTER TABLE t DROP PRIMARY KEY, DROP INDEX `PRIMARY`", (DropKey("PRIMARY", says_primary_key=True), DropKey("PRIMARY"))),
        ("ALTER TABLE t ADD SYSTEM VERSIONING, DROP PERIOD FOR p", (SystemVersioning(), SystemVersioning())),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x.u", (ChangeRows(TableRef("x", "u", "x.u")),)),
        ("ALTER TABLE t CONVERT TABLE u TO PARTITION p", (ChangeRows(TableRef("db", "u", "u"), is_gone=True),)),
        ("ALTER TABLE t DROP PARTITION p0, p1", (ChangeRows(),)),
        ("ALTER TABLE t FROBNICATE", (Unclear("the clause FROBNICATE, in which 'FROBNICATE' is not expected", names_tables=True),)),
        ("ALTER TABLE t ALTER COLUMN a FROBNICATE", (Unclear("the clause ALTER, in which 'FROBNICATE' is not expected"),)),
        ("CREATE TABLE t (LIKE x.u)", (Copy("x", "u"),)),
        ("CREATE TABLE t (SELECT 1)", (FromQuery(),)),
        ("CREATE DATABASE d COLLATE utf8_bin", (DatabaseCharset("d", None, "utf8_bin", is_new=True),)),
        ("ALTER DATABASE READ ONLY = 1", (DatabaseCharset("db", None, None, is_new=False),)),
        ("CREATE DEFINER=`a`@`b` TRIGGER x.n AFTER INSERT ON x.t FOR EACH ROW SET @a = 1", (Trigger("n", "x", "t"),)),
        ("CREATE OR REPLACE UNIQUE INDEX i ON t (a(3) DESC)", (DropKey("i"), AddKey("unique", "i", (KeyPart("a", 3),)))),
        ("ALTER TABLE t", ()),
    ],
)
def test_a_statement_is_its_clauses(sql: str, clauses: tuple[object, ...]) -> None:
    assert parsed(sql, "mariadb").clauses == clauses


def test_a_text_that_ends_too_early_is_unclear() -> None:
    (clause,) = parsed("ALTER TABLE t MODIFY").clauses
    assert clause == Unclear("the clause MODIFY, in which the text ends too early")
    (change,) = parse_ddl("ALTER TABLE t CHANGE a", "db")
    assert (change.kind, change.table, change.effect) == ("alter", "t", "snapshot")


def test_a_changed_column_has_its_position_and_its_key() -> None:
    change, key = parsed("ALTER TABLE t CHANGE a b INT UNIQUE AFTER c").clauses
    assert isinstance(change, ChangeColumn)
    assert (change.name, change.definition.name, change.after) == ("a", "b", "c")
    assert key == AddKey("unique", "", (KeyPart("b"),))


def test_a_character_set_behind_another_option_is_in_the_record() -> None:
    models = TableModels("mysql", lambda *_: None, lambda _: "utf8mb4")
    models.apply(parse_statement("CREATE TABLE t (a INT)", "d"))
    (change,) = models.apply(parse_statement("ALTER TABLE t COMMENT 'x' DEFAULT CHARSET latin1", "d"))
    assert change.table is not None
    assert (change.table.charset, change.table.comment) == ("latin1", "x")


def test_an_option_of_a_database_is_not_taken_for_its_name() -> None:
    (change,) = TableModels("mysql", lambda *_: None, lambda _: "utf8mb4").apply(parse_statement("ALTER DATABASE READ ONLY = 1", "d"))
    assert (change.database, change.tables) == ("d", "")


def test_a_statement_on_temporary_tables_names_them_and_changes_no_table() -> None:
    made = parsed("CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS x.a (id INT)", "mariadb")
    dropped = parsed("DROP TEMPORARY TABLE IF EXISTS a, `b`")
    assert (made.kind, [table.name for table in made.tables]) == ("create_temporary", [("x", "a")])
    assert (dropped.kind, [table.name for table in dropped.tables]) == ("drop_temporary", [("db", "a"), ("db", "b")])
    assert [change.kind for statement in (made, dropped) for change in changes_of(statement, "mysql")] == ["other", "other"]


def test_quotes_and_backslashes_count_in_a_record_as_in_the_session() -> None:
    statement = parse_statement("""CREATE TABLE "t" ("a" VARCHAR(9) DEFAULT 'x\\n')""", "d", sql_mode=1 << 2 | 1 << 20)
    (change,) = TableModels("mysql", lambda *_: None, lambda _: "utf8mb4").apply(statement)
    assert change.table is not None
    assert [(column.name, column.default) for column in change.table.columns] == [("a", "x\\n")]
