"""The parser of DDL statements: a text enters, one `Statement` leaves. It never raises.

Each part of a text is read to its end. A part with a token that is not understood is an `Unclear` clause; a statement of which not
even the tables are certain has the kind "unclear" and suspects all tables that its text may name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

from mysqlio.definitions.token_cursor import Cursor, UnreadError
from mysqlio.definitions.tokens import Kind, Token, tokenise, without_set_statement
from mysqlio.quoting import quoted
from producer.catalog.statements.alter_table import parse_alter
from producer.catalog.statements.classify import QueryKind, classify_query
from producer.catalog.statements.clauses import (
    AddColumn,
    AddKey,
    Clause,
    Copy,
    DatabaseCharset,
    DropKey,
    FromQuery,
    Statement,
    StatementKind,
    TableCharset,
    TableRef,
    Trigger,
    Unclear,
)
from producer.catalog.statements.elements import (
    parse_body,
    parse_key_parts,
    parse_options,
    skip_index_options,
    skip_index_type,
    skip_partitioning,
)

_DATABASE_OPTIONS: Final = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "ENCRYPTION", "READ")
_OWN_ROWS: Final = frozenset({"INNODB", "MYISAM", "ARIA", "ROCKSDB", "TOKUDB", "MEMORY", "HEAP", "CSV", "NDB", "NDBCLUSTER"})
_QUERIES: Final = ("SELECT", "WITH", "VALUES", "TABLE")
_DATABASE: Final = ("DATABASE", "SCHEMA")
_NO_TABLES: Final = frozenset(
    {
        "AGGREGATE", "EVENT", "FUNCTION", "INSTANCE", "JSON", "LIBRARY", "LOGFILE", "PACKAGE", "PREPARE", "PROCEDURE", "RESOURCE",
        "ROLE", "SERVER", "SPATIAL", "TABLESPACE", "TEMPORARY", "TRIGGER", "UNDO", "USER", "VIEW",
    }
)  # fmt: skip
"""What a CREATE, ALTER, DROP or RENAME may be about that is no table, database or index."""
_HARMLESS_VERBS: Final = frozenset(
    {
        "ANALYZE", "BACKUP", "CACHE", "CHANGE", "CHECK", "CHECKSUM", "CLONE", "DEALLOCATE", "DESC", "DESCRIBE", "EXECUTE",
        "EXPLAIN", "FLUSH", "GET", "GRANT", "HANDLER", "HELP", "INSTALL", "KILL", "LOAD", "LOCK", "OPTIMIZE", "PREPARE", "PURGE",
        "REPAIR", "RESET", "RESIGNAL", "RESTART", "REVOKE", "SET", "SHOW", "SHUTDOWN", "SIGNAL", "START", "STOP", "UNINSTALL",
        "UNLOCK", "USE",
    }
)  # fmt: skip


def parse_statement(
    sql: str,
    default_database: str,
    flavour: str = "mysql",
    *,
    lower_case_names: bool = False,
    sql_mode: int | None = None,
) -> Statement:
    """Return the clauses of a statement; the kind "other" if it changes no table and no database.

    A part of an ALTER TABLE that is not understood is an `Unclear` clause. With `lower_case_names` (lower_case_table_names=1)
    names of databases and tables are as the server stores them. `sql_mode` is that of the session, where the log gives it.
    """
    tokens = without_set_statement(tokenise(sql, flavour, sql_mode))
    parser = _Parser(tokens, default_database, lower_case_names=lower_case_names)
    try:
        statement = parser.statement(is_frame=classify_query(sql, flavour) is not QueryKind.OTHER)
    except UnreadError as error:
        statement = parser.unclear(str(error))
    return replace(statement, sql=sql)


class _Parser:
    """Reads one statement. Remembers the last table, should a part of the text not be understood."""

    def __init__(self, tokens: list[Token], database: str, *, lower_case_names: bool) -> None:
        self._tokens = tokens
        self._cursor = Cursor(tokens)
        self._lower_case_names = lower_case_names
        self._database = self._stored(database)
        self._last: TableRef | None = None

    def statement(self, *, is_frame: bool) -> Statement:
        """Return the statement; `UnreadError` for a token that is not understood. `is_frame`: it is no DDL."""
        verb = self._cursor.accept_any("CREATE", "ALTER", "RENAME", "DROP", "TRUNCATE")
        parse = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "DROP": self._drop,
            "TRUNCATE": self._truncate,
        }.get(verb)
        if parse is None:
            word = self._cursor.word()
            if is_frame or not word or word in _HARMLESS_VERBS:
                return self._other()
            raise self._cursor.unread()
        statement = parse()
        self._cursor.end()
        if any(isinstance(clause, Unclear) and clause.names_tables for clause in statement.clauses):
            return replace(statement, suspects=self._suspects({table.name for table in statement.tables}))
        return statement

    def unclear(self, why: str) -> Statement:
        """Return the statement to assume for a text that is not understood: it changes any table that it may name."""
        known = () if self._last is None else (self._last,)
        suspects = self._suspects({table.name for table in known})
        return Statement("unclear", self._database, known, clauses=(Unclear(f"a statement in which {why}"),), suspects=suspects)

    def _suspects(self, known: set[tuple[str, str]]) -> tuple[TableRef, ...]:
        """Return all tables that the text may name, but for those that are known to be named."""
        refs = {TableRef(*ref.name): None for ref in self._possible_names() if ref.name not in known}
        return tuple(refs)

    def _possible_names(self) -> Iterator[TableRef]:
        names = [token.text if token.kind in (Kind.WORD, Kind.NAME) or token.double_quoted else "" for token in self._tokens]
        for index, name in enumerate(names[1:], 1):
            if name:
                yield TableRef(self._database, self._stored(name))
                if index > 1 and self._tokens[index - 1].is_punctuation(".") and names[index - 2]:
                    yield TableRef(self._stored(names[index - 2]), self._stored(name))

    def _of(self, kind: StatementKind, table: TableRef, *clauses: Clause) -> Statement:
        return Statement(kind, self._database, (table,), clauses=clauses)

    def _other(self) -> Statement:
        self._cursor.rest()
        return Statement("other", self._database)

    # ---- names

    def _stored(self, name: str) -> str:
        return name.lower() if self._lower_case_names else name

    def _table(self) -> TableRef:
        self._last = self._other_table(self._cursor)
        return self._last

    def _other_table(self, cursor: Cursor) -> TableRef:
        database = self._database
        is_default = cursor.accept_punctuation(".")
        first, text = _name_as_written(cursor)
        if not is_default and cursor.accept_punctuation("."):
            second, more = _name_as_written(cursor)
            database, first, text = first, second, f"{text}.{more}"
        return TableRef(self._stored(database), self._stored(first), text)

    def _tables(self) -> tuple[TableRef, ...]:
        tables = [self._table()]
        while self._cursor.accept_punctuation(","):
            tables.append(self._table())
        return tuple(tables)

    def _is_about_no_table(self) -> bool:
        """Return whether it creates, alters, drops or renames something else, which may have an owner and attributes."""
        cursor = self._cursor
        if cursor.word() in ("DEFINER", "ALGORITHM", "SQL"):
            while not cursor.done and cursor.word() not in _NO_TABLES:
                cursor.next()
        if cursor.word() == "SPATIAL" and cursor.word(1) == "INDEX":
            return False
        return cursor.word() in _NO_TABLES

    # ---- CREATE

    def _create(self) -> Statement:
        cursor = self._cursor
        replaces = cursor.accept("OR", "REPLACE")
        if cursor.accept("TEMPORARY"):
            return self._temporary("create_temporary")
        if cursor.accept_any(*_DATABASE):
            statement = self._database_options("create_database")
        elif cursor.accept("TABLE"):
            statement = self._create_table()
        elif self._is_about_no_table():
            return self._create_trigger() if cursor.accept("TRIGGER") else self._other()
        elif cursor.accept("SEQUENCE"):
            return self._create_sequence(replaces=replaces)
        else:
            statement = self._create_index(replaces=replaces)
        return replace(statement, replaces=replaces)

    def _temporary(self, kind: Literal["create_temporary", "drop_temporary"]) -> Statement:
        """Read the names of temporary tables: their columns are of no interest."""
        cursor = self._cursor
        cursor.accept_any("TABLE", "TABLES")
        cursor.accept("IF", "NOT", "EXISTS")
        cursor.accept("IF", "EXISTS")
        tables = self._tables()
        cursor.rest()
        return Statement(kind, self._database, tables)

    def _create_table(self) -> Statement:
        cursor = self._cursor
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        table = self._table()
        has_rows = False
        body = [] if cursor.word() == "LIKE" else cursor.group()
        if cursor.word() == "LIKE" or (body and body[0].upper == "LIKE"):
            clauses: list[Clause] = [self._copied(Cursor(body) if body else cursor)]
        else:
            is_query = bool(body) and body[0].upper in _QUERIES
            clauses = [] if is_query else parse_body(body)
            before = cursor.remaining
            clauses += parse_options(cursor)
            skip_partitioning(cursor)
            options = before[: len(before) - len(cursor.remaining)]
            is_query |= self._skip_query()
            has_rows = is_query or not _is_empty_at_first(options)
            if is_query:
                clauses.append(FromQuery())
            elif not any(isinstance(clause, AddColumn | Unclear) for clause in clauses):
                clauses.append(Unclear("a table whose columns are not in the text"))
        statement = self._of("create_table", table, *clauses)
        return replace(statement, conditional=conditional, may_have_rows=has_rows)

    def _skip_query(self) -> bool:
        """Pass over the query of a CREATE, if it has one: all that is left of the text."""
        cursor = self._cursor
        is_said = bool(cursor.accept_any("IGNORE", "REPLACE")) | cursor.accept("AS")
        token = cursor.peek()
        if is_said or cursor.word() in _QUERIES or (token is not None and token.is_punctuation("(")):
            cursor.rest()
            return True
        return False

    def _copied(self, cursor: Cursor) -> Copy:
        cursor.require("LIKE")
        copy = Copy(*self._other_table(cursor).name)
        cursor.end()
        return copy

    def _create_sequence(self, *, replaces: bool) -> Statement:
        """Read CREATE SEQUENCE: with OR REPLACE it drops a table of that name."""
        self._cursor.accept("IF", "NOT", "EXISTS")
        table = self._table()
        self._cursor.rest()
        return Statement("drop_tables", self._database, (table,)) if replaces else self._other()

    def _create_trigger(self) -> Statement:
        cursor = self._cursor
        cursor.accept("IF", "NOT", "EXISTS")
        name = self._other_table(cursor).table
        while not cursor.accept("ON"):
            cursor.next()
        table = self._table()
        cursor.rest()
        return self._of("create_trigger", table, Trigger(name, *table.name))

    def _create_index(self, *, replaces: bool) -> Statement:
        """Read CREATE INDEX, an ALTER TABLE of another spelling; with `replaces` an index of that name is dropped first."""
        cursor = self._cursor
        cursor.accept_any("ONLINE", "OFFLINE")
        unique = cursor.accept_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") == "UNIQUE"
        cursor.require("INDEX")
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.needed_name()
        skip_index_type(cursor)
        cursor.require("ON")
        table = self._table()
        key = AddKey("unique" if unique else "other", name, parse_key_parts(cursor.needed_group()), conditional)
        self._skip_wait()
        skip_index_options(cursor)
        self._skip_algorithm()
        return self._of("create_index", table, *((DropKey(name), key) if replaces else (key,)))

    def _database_options(self, kind: Literal["create_database", "alter_database"]) -> Statement:
        cursor = self._cursor
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        name = "" if cursor.word() in _DATABASE_OPTIONS else cursor.name()
        database, is_new = self._stored(name) or self._database, kind == "create_database"
        try:
            options = parse_options(cursor)
            if cursor.accept("READ", "ONLY"):
                cursor.value()
            cursor.end()
        except UnreadError:
            cursor.rest()
            clause = DatabaseCharset(database, None, None, is_new, is_unclear=True)
        else:
            given = next((one for one in options if isinstance(one, TableCharset)), TableCharset(None, None))
            clause = DatabaseCharset(database, given.charset, given.collation, is_new)
        return Statement(kind, database, clauses=(clause,), conditional=conditional)

    # ---- DROP, TRUNCATE, RENAME

    def _drop(self) -> Statement:
        cursor = self._cursor
        if cursor.accept("TEMPORARY"):
            return self._temporary("drop_temporary")
        if cursor.accept_any(*_DATABASE):
            return self._drop_database()
        if self._is_about_no_table() or cursor.word() == "SEQUENCE":
            return self._other()
        is_online = cursor.accept_any("ONLINE", "OFFLINE")
        if cursor.accept("INDEX"):
            cursor.accept("IF", "EXISTS")
            name = cursor.needed_name()
            cursor.require("ON")
            statement = self._of("drop_index", self._table(), DropKey(name))
            self._skip_wait()
            self._skip_algorithm()
            return statement
        if is_online or not cursor.accept_any("TABLE", "TABLES"):
            raise cursor.unread()
        cursor.accept("IF", "EXISTS")
        tables = self._tables()
        self._skip_wait()
        cursor.accept_any("RESTRICT", "CASCADE")
        return Statement("drop_tables", self._database, tables)

    def _drop_database(self) -> Statement:
        cursor = self._cursor
        cursor.accept("IF", "EXISTS")
        database = self._stored(cursor.needed_name())
        if cursor.done:
            return Statement("drop_database", database)
        why = Unclear(f"a statement in which {cursor.unread()}")
        cursor.rest()
        return Statement("unclear", self._database, clauses=(why,), suspects=(TableRef(database, ""),))

    def _truncate(self) -> Statement:
        cursor = self._cursor
        cursor.accept("TABLE")
        table = self._table()
        self._skip_wait()
        if cursor.accept_any("DROP", "REUSE"):
            cursor.require("STORAGE")
        return self._of("truncate", table)

    def _rename(self) -> Statement:
        cursor = self._cursor
        if cursor.word() == "USER":
            return self._other()
        if not cursor.accept_any("TABLE", "TABLES"):
            raise cursor.unread()
        cursor.accept("IF", "EXISTS")
        old, new = [], []
        while True:
            old.append(self._table())
            self._skip_wait()
            cursor.require("TO")
            new.append(self._table())
            if not cursor.accept_punctuation(","):
                return Statement("rename_tables", self._database, tuple(old), tuple(new))

    def _skip_wait(self) -> None:
        if self._cursor.accept("WAIT"):
            self._cursor.number()
        else:
            self._cursor.accept("NOWAIT")

    def _skip_algorithm(self) -> None:
        while self._cursor.accept_any("ALGORITHM", "LOCK"):
            self._cursor.value()

    # ---- ALTER

    def _alter(self) -> Statement:
        cursor = self._cursor
        if cursor.accept_any(*_DATABASE):
            return self._database_options("alter_database")
        if self._is_about_no_table() or cursor.word() == "SEQUENCE":
            return self._other()
        cursor.accept_any("ONLINE", "OFFLINE")
        ignores = cursor.accept("IGNORE")
        cursor.require("TABLE")
        cursor.accept("IF", "EXISTS")
        table = self._table()
        self._skip_wait()
        clauses = parse_alter(cursor.rest(), self._other_table)
        return replace(self._of("alter_table", table, *clauses), ignores=ignores)


def _name_as_written(cursor: Cursor) -> tuple[str, str]:
    """Read a name; return it, and its text with the quotes it had."""
    token = cursor.peek()
    name = cursor.needed_name()
    return name, quoted(name) if token is not None and token.kind is Kind.NAME else name


def _is_empty_at_first(options: list[Token]) -> bool:
    """Return whether the engine that a CREATE names, if it names one, keeps rows of the table alone."""
    cursor = Cursor(options)
    while not cursor.done:
        if cursor.accept("ENGINE"):
            return cursor.value().text.upper() in _OWN_ROWS
        cursor.next()
    return True
