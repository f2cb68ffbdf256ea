"""What one DDL statement asks for, clause by clause, as the text has it: no effects, no judgement.

Character sets are as written, in small letters (`utf8`); `charset_name` gives the server's name. Names of databases and
tables are as the server stores them. `None` as the position of a column means: where it was, or at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from mysqlio.definitions.table_parts import KeyPart

if TYPE_CHECKING:
    from mysqlio.definitions.column_definition import ColumnDefinition

FIRST = ""
"""The position of a column before all others. Other positions name the column before it."""


class TableRef(NamedTuple):
    """A table that a statement names; `text` is the name as written, with its quotes."""

    database: str
    table: str
    text: str = ""

    @property
    def name(self) -> tuple[str, str]:
        """(database, table)."""
        return self.database, self.table


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN, and each column of a CREATE TABLE. `conditional`: IF NOT EXISTS."""

    definition: ColumnDefinition
    after: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """MODIFY and CHANGE: a new definition of the column `name`. `conditional`: IF EXISTS."""

    name: str
    definition: ColumnDefinition
    after: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN. `conditional`: IF EXISTS."""

    name: str
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN. `conditional`: IF EXISTS."""

    name: str
    new_name: str
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT, and DROP DEFAULT where the definition has none."""

    definition: ColumnDefinition
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class AddKey:
    """An index. `name` is "" where the server chooses it. `conditional`: IF NOT EXISTS.

    `new_column` is set for an index of a column added IF NOT EXISTS: without a new column there is no index, or the text does
    not say.
    """

    kind: Literal["primary", "unique", "other"]
    name: str
    parts: tuple[KeyPart, ...]
    conditional: bool = False
    new_column: str = ""


@dataclass(frozen=True, slots=True)
class DropKey:
    """DROP INDEX, PRIMARY KEY or CONSTRAINT (which may be no index: then there is none of that name).

    `says_primary_key` marks DROP PRIMARY KEY; the same index can be dropped by its name PRIMARY.
    """

    name: str
    says_primary_key: bool = False


@dataclass(frozen=True, slots=True)
class RenameKey:
    """RENAME INDEX."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class Convert:
    """CONVERT TO CHARACTER SET; `charset` None = the database's."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class TableCharset:
    """The character set of columns that name none; the text may leave out either."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class TableComment:
    """The comment of a table, "" for one that is removed."""

    text: str


@dataclass(frozen=True, slots=True)
class DatabaseCharset:
    """CREATE and ALTER DATABASE: the character set of tables that name none; `None, None` = the server's, or as before.

    With `is_unclear`, the text has more than that, and the character set is not known.
    """

    database: str
    charset: str | None
    collation: str | None
    is_new: bool
    is_unclear: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """CREATE TABLE ... LIKE."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class FromQuery:
    """CREATE TABLE ... SELECT: columns and rows come from a query."""


@dataclass(frozen=True, slots=True)
class RenameTable:
    """ALTER TABLE ... RENAME."""

    table: TableRef


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Clauses on partitions and tablespaces that remove or replace stored rows.

    `other` is the table on the other side, if there is one: rows of it change, too, or it becomes a partition and `is_gone`.
    """

    other: TableRef | None = None
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class SystemVersioning:
    """ADD and DROP SYSTEM VERSIONING, DROP PERIOD (MariaDB)."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """CREATE TRIGGER: it changes no table. Its name says whether a tool keeps a copy of the table complete."""

    name: str
    database: str
    table: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A part of the statement that may change columns, and is not understood.

    With `names_tables`, any table that the text may name can take part in it.
    """

    what: str
    names_tables: bool = False


Clause: TypeAlias = (
    AddColumn
    | ChangeColumn
    | DropColumn
    | RenameColumn
    | SetDefault
    | AddKey
    | DropKey
    | RenameKey
    | Convert
    | TableCharset
    | TableComment
    | DatabaseCharset
    | Copy
    | FromQuery
    | RenameTable
    | ChangeRows
    | SystemVersioning
    | Trigger
    | Unclear
)
_AnyClause = TypeVar("_AnyClause")

StatementKind = Literal[
    "create_table",
    "alter_table",
    "drop_tables",
    "rename_tables",
    "truncate",
    "create_index",
    "drop_index",
    "create_trigger",
    "create_temporary",
    "drop_temporary",
    "create_database",
    "alter_database",
    "drop_database",
    "unclear",
    "other",
]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, of the text `sql`. `tables` are those it names, in its order; `new_tables` are their new names (RENAME TABLE).

    `database` is that of the statement: the default one, or the one that it creates, alters or drops. `conditional` marks IF
    NOT EXISTS; `replaces` OR REPLACE; `ignores` ALTER IGNORE; `may_have_rows` a CREATE TABLE with an engine whose tables can
    have rows at once, which the log does not show (MERGE, FEDERATED, CONNECT and others). The kind "unclear" is a text that is
    not read to its end, "other" all that changes no table and no database. `suspects` are tables that a part of the text which
    is not understood may name; a name without a table is a database, with all its tables.
    """

    kind: StatementKind
    database: str
    tables: tuple[TableRef, ...] = ()
    new_tables: tuple[TableRef, ...] = ()
    clauses: tuple[Clause, ...] = ()
    conditional: bool = False
    replaces: bool = False
    ignores: bool = False
    may_have_rows: bool = False
    suspects: tuple[TableRef, ...] = ()
    sql: str = ""

    def of(self, kind: type[_AnyClause]) -> Iterator[_AnyClause]:
        """Yield the clauses of one kind."""
        return (clause for clause in self.clauses if isinstance(clause, kind))
