"""The parser of DDL statements: a text enters, one `Statement` leaves. It never raises."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from producer.catalog.statements.alter_table import parse_alter
from producer.catalog.statements.clauses import (
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
from producer.catalog.statements.elements import parse_body, parse_key_parts, parse_options
from producer.catalog.statements.token_cursor import Cursor, outside_groups
from producer.catalog.statements.tokens import Kind, Token, tokenise, without_set_statement

_DATABASE_OPTIONS: Final = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "ENCRYPTION", "READ")
_OWN_ROWS: Final = frozenset({"INNODB", "MYISAM", "ARIA", "ROCKSDB", "TOKUDB", "MEMORY", "HEAP", "CSV", "NDB", "NDBCLUSTER"})


def parse_statement(
    sql: str,
    default_database: str,
    flavour: str = "mysql",
    *,
    lower_case_names: bool = False,
    sql_mode: int | None = None,
) -> Statement:
    """Return what a statement asks for; the kind "other" where it changes no table and no database.

    A part of an ALTER TABLE that is not understood is an `Unclear` clause. With `lower_case_names` (lower_case_table_names=1)
    names of databases and tables are as the server stores them. `sql_mode` is that of the session, where the log gives it.
    """
    cursor = Cursor(without_set_statement(tokenise(sql, flavour, sql_mode)))
    parser = _Parser(cursor, default_database, lower_case_names=lower_case_names)
    try:
        return parser.statement()
    except IndexError:
        return parser.incomplete()


class _Parser:
    """Reads one statement. Remembers its verb and the last table, should the text end too early."""

    def __init__(self, cursor: Cursor, database: str, *, lower_case_names: bool) -> None:
        self._cursor = cursor
        self._lower_case_names = lower_case_names
        self._database = self._stored(database)
        self._verb = ""
        self._last: TableRef | None = None

    def statement(self) -> Statement:
        """Return the statement; `IndexError` where it ends early."""
        self._verb = self._cursor.accept_any("CREATE", "ALTER", "RENAME", "DROP", "TRUNCATE")
        parse = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "DROP": self._drop,
            "TRUNCATE": self._truncate,
        }.get(self._verb, self._other)
        return parse()

    def incomplete(self) -> Statement:
        """Return what to assume of a text that ended too early."""
        if self._last is None:
            return self._other()
        kind: StatementKind = "alter_table" if self._verb == "ALTER" else "incomplete"
        return self._of(kind, self._last, Unclear("a statement that ends too early"))

    def _of(self, kind: StatementKind, table: TableRef, *clauses: Clause) -> Statement:
        return Statement(kind, self._database, (table,), clauses=clauses)

    def _other(self) -> Statement:
        return Statement("other", self._database)

    # ---- names

    def _stored(self, name: str) -> str:
        return name.lower() if self._lower_case_names else name

    def _table(self) -> TableRef:
        self._last = self._other_table(self._cursor)
        return self._last

    def _other_table(self, cursor: Cursor) -> TableRef:
        first, text = _name_as_written(cursor)
        database = self._database
        if cursor.accept_punctuation("."):
            second, more = _name_as_written(cursor)
            database, first, text = first or database, second, f"{text}.{more}"
        return TableRef(self._stored(database), self._stored(first), text)

    def _tables(self) -> tuple[TableRef, ...]:
        tables = []
        while not self._cursor.done:
            tables.append(self._table())
            if not self._cursor.accept_punctuation(","):
                break
        return tuple(tables)

    # ---- CREATE

    def _create(self) -> Statement:
        cursor = self._cursor
        replaces = cursor.accept("OR", "REPLACE")
        if cursor.accept_any("DATABASE", "SCHEMA"):
            statement = self._database_options("create_database")
        elif cursor.accept("TEMPORARY"):
            return self._other()
        elif cursor.accept("TABLE"):
            statement = self._create_table()
        else:
            statement = self._create_trigger() or self._create_index(replaces=replaces)
        return replace(statement, replaces=replaces)

    def _create_table(self) -> Statement:
        cursor = self._cursor
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        table = self._table()
        body = [] if cursor.word() == "LIKE" else cursor.group()
        options = outside_groups(cursor.rest())
        clauses: list[Clause]
        if _copies(body) or _copies(options):
            clauses = [self._copied(Cursor(body or options))]
        else:
            clauses = [] if _reads_rows(body[:1]) else parse_body(body)
            clauses += parse_options(options)
        is_from_query = _reads_rows(body[:1]) or _reads_rows(options)
        if is_from_query:
            clauses.append(FromQuery())
        may_have_rows = is_from_query or not _is_empty_at_first(options)
        statement = self._of("create_table", table, *clauses)
        return replace(statement, conditional=conditional, may_have_rows=may_have_rows)

    def _copied(self, cursor: Cursor) -> Copy:
        cursor.next()
        return Copy(*self._other_table(cursor).name)

    def _create_trigger(self) -> Statement | None:
        cursor = self._cursor
        if cursor.accept("DEFINER"):
            while not cursor.done and cursor.word() not in ("TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "VIEW"):
                cursor.next()
        if not cursor.accept("TRIGGER"):
            return None
        cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name()
        if cursor.accept_punctuation("."):
            name = cursor.name()
        while not cursor.done and not cursor.accept("ON"):
            cursor.next()
        table = self._table()
        return self._of("create_trigger", table, Trigger(name, *table.name))

    def _create_index(self, *, replaces: bool) -> Statement:
        """Read CREATE INDEX, an ALTER TABLE of another spelling; with `replaces` an index of that name is dropped first."""
        cursor = self._cursor
        cursor.accept_any("ONLINE", "OFFLINE")
        unique = cursor.accept_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") == "UNIQUE"
        if not cursor.accept("INDEX"):
            return self._other()
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name()
        while not cursor.done and not cursor.accept("ON"):
            cursor.next()
        table = self._table()
        key = AddKey("unique" if unique else "other", name, parse_key_parts(cursor.group()), conditional)
        return self._of("create_index", table, *((DropKey(name), key) if replaces else (key,)))

    def _database_options(self, kind: StatementKind) -> Statement:
        cursor = self._cursor
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        name = "" if cursor.word() in _DATABASE_OPTIONS else cursor.name()
        database = self._stored(name) or self._database
        options = parse_options(cursor.rest())
        given = next((clause for clause in options if isinstance(clause, TableCharset)), TableCharset(None, None))
        clause = DatabaseCharset(database, given.charset, given.collation, kind == "create_database")
        return Statement(kind, database, clauses=(clause,), conditional=conditional)

    # ---- DROP, TRUNCATE, RENAME

    def _drop(self) -> Statement:
        cursor = self._cursor
        if cursor.accept_any("DATABASE", "SCHEMA"):
            cursor.accept("IF", "EXISTS")
            return Statement("drop_database", self._stored(cursor.name()))
        cursor.accept_any("ONLINE", "OFFLINE")
        if cursor.accept("INDEX"):
            cursor.accept("IF", "EXISTS")
            name = cursor.name()
            return self._of("drop_index", self._table(), DropKey(name)) if cursor.accept("ON") else self._other()
        if not cursor.accept_any("TABLE", "TABLES"):
            return self._other()
        cursor.accept("IF", "EXISTS")
        return Statement("drop_tables", self._database, self._tables())

    def _truncate(self) -> Statement:
        self._cursor.accept("TABLE")
        return self._of("truncate", self._table())

    def _rename(self) -> Statement:
        cursor = self._cursor
        if not cursor.accept_any("TABLE", "TABLES"):
            return self._other()
        cursor.accept("IF", "EXISTS")
        old, new = [], []
        while not cursor.done:
            old.append(self._table())
            self._skip_wait()
            cursor.accept_any("TO", "AS")
            new.append(self._table())
            if not cursor.accept_punctuation(","):
                break
        return Statement("rename_tables", self._database, tuple(old), tuple(new))

    def _skip_wait(self) -> None:
        if self._cursor.accept("WAIT"):
            self._cursor.next()
        self._cursor.accept("NOWAIT")

    # ---- ALTER

    def _alter(self) -> Statement:
        cursor = self._cursor
        if cursor.accept_any("DATABASE", "SCHEMA"):
            return self._database_options("alter_database")
        cursor.accept_any("ONLINE", "OFFLINE")
        ignores = cursor.accept("IGNORE")
        if not cursor.accept("TABLE"):
            return self._other()
        cursor.accept("IF", "EXISTS")
        table = self._table()
        self._skip_wait()
        clauses = parse_alter(cursor.rest(), self._other_table)
        return replace(self._of("alter_table", table, *clauses), ignores=ignores)


def _name_as_written(cursor: Cursor) -> tuple[str, str]:
    """Read a name; return it, and its text with the quotes it had."""
    token = cursor.peek()
    name = cursor.name()
    quoted = token is not None and token.kind is Kind.NAME
    return name, f"`{name.replace('`', '``')}`" if quoted else name


def _is_empty_at_first(options: list[Token]) -> bool:
    """Return whether the engine that a CREATE names, if it names one, keeps rows of the table alone."""
    cursor = Cursor(options)
    while not cursor.done:
        if cursor.accept("ENGINE"):
            cursor.accept_punctuation("=")
            return cursor.word() in _OWN_ROWS
        cursor.next()
    return True


def _copies(tokens: list[Token]) -> bool:
    return bool(tokens) and tokens[0].upper == "LIKE"


def _reads_rows(tokens: list[Token]) -> bool:
    """Return whether a CREATE fills its table from a query. Rows of such a statement are not in the log."""
    return any(token.upper in ("SELECT", "WITH", "VALUES", "AS", "TABLE") for token in tokens) and not any(
        token.upper == "VERSIONING" for token in tokens
    )
