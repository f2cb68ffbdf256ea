"""What tables look like after each DDL statement: statements enter, `SchemaChange`s leave.

A model is made by CREATE TABLE (the log's, or what SHOW CREATE TABLE prints) and changed clause by clause. Where a
statement meets a table that has no model, or holds a clause that is not understood, the server is asked: it tells of
now, which is the same unless more statements on that table are on their way.

Only schema-change records are made of these models: columns of rows are told by TABLE_MAP (`catalog`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from producer.catalog.character_sets import BYTES_PER_CHARACTER, charset_name, charset_of_collation
from producer.catalog.effects import without_set_statement
from producer.catalog.statements.column_definition import (
    ColumnDefinition,
    Cursor,
    parse_definition,
    split_commas,
    take_default,
)
from producer.catalog.statements.tokens import Kind, Token, tokenise
from schemas.schema_changes import ModelColumn, SchemaChange, TableModel

CreateStatement = Callable[[str, str], str | None]
DatabaseCharset = Callable[[str], str | None]  # the server's own for ""
Name = tuple[str, str]

_SYSTEM: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
_JDBC: Final = {
    "BIT": -7,
    "TINYINT": 5,
    "INT1": 5,
    "BOOLEAN": 16,
    "BOOL": 16,
    "SMALLINT": 5,
    "INT2": 5,
    "MEDIUMINT": 4,
    "MIDDLEINT": 4,
    "INT3": 4,
    "INT": 4,
    "INTEGER": 4,
    "INT4": 4,
    "YEAR": 4,
    "BIGINT": -5,
    "INT8": -5,
    "FLOAT": 6,
    "FLOAT4": 6,
    "REAL": 7,
    "DOUBLE": 8,
    "FLOAT8": 8,
    "DECIMAL": 3,
    "DEC": 3,
    "FIXED": 3,
    "NUMERIC": 2,
    "CHAR": 1,
    "CHARACTER": 1,
    "NCHAR": -15,
    "VARCHAR": 12,
    "VARCHARACTER": 12,
    "NVARCHAR": -9,
    "LONG": 12,
    "TINYTEXT": 12,
    "TEXT": 12,
    "MEDIUMTEXT": 12,
    "LONGTEXT": 12,
    "BINARY": -2,
    "VARBINARY": -3,
    "TINYBLOB": 2004,
    "BLOB": 2004,
    "MEDIUMBLOB": 2004,
    "LONGBLOB": 2004,
    "DATE": 91,
    "TIME": 92,
    "DATETIME": 93,
    "TIMESTAMP": 2014,
    "ENUM": 1,
    "SET": 1,
}
_OTHER_JDBC: Final = 1111
_TEXTS: Final = frozenset(
    {"CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "NCHAR", "NVARCHAR", "NATIONAL", "LONG", "TINYTEXT", "TEXT",
     "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET"}
)  # fmt: skip
_SECOND_WORDS: Final = {
    "DOUBLE": {"PRECISION"},
    "LONG": {"VARCHAR", "VARBINARY"},
    "NATIONAL": {"VARCHAR", "CHAR", "CHARACTER"},
    "CHAR": {"VARYING"},
    "CHARACTER": {"VARYING"},
}
_BITS: Final = re.compile(r"b'([01]+)'")
_LARGER: Final = {"TINYTEXT": "TEXT", "TEXT": "MEDIUMTEXT", "MEDIUMTEXT": "LONGTEXT"}
_EPOCH: Final = "1970-01-01 00:00:00"
_INDEXES: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK"}
)
# Clauses of ALTER TABLE that change neither columns nor the key.
_WITHOUT_EFFECT: Final = frozenset(
    {"ALGORITHM", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT", "COMPRESSION", "CONNECTION", "DATA",
     "DELAY_KEY_WRITE", "DISABLE", "DISCARD", "ENABLE", "ENCRYPTION", "ENGINE", "FORCE", "IMPORT", "INDEX",
     "INSERT_METHOD", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS", "MIN_ROWS", "ORDER", "PACK_KEYS", "PASSWORD", "ROW_FORMAT",
     "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "UNION", "WITH", "WITHOUT",
     "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "REORGANIZE", "COALESCE", "REMOVE", "PARTITION", "TRUNCATE",
     "EXCHANGE"}
)  # fmt: skip


class _UnclearError(Exception):
    """A clause is not understood: the server must tell."""


@dataclass(slots=True)
class _Draft:
    """A table while a statement works on it."""

    database: str
    name: str
    charset: str | None
    columns: list[ModelColumn] = field(default_factory=list)
    primary_key: list[str] = field(default_factory=list)
    unique_key: list[str] = field(default_factory=list)
    comment: str | None = None

    def model(self) -> TableModel:
        """The finished table: key columns are required."""
        keys = {name.lower() for name in self.primary_key}
        columns = tuple(
            replace(column, optional=False) if column.name.lower() in keys else column
            for column in self.columns
        )
        key = self.primary_key or self._required(self.unique_key)
        return TableModel(self.database, self.name, self.charset, tuple(key), columns, self.comment)

    def place(self, name: str) -> int:
        """Where a column stands; `_UnclearError` for one that is not there."""
        for place, column in enumerate(self.columns):
            if column.name.lower() == name.lower():
                return place
        raise _UnclearError(name)

    def put(self, cursor: Cursor, column: ModelColumn, place: int) -> None:
        """Insert a column where FIRST or AFTER says, else at `place`."""
        if cursor.accept("FIRST"):
            place = 0
        elif cursor.accept("AFTER"):
            place = self.place(cursor.name()) + 1
        self.columns.insert(place, column)

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
        database_charset: DatabaseCharset,
        *,
        lower_case_names: bool = False,
    ) -> None:
        """With `lower_case_names` (lower_case_table_names=1) tables and databases have names as the server stores them."""
        self._flavour = flavour
        self._lower_case_names = lower_case_names
        self._create_statement = create_statement
        self._database_charset = database_charset
        self._tables: dict[Name, TableModel] = {}
        self._charsets: dict[str, str | None] = {}
        self._unsaved: dict[Name, TableModel | None] = {}

    def restore(self, models: Iterable[TableModel]) -> None:
        """Take over the models an earlier process had."""
        self._tables.update({(model.database, model.name): model for model in models})

    def take_unsaved(self) -> dict[Name, TableModel | None]:
        """Models that changed since the last call, None for tables that are gone."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def define(self, database: str, sql: str) -> TableModel | None:
        """The model of a CREATE TABLE statement, remembered; None for a view or what else is no table."""
        found = self.apply(sql, database)
        return found[0].table if found else None

    def know(self, database: str) -> None:
        """Ask for the character set of a database now, before a statement of the log changes it."""
        self._charset_of(database)

    def apply(self, sql: str, default_database: str) -> tuple[SchemaChange, ...]:
        """The records of a statement, () for one that changes no table and no database."""
        cursor = Cursor(without_set_statement(tokenise(sql, self._flavour)))
        verb = cursor.accept_any("CREATE", "ALTER", "RENAME", "DROP")
        take = {"CREATE": self._create, "ALTER": self._alter, "RENAME": self._rename, "DROP": self._drop}.get(verb)
        if take is None:
            return ()
        try:
            changes = take(cursor, sql, default_database)
        except IndexError:
            return ()
        return tuple(change for change in changes if change.database.lower() not in _SYSTEM)

    def _stored(self, name: Name) -> Name:
        """The name as the server stores it."""
        return (name[0].lower(), name[1].lower()) if self._lower_case_names else name

    # ---- models

    def _put(self, model: TableModel) -> TableModel:
        self._tables[model.database, model.name] = model
        self._unsaved[model.database, model.name] = model
        return model

    def _forget(self, name: Name) -> None:
        self._tables.pop(name, None)
        self._unsaved[name] = None

    def _forget_tables(self, database: str) -> None:
        for name in [name for name in self._tables if name[0] == database]:
            self._forget(name)

    def _ask(self, name: Name) -> TableModel | None:
        """The table as the server has it now."""
        sql = self._create_statement(*name)
        draft = None if sql is None else self._created(Cursor(tokenise(sql, self._flavour)), name)
        return None if draft is None else self._put(draft.model())

    def _charset_of(self, database: str) -> str | None:
        if database not in self._charsets:
            self._charsets[database] = self._database_charset(database)
        return self._charsets[database]

    # ---- databases

    def _database(self, cursor: Cursor, sql: str, default: str, tables: str | None) -> list[SchemaChange]:
        name, _ = self._stored((_name_of(cursor) or default, ""))
        options = _options(cursor.rest())
        if options is not None:
            self._charsets[name] = options
        return [SchemaChange(sql, name, tables=tables)]

    # ---- CREATE

    def _create(self, cursor: Cursor, sql: str, default: str) -> list[SchemaChange]:
        replaces = cursor.accept("OR", "REPLACE")
        if cursor.accept_any("DATABASE", "SCHEMA"):
            conditional = cursor.accept("IF", "NOT", "EXISTS")
            (change,) = self._database(cursor, sql, default, None)
            if replaces:
                self._forget_tables(change.database)
            if not (conditional and self._charset_of(change.database)):
                self._charsets[change.database] = self._charsets.get(change.database) or self._charset_of("")
            return [change]
        if cursor.accept("TEMPORARY") or not cursor.accept("TABLE"):
            return []
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        name = self._stored(_table(cursor, default))
        if not name[1]:
            return []
        if conditional and name in self._tables:
            return []
        model = self._copied(cursor, name, default)
        if model is None:
            try:
                draft = self._created_body(cursor, name)
                model = self._put(draft.model())
            except _UnclearError:
                model = self._ask(name)
        return [_change("CREATE", sql, name, model)]

    def _copied(self, cursor: Cursor, name: Name, default: str) -> TableModel | None:
        """CREATE TABLE ... LIKE; None for another one."""
        inside = cursor.peek(1)
        in_group = cursor.word() == "" and inside is not None and inside.upper == "LIKE"
        if in_group:
            cursor.next()
        if not cursor.accept("LIKE"):
            return None
        origin = self._stored(_table(cursor, default))
        model = self._tables.get(origin) or self._ask(origin)
        return None if model is None else self._put(replace(model, database=name[0], name=name[1]))

    def _created(self, cursor: Cursor, name: Name) -> _Draft | None:
        """The table of what SHOW CREATE TABLE printed."""
        if not cursor.accept("CREATE", "TABLE"):
            return None
        _table(cursor, name[0])
        try:
            return self._created_body(cursor, name)
        except (_UnclearError, IndexError):
            return None

    def _created_body(self, cursor: Cursor, name: Name) -> _Draft:
        body = split_commas(cursor.group())
        if not body:
            raise _UnclearError(name)
        options = cursor.rest()
        charset = _options(options) or self._charset_of(name[0])
        draft = _Draft(*name, charset, comment=_comment(options))
        for part in body:
            inside = Cursor(part)
            if _is_index(inside):
                _take_index(inside, draft)
            else:
                draft.columns.append(_take_column(inside, part, draft, charset))
        return draft

    # ---- DROP, RENAME

    def _drop(self, cursor: Cursor, sql: str, default: str) -> list[SchemaChange]:
        if cursor.accept_any("DATABASE", "SCHEMA"):
            cursor.accept("IF", "EXISTS")
            name, _ = self._stored((_name_of(cursor) or default, ""))
            self._forget_tables(name)
            self._charsets.pop(name, None)
            return [SchemaChange(sql, name)]
        if not cursor.accept_any("TABLE", "TABLES"):
            return []
        cursor.accept("IF", "EXISTS")
        names = [self._stored(_table(cursor, default))]
        while cursor.accept_punctuation(","):
            names.append(self._stored(_table(cursor, default)))
        head = _DROP_HEAD.match(sql)
        prefix = "DROP TABLE " if head is None else head[0]
        tables = ",".join(sorted(table for _, table in names))
        for table in names:
            self._forget(table)
        return [
            SchemaChange(f"{prefix}{_quoted(table)}", table[0], "DROP", table, None, tables) for table in names
        ]

    def _rename(self, cursor: Cursor, _sql: str, default: str) -> list[SchemaChange]:
        if not cursor.accept_any("TABLE", "TABLES"):
            return []
        cursor.accept("IF", "EXISTS")
        pairs: list[tuple[Name, Name, str]] = []
        while not cursor.done:
            old, old_text = _table_as_written(cursor, default)
            if cursor.accept("WAIT"):
                cursor.next()
            cursor.accept("NOWAIT")
            cursor.accept_any("TO", "AS")
            new, new_text = _table_as_written(cursor, default)
            pairs.append((self._stored(old), self._stored(new), f"RENAME TABLE {old_text} TO {new_text}"))
            if not cursor.accept_punctuation(","):
                break
        tables = ",".join(sorted(new[1] for _, new, _ in pairs))
        changes = []
        for old, new, text in pairs:
            model = self._renamed(old, new)
            changes.append(SchemaChange(text, new[0], "ALTER", new, model, tables))
        return changes

    def _renamed(self, old: Name, new: Name) -> TableModel | None:
        model = self._tables.get(old)
        self._forget(old)
        return self._ask(new) if model is None else self._put(replace(model, database=new[0], name=new[1]))

    # ---- ALTER

    def _alter(self, cursor: Cursor, sql: str, default: str) -> list[SchemaChange]:
        if cursor.accept_any("DATABASE", "SCHEMA"):
            return self._database(cursor, sql, default, "")
        cursor.accept_any("ONLINE", "OFFLINE")
        cursor.accept("IGNORE")
        if not cursor.accept("TABLE"):
            return []
        cursor.accept("IF", "EXISTS")
        name = self._stored(_table(cursor, default))
        if cursor.accept("WAIT"):
            cursor.next()
        cursor.accept("NOWAIT")
        clauses = split_commas(cursor.rest())
        new = self._stored(_new_name(clauses, default) or name)
        known = self._tables.get(name)
        model: TableModel | None
        if known is None:
            model = self._ask(new)
        else:
            model = self._altered(known, clauses, new)
            if new != name:
                self._forget(name)
        return [_change("ALTER", sql, new, model)]

    def _altered(self, known: TableModel, clauses: list[list[Token]], new: Name) -> TableModel | None:
        draft = _Draft(
            *new, known.charset, list(known.columns), list(known.primary_key), comment=known.comment
        )
        try:
            _Alteration(draft).clauses(clauses)
        except (_UnclearError, IndexError):
            return self._ask(new)
        return self._put(draft.model())


