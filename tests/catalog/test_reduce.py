"""What a table becomes by DDL text alone; the random statements of `test_random_ddl` ask real servers."""

from __future__ import annotations

import pytest

from mysqlio.definitions.table_parts import Rules
from producer.catalog import Catalog
from producer.catalog.effects import parse_ddl
from producer.catalog.model import CatalogTable, from_document, to_document
from producer.catalog.reduce import Unknown, altered, created
from producer.catalog.tracking import TrackedTables
from schemas.columns import ColumnType
from schemas.documents import CatalogDocument
from schemas.errors import StateError
from schemas.json_codec import decode, encode

COLLATIONS = {"utf8mb4": "utf8mb4_0900_ai_ci", "latin1": "latin1_swedish_ci", "binary": "binary"}
MYSQL = Rules("mysql", COLLATIONS)
OLD = Rules("mysql", COLLATIONS, explicit_timestamps=False)
TABLE = (
    "CREATE TABLE t (id INT, a VARCHAR(10) NOT NULL, b TEXT, c INT UNSIGNED DEFAULT 5, PRIMARY KEY (id), "
    "UNIQUE (c), UNIQUE u (a)) CHARSET latin1"
)


def made(sql: str = TABLE, rules: Rules = MYSQL) -> CatalogTable:
    (change,) = parse_ddl(sql, "db", rules.flavour)
    state = created("db", "t", change.clauses, rules)
    assert isinstance(state, CatalogTable), state
    return state


def after(clauses: str, rules: Rules = MYSQL, sql: str = TABLE) -> CatalogTable:
    found = outcome(clauses, rules, sql)
    assert isinstance(found, CatalogTable), found
    return found


def outcome(clauses: str, rules: Rules = MYSQL, sql: str = TABLE) -> CatalogTable | Unknown:
    change = parse_ddl(f"ALTER TABLE t {clauses}", "db", rules.flavour)[0]
    return altered(made(sql, rules), change.clauses, rules)


def names(state: CatalogTable) -> list[str]:
    return [column.name for column in state.schema.columns]


def keys(state: CatalogTable) -> list[str]:
    return [key.name for key in state.keys]


def test_a_create_gives_columns_character_sets_and_keys() -> None:
    state = made()
    assert names(state) == ["id", "a", "b", "c"]
    assert state.schema.column("a").charset == "latin1"
    assert not state.schema.column("id").nullable
    assert state.schema.primary_key == ("id",)
    assert keys(state) == ["PRIMARY", "u", "c"]  # required ones before those that may be NULL


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("ADD x INT, ADD y INT FIRST, ADD z INT AFTER A", ["y", "id", "a", "z", "b", "c", "x"]),
        ("ADD (x INT, y INT)", ["id", "a", "b", "c", "x", "y"]),
        ("DROP b, ADD b INT", ["id", "a", "c", "b"]),
        ("MODIFY c BIGINT FIRST, CHANGE a x INT", ["c", "id", "x", "b"]),
        ("CHANGE a x INT AFTER c, ADD y INT AFTER x", ["id", "b", "c", "x", "y"]),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", ["id", "b", "a", "c"]),
        ("ADD COLUMN IF NOT EXISTS a INT, DROP COLUMN IF EXISTS q", ["id", "a", "b", "c"]),
    ],
)
def test_columns_stand_where_the_server_puts_them(clauses: str, expected: list[str]) -> None:
    assert names(after(clauses)) == expected


