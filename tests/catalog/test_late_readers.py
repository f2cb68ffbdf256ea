"""A reader that is behind the server: table versions and defaults are those of the time of the row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from mysqlio.information_schema import read_rules
from producer.binlog.tablemap import TableMap
from producer.catalog import TrackedTables
from producer.catalog.effects import parse_ddl
from schemas.columns import Column, ColumnType, TableSchema
from schemas.types.semantic_types import column_default
from tests.catalog.comparable_schemas import comparable
from tests.catalog.logged_source import Source, catalog_of, known_now
from tests.catalog.server_log import end_of_log, events_since


@pytest.mark.parametrize("made_before", [True, False])
def test_a_copy_that_is_gone_has_the_defaults_of_its_original(source: Source, made_before: bool) -> None:
    """The log's reader is late, or the statements follow each other at once: the server knows nothing of the copy any more."""
    original = "CREATE TABLE a (id INT PRIMARY KEY, d DATE NOT NULL DEFAULT '2020-01-01', n INT DEFAULT 7)"
    if made_before:
        source.run(original)
    position = end_of_log(source.user)
    source.run(
        *([] if made_before else [original]),
        "CREATE TABLE b LIKE a",
        "CREATE TABLE e LIKE b",
        "INSERT INTO b (id) VALUES (1)",
        "RENAME TABLE b TO c",
        "INSERT INTO e (id) VALUES (1)",
        "ALTER TABLE c ALTER n SET DEFAULT 8",
        "INSERT INTO c (id) VALUES (2)",
        "DROP TABLE c, e",
    )
    found = []
    for event in events_since(position):
        if isinstance(event, TableMap):
            columns = source.catalog.version_of(event).schema.columns
            found.append((event.table, [column_default(column) for column in columns]))
        else:
            source.catalog.apply(parse_ddl(event, source.database, source.server.flavour))
    assert found == [("b", [None, 18262, 7]), ("e", [None, 18262, 7]), ("c", [None, 18262, 8])]

FIRST_COLUMNS = """id INT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b INT NOT NULL DEFAULT 8, v VARCHAR(9) DEFAULT 'x', \
    d DATETIME(3) NOT NULL DEFAULT '2020-01-02 03:04:05.678', ts TIMESTAMP NULL DEFAULT '2020-01-02 03:04:05'"""

LATE = {
    "change": "ALTER TABLE t CHANGE a c INT NOT NULL DEFAULT 9 AFTER b | + t | ALTER TABLE t CHANGE c e BIGINT",
    "change_swap": "ALTER TABLE t CHANGE a b INT NOT NULL DEFAULT 70, CHANGE b a INT NOT NULL DEFAULT 80 | + t | "
    "ALTER TABLE t CHANGE b c INT, ADD COLUMN b INT DEFAULT 5 | + t | ALTER TABLE t DROP a, DROP b, DROP c",
    "modify": "ALTER TABLE t MODIFY a INT FIRST | + t | ALTER TABLE t MODIFY a INT DEFAULT 4, MODIFY b INT | + t | "
    "ALTER TABLE t MODIFY a INT NOT NULL DEFAULT 6, MODIFY b INT DEFAULT 6",
    "position": "ALTER TABLE t ADD c INT DEFAULT 1 FIRST | + t | ALTER TABLE t MODIFY a INT NOT NULL DEFAULT 7 AFTER b | + t | "
    "ALTER TABLE t DROP a, DROP c",
    "drop_add": "ALTER TABLE t DROP a, ADD a INT NOT NULL DEFAULT 1 | + t | ALTER TABLE t DROP a | + t | "
    "ALTER TABLE t ADD a INT NOT NULL DEFAULT 2",
    "set_default": "ALTER TABLE t ALTER a SET DEFAULT 1, ALTER v DROP DEFAULT | + t | ALTER TABLE t ALTER v SET DEFAULT 'z' | "
    "+ t | ALTER TABLE t ALTER a DROP DEFAULT, ALTER v DROP DEFAULT",
    "rename_table": "RENAME TABLE t TO u | + u | ALTER TABLE u RENAME TO w, ALTER a SET DEFAULT 3 | + w | DROP TABLE w",
    "swap_tables": "CREATE TABLE u (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 1) | RENAME TABLE t TO x, u TO t, x TO u | + t | "
    "+ u | ALTER TABLE t ALTER a SET DEFAULT 5 | + t | + u | RENAME TABLE t TO x, u TO t, x TO u",
    "like": "CREATE TABLE u LIKE t | + u | ALTER TABLE t ALTER a SET DEFAULT 1 | + u | ALTER TABLE u ALTER b SET DEFAULT 2 | "
    "+ t | + u | DROP TABLE t | + u | DROP TABLE u",
    "made_again": "DROP TABLE t | CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 1) | + t | DROP TABLE t | "
    "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 2)",
    "truncate": "TRUNCATE TABLE t | + t | ALTER TABLE t ALTER a SET DEFAULT 1 | + t | ALTER TABLE t DROP a",
    "rename": "ALTER TABLE t RENAME COLUMN a TO c | + t | ALTER TABLE t RENAME COLUMN c TO e, RENAME COLUMN ts TO tt | + t | "
    "ALTER TABLE t RENAME COLUMN e TO f, RENAME COLUMN d TO dd, RENAME COLUMN tt TO ts",
    "rename_swap": "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a | + t | ALTER TABLE t ALTER a SET DEFAULT 1 | "
    "+ t | ALTER TABLE t RENAME COLUMN b TO a, RENAME COLUMN a TO b",
    "rename_reuse": "ALTER TABLE t RENAME COLUMN a TO c, ADD COLUMN a INT NOT NULL DEFAULT 1 | + t | "
    "ALTER TABLE t DROP a, RENAME COLUMN c TO a | + t | ALTER TABLE t ALTER a SET DEFAULT 2",
    "rename_and_default": "ALTER TABLE t ALTER a SET DEFAULT 1, RENAME COLUMN b TO c | ALTER TABLE t RENAME COLUMN a TO b | + t | "
    "ALTER TABLE t RENAME COLUMN b TO x",
}