_DROP_HEAD: Final = re.compile(r"\s*DROP\s+TABLES?\s+(IF\s+EXISTS\s+)?", re.IGNORECASE)


class _Alteration:
    """Applies the clauses of one ALTER TABLE to a draft."""

    def __init__(self, draft: _Draft) -> None:
        self._draft = draft

    def clauses(self, clauses: list[list[Token]]) -> None:
        """Apply all; `_UnclearError` for one that is not understood.

        What CONVERT TO does to columns that the same statement defines has rules of its own: the server must tell.
        """
        words = {Cursor(tokens).word() for tokens in clauses}
        if "CONVERT" in words and words & {"ADD", "CHANGE", "MODIFY"}:
            raise _UnclearError("CONVERT")
        in_partitions = False
        for tokens in clauses:
            cursor = Cursor(tokens)
            word = cursor.word()
            take = {
                "ADD": self._add,
                "DROP": self._drop,
                "MODIFY": self._modify,
                "CHANGE": self._change,
                "ALTER": self._alter,
                "RENAME": self._rename,
                "CONVERT": self._convert,
            }.get(word)
            if take is not None:
                cursor.next()
                in_partitions = cursor.word() == "PARTITION"
                take(cursor, tokens)
                continue
            self._comment(tokens)
            if word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
                self._draft.charset = _options(tokens) or self._draft.charset
            elif word not in _WITHOUT_EFFECT and not in_partitions:
                raise _UnclearError(word)
            elif word in ("TRUNCATE", "PARTITION", "REORGANIZE", "REBUILD", "ANALYZE", "CHECK", "REPAIR", "OPTIMIZE"):
                in_partitions = True

    def _comment(self, tokens: list[Token]) -> None:
        """Take a table's comment, which may stand among other options."""
        comment = _comment(tokens)
        if comment is not None:
            self._draft.comment = comment or None

    def _add(self, cursor: Cursor, tokens: list[Token]) -> None:
        if cursor.accept("PARTITION") or cursor.accept("SYSTEM", "VERSIONING"):
            return
        if _is_index(cursor):
            _take_index(cursor, self._draft)
            return
        cursor.accept("COLUMN")
        if cursor.accept("IF", "NOT", "EXISTS"):
            raise _UnclearError("IF NOT EXISTS")
        group = cursor.group()
        for part in split_commas(group) if group else [tokens]:
            inside = Cursor(part) if group else cursor
            if _is_index(inside):
                _take_index(inside, self._draft)
                continue
            column = _take_column(inside, part, self._draft, self._draft.charset)
            self._draft.put(inside, column, len(self._draft.columns))

    def _drop(self, cursor: Cursor, _tokens: list[Token]) -> None:
        if cursor.accept("PRIMARY"):
            self._draft.primary_key = []
            return
        if cursor.accept_any("PARTITION", "INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"):
            return
        if cursor.accept("SYSTEM", "VERSIONING") or cursor.accept("PERIOD", "FOR"):
            return
        cursor.accept("COLUMN")
        if cursor.accept("IF", "EXISTS"):
            raise _UnclearError("IF EXISTS")
        name = cursor.name()
        del self._draft.columns[self._draft.place(name)]
        self._draft.primary_key = [key for key in self._draft.primary_key if key.lower() != name.lower()]

    def _modify(self, cursor: Cursor, tokens: list[Token]) -> None:
        self._define(cursor, tokens, None)

    def _change(self, cursor: Cursor, tokens: list[Token]) -> None:
        cursor.accept("COLUMN")
        if cursor.accept("IF", "EXISTS"):
            raise _UnclearError("IF EXISTS")
        self._define(cursor, tokens, cursor.name())

    def _define(self, cursor: Cursor, tokens: list[Token], old: str | None) -> None:
        if old is None:
            cursor.accept("COLUMN")
            if cursor.accept("IF", "EXISTS"):
                raise _UnclearError("IF EXISTS")
        column = _take_column(cursor, tokens, self._draft, self._draft.charset)
        place = self._draft.place(old or column.name)
        gone = self._draft.columns.pop(place)
        self._rename_key(gone.name, column.name)
        self._draft.put(cursor, column, place)

    def _alter(self, cursor: Cursor, _tokens: list[Token]) -> None:
        if cursor.accept_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            return
        cursor.accept("COLUMN")
        name = cursor.name()
        place = self._draft.place(name)
        if cursor.accept("SET", "VISIBLE") or cursor.accept("SET", "INVISIBLE"):
            return
        definition = ColumnDefinition(name)
        if cursor.accept("SET", "DEFAULT"):
            literal = cursor.word()
            take_default(cursor, definition)
            default = _default(definition, literal)
        elif cursor.accept("DROP", "DEFAULT"):
            default = None
        else:
            raise _UnclearError("ALTER COLUMN")
        self._draft.columns[place] = replace(self._draft.columns[place], default=default)

    def _rename(self, cursor: Cursor, _tokens: list[Token]) -> None:
        if not cursor.accept("COLUMN"):
            return  # an index, or the table
        old = cursor.name()
        cursor.accept("TO")
        new = cursor.name()
        place = self._draft.place(old)
        self._draft.columns[place] = replace(self._draft.columns[place], name=new)
        self._rename_key(old, new)

    def _rename_key(self, old: str, new: str) -> None:
        self._draft.primary_key = [new if key.lower() == old.lower() else key for key in self._draft.primary_key]

    def _convert(self, cursor: Cursor, tokens: list[Token]) -> None:
        if cursor.word() in ("PARTITION", "TABLE"):
            return
        charset = _options(tokens)
        if charset is None:
            raise _UnclearError("CONVERT")
        self._draft.charset = charset
        self._draft.columns = [
            column if column.charset is None else _converted(column, charset) for column in self._draft.columns
        ]


