"""What a table becomes by DDL text alone: the last known state and a statement's clauses enter, a state leaves.

For logs whose TABLE_MAPs do not name columns (MySQL 5.7, `binlog_row_metadata` MINIMAL and NO_LOG). Pure. Where the
text does not say it (a query's columns, a character set it takes from the database, words not known here) the
answer is `Unknown`, with the reason; nothing is guessed.

The rules are the servers' own (`mysql_prepare_alter_table`, `sort_keys` and `mysql_prepare_create_table` of MySQL 5.7
to 9 and MariaDB): all clauses of an ALTER are about the table before it, positions name columns by their new names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from mysqlio.definitions.character_sets import (
    BINARY,
    BYTES_PER_CHARACTER,
    SUPPORTED,
    charset_name,
    charset_of_collation,
)
from mysqlio.definitions.column_definition import ColumnDefinition
from mysqlio.definitions.column_types import default_text, is_exact, to_column
from mysqlio.definitions.table_parts import Key, KeyPart, Rules
from producer.catalog.index_rules import as_stored, free_name, in_server_order, kept_prefix, require_columns
from producer.catalog.model import PRIMARY, CatalogTable, UnclearError, keyed
from producer.catalog.statements.clauses import (
    FIRST,
    AddColumn,
    AddKey,
    ChangeColumn,
    ChangeRows,
    Clause,
    Convert,
    Copy,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameKey,
    RenameTable,
    SetDefault,
    SystemVersioning,
    TableCharset,
    TableComment,
    Unclear,
)
from schemas.columns import Column, TableSchema
from schemas.types.column_facts import (
    BINARY_TYPES,
    FACTS,
    LARGE_BINARIES,
    LARGE_TEXTS,
    MEMBER_TYPES,
    TEXT_TYPES,
    TO_BINARY,
    Semantic,
    semantic_of,
    sized,
)

_VARCHAR_BYTES: Final = 65535
_SIZED: Final = LARGE_TEXTS[:-1] + LARGE_BINARIES[:-1]
_AnyClause = TypeVar("_AnyClause")


@dataclass(frozen=True, slots=True)
class Unknown:
    """The text does not say what the table becomes. `why` completes "... because of"."""

    why: str


def created(
    database: str, table: str, clauses: Sequence[Clause], rules: Rules, charset: str = "", collation: str = ""
) -> CatalogTable | Unknown:
    """Return the table that a CREATE TABLE makes; `charset` and `collation` are the database's, "" where not known."""
    state = CatalogTable(TableSchema(database, table, ()), charset, collation, ())
    made = altered(state, clauses, rules)
    return made if isinstance(made, Unknown) else replace(made, unshown=frozenset())


def altered(state: CatalogTable, clauses: Sequence[Clause], rules: Rules) -> CatalogTable | Unknown:
    """Return the table after the clauses of one statement."""
    try:
        return _Alteration(state, clauses, rules).result()
    except UnclearError as unclear:
        return Unknown(str(unclear))


def keeps_dropped_default(column: Column, flavour: str) -> bool:
    """MariaDB's ALTER COLUMN ... DROP DEFAULT leaves a CURRENT_TIMESTAMP where it is."""
    text = str(column.default).upper()
    return flavour == "mariadb" and column.default_is_expression and text.startswith("CURRENT_TIMESTAMP")


