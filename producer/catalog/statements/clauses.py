"""What one DDL statement asks for, clause by clause, as the text has it: no effects, no judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from producer.catalog.statements.column_definition import ColumnDefinition

FIRST = ""
"""The place of a column before all others; other places name the column before it, None = where it was or the end."""


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN, and each column of a CREATE TABLE. `conditional`: IF NOT EXISTS."""

    definition: ColumnDefinition
    after: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """MODIFY and CHANGE: the column `name` is defined anew. `conditional`: IF EXISTS."""

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
class KeyPart:
    """A column of an index, and how many of its first characters; "" = an expression, 0 = the whole column."""

    column: str
    prefix: int = 0


@dataclass(frozen=True, slots=True)
class AddKey:
    """An index. `name` is "" where the server chooses it. `conditional`: IF NOT EXISTS.

    `new_column` is set for an index of a column added IF NOT EXISTS: there is no index where there is no new column, or
    the text does not tell.
    """

    kind: Literal["primary", "unique", "other"]
    name: str
    parts: tuple[KeyPart, ...]
    conditional: bool = False
    new_column: str = ""


@dataclass(frozen=True, slots=True)
class DropKey:
    """DROP INDEX, PRIMARY KEY or CONSTRAINT (which may be no index: then there is none of that name)."""

    name: str


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
    """The character set of columns that name none; either may be unsaid."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class DatabaseCharset:
    """CREATE and ALTER DATABASE: the character set of tables that name none; `None, None` = the server's, or as before."""

    database: str
    charset: str | None
    collation: str | None
    is_new: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """CREATE TABLE ... LIKE."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """CREATE TRIGGER: it changes no table, and tells who keeps a copy of one up."""

    name: str
    database: str
    table: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Something that may change columns, and is not understood."""

    what: str


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
    | DatabaseCharset
    | Copy
    | Trigger
    | Unclear
)