# ── parts of statements ────────────────────────────────


def _converted(column: ModelColumn, charset: str) -> ModelColumn:
    """A text column in another character set; where characters take more bytes the server takes the next larger TEXT."""
    before, after = (BYTES_PER_CHARACTER.get(charset_name(name or ""), 1) for name in (column.charset, charset))
    grown = _LARGER.get(column.type_name, column.type_name) if after > before else column.type_name
    return replace(column, charset=charset, type_name=grown)


def _change(
    kind: str, sql: str, name: Name, model: TableModel | None
) -> SchemaChange:
    return SchemaChange(sql, name[0], "CREATE" if kind == "CREATE" else "ALTER", name, model, name[1])


def _quoted(name: Name) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in name)


def _name_of(cursor: Cursor) -> str:
    token = cursor.peek()
    return "" if token is not None and token.upper in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE") else cursor.name()


def _table(cursor: Cursor, default: str) -> Name:
    return _table_as_written(cursor, default)[0]


def _table_as_written(cursor: Cursor, default: str) -> tuple[Name, str]:
    """A table's name, and its text with the quotes it had."""
    first, text = _part(cursor)
    if not cursor.accept_punctuation("."):
        return (default, first), text
    second, more = _part(cursor)
    return (first or default, second), f"{text}.{more}"


