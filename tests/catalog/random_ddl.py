"""Random DDL on one table, and what the server, the log and the text alone say of it after every statement.

`python -m tests.catalog.random_ddl SERVER STATEMENTS [SEED]` runs the long form (`make fuzz-ddl`); the short form is in
`test_random_ddl.py`. The same seed gives the same statements on the same server.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pymysql
import structlog

from devservers import Database, start_database
from producer.binlog.tablemap import TableMap
from producer.catalog import Catalog
from producer.catalog.effects import DdlChange, parse_ddl
from producer.catalog.information_schema import read_rules, read_table_facts
from producer.catalog.model import Key, TableState, from_document, renamed, to_document
from producer.catalog.reduce import Unknown, altered, created
from producer.catalog.statements.clauses import KeyPart
from schemas.columns import Column, TableSchema
from schemas.connect import column_default
from schemas.documents import CatalogDocument
from schemas.errors import RetriableSourceError, TidemarkError
from schemas.json_codec import decode, encode
from tests.catalog.server_log import LogPlace, end_of_log, events_since

PORTION: Final = 250
"""Statements of one seed in the long form."""
NAMES: Final = ("a", "B b", "c-c", "dé", "e`e", "select", "f.f", "日本", "G$g", "h'h", 'i"i', "j;j", "first", "t")
CHARSETS: Final = ("latin1", "utf8mb4", "utf8mb3", "utf8", "ascii", "gbk", "cp1251", "ucs2", "utf16", "sjis")
COLLATIONS: Final = ("latin1_bin", "latin1_german1_ci", "utf8mb4_bin", "utf8mb4_unicode_ci", "cp1251_general_ci", "ascii_bin")
COMMENTS: Final = ("", "", "", " COMMENT 'a, (b'", " COMMENT 'it''s \\\\ \"x\" `y`'", " /* note, (x */", " COMMENT '-- # /*'")
EXPRESSION_DEFAULT: Final = "CURRENT_TIMESTAMP"
SERVER_TYPES: Final = {
    "mariadb114": (("UUID", "'123e4567-e89b-12d3-a456-426655440000'"), ("INET6", "'::1'"), ("VARCHAR(40) COMPRESSED", "'x'")),
    "mysql97": (("VECTOR(3)", ""),),
}
NUMBERS: Final = (
    ("TINYINT", "-5"), ("TINYINT(1)", "TRUE"), ("BOOL", "FALSE"), ("SMALLINT UNSIGNED", "7"), ("MEDIUMINT(5) ZEROFILL", "42"),
    ("INT", "-3"), ("INTEGER SIGNED", "'12'"), ("INT4", "0"), ("BIGINT UNSIGNED", "18446744073709551615"), ("INT8", "-9"),
    ("DECIMAL(12,3)", "-1.25"), ("DEC", "5"), ("NUMERIC(65,30)", "1.5"), ("FIXED(5)", "+7"), ("FLOAT", "0.1"),
    ("FLOAT(30)", "1e100"), ("FLOAT(7,2)", "1.5"), ("DOUBLE PRECISION", "-2.5e10"), ("REAL", "3"), ("DOUBLE(9,4)", "1"),
    ("BIT", "b'1'"), ("BIT(7)", "b'101'"), ("BIT(64)", "5"),
)  # fmt: skip
TIMES: Final = (
    ("YEAR", "2024"), ("DATE", "'2024-02-29'"), ("TIME(2)", "'-01:02:03.25'"), ("TIME", "'838:59:59'"),
    ("DATETIME", "'2024-02-29 01:02:03'"), ("DATETIME(4)", "'2024-02-29 01:02:03.25'"), ("DATETIME", EXPRESSION_DEFAULT),
    ("TIMESTAMP(1) NULL", "'2024-02-29 01:02:03.5'"), ("TIMESTAMP", ""), ("TIMESTAMP(6) NOT NULL", "CURRENT_TIMESTAMP(6)"),
)  # fmt: skip
TEXTS: Final = (
    ("CHAR(7)", "'ab'"), ("CHARACTER(3)", "''"), ("CHAR", "'x'"), ("NCHAR(5)", "'é'"), ("NATIONAL VARCHAR(9)", "'x'"),
    ("VARCHAR(30)", "'it''s é'"), ("CHARACTER VARYING(20)", "'NULL'"), ("CHAR VARYING(21)", "'a\\\\b'"),
    ("VARCHAR(300)", '"dq"'), ("NATIONAL CHARACTER VARYING(4)", "''"),
    ("TINYTEXT", ""), ("TEXT", ""), ("TEXT(60)", ""), ("TEXT(100)", ""), ("TEXT(20000)", ""), ("MEDIUMTEXT", ""),
    ("LONGTEXT", ""), ("LONG VARCHAR", ""), ("LONG", ""), ("ENUM('a','b,c','d''e','')", "'d''e'"), ("ENUM('x')", "'x'"),
    ("SET('x','y z')", "'x,y z'"),
)  # fmt: skip
BYTES: Final = (
    ("BINARY(5)", "'ab'"), ("BINARY", "0x41"), ("VARBINARY(20)", "X'00FF00'"), ("TINYBLOB", ""), ("BLOB", ""), ("BLOB(70000)", ""),
    ("LONG VARBINARY", ""), ("LONGBLOB", ""), ("JSON", ""), ("GEOMETRY", ""), ("POINT", ""), ("GEOMETRYCOLLECTION", ""),
    ("MULTIPOLYGON", ""), ("CHAR BYTE", ""), ("VARCHAR(8) CHARACTER SET binary", ""),
)  # fmt: skip
WIDE: Final = ("TEXT", "BLOB", "JSON", "GEOM", "POINT", "MULTI", "LONG", "VECTOR", "TINYBLOB", "TINYTEXT")


def quoted(name: str) -> str:
    """An identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