class _Alteration:
    """One statement on one table."""

    def __init__(self, state: CatalogTable, clauses: Sequence[Clause], rules: Rules) -> None:
        self._state = state
        self._clauses = clauses
        self._rules = rules
        self._charset, self._collation = state.charset, state.collation
        self._convert: tuple[str, str] | None = None
        self._uncertain = {name.lower() for name in state.uncertain}
        self._without_default: set[int] = set()
        self._origins: dict[int, str] = {}

    def result(self) -> CatalogTable:
        """Return the table after the statement; `UnclearError` where the text does not say it."""
        for unclear in self._of(Unclear):
            raise UnclearError(unclear.what)
        for _ in self._of(SystemVersioning):
            message = "system versioning"
            raise UnclearError(message)
        for clause in self._of(Copy):
            message = f"a copy of {clause.database}.{clause.table}"
            raise UnclearError(message)
        self._resolve_charsets()
        columns = self._columns()
        added = {clause.definition.name.lower() for clause in self._of(AddColumn)}
        unshown = {column.name.lower() for column in columns if self._origins[id(column)] in self._state.unshown | added}
        keys = self._keys(columns)
        columns = _with_required(columns, keys)
        keys = in_server_order(keys, columns)
        old = self._state.schema
        schema = keyed(TableSchema(old.database, old.name, tuple(columns)), keys)
        names = {column.name.lower(): column.name for column in columns}
        uncertain = frozenset(names[name] for name in self._uncertain if name in names)
        charset, collation = self._charset, self._collation
        return replace(
            self._state, schema=schema, charset=charset, collation=collation, keys=tuple(keys), uncertain=uncertain,
            unshown=frozenset(unshown),
        )  # fmt: skip

    def _of(self, kind: type[_AnyClause]) -> list[_AnyClause]:
        return [clause for clause in self._clauses if isinstance(clause, kind)]

    # ---- character sets

    def _resolve_charsets(self) -> None:
        said = ""
        for clause in self._of(TableCharset):
            self._charset, self._collation = self._resolved(clause.charset, clause.collation)
            if clause.collation is not None:
                said = self._collation
            elif said and self._rules.flavour == "mariadb" and charset_of_collation(said) == self._charset:
                self._collation = said  # COLLATE ..., CHARSET ...: MariaDB takes both, MySQL the last
        for convert in self._of(Convert):
            if len(self._of(TableCharset)) + len(self._of(Convert)) > 1:  # which of them wins differs
                message = "a conversion beside another one, or another character set of the table"
                raise UnclearError(message)
            if convert.charset is None:
                message = "CONVERT TO CHARACTER SET DEFAULT: the database's character set"
                raise UnclearError(message)
            self._convert = self._resolved(convert.charset, convert.collation)
            self._charset, self._collation = self._convert

    def _resolved(self, charset: str | None, collation: str | None) -> tuple[str, str]:
        """(character set, collation) of what was said; the table's where nothing was."""
        charset = None if charset is None else charset_name(charset)
        if charset is None and collation is not None:
            named = charset_of_collation(collation)
            charset = named if named in SUPPORTED or named == BINARY else self._charset
        if charset is None:
            if not self._charset:
                message = "a character set that is the database's"
                raise UnclearError(message)
            return self._charset, self._collation
        if charset not in SUPPORTED and charset != BINARY:
            message = f"the character set {charset}"
            raise UnclearError(message)
        if collation is None:
            return charset, self._rules.collations.get(charset, "")
        is_short = charset_of_collation(collation) not in (charset, BINARY)  # MariaDB's `COLLATE uca1400_ai_ci`
        return charset, f"{charset}_{collation}" if is_short else collation

    # ---- columns

    def _columns(self) -> list[Column]:
        drops = {clause.name.lower() for clause in self._of(DropColumn)}
        self._uncertain -= drops
        changes = {clause.name.lower(): clause for clause in self._of(ChangeColumn)}
        made = self._made()
        columns: list[Column] = []
        for column in self._state.schema.columns:
            name = column.name.lower()
            if name in drops:
                continue
            change = changes.get(name)
            kept = self._kept(column) if change is None else made[id(change)]
            self._origins[id(kept)] = name
            if change is None or change.after is None:
                columns.append(kept)
        known = {column.name.lower() for column in self._state.schema.columns}
        self._require(known, [clause for clause in self._clauses if isinstance(clause, _ON_COLUMNS)])
        for clause in self._clauses:
            if isinstance(clause, AddColumn):
                if clause.conditional and clause.definition.name.lower() in known:
                    continue
                self._origins[id(made[id(clause)])] = clause.definition.name.lower()
            elif not isinstance(clause, ChangeColumn) or clause.after is None or clause.name.lower() not in known:
                continue
            _insert(columns, made[id(clause)], clause.after)
        return self._with_first_timestamp(columns)

    def _with_first_timestamp(self, columns: list[Column]) -> list[Column]:
        """Return the columns; the first TIMESTAMP of all has the time of the insert, if it is new and its text says nothing."""
        first = next((column for column in columns if semantic_of(column) is Semantic.TIMESTAMP), None)
        if first is None or id(first) not in self._without_default:
            return columns
        column = replace(first, default="CURRENT_TIMESTAMP", default_is_expression=True)
        self._origins[id(column)] = self._origins[id(first)]
        return [column if one is first else one for one in columns]

    def _made(self) -> dict[int, Column]:
        """Return the columns with new definitions, by the identity of their clauses."""
        old_names = {column.name.lower() for column in self._state.schema.columns}
        for rename in self._of(RenameColumn):
            if rename.name.lower() in self._uncertain:
                self._uncertain.discard(rename.name.lower())
                self._uncertain.add(rename.new_name.lower())
        made = {}
        for clause in self._clauses:
            if not isinstance(clause, AddColumn | ChangeColumn):
                continue
            exists = clause.definition.name.lower() in old_names
            if isinstance(clause, AddColumn) and clause.conditional and exists:
                continue
            if isinstance(clause, ChangeColumn):
                if clause.conditional and clause.name.lower() not in old_names:
                    continue
                self._uncertain.discard(clause.name.lower())
            column = made[id(clause)] = self._defined(clause.definition)
            if isinstance(clause, ChangeColumn) and self._convert is not None and column.type in _SIZED:
                # MySQL 8.0 sizes it by the old column's length, and not always alike.
                message = f"the size of column {column.name}, changed and converted in one statement"
                raise UnclearError(message)
        return made

    @staticmethod
    def _require(known: set[str], clauses: Iterable[Any]) -> None:
        for clause in clauses:
            name = clause.definition.name if isinstance(clause, SetDefault) else clause.name
            if name.lower() not in known and not clause.conditional:
                message = f"the column {name}, which the last known state of the table does not have"
                raise UnclearError(message)

    def _kept(self, column: Column) -> Column:
        """Return a column that the statement does not define again."""
        name = column.name.lower()
        for clause in self._of(SetDefault):
            if clause.definition.name.lower() == name:
                column = self._with_default(column, clause.definition)
        for rename in self._of(RenameColumn):
            if rename.name.lower() == name:
                column = replace(column, name=rename.new_name)
        return column if self._convert is None else self._converted(column, *self._convert)

    def _with_default(self, column: Column, definition: ColumnDefinition) -> Column:
        if not definition.has_default and keeps_dropped_default(column, self._rules.flavour):
            return column
        text = default_text(definition, column)
        is_expression = definition.default_is_expression
        column = replace(
            column, default=text, has_default=definition.has_default, default_is_expression=is_expression
        )
        self._judge_default(column, definition)
        return column

    def _judge_default(self, column: Column, definition: ColumnDefinition) -> None:
        """Remember whether the text says the default's value for certain."""
        name = column.name.lower()
        self._uncertain.discard(name)
        if not column.has_default:
            if definition.compressed and not column.nullable:
                self._uncertain.add(name)
            return
        if column.default_is_expression:
            # MariaDB keeps an expression that is a literal as a literal; MySQL distinguishes them.
            is_certain = column.default is not None or self._rules.flavour != "mariadb"
        else:
            is_certain = is_exact(definition, column, self._rules.flavour)
        if not is_certain:
            self._uncertain.add(name)

    def _converted(self, column: Column, charset: str, collation: str) -> Column:
        if column.charset is None or column.charset == BINARY:
            return column
        old, new = BYTES_PER_CHARACTER[column.charset], BYTES_PER_CHARACTER.get(charset, 1)
        if column.type in LARGE_TEXTS:
            column = replace(column, type=sized(column.type, FACTS[column.type].size // old * new))
        if charset == BINARY:
            if column.type in MEMBER_TYPES:
                message = f"the column {column.name}, which becomes {column.type} of character set binary"
                raise UnclearError(message)
            return replace(column, type=TO_BINARY[column.type], charset=None, collation=None)
        return _within_a_varchar(replace(column, charset=charset, collation=collation))

    def _defined(self, definition: ColumnDefinition) -> Column:
        if not definition.understood:
            message = f"the definition of column {definition.name}, not all of which is understood"
            raise UnclearError(message)
        if definition.members_uncertain:
            message = f"the members of column {definition.name}, whose text depends on the session"
            raise UnclearError(message)
        plain = to_column(definition, None, self._rules.flavour)
        if plain is None:
            message = f"the type {definition.type_name} of column {definition.name}, which is not captured"
            raise UnclearError(message)
        resolved = copy.copy(definition)
        if plain.type in TEXT_TYPES or plain.type in MEMBER_TYPES:
            self._resolve_charset(resolved)
        column = to_column(resolved, None, self._rules.flavour)
        if column is None or (column.type in MEMBER_TYPES and column.charset == BINARY):
            message = f"the type of column {definition.name}, which is not captured"
            raise UnclearError(message)
        if column.type in BINARY_TYPES:
            column = replace(column, charset=None, collation=None)
        nullable = column.nullable
        if semantic_of(column) is Semantic.TIMESTAMP and definition.nullable is None:
            nullable = self._rules.explicit_timestamps or definition.generated
        column = replace(column, nullable=nullable and not definition.auto_increment)
        if definition.generated:
            column = replace(column, default=None, has_default=False, default_is_expression=False)
        self._judge_default(column, resolved)
        return _within_a_varchar(self._with_implicit_default(column, definition))

    def _resolve_charset(self, definition: ColumnDefinition) -> None:
        keeps_binary = definition.binary_collation and definition.charset is None
        if definition.type_name == "JSON":  # MariaDB's
            definition.charset, definition.collation = "utf8mb4", "utf8mb4_bin"
        else:
            collation = definition.collation
            if definition.binary_collation and collation is None:
                charset = definition.charset or self._resolved(None, None)[0]
                collation = None if charset == BINARY else f"{charset}_bin"
            definition.charset, definition.collation = self._resolved(definition.charset, collation)
        if self._convert is not None and definition.charset != BINARY:
            definition.charset, definition.collation = self._convert
            if keeps_binary:
                definition.collation = f"{definition.charset}_bin"

    def _with_implicit_default(self, column: Column, definition: ColumnDefinition) -> Column:
        """Return the default a TIMESTAMP gets that says nothing, where `explicit_defaults_for_timestamp` is off."""
        if semantic_of(column) is not Semantic.TIMESTAMP or self._rules.explicit_timestamps:
            return column
        if column.nullable or column.has_default or definition.generated:
            return column
        column = replace(column, has_default=True, default="0000-00-00 00:00:00")
        if not definition.on_update:
            self._without_default.add(id(column))
        return column

    # ---- keys

    def _keys(self, columns: Sequence[Column]) -> list[Key]:
        dropped = {clause.name.lower() for clause in self._of(DropKey)}
        new_names = {clause.name.lower(): clause.new_name for clause in self._of(RenameKey)}
        keys = []
        for key in self._state.keys:
            if key.name.lower() in dropped:
                continue
            parts = self._kept_parts(key, columns)
            if parts:
                keys.append(Key(new_names.get(key.name.lower(), key.name), key.unique, parts))
        old_names = {column.name.lower() for column in self._state.schema.columns}
        for clause in self._of(AddKey):
            if clause.new_column.lower() in old_names:
                if sum(not isinstance(other, _BESIDE) for other in self._clauses) > _COLUMN_AND_ITS_KEY:
                    message = f"the index of column {clause.new_column}, which was there before: IF NOT EXISTS beside other clauses"
                    raise UnclearError(message)
                continue
            taken = {key.name.lower() for key in keys}
            if clause.conditional and clause.name.lower() in taken:
                continue
            if clause.new_column and clause.kind == "primary" and PRIMARY.lower() in taken:
                continue  # MariaDB adds the column, and passes over the second primary key with a note
            parts = tuple(as_stored(part, columns) for part in clause.parts)
            name = PRIMARY if clause.kind == "primary" else clause.name or free_name(parts, taken)
            keys.append(Key(name, clause.kind != "other", parts))
        require_columns(keys, columns)
        return keys

    def _kept_parts(self, key: Key, columns: Sequence[Column]) -> tuple[KeyPart, ...]:
        """Return the parts of an index that are left when columns are dropped, renamed and defined again.

        A part is of the first column that was called so before, or is added under that name: `DROP c, ADD c` keeps it.
        """
        old = {column.name.lower(): column for column in self._state.schema.columns}
        drops = {clause.name.lower() for clause in self._of(DropColumn)}
        kept = []
        for part in key.parts:
            name = part.column.lower()
            column = next((one for one in columns if self._origins[id(one)] == name), None)
            if column is None and name:
                continue
            if column is not None and key.unique and name in drops and not _same_size(old.get(name), column):
                message = f"the index {key.name} of column {column.name}, which is dropped and added again as another one"
                raise UnclearError(message)
            prefix = kept_prefix(part.prefix, old.get(name), column)
            kept.append(as_stored(KeyPart("" if column is None else column.name, prefix), columns))
        return tuple(kept)


_COLUMN_AND_ITS_KEY: Final = 2
"""Clauses of `ADD COLUMN IF NOT EXISTS c ... UNIQUE` alone, which MariaDB passes over. Beside others it adds the index."""
_BESIDE: Final = (ChangeRows, RenameTable, TableComment)
_ON_COLUMNS: Final = (DropColumn, ChangeColumn, RenameColumn, SetDefault)


def _insert(columns: list[Column], column: Column, after: str | None) -> None:
    if after is None:
        columns.append(column)
    elif after == FIRST:
        columns.insert(0, column)
    else:
        indexes = [index for index, other in enumerate(columns) if other.name.lower() == after.lower()]
        if not indexes:
            message = f"the place of column {column.name} after {after}, a column that is not known"
            raise UnclearError(message)
        columns.insert(indexes[0] + 1, column)


def _same_size(one: Column | None, other: Column) -> bool:
    """Return whether an index of as many bytes is one of the whole column, or of as many characters, in both."""
    return one is not None and (one.type, one.length, one.charset) == (other.type, other.length, other.charset)


def _within_a_varchar(column: Column) -> Column:
    """Return the column, a TEXT for a VARCHAR of more than 65,535 bytes: outside of strict mode the server makes it one."""
    if FACTS[column.type].length != "most" or column.length is None:
        return column
    size = column.length * BYTES_PER_CHARACTER.get(column.charset or BINARY, 1)
    if size <= _VARCHAR_BYTES:
        return column
    family = LARGE_TEXTS if column.type in TEXT_TYPES else LARGE_BINARIES
    return replace(column, type=sized(family[0], size), length=None)


def _with_required(columns: Sequence[Column], keys: Sequence[Key]) -> list[Column]:
    """Return the columns; those of the primary key are NOT NULL, whether the text says so or not."""
    primary = {part.column.lower() for key in keys if key.name == PRIMARY for part in key.parts}
    return [
        replace(column, nullable=False) if column.name.lower() in primary else column for column in columns
    ]