def _part(cursor: Cursor) -> tuple[str, str]:
    token = cursor.peek()
    name = cursor.name()
    quoted = token is not None and token.kind is Kind.NAME
    return name, f"`{name.replace('`', '``')}`" if quoted else name


def _new_name(clauses: list[list[Token]], default: str) -> Name | None:
    """The name an ALTER TABLE ... RENAME gives, None without one."""
    for tokens in clauses:
        cursor = Cursor(tokens)
        if cursor.accept("RENAME") and cursor.word() not in ("COLUMN", "INDEX", "KEY"):
            if not cursor.accept_any("TO", "AS"):
                cursor.accept_punctuation("=")
            return _table(cursor, default)
    return None


def _options(tokens: list[Token]) -> str | None:
    """The character set that options of a table or database name; None for none."""
    found, depth = None, 0
    cursor = Cursor(tokens)
    while not cursor.done:
        token = cursor.next()
        depth += token.is_punctuation("(") - token.is_punctuation(")")
        if depth:
            continue
        if token.upper == "CHARSET" or (token.upper in ("CHARACTER", "CHAR") and cursor.accept("SET")):
            cursor.accept_punctuation("=")
            found = cursor.next().text.lower()
        elif token.upper == "COLLATE" and found is None:
            cursor.accept_punctuation("=")
            found = charset_of_collation(cursor.next().text.lower())
    return found


