"""DDL text of the log: which tables a statement changes, and what that does to rows that leave no events.

The text is a hint; TABLE_MAP metadata decides what columns a table has. But only the text says that stored
rows changed without row events, so what is not understood here counts as such a change (effect "snapshot").

Effects, weakest first: `none` · `fill` (a column was added, every stored row got the same constant or NULL) ·
`snapshot` (stored values may have changed: read the table again) · `floor` (all older rows are gone).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Final, Literal

from producer.catalog.character_sets import charset_name
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
    KeyPart,
    RenameColumn,
    RenameKey,
    SetDefault,
    TableCharset,
    Trigger,
    Unclear,
)
from producer.catalog.statements.column_definition import (
    ColumnDefinition,
    Cursor,
    is_exact,
    parse_definition,
    split_commas,
    take_default,
    to_column,
)
from producer.catalog.statements.tokens import Kind, Token, scan, tokenise
from schemas.columns import ColumnType

DdlKind = Literal["create", "alter", "rename", "drop", "truncate", "drop_database", "other"]
Effect = Literal["none", "fill", "snapshot", "floor"]
EFFECTS: Final[tuple[Effect, ...]] = ("none", "fill", "snapshot", "floor")


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column a statement adds. `default` is its literal default, None for none or an expression."""

    name: str
    default: str | None
    is_expression: bool
    nullable: bool
    definition: ColumnDefinition


@dataclass(frozen=True, slots=True)
class ChangedColumn:
    """A column that MODIFY or CHANGE defines anew; `old_name` is what it was called."""

    old_name: str
    definition: ColumnDefinition


@dataclass(frozen=True, slots=True)
class DdlChange:
    """What a statement does to one table.

    `effect` is the safe answer from the text alone; `Catalog.apply` refines it by the old columns.
    `conditional` marks CREATE TABLE IF NOT EXISTS, which may have done nothing; `may_hold_rows` a CREATE with an engine whose
    tables can have rows at once, which the log does not tell (MERGE, FEDERATED, CONNECT and others).
    `decided` is the effect of everything but `changed`, `dropped` and `charset`, which depend on those.
    `clauses` is all the text says about columns and keys, in its order.
    """

    kind: DdlKind
    database: str
    table: str
    new_database: str = ""
    new_table: str = ""
    added: tuple[AddedColumn, ...] = ()
    effect: Effect = "none"
    changed: tuple[ChangedColumn, ...] = ()
    dropped: tuple[str, ...] = ()
    defaults: tuple[ColumnDefinition, ...] = ()
    charset: str | None = None
    conditional: bool = False
    may_hold_rows: bool = False
    decided: Effect = "none"
    clauses: tuple[Clause, ...] = ()

    @property
    def touches_columns(self) -> bool:
        """Whether the table may have other columns than before, or columns of another type; not: other defaults."""
        return bool(self.added or self.changed or self.dropped or self.charset)


class QueryKind(Enum):
    """What a query event holds."""

    BEGIN = "begin"
    COMMIT = "commit"
    SAVEPOINT = "savepoint"
    ROLLBACK = "rollback"
    XA = "xa"
    DML = "dml"
    OTHER = "other"


_FIRST_WORDS: Final = {
    "BEGIN": QueryKind.BEGIN,
    "COMMIT": QueryKind.COMMIT,
    "SAVEPOINT": QueryKind.SAVEPOINT,
    "RELEASE": QueryKind.SAVEPOINT,
    "ROLLBACK": QueryKind.ROLLBACK,
    "XA": QueryKind.XA,
    "INSERT": QueryKind.DML,
    "UPDATE": QueryKind.DML,
    "DELETE": QueryKind.DML,
    "REPLACE": QueryKind.DML,
    "CALL": QueryKind.DML,
    "DO": QueryKind.DML,
    "SELECT": QueryKind.DML,
    "WITH": QueryKind.DML,
    "VALUES": QueryKind.DML,
    "TABLE": QueryKind.DML,
}


