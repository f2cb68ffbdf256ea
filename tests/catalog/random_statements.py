"""Random DDL statements on one table, as somebody may write them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from devservers import Database
from producer.catalog.model import CatalogTable

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
        self.schema = ""
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

    def column(self, name: str) -> str:
        """A column as somebody may write it in a clause, with its table and database where the server accepts that."""
        if not (self.mariadb or self.server == "mysql57") or self.chance(0.8):
            return self.written(name)
        dot = self.random.choice([".", ".", " . ", "./* x.y */"])
        database = self.random.choice(["", f"{quoted(self.schema)}{dot}"]) if self.schema else ""
        return f"{database}{quoted(self.table)}{dot}{quoted(name)}"

    def definition(self) -> str:
        kind, default = self.random.choice(self.types)
        text: str = kind
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

    def position(self, columns: list[str]) -> str:
        return self.random.choice(["", "", " FIRST", f" AFTER {self.written(self.random.choice(columns))}"])

    def statement(self, state: CatalogTable) -> str:
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
        tail = self.random.choice(["", "", "", " # done", " -- done", ", ALGORITHM=COPY", ", LOCK=DEFAULT", " /*! , ALGORITHM=COPY */", ";"])
        if self.mariadb and self.chance(0.05):
            table += self.random.choice([" WAIT 3", " NOWAIT"])
        return f"{head} {table} {self.random.choice([', ', ','])[:2].join(clauses)}{tail}"

    def clause(self, state: CatalogTable, columns: list[str], free: list[str], busy: set[str]) -> str:
        kinds = ["add"] * 5 + ["key"] * 2 + ["table", "convert", "drop_key", "default"]
        if len(free) > 1:
            kinds += ["drop", "modify", "modify", "change", "change", "rename"]
        if len(columns) > 12:
            kinds += ["drop"] * 8
        kind = self.random.choice(kinds)
        if kind == "rename" and not self.renames_columns:
            kind = "add"
        makers: dict[str, Callable[[], str]] = {
            "add": lambda: self.add(columns),
            "key": lambda: self.key(columns),
            "table": self.table_option,
            "convert": self.convert,
            "drop_key": lambda: self.drop_key(state),
        }
        made = makers.get(kind)
        return self.column_clause(kind, columns, free, busy) if made is None else made()

    def column_clause(self, kind: str, columns: list[str], free: list[str], busy: set[str]) -> str:
        """A clause on one existing column."""
        if not free:
            return f"COMMENT='{self.made}, (x'"
        name = self.random.choice(free)
        busy.add(name)
        others = [column for column in columns if column not in busy] or columns
        if kind == "drop":
            drop = f"DROP {self.random.choice(['', 'COLUMN '])}{self.exists()}{self.column(name)}"
            if self.chance(0.15):
                return f"{drop}, ADD {quoted(name)} {self.definition()}{self.position(others)}"
            tails = ["", "", " RESTRICT", " CASCADE"] if self.mariadb or self.server in ("mysql57", "mysql80") else [""]
            return f"{drop}{self.random.choice(tails)}"
        if kind == "modify":
            definition = self.definition()
            return f"MODIFY {self.random.choice(['', 'COLUMN '])}{self.exists()}{self.column(name)} {definition}{self.position(others)}"
        if kind == "change":
            new = self.new_name()
            return f"CHANGE {self.random.choice(['', 'COLUMN '])}{self.column(name)} {quoted(new)} {self.definition()}{self.position(others)}"
        if kind == "rename":
            return f"RENAME COLUMN {self.written(name)} TO {quoted(self.new_name())}"
        return self.default_clause(name)

    def default_clause(self, name: str) -> str:
        """A clause on the default of a column."""
        if name.startswith("generated"):  # MariaDB lets one set its default, and does nothing
            return f"DROP {self.written(name)}"
        if self.chance(0.5):
            return f"ALTER {self.random.choice(['', 'COLUMN '])}{self.column(name)} DROP DEFAULT"
        literal = self.random.choice(["5", "'5'", "NULL", "'2020-01-01'", "''", "-1"])
        return f"ALTER {self.random.choice(['', 'COLUMN '])}{self.column(name)} SET DEFAULT {literal}"

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
            return f"{word} {quoted('generated ' + self.new_name())} {self.generated(columns)}{self.position(columns)}"
        return f"{word} {quoted(self.new_name())} {self.definition()}{self.position(columns)}"

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

    def drop_key(self, state: CatalogTable) -> str:
        if not state.keys:
            return "ENGINE=InnoDB"
        key = self.random.choice(state.keys)
        if key.name == "PRIMARY":
            return "DROP PRIMARY KEY"
        if self.chance(0.3) and self.server != "mysql57" and (not self.mariadb or self.chance(0.5)):
            return f"RENAME INDEX {quoted(key.name)} TO {quoted('r' + str(self.made))}"
        word = self.random.choice(["INDEX", "KEY", "CONSTRAINT"] if self.mariadb and key.unique else ["INDEX", "KEY"])
        return f"DROP {word} {self.exists()}{quoted(key.name)}"

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

    def other(self, state: CatalogTable) -> str:
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
        renames = [f"RENAME TABLE {old} TO {quoted(new)}", f"ALTER TABLE {old} RENAME TO {quoted(new)}"]
        renames += [f"ALTER TABLE {old} RENAME {word}{quoted(new)}, ALGORITHM=COPY" for word in ("", "AS ", "= ")]
        if self.mariadb:
            renames.append(f"RENAME TABLE IF EXISTS {old} WAIT 5 TO {quoted(new)}")
        return self.random.choice(renames)

    def body(self) -> str:
        parts = ["id INT AUTO_INCREMENT" + self.random.choice([" PRIMARY KEY", ", PRIMARY KEY (id)", " UNIQUE"])]
        parts += [f"{quoted(self.new_name())} {self.definition()}" for _ in range(self.random.randint(1, 4))]
        if self.chance(0.3):
            parts.append("UNIQUE KEY (id)")
        return ", ".join(parts)