@pytest.mark.parametrize(
    ("source", "case"),
    [
        (server, case)
        for server in ("mysql57", "mysql80", "mariadb114")
        for case in LATE
        if server != "mysql57" or "RENAME COLUMN" not in LATE[case]  # which it does not have
    ],
    indirect=["source"],
)
def test_a_late_reader_has_what_the_server_had_when_the_row_was_written(source: Source, case: str) -> None:
    """The server is ahead of a reader that starts before the CREATE TABLE, behind it, or again at every row."""
    before, first = end_of_log(source.user), known_now(source)
    source.run(f"CREATE TABLE t ({FIRST_COLUMNS}) CHARSET latin1")
    behind, second = end_of_log(source.user), known_now(source)
    expected = []
    for statement in ("+ t", *LATE[case].split(" | ")):
        table = statement[2:]
        if statement.startswith("+"):
            source.run(f"DELETE FROM {table}", f"INSERT INTO {table} (id) VALUES (1)")
            expected.append(source.read(table))
        else:
            source.run(statement)
    wanted = distinct(expected)
    # The text of a TIMESTAMP is in the time zone of its session, and only the server knows the value.
    no_timestamps = distinct(expected, frozenset({"ts", "tt"}))
    assert distinct(late(source, before, first), frozenset({"ts", "tt"})) == no_timestamps
    assert distinct(late(source, behind, second)) == wanted
    assert distinct(late(source, behind, second, restarts=True)) == wanted
    if source.server.name != "mysql57":  # whose columns are not known without the state
        assert defaults(late(source, before, None)) == defaults(expected)


def late(
    source: Source, position: Any, documents: dict[str, Any] | None, *, restarts: bool = False
) -> Iterator[TableSchema]:
    """The table versions of all rows since `position`, by a reader that has these state documents there.

    Without documents it follows no tables, and knows what it has read of them.
    """
    flavour, catalog = source.server.flavour, None
    follows, documents = documents is not None, documents or {}
    for event in events_since(position):
        if catalog is None or restarts:
            tracked = TrackedTables(read_rules(source.user), lambda database, _: database == source.database)
            tracked.restore(documents)
            catalog = catalog_of(source.server, tracked if follows else None)
        if isinstance(event, TableMap):
            yield catalog.version_of(event).schema
        else:
            catalog.apply(parse_ddl(event, source.database, flavour))
        documents = {key: document for key, document in (documents | tracked.pop_unsaved()).items() if document is not None}


def distinct(schemas: Iterable[TableSchema], uncertain: frozenset[str] = frozenset()) -> list[str]:
    """Schemas as records show them, but for defaults of `uncertain` columns; of equal ones that follow each other one."""
    shown = [comparable(schema, uncertain) for schema in schemas]
    lines = [f"{schema['name'][1]}: {', '.join(map(described, schema['columns']))}" for schema in shown]
    return [line for line, former in zip(lines, [None, *lines], strict=False) if line != former]


def defaults(schemas: Iterable[TableSchema]) -> list[list[tuple[str, Any]]]:
    """What records have as defaults, but those of TIMESTAMPs; of equal schemas that follow each other one."""
    found = [
        [(column.name, column_default(column)) for column in schema.columns if column.type != ColumnType.TIMESTAMP]
        for schema in schemas
    ]
    return [schema for schema, former in zip(found, [None, *found], strict=False) if schema != former]


def described(item: tuple[Column, Any]) -> str:
    """A column in what differs from a column that has nothing but a name and a type, with its default as records have it."""
    column, default = item
    plain = Column(column.name, column.type, nullable=True)
    found = {name: getattr(column, name) for name in Column.__dataclass_fields__}
    return f"{column.name} {column.type} {default!r} " + " ".join(
        f"{name}={value}" for name, value in found.items() if value != getattr(plain, name)
    )


def test_a_default_is_that_of_the_ddl_also_when_the_server_is_ahead(source: Source) -> None:
    position = end_of_log(source.user)
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1)",
        "ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 5",
        "INSERT INTO t (id) VALUES (1)",
    )
    until = end_of_log(source.user)
    source.run("ALTER TABLE t ALTER COLUMN b SET DEFAULT 9", "ALTER TABLE t ALTER a DROP DEFAULT")
    version, changes = source.replay(position) if until else (None, [])
    assert version is not None
    assert version.schema.column("b").default == "5"
    assert version.schema.column("a").default == "1"
    assert [change.effect for change in changes] == ["floor", "fill", "none", "none"]
    later, _ = source.version_after("INSERT INTO t (id, a) VALUES (2, 2)")
    assert later.schema == source.read("t")
    assert later.schema.column("b").default == "9"


def test_an_old_version_keeps_its_columns_when_the_server_has_others(source: Source) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, gone VARCHAR(5) NOT NULL)")
    old = source.map_of("INSERT INTO t VALUES (1, 2, 'x')")
    source.run("ALTER TABLE t DROP COLUMN gone, MODIFY a BIGINT UNSIGNED FIRST, ADD b INT DEFAULT 3")
    schema = source.catalog.version_of(old).schema
    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", ColumnType.INT),
        ("a", ColumnType.INT),
        ("gone", ColumnType.VARCHAR),
    ]