def classify_query(sql: str, flavour: str = "mysql") -> QueryKind:
    """What a query event's text is, by its first words; comments in front do not hide them."""
    if sql == "BEGIN":
        return QueryKind.BEGIN
    tokens = scan(sql, flavour)
    words = [token.upper or token.text for token in islice(tokens, 3)]
    words += [""] * (3 - len(words))
    if words[:2] == ["START", "TRANSACTION"]:
        return QueryKind.BEGIN
    if words[:2] in (["LOAD", "DATA"], ["LOAD", "XML"]):
        return QueryKind.DML
    if words[:2] == ["SET", "STATEMENT"]:
        return _classify_after_for(sql, flavour)
    return _FIRST_WORDS.get(words[1] if words[0] == "(" else words[0], QueryKind.OTHER)


def savepoint_name(sql: str, flavour: str = "mysql") -> str | None:
    """The name in SAVEPOINT and ROLLBACK TO, folded as servers compare it; None for a ROLLBACK of everything."""
    tokens = [token for token in tokenise(sql, flavour) if token.upper not in ("WORK", "TO", "SAVEPOINT")]
    return tokens[-1].text.lower() if len(tokens) > (0 if sql.upper().startswith("SAVEPOINT") else 1) else None


def is_dml(sql: str, flavour: str = "mysql") -> bool:
    """Whether a query event changes rows as a statement, so that the rows are not in the log."""
    return classify_query(sql, flavour) is QueryKind.DML


def _classify_after_for(sql: str, flavour: str) -> QueryKind:
    tokens = without_set_statement(tokenise(sql, flavour))
    return _FIRST_WORDS.get(tokens[0].upper, QueryKind.OTHER) if tokens else QueryKind.OTHER


def without_set_statement(tokens: list[Token]) -> list[Token]:
    """MariaDB's `SET STATEMENT variable=value, ... FOR statement` without its head."""
    if [token.upper for token in tokens[:2]] != ["SET", "STATEMENT"]:
        return tokens
    place = next((index for index, token in enumerate(tokens) if token.upper == "FOR"), len(tokens))
    return tokens[place + 1 :]


# ── statements ────────────────────────────────


def parse_ddl(
    sql: str,
    default_database: str,
    flavour: str = "mysql",
    *,
    lower_case_names: bool = False,
    sql_mode: int | None = None,
) -> tuple[DdlChange, ...]:
    """The tables a statement changes, in the order it changes them; one "other" where it changes none.

    Never raises: a statement on a table that is not understood has the effect "snapshot". With
    `lower_case_names` (lower_case_table_names=1) names are folded as the server stores them. `sql_mode` is that of its
    session, where the log told it.
    """
    tokens = without_set_statement(tokenise(sql, flavour, sql_mode))
    statement = _Statement(Cursor(tokens), default_database, flavour)
    try:
        changes = statement.parse()
    except IndexError:
        changes = statement.broken()
    changes = changes or (DdlChange("other", default_database, ""),)
    return tuple(_folded(change) for change in changes) if lower_case_names else changes


def _folded(change: DdlChange) -> DdlChange:
    return replace(
        change,
        database=change.database.lower(),
        table=change.table.lower(),
        new_database=change.new_database.lower(),
        new_table=change.new_table.lower(),
        clauses=tuple(map(_folded_names, change.clauses)),
    )


def _folded_names(clause: Clause) -> Clause:
    """The clause with names of databases and tables as the server stores them."""
    if isinstance(clause, DatabaseCharset):
        return replace(clause, database=clause.database.lower())
    if isinstance(clause, Copy | Trigger):
        return replace(clause, database=clause.database.lower(), table=clause.table.lower())
    return clause


def strongest(*effects: Effect) -> Effect:
    """The strongest of some effects."""
    return max(effects, key=EFFECTS.index, default="none")