def test_keys_follow_columns_and_choose_the_record_key() -> None:
    state = after("DROP PRIMARY KEY, CHANGE a x VARCHAR(10) NOT NULL, ADD UNIQUE (c, b(3)), RENAME INDEX c TO d")
    assert state.schema.primary_key == ()
    assert state.schema.unique_key == ("x",)
    assert keys(state) == ["u", "d", "c"]
    assert keys(after("DROP COLUMN c, ADD COLUMN n INT UNIQUE")) == ["PRIMARY", "u", "n"]
    assert keys(after("ADD COLUMN IF NOT EXISTS a INT UNIQUE")) == ["PRIMARY", "u", "c"]
    assert keys(after("ADD COLUMN IF NOT EXISTS n INT KEY")) == ["PRIMARY", "u", "c"]  # MariaDB: note 1061, and n is NOT NULL
    assert keys(after("DROP c, ADD c INT UNSIGNED FIRST")) == ["PRIMARY", "u", "c"]
    assert "the index u of column a" in str(outcome("DROP a, ADD a INT"))
    assert "IF NOT EXISTS beside other clauses" in str(outcome("ADD COLUMN IF NOT EXISTS a INT UNIQUE, ADD x INT"))
    assert after("DROP PRIMARY KEY, DROP KEY u, ADD UNIQUE (a(3))").schema.record_key == ()
    assert not after("DROP PRIMARY KEY, ADD PRIMARY KEY (c)").schema.column("c").nullable
    first_bytes = "DROP PRIMARY KEY, DROP KEY u, ADD x GEOMETRY NOT NULL, ADD p POINT NOT NULL, ADD UNIQUE (p(4)), ADD UNIQUE (x({}))"
    assert after(first_bytes.format(4)).schema.record_key == ("x",)  # MariaDB: the size of the field of its length
    assert after(first_bytes.format(5)).schema.record_key == ()


def test_a_conversion_changes_all_text_and_sizes_it_as_the_server_does() -> None:
    state = after("CONVERT TO CHARACTER SET utf8mb4, ADD n VARCHAR(5), ADD m BLOB")
    assert {column.charset for column in state.schema.columns} == {None, "utf8mb4"}
    assert state.schema.column("b").type is ColumnType.MEDIUMTEXT
    assert state.collation == "utf8mb4_0900_ai_ci"
    assert after("DEFAULT CHARSET utf8mb4, ADD n TEXT(100)").schema.column("n").type is ColumnType.TEXT
    assert after("DEFAULT CHARSET utf8mb4, ADD n TEXT(100)").schema.column("a").charset == "latin1"


def test_a_timestamp_that_says_nothing_depends_on_the_server() -> None:
    assert after("ADD n TIMESTAMP").schema.column("n").nullable
    state = after("ADD n TIMESTAMP, ADD m TIMESTAMP, ADD o TIMESTAMP NULL", OLD)
    n, m, o = (state.schema.column(name) for name in "nmo")
    assert (n.nullable, n.default, n.default_is_expression) == (False, "CURRENT_TIMESTAMP", True)
    assert (m.nullable, m.default) == (False, "0000-00-00 00:00:00")
    assert (o.nullable, o.has_default) == (True, False)
    later = after("ADD n TIMESTAMP, ADD m TIMESTAMP FIRST", OLD, "CREATE TABLE t (id INT, x TIMESTAMP NULL)")
    assert [column.default for column in later.schema.columns] == ["CURRENT_TIMESTAMP", None, None, "0000-00-00 00:00:00"]


def test_a_default_whose_value_depends_on_the_server_is_said_to_be_uncertain() -> None:
    state = after("ADD n TIMESTAMP DEFAULT '2020-01-01 00:00:00', ADD m INT DEFAULT 7, ALTER c SET DEFAULT 1.5")
    assert state.uncertain == {"n", "c"}
    (change,) = parse_ddl("ALTER TABLE t DROP n, RENAME COLUMN c TO d", "db", "mysql")
    later = altered(state, change.clauses, MYSQL)
    assert isinstance(later, CatalogTable)
    assert later.uncertain == {"d"}


@pytest.mark.parametrize(
    ("clauses", "why"),
    [
        ("ADD n WHATEVER", "the type WHATEVER of column n"),
        ("ADD n INT SOMEHOW", "the definition of column n"),
        ("FROBNICATE", "FROBNICATE"),
        ("CONVERT TO CHARACTER SET DEFAULT", "the database's character set"),
        ("DROP COLUMN nothing", "the column nothing, which"),
        ("ADD n INT AFTER nothing", "after nothing"),
        ("ADD n VARCHAR(3) CHARSET klingon", "the character set klingon"),
        ("MODIFY b TEXT, CONVERT TO CHARSET latin1", "the size of column b"),
    ],
)
def test_what_the_text_does_not_say_is_unknown_with_a_reason(clauses: str, why: str) -> None:
    found = outcome(clauses)
    assert isinstance(found, Unknown)
    assert why in found.why


def test_a_table_of_the_databases_character_set_is_unknown_unless_no_column_needs_it() -> None:
    (change,) = parse_ddl("CREATE TABLE t (id INT, v VARCHAR(3))", "db")
    assert isinstance(created("db", "t", change.clauses, MYSQL), Unknown)
    assert names(made("CREATE TABLE t (id INT, v VARCHAR(3) CHARSET latin1)")) == ["id", "v"]