@dataclass
class Tally:
    """What happened. `differences` is empty when all agreed."""

    seed: int
    statements: int = 0
    refused: int = 0
    by_log: int = 0
    by_text: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    uncertain_defaults: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another run's statements in."""
        for name in ("statements", "refused", "by_log", "by_text", "uncertain_defaults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unknown.update(other.unknown)
        self.kinds.update(other.kinds)
        self.differences += other.differences

    @property
    def line(self) -> str:
        """The summary."""
        return (
            f"seed {self.seed}: {self.statements} statements ({self.refused} more refused by the server), "
            f"{self.by_log} versions from the log and {self.by_text} states from the text compared, "
            f"{sum(self.unknown.values())} times the text alone was said not to tell, "
            f"{self.uncertain_defaults} defaults said to be uncertain, {len(self.differences)} differences"
        )


class RandomStatements:
    """Makes statements on a table as the server has it now."""

    def __init__(self, seed: int, server: Database) -> None:
        self.random = random.Random(seed)
        self.server = server.name
        self.mariadb = server.flavour == "mariadb"
        self.renames_columns = server.name != "mysql57"
        # Members that a CONVERT could not hold are not what the server shows; and what it shows, or writes into TABLE_MAPs,
        # is wrong where members were converted from or to ucs2 and utf16 (MySQL 8.0.15: 'a' becomes '\\0a').
        members = (("ENUM('é','日  ')", ""),) if server.name == "mysql97" else ()
        self.types = (*members, *NUMBERS, *TIMES, *TEXTS, *TEXTS, *BYTES, *SERVER_TYPES.get(server.name, ()))
        wide = () if server.name == "mysql97" else ("ucs2", "utf16")
        self.charsets = tuple(name for name in CHARSETS if name not in wide)
        self.table = "t"
        self.made = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def new_name(self) -> str:
        self.made += 1
        return f"{self.random.choice(NAMES)}{self.made}"

    def written(self, name: str) -> str:
        """A name as somebody may write it: other letters, bare where that can be."""
        if self.chance(0.2):
            name = name.swapcase() if name.isascii() else name
        if name.isalnum() and name.isascii() and name.lower() != "select" and self.chance(0.3):
            return name
        return quoted(name)

    def definition(self) -> str:
        kind, default = self.random.choice(self.types)
        text = kind
        is_text = (kind, default) in TEXTS
        if is_text and not kind.startswith("N") and self.chance(0.35):
            text += self.random.choice(
                [
                    f" CHARACTER SET {self.random.choice(self.charsets)}",
                    f" CHARSET {self.random.choice(self.charsets)}",
                    f" COLLATE {self.random.choice(COLLATIONS)}",
                    " CHARACTER SET latin1 COLLATE latin1_general_cs",
                    " BINARY",
                    " CHARACTER SET utf8mb4 BINARY",
                    " ASCII",
                    " UNICODE" if "ucs2" in self.charsets else " ASCII",
                ]
            )
        if "NULL" not in kind:
            text += self.random.choice(["", "", " NULL", " NOT NULL"])
        if default and self.chance(0.6):
            text += f" DEFAULT {default}"
        elif self.chance(0.05) and "NOT NULL" not in text:
            text += " DEFAULT NULL"
        if self.chance(0.04) and not kind.startswith(WIDE):
            text += " UNIQUE"
        if self.mariadb and self.chance(0.05) and "NOT NULL" not in text:
            text += " INVISIBLE"
        return text + self.random.choice(COMMENTS)

    def generated(self, columns: list[str]) -> str:
        source = quoted(self.random.choice(columns))
        kind = self.random.choice(["VARCHAR(300)", "TEXT", "CHAR(20) CHARACTER SET latin1"])
        stored = self.random.choice(["", " VIRTUAL", " STORED"])
        words = self.random.choice(["AS", "GENERATED ALWAYS AS"])
        return f"{kind} {words} (CONCAT({source}, ', x)')){stored}"

    def place(self, columns: list[str]) -> str:
        return self.random.choice(["", "", " FIRST", f" AFTER {self.written(self.random.choice(columns))}"])

    def statement(self, state: TableState) -> str:
        """A statement on the table, usually an ALTER of one to four clauses."""
        table = quoted(self.table)
        if self.chance(0.05):
            return self.other(state)
        count = self.random.choice([1, 1, 1, 2, 2, 3, 4])
        columns = [column.name for column in state.schema.columns]
        clauses = []
        busy: set[str] = set()
        for _ in range(count):
            free = [name for name in columns if name not in busy and name != "id"]
            clauses.append(self.clause(state, columns, free, busy))
        head = self.random.choice(["ALTER TABLE", "alter table", "/* x */ ALTER TABLE", "ALTER /*!50000 TABLE*/"])
        if self.mariadb and self.chance(0.1):
            head = "ALTER ONLINE TABLE IF EXISTS" if self.chance(0.2) else "ALTER TABLE IF EXISTS"
        tail = self.random.choice(["", "", "", " # done", " -- done", ", ALGORITHM=COPY", ", LOCK=DEFAULT"])
        return f"{head} {table} {self.random.choice([', ', ','])[:2].join(clauses)}{tail}"

    def clause(self, state: TableState, columns: list[str], free: list[str], busy: set[str]) -> str:
        kinds = ["add"] * 5 + ["key"] * 2 + ["table", "convert", "drop_key", "default"]
        if len(free) > 1:
            kinds += ["drop", "modify", "modify", "change", "change", "rename"]
        if len(columns) > 12:
            kinds += ["drop"] * 8
        kind = self.random.choice(kinds)
        if kind == "rename" and not self.renames_columns:
            kind = "add"
        made = {
            "add": lambda: self.add(columns),
            "key": lambda: self.key(columns),
            "table": self.table_option,
            "convert": self.convert,
            "drop_key": lambda: self.drop_key(state),
        }.get(kind)
        return self.column_clause(kind, columns, free, busy) if made is None else made()

    def column_clause(self, kind: str, columns: list[str], free: list[str], busy: set[str]) -> str:
        """A clause on one existing column."""
        if not free:
            return f"COMMENT='{self.made}, (x'"
        name = self.random.choice(free)
        busy.add(name)
        others = [column for column in columns if column not in busy] or columns
        if kind == "drop":
            return f"DROP {self.random.choice(['', 'COLUMN '])}{self.exists()}{self.written(name)}"
        if kind == "modify":
            definition = self.definition()
            return f"MODIFY {self.random.choice(['', 'COLUMN '])}{self.exists()}{self.written(name)} {definition}{self.place(others)}"
        if kind == "change":
            new = self.new_name()
            return f"CHANGE {self.random.choice(['', 'COLUMN '])}{self.written(name)} {quoted(new)} {self.definition()}{self.place(others)}"
        if kind == "rename":
            return f"RENAME COLUMN {self.written(name)} TO {quoted(self.new_name())}"
        if name.startswith("generated"):  # MariaDB lets one set its default, and does nothing
            return f"DROP {self.written(name)}"
        if self.chance(0.5):
            return f"ALTER {self.random.choice(['', 'COLUMN '])}{self.written(name)} DROP DEFAULT"
        literal = self.random.choice(["5", "'5'", "NULL", "'2020-01-01'", "''", "-1"])
        return f"ALTER {self.random.choice(['', 'COLUMN '])}{self.written(name)} SET DEFAULT {literal}"

    def exists(self) -> str:
        return "IF EXISTS " if self.mariadb and self.chance(0.15) else ""

    def add(self, columns: list[str]) -> str:
        if self.chance(0.1):
            parts = [f"{quoted(self.new_name())} {self.definition()}" for _ in range(self.random.randint(1, 3))]
            if self.chance(0.3):
                parts.append(f"KEY ({self.part(columns)})")
            return f"ADD COLUMN ({', '.join(parts)})"
        word = self.random.choice(["ADD", "ADD COLUMN", "add column"])
        if self.mariadb and self.chance(0.1):
            old = self.random.choice(columns) if self.chance(0.5) else self.new_name()
            return f"ADD COLUMN IF NOT EXISTS {quoted(old)} {self.definition()}"
        if self.chance(0.08):
            return f"{word} {quoted('generated ' + self.new_name())} {self.generated(columns)}{self.place(columns)}"
        return f"{word} {quoted(self.new_name())} {self.definition()}{self.place(columns)}"

    def part(self, columns: list[str]) -> str:
        text = quoted(self.random.choice(columns))
        if self.chance(0.4):
            text += f"({self.random.randint(1, 12)})"
        return text + self.random.choice(["", "", " ASC", " DESC"])

    def key(self, columns: list[str]) -> str:
        parts = ", ".join(self.part(columns) for _ in range(self.random.choice([1, 1, 2])))
        name = self.random.choice(["", "", quoted(f"k{self.made}"), quoted("odd, (name")])
        if self.chance(0.15):
            return f"ADD {self.random.choice(['', 'CONSTRAINT ', 'CONSTRAINT `p` '])}PRIMARY KEY ({parts})"
        if self.chance(0.6):
            head = self.random.choice(["", "CONSTRAINT ", f"CONSTRAINT `u{self.made}` "])
            word = self.random.choice(["UNIQUE", "UNIQUE KEY", "UNIQUE INDEX"])
            return f"ADD {head}{word} {name} ({parts})"
        return f"ADD {self.random.choice(['INDEX', 'KEY'])} {name} {self.random.choice(['', 'USING BTREE '])}({parts})"

    def drop_key(self, state: TableState) -> str:
        if not state.keys:
            return "ENGINE=InnoDB"
        key = self.random.choice(state.keys)
        if key.name == "PRIMARY":
            return "DROP PRIMARY KEY"
        if self.chance(0.3) and self.server != "mysql57" and (not self.mariadb or self.chance(0.5)):
            return f"RENAME INDEX {quoted(key.name)} TO {quoted('r' + str(self.made))}"
        return f"DROP {self.random.choice(['INDEX', 'KEY'])} {quoted(key.name)}"

    def convert(self) -> str:
        if self.chance(0.3):
            return f"CONVERT TO CHARACTER SET {self.random.choice(('utf8mb4 COLLATE utf8mb4_bin', 'latin1 COLLATE latin1_bin'))}"
        return f"CONVERT TO {self.random.choice(['CHARACTER SET', 'CHARSET'])} {self.random.choice(self.charsets)}"

    def table_option(self) -> str:
        return self.random.choice(
            [
                f"DEFAULT CHARACTER SET {self.random.choice(self.charsets)}",
                f"CHARSET={self.random.choice(self.charsets)} COMMENT='charset=latin1, x'",
                f"DEFAULT CHARSET = {self.random.choice(self.charsets)} ROW_FORMAT=DYNAMIC",
                f"COLLATE {self.random.choice(COLLATIONS)}",
                "COMMENT 'COLLATE latin1_bin'",
                "AUTO_INCREMENT = 77",
                "FORCE",
            ]
        )

    def other(self, state: TableState) -> str:
        columns = [column.name for column in state.schema.columns]
        old = quoted(self.table)
        kind = self.random.choice(["rename", "index", "drop_index", "create"])
        if kind == "index":
            unique = self.random.choice(["", "UNIQUE "])
            return f"CREATE {unique}INDEX {quoted(f'x{self.made}')} ON {old} ({self.part(columns)})"
        named = [key.name for key in state.keys if key.name != "PRIMARY"]
        if kind == "drop_index" and named:
            return f"DROP INDEX {quoted(self.random.choice(named))} ON {old}"
        self.made += 1
        new = self.random.choice([f"t{self.made}", f"T {self.made}"])
        if kind == "create":
            self.table = new
            return f"CREATE TABLE {quoted(new)} ({self.body()}){self.random.choice(['', ' DEFAULT CHARSET=latin1', ' COLLATE utf8mb4_bin'])}"
        self.table = new
        if self.chance(0.3):
            return f"CREATE TABLE {quoted(new)} LIKE {old}"
        return self.random.choice([f"RENAME TABLE {old} TO {quoted(new)}", f"ALTER TABLE {old} RENAME TO {quoted(new)}"])

    def body(self) -> str:
        parts = ["id INT AUTO_INCREMENT" + self.random.choice([" PRIMARY KEY", ", PRIMARY KEY (id)", " UNIQUE"])]
        parts += [f"{quoted(self.new_name())} {self.definition()}" for _ in range(self.random.randint(1, 4))]
        if self.chance(0.3):
            parts.append("UNIQUE KEY (id)")
        return ", ".join(parts)


class Fuzzer:
    """Runs random statements on one server, in one schema of it, and compares after each."""

    def __init__(self, server: Database, schema: str, seed: int) -> None:
        self.server, self.schema = server, schema
        self.make = RandomStatements(seed, server)
        self.tally = Tally(seed)
        self.user = server.connect(database=schema)
        self.reader = server.connect()
        for connection in (self.user, self.reader):
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION sql_mode = ''")
        with self.reader.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
        self.rules = read_rules(self.reader)
        self.catalog = Catalog(self._connect, server.flavour)
        self.state: TableState | None = None
        self.before: TableState | None = None
        self.last = ""
        self.statements: list[str] = []

    def close(self) -> None:
        self.user.close()
        self.reader.close()

    def _connect(self) -> Any:
        connection = self.server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        return connection

    def run(self, statements: int) -> Tally:
        """Until that many statements were accepted."""
        self.execute("SET SESSION time_zone = '+05:30'")
        self.step(f"CREATE TABLE `t` ({self.make.body()}) DEFAULT CHARSET=utf8mb4")
        while self.tally.statements < statements and len(self.tally.differences) < 20:
            table = self.make.table
            facts = read_table_facts(self.reader, self.schema, table)
            assert facts is not None
            if self.make.chance(0.02):
                self.execute("SET SESSION sql_mode = " + self.make.random.choice(["''", "''", "'ANSI_QUOTES'"]))
            if not self.step(self.make.statement(facts.state)):
                self.make.table = table
        return self.tally

    def execute(self, statement: str) -> bool:
        try:
            with self.user.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.MySQLError:
            return False
        return True

    def step(self, statement: str) -> bool:
        """One statement, rows, and all comparisons; whether the server accepted it."""
        self.last = statement
        self.statements.append(statement)
        place = end_of_log(self.user)
        if not self.execute(statement):
            self.tally.refused += 1
            return False
        self.tally.statements += 1
        self.tally.kinds[" ".join(statement.split()[:2]).upper()] += 1
        self.write_rows()
        self.compare(statement, place)
        return True

    def write_rows(self) -> None:
        table = quoted(self.make.table)
        if self.make.chance(0.5):
            self.execute(f"DELETE FROM {table}")
        for _ in range(self.make.random.randint(1, 3)):
            self.execute(f"INSERT INTO {table} () VALUES ()")
        if self.make.chance(0.4):
            self.execute(f"UPDATE {table} SET id = id + 100")

    def compare(self, statement: str, place: LogPlace) -> None:
        facts = read_table_facts(self.reader, self.schema, self.make.table)
        assert facts is not None
        if facts.refusal or facts.unsupported:  # such a table is not captured: go on with another
            self.state = None
            self.tally.unknown["a table that is refused"] += 1
            self.make.made += 1
            self.make.table = f"t{self.make.made}"
            assert self.execute(f"CREATE TABLE {quoted(self.make.table)} (id INT PRIMARY KEY) CHARSET latin1")
            return
        version = None
        for event in events_since(place):
            if isinstance(event, TableMap):
                if event.table == self.make.table:
                    version = self.catalog.version_of(event)
            else:
                changes = parse_ddl(event, self.schema, self.server.flavour)
                self.catalog.apply(changes)
                for change in changes:
                    self.apply(change)
        if version is not None:
            self.tally.by_log += 1
            self.judge("log", statement, version.schema, facts.schema, frozenset())
        if self.state is None:
            self.state = facts.state
            return
        self.state = from_document(decode(CatalogDocument, encode(to_document(self.state))))
        self.tally.by_text += 1
        self.tally.uncertain_defaults += len(self.state.uncertain)
        state = self.state
        self.judge("text", statement, state.schema, facts.schema, state.uncertain)
        told = (state.charset, _collation(state.collation), _keys(state.keys))
        real = (facts.charset, _collation(facts.collation), _keys(facts.keys))
        if told != real:
            self.differ("text", statement, f"{told}\n  but the server {real}\n  from {self.before}")

    def apply(self, change: DdlChange) -> None:
        """The change on our state, by its text alone."""
        if change.kind == "other":
            return
        found: TableState | Unknown
        if change.kind == "rename":
            if self.state is not None:
                self.state = renamed(self.state, change.new_database, change.new_table)
            return
        if change.kind == "create":
            copied = change.clauses and type(change.clauses[0]).__name__ == "Copy"
            if copied and self.state is not None:
                self.state = renamed(self.state, change.database, change.table)
                return
            charset = "utf8mb4"
            found = created(change.database, change.table, change.clauses, self.rules, charset, self.rules.collations[charset])
        elif self.state is None:
            return
        else:
            self.before = self.state
            found = altered(self.state, change.clauses, self.rules)
        if isinstance(found, Unknown):
            self.tally.unknown[found.why] += 1
            self.state = None
        else:
            self.state = found

    def judge(
        self, who: str, statement: str, told: TableSchema, real: TableSchema, uncertain: frozenset[str]
    ) -> None:
        ours, theirs = comparable(told, uncertain), comparable(real, uncertain)
        if ours != theirs:
            parts = [
                f"{mine}\n  but the server {other}"
                for mine, other in zip(ours["columns"], theirs["columns"], strict=False)
                if mine != other
            ]
            keys = f"keys {ours['keys']} {theirs['keys']} columns {len(ours['columns'])} {len(theirs['columns'])}"
            self.differ(who, statement, "\n  ".join([*parts, keys]))

    def differ(self, who: str, statement: str, what: str) -> None:
        self.tally.differences.append(f"by the {who} after {statement}:\n  {what}")
        self.tally.differences[-1] += "\n  before that: " + "\n  ".join(self.statements[-9:-1])
        if who == "text":
            self.state = None


def comparable(schema: TableSchema, uncertain: frozenset[str]) -> dict[str, Any]:
    """A schema with defaults as records carry them, and character sets by one of their two names."""
    return {
        "name": (schema.database, schema.name),
        "columns": [_comparable(column, has_default=column.name not in uncertain) for column in schema.columns],
        "keys": (schema.primary_key, schema.unique_key),
    }


def _comparable(column: Column, *, has_default: bool) -> tuple[Column, Any]:
    """A default of NULL, said or not, is none: records have the same for both."""
    says_default = column.has_default and (column.default is not None or column.default_is_expression)
    bare = replace(
        column,
        default=None,
        has_default=has_default and says_default,
        default_is_expression=has_default and column.default_is_expression,
        collation=_collation(column.collation),
    )
    return bare, column_default(column) if has_default else None


def _keys(keys: tuple[Key, ...]) -> list[Key]:
    """By name (the record key shows which comes first); of a prefix only whether there is one, in unique indexes."""
    plain = [
        Key(
            key.name,
            key.unique,
            tuple(KeyPart(part.column, int(key.unique and part.prefix > 0)) for part in key.parts),
        )
        for key in keys
    ]
    return sorted(plain, key=lambda key: key.name)


def _collation(name: str | None) -> str | None:
    return f"utf8mb3{name[4:]}" if name is not None and name.startswith("utf8_") else name


def fuzz(server: Database, schema: str, seed: int, statements: int, say: Callable[[str], None] = print) -> Tally:
    """Run and report."""
    fuzzer = Fuzzer(server, schema, seed)
    with closing(fuzzer):
        try:
            tally = fuzzer.run(statements)
        except TidemarkError as error:
            if not isinstance(error, RetriableSourceError):
                fuzzer.tally.differences.append(f"{error} after {fuzzer.last}")
                say("\n".join([*fuzzer.statements[-12:], *fuzzer.tally.differences]))
                return fuzzer.tally
            deadline = time.monotonic() + 30
            while server.running:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            tally = fuzzer.tally  # a statement ended the server (MySQL 8.0.15 has such bugs)
            say(f"the server ended over {fuzzer.last}")
    for difference in tally.differences:
        say(difference)
    return tally


def main(arguments: list[str]) -> int:
    """The long form."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    name, wanted = arguments[0], int(arguments[1])
    seed = int(arguments[2]) if len(arguments) > 2 else random.SystemRandom().randrange(1 << 32)
    total = Tally(seed)
    while total.statements < wanted and not total.differences:
        with (
            tempfile.TemporaryDirectory(prefix="tidemark-fuzz-") as folder,
            start_database(name, Path(folder)) as server,
        ):
            while total.statements < wanted and not total.differences and server.running:
                with server.connect() as connection, connection.cursor() as cursor:
                    cursor.execute(f"CREATE DATABASE fuzz{seed} CHARACTER SET utf8mb4")
                total.add(fuzz(server, f"fuzz{seed}", seed, min(PORTION, wanted - total.statements)))
                seed += 1
    for why, count in total.unknown.most_common():
        print(f"  {count} x unknown: {why}")
    print(f"fuzz-ddl: {name}: {total.line}")
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