class _Statement:
    """Parses one statement; remembers the table it met, should the text end too early."""

    def __init__(self, cursor: Cursor, database: str, flavour: str) -> None:
        self._cursor = cursor
        self._database = database
        self._flavour = flavour
        self._met: tuple[str, str] | None = None

    def parse(self) -> tuple[DdlChange, ...]:
        """The changes, () for a statement that is no DDL on tables; `IndexError` where it ends early."""
        verb = self._cursor.accept_any("CREATE", "ALTER", "RENAME", "DROP", "TRUNCATE")
        if not verb:
            return ()
        return {
            "CREATE": self._create,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "DROP": self._drop,
            "TRUNCATE": self._truncate,
        }[verb]()

    def broken(self) -> tuple[DdlChange, ...]:
        """What to assume of a text that ended too early."""
        if self._met is None:
            return ()
        unclear = (Unclear("a statement that ends too early"),)
        return (DdlChange("alter", *self._met, effect="snapshot", decided="snapshot", clauses=unclear),)

    def _table(self) -> tuple[str, str]:
        first = self._cursor.name()
        if self._cursor.accept_punctuation("."):
            self._met = (first, self._cursor.name()) if first else (self._database, self._cursor.name())
        else:
            self._met = (self._database, first)
        return self._met

    # CREATE

    def _create(self) -> tuple[DdlChange, ...]:
        cursor = self._cursor
        replaces = cursor.accept("OR", "REPLACE")
        if cursor.accept_any("DATABASE", "SCHEMA"):
            return self._database_charset(is_new=True, replaces=replaces)
        if cursor.accept("TEMPORARY"):
            return ()
        if not cursor.accept("TABLE"):
            return self._create_trigger() or self._create_index(replaces=replaces)
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        table = self._table()
        effect: Effect = "none" if conditional else "floor"  # the table is empty here, whatever it was before
        body = [] if cursor.word() == "LIKE" else cursor.group()
        options = _outside_groups(cursor.rest())
        reads = _reads_rows(body[:1]) or _reads_rows(options)
        if reads:
            effect = "snapshot"
        added = () if _reads_rows(body[:1]) or _copies(body) else self._columns(body)
        clauses: tuple[Clause, ...]
        if reads:
            clauses = (Unclear("columns that come from a query"),)
        elif _copies(body) or _copies(options[:1]):
            clauses = (self._copied(Cursor(body or options)),)
        else:
            clauses = (*_body_clauses(body), *_charset_clauses(options))
        change = DdlChange(
            "create",
            *table,
            added=added,
            conditional=conditional,
            may_hold_rows=bool(reads) or not _is_empty_at_first(options),
            effect=effect,
            decided=effect,
            clauses=clauses,
        )
        return (change,)

    def _database_charset(self, *, is_new: bool, replaces: bool = False) -> tuple[DdlChange, ...]:
        cursor = self._cursor
        if cursor.accept("IF", "NOT", "EXISTS"):
            return ()  # it may have been there
        words = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "ENCRYPTION", "READ")
        name = "" if cursor.word() in words else cursor.name()
        told = _charset_clauses(cursor.rest())
        charset = next((clause for clause in told if isinstance(clause, TableCharset)), TableCharset(None, None))
        clause = DatabaseCharset(name or self._database, charset.charset, charset.collation, is_new)
        change = DdlChange("other", self._database, "", clauses=(clause,))
        return (_dropped_database(clause.database), change) if replaces else (change,)

    def _copied(self, cursor: Cursor) -> Copy:
        cursor.next()
        first = cursor.name()
        return Copy(first, cursor.name()) if cursor.accept_punctuation(".") else Copy(self._database, first)

    def _columns(self, body: list[Token]) -> tuple[AddedColumn, ...]:
        added = []
        for part in split_commas(body):
            cursor = Cursor(part)
            if _is_column(cursor):
                added.append(_added(parse_definition(cursor, cursor.name())))
        return tuple(added)

    def _create_trigger(self) -> tuple[DdlChange, ...]:
        cursor = self._cursor
        if cursor.accept("DEFINER"):
            while not cursor.done and cursor.word() not in ("TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "VIEW"):
                cursor.next()
        if not cursor.accept("TRIGGER"):
            return ()
        cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name()
        if cursor.accept_punctuation("."):
            name = cursor.name()
        while not cursor.done and not cursor.accept("ON"):
            cursor.next()
        return (DdlChange("other", self._database, "", clauses=(Trigger(name, *self._table()),)),)

    def _create_index(self, *, replaces: bool) -> tuple[DdlChange, ...]:
        """CREATE INDEX is an ALTER TABLE of another spelling; `replaces`: an index of that name goes."""
        cursor = self._cursor
        cursor.accept_any("ONLINE", "OFFLINE")
        unique = cursor.accept_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") == "UNIQUE"
        if not cursor.accept("INDEX"):
            return ()
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name()
        while not cursor.done and not cursor.accept("ON"):
            cursor.next()
        table = self._table()
        key = AddKey("unique" if unique else "other", name, _key_parts(cursor.group()), conditional)
        clauses: tuple[Clause, ...] = (DropKey(name), key) if replaces else (key,)
        return (DdlChange("alter", *table, clauses=clauses),)

    # DROP, TRUNCATE, RENAME

    def _drop(self) -> tuple[DdlChange, ...]:
        cursor = self._cursor
        if cursor.accept_any("DATABASE", "SCHEMA"):
            cursor.accept("IF", "EXISTS")
            return (_dropped_database(cursor.name()),)
        cursor.accept_any("ONLINE", "OFFLINE")
        if cursor.accept("INDEX"):
            cursor.accept("IF", "EXISTS")
            name = cursor.name()
            primary = name.upper() == "PRIMARY"
            effect: Effect = "snapshot" if primary else "none"
            if not cursor.accept("ON"):
                return ()
            table = self._table()
            return (DdlChange("alter", *table, effect=effect, decided=effect, clauses=(DropKey(name),)),)
        if not cursor.accept_any("TABLE", "TABLES"):
            return ()
        cursor.accept("IF", "EXISTS")
        changes = []
        while not cursor.done:
            changes.append(DdlChange("drop", *self._table(), effect="floor", decided="floor"))
            if not cursor.accept_punctuation(","):
                break
        return tuple(changes)

    def _truncate(self) -> tuple[DdlChange, ...]:
        self._cursor.accept("TABLE")
        return (DdlChange("truncate", *self._table(), effect="floor", decided="floor"),)

    def _rename(self) -> tuple[DdlChange, ...]:
        cursor = self._cursor
        if not cursor.accept_any("TABLE", "TABLES"):
            return ()
        cursor.accept("IF", "EXISTS")
        changes = []
        while not cursor.done:
            old = self._table()
            self._skip_wait()
            cursor.accept_any("TO", "AS")
            changes.append(_renamed(old, self._table()))
            if not cursor.accept_punctuation(","):
                break
        return tuple(changes)

    def _skip_wait(self) -> None:
        if self._cursor.accept("WAIT"):
            self._cursor.next()
        self._cursor.accept("NOWAIT")

    # ALTER

    def _alter(self) -> tuple[DdlChange, ...]:
        cursor = self._cursor
        if cursor.accept_any("DATABASE", "SCHEMA"):
            return self._database_charset(is_new=False)
        cursor.accept_any("ONLINE", "OFFLINE")
        ignores = cursor.accept("IGNORE")
        if not cursor.accept("TABLE"):
            return ()
        cursor.accept("IF", "EXISTS")
        table = self._table()
        self._skip_wait()
        alteration = _Alteration(table, self._database, self._flavour)
        for clause in split_commas(cursor.rest()):
            alteration.clause(Cursor(clause))
        if ignores:
            alteration.has("snapshot")
        return alteration.changes()


def _dropped_database(name: str) -> DdlChange:
    return DdlChange("drop_database", name, "", effect="floor", decided="floor")


def _renamed(old: tuple[str, str], new: tuple[str, str]) -> DdlChange:
    return DdlChange("rename", *old, *new, effect="snapshot", decided="snapshot")


def _outside_groups(tokens: list[Token]) -> list[Token]:
    outside, depth = [], 0
    for token in tokens:
        depth += token.is_punctuation("(")
        if not depth:
            outside.append(token)
        depth -= token.is_punctuation(")")
    return outside


_OWN_ROWS: Final = frozenset({"INNODB", "MYISAM", "ARIA", "ROCKSDB", "TOKUDB", "MEMORY", "HEAP", "CSV", "NDB", "NDBCLUSTER"})


def _is_empty_at_first(options: list[Token]) -> bool:
    """Whether the engine that a CREATE names, if it names one, keeps rows of the table alone."""
    cursor = Cursor(options)
    while not cursor.done:
        if cursor.accept("ENGINE"):
            cursor.accept_punctuation("=")
            return cursor.word() in _OWN_ROWS
        cursor.next()
    return True


def _copies(body: list[Token]) -> bool:
    return body[:1] == [Token(Kind.WORD, body[0].text, "LIKE")] if body else False


def _reads_rows(tokens: list[Token]) -> bool:
    """Whether a CREATE fills its table from a query; so logged, its rows are not in the log."""
    return any(token.upper in ("SELECT", "WITH", "VALUES", "AS", "TABLE") for token in tokens) and not any(
        token.upper == "VERSIONING" for token in tokens
    )


_NOT_COLUMNS: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK"}
)