def _comment(tokens: list[Token]) -> str | None:
    """The comment that options of a table hold, None for none; what stands in parentheses is of partitions."""
    found, depth = None, 0
    cursor = Cursor(tokens)
    while not cursor.done:
        token = cursor.next()
        depth += token.is_punctuation("(") - token.is_punctuation(")")
        if depth or token.upper != "COMMENT":
            continue
        cursor.accept_punctuation("=")
        text = cursor.peek()
        if text is not None and text.kind is Kind.STRING:
            found = cursor.next().text
    return found


def _is_index(cursor: Cursor) -> bool:
    words = cursor.word(), cursor.word(1)  # VECTOR and PERIOD may be names of columns
    return words[0] in _INDEXES or words in (("VECTOR", "INDEX"), ("VECTOR", "KEY"), ("PERIOD", "FOR"))


def _take_index(cursor: Cursor, draft: _Draft) -> None:
    """An index in a table's body: the primary key, the first unique one, or one that does not matter."""
    if cursor.accept("CONSTRAINT") and cursor.word() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        cursor.name()
    kind = cursor.accept_any("PRIMARY", "UNIQUE")
    if not kind:
        return
    while not cursor.done:
        group = cursor.group()
        if group:
            names = [Cursor(part).name() for part in split_commas(group)]
            if kind == "PRIMARY":
                draft.primary_key = names
            elif not draft.unique_key and all(names):
                draft.unique_key = names
            return
        cursor.next()