# ── following ────────────────────────────────


def tracked(*statements: str) -> TrackedTables:
    tables = TrackedTables(MYSQL, lambda _, table: table != "unwanted")
    tables.adopt(made())
    follow(tables, *statements)
    return tables


def follow(tables: TrackedTables, *statements: str) -> None:
    catalog = catalog_on(tables)
    for statement in statements:
        catalog.apply(parse_ddl(statement, "db"))


def test_tables_are_followed_through_copies_renames_and_swaps() -> None:
    tables = tracked(
        "CREATE TABLE u LIKE t", "ALTER TABLE u ADD x INT", "RENAME TABLE t TO old, u TO t, old TO unwanted"
    )
    state = tables.state("db", "t")
    assert state is not None
    assert names(state)[-1] == "x"
    assert tables.state("db", "unwanted") is None
    assert tables.state("db", "u") is None


def test_documents_hold_the_present_state_and_nothing_else() -> None:
    tables = tracked("ALTER TABLE t ADD e ENUM('x','y') DEFAULT 'y' FIRST", "CREATE TABLE u (id INT)", "DROP TABLE u")
    documents = {key: one for key, one in tables.pop_unsaved().items() if key.startswith(CatalogDocument.PREFIX)}
    assert documents.keys() == {f"{CatalogDocument.PREFIX}db.t", f"{CatalogDocument.PREFIX}db.u"}
    assert documents.pop(f"{CatalogDocument.PREFIX}db.u") is None
    again = TrackedTables(MYSQL, lambda _database, _table: True)
    again.restore(documents)
    assert again.state("db", "t") == tables.state("db", "t")
    state = tables.state("db", "t")
    assert state is not None
    assert from_document(decode(CatalogDocument, encode(to_document(state)))) == state
    assert tables.pop_unsaved() == {}
    with pytest.raises(StateError, match="catalog/x"):
        again.restore({"catalog/x": {"v": 1}})


def test_a_table_takes_the_character_set_of_its_database_where_that_is_known() -> None:
    tables = tracked()
    follow(tables, "CREATE TABLE u (v TEXT)")
    assert "database" in tables.why("db", "u")
    tables.adopt_databases({"db": ("utf8mb4", "utf8mb4_bin")})
    follow(tables, "CREATE TABLE v (v TEXT)", "ALTER DATABASE db CHARACTER SET latin1", "CREATE TABLE w (v TEXT)")
    follow(tables, "CREATE DATABASE x", "CREATE TABLE x.a (v TEXT)", "ALTER DATABASE COLLATE utf8mb4_unicode_ci")
    follow(tables, "CREATE TABLE y (v TEXT)")
    assert tables.state("db", "v").schema.columns[0].collation == "utf8mb4_bin"
    assert tables.state("db", "w").schema.columns[0].charset == "latin1"
    assert tables.state("x", "a") is None
    assert tables.state("db", "y").collation == "utf8mb4_unicode_ci"
    again = TrackedTables(MYSQL, lambda _database, _table: True)
    again.restore(tables.pop_unsaved())
    assert again.knows_databases
    follow(again, "CREATE TABLE z (v TEXT)")
    assert again.state("db", "z").collation == "utf8mb4_unicode_ci"


def test_a_lost_table_has_its_reason_until_it_is_read_again() -> None:
    tables = tracked("ALTER TABLE t FROBNICATE")
    assert tables.state("db", "t") is None
    assert "FROBNICATE" in tables.why("db", "t")
    follow(tables, "ALTER TABLE t ADD x INT", "RENAME TABLE t TO u", "CREATE TABLE IF NOT EXISTS v (id INT)")
    assert "FROBNICATE" in tables.why("db", "u")
    assert "IF NOT EXISTS" in tables.why("db", "v")
    follow(tables, "RENAME TABLE stranger TO w", "DROP DATABASE db")
    assert "stranger" in tables.why("db", "w")
    tables.adopt(made())
    assert tables.state("db", "t") is not None


