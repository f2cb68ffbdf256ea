"""Debezium's table model after each DDL statement: statements enter, `SchemaChange`s leave.

A model is made by CREATE TABLE (the log's, or what SHOW CREATE TABLE prints) and changed clause by clause. Where a
statement is about a table that has no model, or has a clause that is not understood, the server is asked. It reports the table
as it is now, which is the same unless more statements on that table follow in the log.

Only schema-change records are made of these models: TABLE_MAPs decide the columns of rows (`catalog`). The state topic has
models without definitions, so a model cannot be computed from a `TableState`, nor the reverse. The rules differ, too
(`model_columns`; `reduce` has the server's). Debezium's listeners

* apply the clauses of an ALTER one after the other, where the server reads all of them against the old table;
* know a key by its column names alone, and drop one by DROP PRIMARY KEY only;
* see no CREATE INDEX, no DROP INDEX, no TRUNCATE and no SYSTEM VERSIONING.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from mysqlio.definitions.character_sets import charset_of_collation
from mysqlio.definitions.column_definition import ColumnDefinition
from mysqlio.definitions.table_parts import SYSTEM_DATABASES
from mysqlio.quoting import qualified
from producer.catalog.model import UnclearError
from producer.catalog.model_columns import converted, model_column, model_default
from producer.catalog.statements.clauses import (
    FIRST,
    AddColumn,
    AddKey,
    ChangeColumn,
    Clause,
    Convert,
    Copy,
    DatabaseCharset,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameTable,
    SetDefault,
    Statement,
    StatementKind,
    TableCharset,
    TableComment,
    TableRef,
    Unclear,
)
from producer.catalog.statements.parse import parse_statement
from schemas.identity import TableId
from schemas.schema_changes import ModelColumn, SchemaChange, TableModel

CreateStatement = Callable[[str, str], str | None]
CharsetOfDatabase = Callable[[str], str | None]  # the server's own for ""

_ON_COLUMNS: Final = (AddColumn, ChangeColumn, DropColumn, RenameColumn, SetDefault)
_DROP_HEAD: Final = re.compile(r"\s*DROP\s+TABLES?\s+(IF\s+EXISTS\s+)?", re.IGNORECASE)


@dataclass(slots=True)
class _Draft:
    """A table to which clauses are applied one after the other."""

    database: str
    name: str
    charset: str | None
    columns: list[ModelColumn] = field(default_factory=list)
    primary_key: list[str] = field(default_factory=list)
    unique_key: list[str] = field(default_factory=list)
    comment: str | None = None

    def model(self) -> TableModel:
        """Return the finished table: key columns are required."""
        keys = {name.lower() for name in self.primary_key}
        columns = tuple(
            replace(column, optional=False) if column.name.lower() in keys else column
            for column in self.columns
        )
        key = self.primary_key or self._required(self.unique_key)
        return TableModel(self.database, self.name, self.charset, tuple(key), columns, self.comment)

    def apply(self, clause: Clause) -> None:
        """Apply one clause; `UnclearError` for one that is not understood, or that may do nothing (IF EXISTS)."""
        if isinstance(clause, Unclear) or (isinstance(clause, _ON_COLUMNS) and clause.conditional):
            raise UnclearError(clause)
        match clause:
            case AddColumn(definition, after):
                self._put(self._column(definition), after, len(self.columns))
            case ChangeColumn():
                self._change_column(clause)
            case DropColumn(name):
                del self.columns[self._index(name)]
                self.primary_key = [key for key in self.primary_key if key.lower() != name.lower()]
            case RenameColumn(name, new_name):
                index = self._index(name)
                self.columns[index] = replace(self.columns[index], name=new_name)
                self._rename_key(name, new_name)
            case SetDefault(definition):
                index = self._index(definition.name)
                self.columns[index] = replace(self.columns[index], default=model_default(definition))
            case AddKey():
                self._add_key(clause)
            case DropKey(says_primary_key=True):
                self.primary_key = []
            case Convert(charset):
                self._convert(charset or "default")
            case TableCharset():
                self.charset = _named_charset(clause) or self.charset
            case TableComment(text):
                self.comment = text or None
            case _:
                pass  # what Debezium's model does not show

    def _change_column(self, clause: ChangeColumn) -> None:
        column, index = self._column(clause.definition), self._index(clause.name)
        del self.columns[index]
        self._rename_key(clause.name, column.name)
        self._put(column, clause.after, index)

    def _convert(self, charset: str) -> None:
        self.charset = charset
        self.columns = [
            column if column.charset is None else converted(column, charset) for column in self.columns
        ]

    def _column(self, definition: ColumnDefinition) -> ModelColumn:
        if not (definition.name and definition.understood):
            raise UnclearError(definition.name)
        return model_column(definition, self.charset)

    def _index(self, name: str) -> int:
        for index, column in enumerate(self.columns):
            if column.name.lower() == name.lower():
                return index
        raise UnclearError(name)

    def _put(self, column: ModelColumn, after: str | None, index: int) -> None:
        if after == FIRST:
            index = 0
        elif after is not None:
            index = self._index(after) + 1
        self.columns.insert(index, column)

    def _rename_key(self, old: str, new: str) -> None:
        self.primary_key = [new if key.lower() == old.lower() else key for key in self.primary_key]

    def _add_key(self, key: AddKey) -> None:
        """Note the primary key, or the first unique index on columns."""
        names = [part.column for part in key.parts]
        if key.kind == "primary":
            self.primary_key = names
        elif key.kind == "unique" and not self.unique_key and all(names):
            self.unique_key = names

    def _required(self, names: Iterable[str]) -> list[str]:
        columns = {column.name.lower(): column for column in self.columns}
        found = [columns.get(name.lower()) for name in names]
        is_key = bool(found) and all(column is not None and not column.optional for column in found)
        return list(names) if is_key else []


class TableModels:
    """The models of one source's tables, by the statements of its log. Owned by the log reader's thread."""

    def __init__(
        self,
        flavour: str,
        create_statement: CreateStatement,
        database_charset: CharsetOfDatabase,
        *,
        lower_case_names: bool = False,
        has_indexes: bool = False,
    ) -> None:
        """With `lower_case_names` (lower_case_table_names=1) tables and databases have names as the server stores them.

        With `has_indexes` CREATE INDEX and DROP INDEX have records, too, which Debezium has not.
        """
        self._flavour = flavour
        self._lower_case_names = lower_case_names
        self._create_statement = create_statement
        self._database_charset = database_charset
        self._tables: dict[TableId, TableModel] = {}
        self._charsets: dict[str, str | None] = {}
        self._saved_charsets: dict[str, str] = {}
        self._unsaved: dict[TableId, TableModel | None] = {}
        self._records: dict[StatementKind, Callable[[Statement], list[SchemaChange]]] = {
            "create_database": self._create_database,
            "alter_database": self._alter_database,
            "drop_database": self._drop_database,
            "create_table": self._create_table,
            "alter_table": self._alter_table,
            "drop_tables": self._drop_tables,
            "rename_tables": self._rename_tables,
        }
        if has_indexes:
            self._records |= {"create_index": self._change_index, "drop_index": self._change_index}

    def restore(self, models: Iterable[TableModel], charsets: Mapping[str, str] | None = None) -> None:
        """Restore the models of an earlier process, and the character sets of databases: the server has those of now only."""
        self._tables.update({(model.database, model.name): model for model in models})
        self._saved_charsets = dict(charsets or {})
        self._charsets.update(self._saved_charsets)

    @property
    def tables(self) -> frozenset[TableId]:
        """The names of the tables that are known."""
        return frozenset(self._tables)

    def start_over(self) -> None:
        """Forget all models and character sets: they were true at a position of a log that is lost, or there are none yet."""
        for name in list(self._tables):
            self._forget(name)
        self._charsets.clear()

    def pop_unsaved(self) -> dict[TableId, TableModel | None]:
        """Return the models that changed since the last call, None for tables that are gone."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def pop_unsaved_charsets(self) -> dict[str, str] | None:
        """Return the character set of each database, as far as it is known; None where it is as at the last call."""
        known = {database: charset for database, charset in self._charsets.items() if charset is not None and database}
        if known == self._saved_charsets:
            return None
        self._saved_charsets = known
        return dict(known)

    def define(self, database: str, sql: str) -> TableModel | None:
        """Remember and return the model of a CREATE TABLE statement; None for a view and all else that is no table."""
        changes = self.apply(self._parse(sql, database))
        return changes[0].table if changes else None

    def know(self, database: str) -> None:
        """Ask for the character set of a database now, before a statement of the log changes it."""
        self._charset_of(database)

    def apply(self, statement: Statement) -> tuple[SchemaChange, ...]:
        """Return the records of a statement, () for one that changes no table and no database."""
        records = self._records.get(statement.kind)
        changes = [] if records is None else records(statement)
        return tuple(change for change in changes if change.database.lower() not in SYSTEM_DATABASES)

    def _parse(self, sql: str, default_database: str) -> Statement:
        return parse_statement(sql, default_database, self._flavour, lower_case_names=self._lower_case_names)

    # ---- models

    def _put(self, model: TableModel) -> TableModel:
        self._tables[model.database, model.name] = model
        self._unsaved[model.database, model.name] = model
        return model

    def _forget(self, name: TableId) -> None:
        self._tables.pop(name, None)
        self._unsaved[name] = None

    def _forget_tables(self, database: str) -> None:
        for name in [name for name in self._tables if name[0] == database]:
            self._forget(name)

    def _ask(self, name: TableId) -> TableModel | None:
        """Return the table as the server has it now."""
        sql = self._create_statement(*name)
        statement = None if sql is None else self._parse(sql, name[0])
        if statement is None or statement.kind != "create_table":
            return None
        try:
            return self._put(self._created(statement, name))
        except UnclearError:
            return None

    def _charset_of(self, database: str) -> str | None:
        if database not in self._charsets:
            self._charsets[database] = self._database_charset(database)
        return self._charsets[database]

    # ---- databases

    def _create_database(self, statement: Statement) -> list[SchemaChange]:
        name = statement.database
        self._set_charset(statement)
        if statement.replaces:
            self._forget_tables(name)
        if not (statement.conditional and self._charset_of(name)):
            self._charsets[name] = self._charsets.get(name) or self._charset_of("")
        return [SchemaChange(statement.sql, name)]

    def _alter_database(self, statement: Statement) -> list[SchemaChange]:
        self._set_charset(statement)
        return [SchemaChange(statement.sql, statement.database, tables="")]

    def _set_charset(self, statement: Statement) -> None:
        for clause in statement.of(DatabaseCharset):
            if clause.is_unclear:
                self._charsets.pop(clause.database, None)
            charset = _named_charset(clause)
            if charset is not None:
                self._charsets[clause.database] = charset

    def _drop_database(self, statement: Statement) -> list[SchemaChange]:
        self._forget_tables(statement.database)
        self._charsets.pop(statement.database, None)
        return [SchemaChange(statement.sql, statement.database)]

    # ---- tables

    def _create_table(self, statement: Statement) -> list[SchemaChange]:
        name = statement.tables[0].name
        if not name[1] or (statement.conditional and name in self._tables):
            return []
        origin = next(statement.of(Copy), None)
        model = None if origin is None else self._copied((origin.database, origin.table), name)
        if model is None:
            try:
                model = self._put(self._created(statement, name))
            except UnclearError:
                model = self._ask(name)
        return [_change("CREATE", statement, name, model)]

    def _copied(self, origin: TableId, name: TableId) -> TableModel | None:
        model = self._tables.get(origin) or self._ask(origin)
        return None if model is None else self._put(replace(model, database=name[0], name=name[1]))

    def _created(self, statement: Statement, name: TableId) -> TableModel:
        """Return the table of a CREATE TABLE under a name; `UnclearError` where the text has no columns."""
        if next(statement.of(AddColumn), None) is None:
            raise UnclearError(name)
        given = next(statement.of(TableCharset), None)
        charset = None if given is None else _named_charset(given)
        draft = _Draft(*name, charset or self._charset_of(name[0]))
        for clause in statement.clauses:
            if isinstance(clause, TableComment):
                draft.comment = clause.text
            elif not isinstance(clause, TableCharset):
                draft.apply(clause)
        return draft.model()

    def _alter_table(self, statement: Statement) -> list[SchemaChange]:
        name = statement.tables[0].name
        renames = [clause.table.name for clause in statement.of(RenameTable)]
        new = renames[-1] if renames else name
        known = self._tables.get(name)
        model = self._ask(new) if known is None else self._altered(known, statement, new)
        if known is not None and new != name:
            self._forget(name)
        return [_change("ALTER", statement, new, model)]

    def _altered(self, known: TableModel, statement: Statement, new: TableId) -> TableModel | None:
        columns, key = list(known.columns), list(known.primary_key)
        draft = _Draft(*new, known.charset, columns, key, comment=known.comment)
        try:
            _require_one_meaning(statement)
            for clause in statement.clauses:
                draft.apply(clause)
        except UnclearError:
            return self._ask(new)
        return self._put(draft.model())

    def _change_index(self, statement: Statement) -> list[SchemaChange]:
        name = statement.tables[0].name
        return [_change("ALTER", statement, name, self._tables.get(name) or self._ask(name))]

    def _drop_tables(self, statement: Statement) -> list[SchemaChange]:
        names = [table.name for table in statement.tables]
        head = _DROP_HEAD.match(statement.sql)
        prefix = "DROP TABLE " if head is None else head[0]
        tables = ",".join(sorted(table for _, table in names))
        for name in names:
            self._forget(name)
        return [SchemaChange(f"{prefix}{qualified(*name)}", name[0], "DROP", name, None, tables) for name in names]

    def _rename_tables(self, statement: Statement) -> list[SchemaChange]:
        tables = ",".join(sorted(new.table for new in statement.new_tables))
        pairs = zip(statement.tables, statement.new_tables, strict=True)
        return [self._renamed(old, new, tables) for old, new in pairs]

    def _renamed(self, old: TableRef, new: TableRef, tables: str) -> SchemaChange:
        model = self._tables.get(old.name)
        self._forget(old.name)
        moved = None if model is None else self._put(replace(model, database=new.database, name=new.table))
        text = f"RENAME TABLE {old.text} TO {new.text}"
        return SchemaChange(text, new.database, "ALTER", new.name, moved or self._ask(new.name), tables)


def _require_one_meaning(statement: Statement) -> None:
    """Raise `UnclearError` for a conversion beside columns that the same statement defines: it has rules of its own."""
    defines = any(isinstance(clause, AddColumn | ChangeColumn | AddKey) for clause in statement.clauses)
    if defines and next(statement.of(Convert), None) is not None:
        raise UnclearError(statement)


def _named_charset(clause: TableCharset | DatabaseCharset) -> str | None:
    """Return the character set that options name, as written; None for none."""
    if clause.charset is not None:
        return clause.charset
    return None if clause.collation is None else charset_of_collation(clause.collation)


def _change(kind: Literal["CREATE", "ALTER"], statement: Statement, name: TableId, model: TableModel | None) -> SchemaChange:
    return SchemaChange(statement.sql, name[0], kind, name, model, name[1])