def _is_column(cursor: Cursor) -> bool:
    word = cursor.word()
    if word in _NOT_COLUMNS:
        return False
    return not (word == "PERIOD" and cursor.word(1) == "FOR") and not (
        word == "VECTOR" and cursor.word(1) in ("INDEX", "KEY")
    )


def _placed(cursor: Cursor) -> str | None:
    """The place behind a column definition."""
    if cursor.accept("FIRST"):
        return FIRST
    return cursor.name() if cursor.accept("AFTER") else None


def _body_clauses(body: list[Token]) -> list[Clause]:
    """The columns and keys of a CREATE TABLE, or of ADD (...)."""
    clauses: list[Clause] = []
    for part in split_commas(body):
        cursor = Cursor(part)
        if _is_column(cursor):
            clauses += _column_clauses(AddColumn(parse_definition(cursor, cursor.name())))
        else:
            clauses += _key_clauses(cursor)
    return clauses


def _column_clauses(clause: AddColumn | ChangeColumn) -> list[Clause]:
    """A column, and the key its definition makes."""
    definition = clause.definition
    clauses: list[Clause] = [clause]
    new = definition.name if isinstance(clause, AddColumn) and clause.conditional else ""
    if definition.primary:
        clauses.append(AddKey("primary", "", (KeyPart(definition.name),), new_column=new))
    elif definition.unique:
        clauses.append(AddKey("unique", "", (KeyPart(definition.name),), new_column=new))
    return clauses