def test_an_index_on_what_is_no_column_loses_the_table_and_not_the_reader() -> None:
    """MariaDB's periods; also of tables that nobody captures."""
    tables = tracked()
    period = "CREATE TABLE {} (id INT, s DATE, e DATE, PERIOD FOR p (s, e), {} (id, p WITHOUT OVERLAPS))"
    follow(tables, period.format("u", "UNIQUE"), period.format("v", "PRIMARY KEY"), period.format("unwanted", "UNIQUE"))
    assert [tables.state("db", name) for name in "uv"] == [None, None]
    assert "the clause UNIQUE, in which 'WITHOUT'" in tables.why("db", "u")
    follow(tables, "ALTER TABLE t ADD UNIQUE (nothing)")
    assert "an index on nothing" in tables.why("db", "t")


@pytest.mark.parametrize("rules", [MYSQL, Rules("mariadb", COLLATIONS)], ids=["mysql", "mariadb"])
def test_an_index_on_members_is_unknown_where_they_become_text(rules: Rules) -> None:
    """MySQL 8.0 then indexes as many first characters as the SET had bytes, here 1; random DDL found it."""
    sql = "CREATE TABLE t (id INT, s SET('a','b') NOT NULL, UNIQUE (s)) CHARSET latin1"
    found = outcome("MODIFY s VARCHAR(20) NOT NULL", rules, sql)
    assert isinstance(found, Unknown)
    assert "the index of column s, whose members become text" in found.why
    assert keys(after("MODIFY s SET('a','b','c') NOT NULL", rules, sql)) == ["s"]


def test_an_index_that_is_replaced_is_no_key_any_more() -> None:
    tables = tracked("ALTER TABLE t DROP PRIMARY KEY", "CREATE OR REPLACE UNIQUE INDEX u ON t (id)")
    state = tables.state("db", "t")
    assert state is not None
    assert state.schema.record_key == ("id",)  # not a, whose index went
    assert sorted(keys(state)) == ["c", "u"]


def test_members_whose_text_depends_on_the_session_are_not_guessed() -> None:
    for members in ("'a', x'62'", "'a\\\\b'"):
        assert "members" in str(outcome(f"ADD e ENUM({members})"))
    (change,) = parse_ddl("ALTER TABLE t ADD e ENUM('a\\\\b')", "db", sql_mode=1 << 20)
    found = altered(made(), change.clauses, MYSQL)
    assert isinstance(found, CatalogTable)
    assert found.schema.column("e").members == ("a\\\\b",)


def test_a_database_that_is_created_again_has_another_character_set() -> None:
    tables = tracked()
    tables.adopt_databases({"db": ("latin1", "latin1_swedish_ci")})
    follow(tables, "DROP DATABASE db", "CREATE DATABASE IF NOT EXISTS db CHARACTER SET utf8mb4", "CREATE TABLE w (v TEXT)")
    assert tables.state("db", "w") is None
    assert "database" in tables.why("db", "w")


# ── former columns ────────────────────────────────


def restarted(tables: TrackedTables) -> TrackedTables:
    again = TrackedTables(MYSQL, lambda _, table: table != "unwanted")
    again.restore({key: document for key, document in tables.pop_unsaved().items() if document is not None})
    return again


def effect(tables: TrackedTables, *statements: str) -> str:
    """The effect of the last of some statements."""
    catalog = catalog_on(tables)
    return [catalog.apply(parse_ddl(statement, "db")) for statement in statements][-1][0].effect


def catalog_on(tables: TrackedTables) -> Catalog:
    """A catalog that asks no server."""
    return Catalog(pytest.fail, "mysql", tracked=tables, look=pytest.fail)


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t DROP c"],
        ["ALTER TABLE t CHANGE c x INT UNSIGNED"],
        ["ALTER TABLE t RENAME COLUMN c TO x"],
        ["DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)"],
        ["DROP DATABASE db", "CREATE TABLE t (id INT PRIMARY KEY)"],
        ["CREATE TABLE u (id INT PRIMARY KEY)", "RENAME TABLE t TO old, u TO t"],
        ["RENAME TABLE t TO old, unwanted TO t"],
        ["CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)"],
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_column_of_a_name_that_a_sink_still_has_wants_a_snapshot(statements: list[str], restarts: bool) -> None:
    tables = tracked()
    effect(tables, *statements)
    again = restarted(tables) if restarts else tables
    assert effect(again, "ALTER TABLE t ADD n INT DEFAULT 7") == "fill"
    assert effect(again, "ALTER TABLE t ADD C INT DEFAULT 7") == "snapshot"
    assert effect(again, "ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT DEFAULT 7") == "fill"  # it is there