def _take_column(cursor: Cursor, tokens: list[Token], draft: _Draft, charset: str | None) -> ModelColumn:
    """A column definition; `cursor` stands before its name, at the end of `tokens` or before FIRST and AFTER then."""
    name = cursor.name()
    if not name or cursor.done:
        raise _UnclearError(name)
    words = _type_words(cursor)
    definition = parse_definition(cursor, name)
    if not definition.understood:
        raise _UnclearError(name)
    if definition.primary:
        draft.primary_key = [name]
    elif definition.unique and not draft.unique_key:
        draft.unique_key = [name]
    type_name = " ".join(words)
    if definition.unsigned and "UNSIGNED" not in words:
        type_name += " UNSIGNED"
    flags = {token.upper for token in tokens}
    if "ZEROFILL" in flags:
        type_name += " ZEROFILL"
    numbers = [int(argument) for argument in definition.arguments if argument.isdigit()]
    members = _members(words[0], definition)
    return ModelColumn(
        name,
        -9 if words[:2] == ["NATIONAL", "VARCHAR"] else _JDBC.get(words[0], _OTHER_JDBC),
        type_name,
        _charset(words[0], definition, charset),
        *_sizes(words, numbers, members),
        optional=definition.nullable is not False and not definition.primary,
        auto_increment=definition.auto_increment or definition.on_update,  # both, as Debezium has it
        default=_default(definition, _default_word(tokens)),
        members=members,
        comment=definition.comment,
    )