def _key_clauses(cursor: Cursor) -> list[Clause]:
    """The index a table element makes: [] for a CHECK and a PERIOD."""
    name = ""
    if cursor.accept("CONSTRAINT") and cursor.word() not in _NOT_COLUMNS:
        name = cursor.name()
    word = cursor.accept_any("PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "INDEX", "KEY", "FOREIGN")
    if not word:
        return []
    if word not in ("INDEX", "KEY"):
        cursor.accept_any("INDEX", "KEY")
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    token = cursor.peek()
    if token is not None and cursor.word() != "USING" and not token.is_punctuation("("):
        given = cursor.name()
        name = name if word == "FOREIGN" else given or name
    while not cursor.done and not _opens(cursor.peek()):
        cursor.next()
    parts = _key_parts(cursor.group())
    if word == "PRIMARY":
        return [AddKey("primary", "PRIMARY", parts, conditional)]
    return [AddKey("unique" if word == "UNIQUE" else "other", name, parts, conditional)]


def _opens(token: Token | None) -> bool:
    return token is not None and token.is_punctuation("(")


def _key_parts(tokens: list[Token]) -> tuple[KeyPart, ...]:
    parts = []
    for part in split_commas(tokens):
        cursor = Cursor(part)
        name = cursor.name()  # "" before the parenthesis of an expression
        numbers = [token.text for token in cursor.group() if token.kind is Kind.NUMBER] if name else []
        parts.append(KeyPart(name, int(numbers[0]) if numbers and numbers[0].isdigit() else 0))
    return tuple(parts)


def _charset_clauses(tokens: list[Token]) -> list[Clause]:
    """The character set among table options, which need no commas between them."""
    charset = collation = None
    cursor = Cursor(tokens)
    while not cursor.done:
        if cursor.accept("CHARACTER", "SET") or cursor.accept("CHARSET") or cursor.accept("CHAR", "SET"):
            cursor.accept_punctuation("=")
            charset = charset_name(cursor.next().text)
        elif cursor.accept("COLLATE"):
            cursor.accept_punctuation("=")
            collation = cursor.next().text.lower()
        else:
            if cursor.word() in ("COMMENT", "CONNECTION", "PASSWORD"):
                cursor.next()
                cursor.accept_punctuation("=")
            if not cursor.done:
                cursor.next()
    return [TableCharset(charset, collation)] if charset or collation else []


def _added(definition: ColumnDefinition) -> AddedColumn:
    literal = None if definition.default_is_expression else definition.default
    nullable = definition.nullable is not False
    return AddedColumn(definition.name, literal, definition.default_is_expression, nullable, definition)


# ── ALTER TABLE ────────────────────────────────

_OPTIONS: Final = frozenset(
    {
        "ALGORITHM",
        "AUTOEXTEND_SIZE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHECKSUM",
        "COMMENT",
        "COMPRESSION",
        "CONNECTION",
        "DATA",
        "DELAY_KEY_WRITE",
        "DISABLE",
        "ENABLE",
        "ENCRYPTED",
        "ENCRYPTION",
        "ENCRYPTION_KEY_ID",
        "ENGINE",
        "ENGINE_ATTRIBUTE",
        "FORCE",
        "INDEX",
        "INSERT_METHOD",
        "ITEF_QUOTES",
        "KEY_BLOCK_SIZE",
        "LOCK",
        "MAX_ROWS",
        "MIN_ROWS",
        "NOWAIT",
        "ORDER",
        "PACK_KEYS",
        "PAGE_CHECKSUM",
        "PAGE_COMPRESSED",
        "PAGE_COMPRESSION_LEVEL",
        "PASSWORD",
        "ROW_FORMAT",
        "SECONDARY_ENGINE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "SEQUENCE",
        "START",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "STORAGE",
        "TABLESPACE",
        "TABLE_CHECKSUM",
        "TRANSACTIONAL",
        "TYPE",
        "UNION",
        "WAIT",
        "WITH",
        "WITHOUT",
    }
)
_HARMLESS_PARTITION: Final = frozenset(
    {"ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "REORGANIZE", "COALESCE", "REMOVE", "PARTITION"}
)


class _Alteration:
    """Collects what the clauses of one ALTER TABLE do."""

    def __init__(self, table: tuple[str, str], database: str, flavour: str) -> None:
        self._table = table
        self._database = database
        self._flavour = flavour
        self._decided: Effect = "none"
        self._added: list[AddedColumn] = []
        self._changed: list[ChangedColumn] = []
        self._dropped: list[str] = []
        self._defaults: list[ColumnDefinition] = []
        self._charset: str | None = None
        self._new_table: tuple[str, str] | None = None
        self._other_table: tuple[str, str] | None = None
        self._taken_in: tuple[str, str] | None = None
        self._in_partitions = False
        self._clauses: list[Clause] = []

    def has(self, effect: Effect) -> None:
        """Something has this effect, whatever the old columns were."""
        self._decided = strongest(self._decided, effect)

    def changes(self) -> tuple[DdlChange, ...]:
        """The changes of the whole statement: the table's, then a partner's, then the renaming."""
        if {column.name.lower() for column in self._added} & {name.lower() for name in self._dropped}:
            self.has("snapshot")
        depends = self._changed or self._dropped or self._charset
        change = DdlChange(
            "alter",
            *self._table,
            added=tuple(self._added),
            effect="snapshot" if depends else self._decided,
            changed=tuple(self._changed),
            dropped=tuple(self._dropped),
            defaults=tuple(self._defaults),
            charset=self._charset,
            decided=self._decided,
            clauses=tuple(self._clauses),
        )
        changes = [change]
        if self._other_table is not None:
            changes.append(DdlChange("alter", *self._other_table, effect="snapshot", decided="snapshot"))
        if self._taken_in is not None:
            changes.append(DdlChange("drop", *self._taken_in, effect="floor", decided="floor"))
        if self._new_table is not None:
            changes.append(_renamed(self._table, self._new_table))
        return tuple(changes)

    def clause(self, cursor: Cursor) -> None:
        """Take one clause between commas."""
        word = cursor.word()
        take = {
            "ADD": self._add,
            "DROP": self._drop,
            "MODIFY": self._modify,
            "CHANGE": self._change,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "CONVERT": self._convert,
            "TRUNCATE": self._partitions,
            "EXCHANGE": self._exchange,
            "DISCARD": self._partitions,
            "IMPORT": self._partitions,
        }.get(word)
        if take is not None:
            cursor.next()
            take(cursor)
        elif word in _HARMLESS_PARTITION:
            self._in_partitions = True
        elif self._in_partitions:
            return  # the next name of `DROP PARTITION p0, p1`
        elif word in _OPTIONS or word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
            self._clauses += _charset_clauses(cursor.rest())
        else:
            self._clauses.append(Unclear(f"the clause {word or '?'}"))
            self.has("snapshot")

    # clauses on columns

    def _add(self, cursor: Cursor) -> None:
        if _makes_primary_key(cursor):
            self._clauses += _key_clauses(cursor)
            self.has("snapshot")
            return
        if cursor.accept("PARTITION"):
            return
        if cursor.accept("SYSTEM", "VERSIONING"):
            self._clauses.append(Unclear("system versioning"))
            return
        if not _is_column(cursor):
            self._clauses += _key_clauses(cursor)
            return
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        group = cursor.group()
        for part in split_commas(group) if group else [cursor.rest()]:
            self._add_one(Cursor(part), conditional=conditional)

    def _add_one(self, cursor: Cursor, *, conditional: bool) -> None:
        if not _is_column(cursor):
            if _makes_primary_key(cursor):
                self.has("snapshot")
            self._clauses += _key_clauses(cursor)
            return
        definition = parse_definition(cursor, cursor.name())
        definition.conditional = conditional
        self._clauses += _column_clauses(AddColumn(definition, _placed(cursor), conditional))
        self._added.append(_added(definition))
        self.has(added_effect(definition, self._flavour))

    def _drop(self, cursor: Cursor) -> None:
        if cursor.accept("PARTITION"):
            self._partitions(cursor)
            return
        if cursor.accept("PRIMARY"):
            self._clauses.append(DropKey("PRIMARY"))
            self.has("snapshot")
            return
        if cursor.accept("SYSTEM", "VERSIONING") or cursor.accept("PERIOD", "FOR"):
            self._clauses.append(Unclear("system versioning"))
            return
        kind = cursor.accept_any("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK")
        if kind:
            rest = cursor.rest()
            if kind not in ("FOREIGN", "CHECK") and rest:
                self._clauses.append(DropKey(rest[-1].text))
            if kind not in ("FOREIGN", "CHECK") and rest and rest[-1].text.upper() == "PRIMARY":
                self.has("snapshot")
            return
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        name = cursor.name()
        self._clauses.append(DropColumn(name, conditional))
        self._dropped.append(name)

    def _modify(self, cursor: Cursor) -> None:
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        name = cursor.name()
        self._define_anew(name, name, cursor, conditional=conditional)

    def _change(self, cursor: Cursor) -> None:
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        old_name = cursor.name()
        self._define_anew(old_name, cursor.name(), cursor, conditional=conditional)

    def _define_anew(self, old_name: str, new_name: str, cursor: Cursor, *, conditional: bool) -> None:
        definition = parse_definition(cursor, new_name)
        self._changed.append(ChangedColumn(old_name, definition))
        self._clauses += _column_clauses(ChangeColumn(old_name, definition, _placed(cursor), conditional))
        renamed = old_name.lower() != definition.name.lower()
        if renamed or definition.primary or definition.generated or not definition.understood:
            self.has("snapshot")

    def _alter(self, cursor: Cursor) -> None:
        if cursor.accept_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            return
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        definition = ColumnDefinition(cursor.name())
        if cursor.accept("SET", "DEFAULT"):
            take_default(cursor, definition)
        if cursor.accept("SET", "VISIBLE") or cursor.accept("SET", "INVISIBLE"):
            return
        self._clauses.append(SetDefault(definition, conditional))
        self._defaults.append(definition)

    def _rename(self, cursor: Cursor) -> None:
        if cursor.accept_any("INDEX", "KEY"):
            cursor.accept("IF", "EXISTS")
            name = cursor.name()
            cursor.accept("TO")
            self._clauses.append(RenameKey(name, cursor.name()))
            return
        if cursor.accept("COLUMN"):
            conditional = cursor.accept("IF", "EXISTS")
            name = cursor.name()
            cursor.accept("TO")
            self._clauses.append(RenameColumn(name, cursor.name(), conditional))
            self.has("snapshot")
            return
        if not cursor.accept_any("TO", "AS"):
            cursor.accept_punctuation("=")
        self._new_table = self._name(cursor)

    def _convert(self, cursor: Cursor) -> None:
        if cursor.accept("TABLE"):  # it becomes a partition, and is no table any more
            self.has("snapshot")
            self._taken_in = self._name(cursor)
            return
        if cursor.accept("PARTITION"):
            self.has("snapshot")
            self._other_table = self._name_after(cursor, "TABLE")
            return
        cursor.accept("TO")
        if cursor.accept("CHARACTER"):
            cursor.accept("SET")
        else:
            cursor.accept("CHARSET")
        token = cursor.next()
        self._charset = charset_name(token.text)
        collation = cursor.next().text.lower() if cursor.accept("COLLATE") else None
        self._clauses.append(Convert(None if token.upper == "DEFAULT" else self._charset, collation))

    # clauses on partitions

    def _partitions(self, cursor: Cursor) -> None:
        self._in_partitions = True
        self.has("snapshot")
        cursor.rest()

    def _exchange(self, cursor: Cursor) -> None:
        self.has("snapshot")
        self._other_table = self._name_after(cursor, "TABLE")

    def _name_after(self, cursor: Cursor, word: str) -> tuple[str, str] | None:
        while not cursor.done:
            if cursor.next().upper == word:
                return self._name(cursor)
        return None

    def _name(self, cursor: Cursor) -> tuple[str, str]:
        first = cursor.name()
        return (first, cursor.name()) if cursor.accept_punctuation(".") else (self._database, first)


def _makes_primary_key(cursor: Cursor) -> bool:
    if cursor.word() == "CONSTRAINT":
        return "PRIMARY" in (cursor.word(1), cursor.word(2))
    return cursor.word() == "PRIMARY"


def added_effect(definition: ColumnDefinition, flavour: str) -> Effect:
    """What ADD COLUMN does to stored rows: "fill" where all get NULL or one constant we know exactly."""
    if (
        not definition.understood
        or definition.generated
        or definition.auto_increment
        or definition.primary
        or definition.default_is_expression
    ):
        return "snapshot"
    column = to_column(definition, None, flavour)
    if column is None or column.type is ColumnType.TIMESTAMP:
        nullable_timestamp = column is not None and definition.nullable is True and not definition.has_default
        return "fill" if nullable_timestamp else "snapshot"
    if not definition.has_default:
        return "fill" if column.nullable else "snapshot"
    return "fill" if is_exact(definition, column, flavour) else "snapshot"