def _type_words(cursor: Cursor) -> list[str]:
    first = cursor.word()
    if first == "SERIAL":
        return ["BIGINT"]
    words = [first]
    if cursor.word(1) in _SECOND_WORDS.get(first, set()):
        words.append(cursor.word(1))
        if words[0] == "NATIONAL" and cursor.word(2) == "VARYING":
            words.append("VARYING")
    return words


def _members(word: str, definition: ColumnDefinition) -> tuple[str, ...] | None:
    if word not in ("ENUM", "SET"):
        return None
    return tuple(_literal(member) for member in definition.arguments)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _sizes(
    words: list[str], numbers: list[int], members: tuple[str, ...] | None
) -> tuple[int | None, int | None]:
    """Length and scale; a DECIMAL without them has the server's, a SET the length Debezium reckons."""
    if members is not None:
        return (1 if words[0] == "ENUM" else max(0, 2 * len(members) - 1)), None
    if words[0] in ("BOOLEAN", "BOOL"):
        return None, None
    if words[0] in ("DECIMAL", "DEC", "FIXED", "NUMERIC"):
        numbers = numbers or [10]
        return numbers[0], numbers[1] if len(numbers) > 1 else 0
    return (numbers[0] if numbers else None), (numbers[1] if len(numbers) > 1 else None)


def _charset(word: str, definition: ColumnDefinition, table_charset: str | None) -> str | None:
    if word not in _TEXTS:
        return None
    if word == "NATIONAL":
        return "utf8"
    if definition.charset is not None:
        return definition.charset
    if definition.collation is not None:
        return charset_of_collation(definition.collation)
    return table_charset


def _default_word(tokens: list[Token]) -> str:
    """The bare word after DEFAULT."""
    for token, following in pairwise(tokens):
        if token.upper == "DEFAULT":
            return following.upper
    return ""


def _default(definition: ColumnDefinition, word: str) -> str | None:
    """The default's text: words as written, the epoch for the time of the insert, None for other expressions."""
    if not definition.has_default:
        return None
    if definition.default_is_expression:
        return _EPOCH if definition.default == "CURRENT_TIMESTAMP" else None
    if word in ("TRUE", "FALSE") or definition.default is None:
        return word or None
    bits = _BITS.fullmatch(definition.default)
    return definition.default if bits is None or definition.default_is_string else bits[1]
