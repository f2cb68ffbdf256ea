"""Elements of CREATE TABLE and ALTER TABLE: columns, indexes, and the options of a table or database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mysqlio.definitions.column_definition import parse_definition, skip_check, skip_references
from mysqlio.definitions.table_parts import KeyPart
from mysqlio.definitions.token_cursor import Cursor, UnreadError, split_commas
from mysqlio.definitions.tokens import Kind, Token
from producer.catalog.statements.clauses import (
    FIRST,
    AddColumn,
    AddKey,
    ChangeColumn,
    Clause,
    SystemVersioning,
    TableCharset,
    TableComment,
    Unclear,
)

_NOT_COLUMNS: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK"}
)
_INDEX_TYPES: Final = ("BTREE", "HASH", "RTREE")
_INDEX_OPTIONS: Final = ("KEY_BLOCK_SIZE", "COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "CLUSTERING")
_VALUE_OPTIONS: Final = frozenset(
    {
        "AUTOEXTEND_SIZE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHECKSUM",
        "COMPRESSION",
        "CONNECTION",
        "DELAY_KEY_WRITE",
        "ENCRYPTION",
        "ENGINE",
        "ENGINE_ATTRIBUTE",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "MAX_ROWS",
        "MIN_ROWS",
        "PACK_KEYS",
        "PAGE_CHECKSUM",
        "PASSWORD",
        "ROW_FORMAT",
        "SECONDARY_ENGINE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "SEQUENCE",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "TABLE_CHECKSUM",
        "TRANSACTIONAL",
        "TYPE",
    }
)
"""Options that say nothing of columns and rows, and have one value."""
_WORDS: Final = (("START", "TRANSACTION"), ("STORAGE", "DISK"), ("STORAGE", "MEMORY"))
_CHARSET_WORDS: Final = (("CHARACTER", "SET"), ("CHARSET",), ("CHAR", "SET"))


def read_whole(tokens: list[Token], read: Callable[[Cursor], list[Clause]]) -> list[Clause]:
    """Return what one part of a statement asks for; a part of which a token is left unread is an `Unclear` clause."""
    cursor = Cursor(tokens)
    word = cursor.word() or "?"
    try:
        clauses = read(cursor)
        cursor.end()
    except UnreadError as error:
        return [Unclear(f"the clause {word}, in which {error}")]
    return clauses


def is_column(cursor: Cursor) -> bool:
    """Return whether a column comes next; VECTOR and PERIOD may be names of columns."""
    word = cursor.word()
    if word in _NOT_COLUMNS:
        return False
    return not (word == "PERIOD" and cursor.word(1) == "FOR") and not (
        word == "VECTOR" and cursor.word(1) in ("INDEX", "KEY")
    )


def parse_element(cursor: Cursor, *, conditional: bool = False) -> list[Clause]:
    """Read a column with its position and the index that its definition makes, or an index; [] for what is neither."""
    if not is_column(cursor):
        return parse_key(cursor)
    definition = parse_definition(cursor, cursor.column())
    return with_its_key(AddColumn(definition, parse_position(cursor), conditional))


def parse_body(body: list[Token]) -> list[Clause]:
    """Read the columns and indexes of a CREATE TABLE."""
    return [clause for part in split_commas(body) for clause in read_whole(part, parse_element)]


def parse_position(cursor: Cursor) -> str | None:
    """Read the position behind a column definition."""
    if cursor.accept("FIRST"):
        return FIRST
    return cursor.needed_name() if cursor.accept("AFTER") else None


def with_its_key(clause: AddColumn | ChangeColumn) -> list[Clause]:
    """Return the clause of a column, and that of the index which its definition makes."""
    definition = clause.definition
    parts = (KeyPart(definition.name),)
    new = definition.name if isinstance(clause, AddColumn) and clause.conditional else ""
    if definition.primary:
        return [clause, AddKey("primary", "", parts, new_column=new)]
    return [clause, AddKey("unique", "", parts, new_column=new)] if definition.unique else [clause]


# ── indexes and constraints ────────────────────────────────


def parse_key(cursor: Cursor) -> list[Clause]:
    """Read an index or a constraint of a table; [] for a CHECK."""
    name = ""
    if cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "NOT", "EXISTS")
        name = "" if cursor.word() in _NOT_COLUMNS else cursor.needed_name()
    if cursor.accept("CHECK"):
        skip_check(cursor)
        return []
    if cursor.accept("PERIOD", "FOR"):
        cursor.needed_name()
        cursor.needed_group()
        return [SystemVersioning()]
    if cursor.accept("FOREIGN", "KEY"):
        return [_foreign_key(cursor, name)]
    word = cursor.accept_any("PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "INDEX", "KEY")
    if not word:
        raise cursor.unread()
    if word == "PRIMARY":
        cursor.require("KEY")
    elif word not in ("INDEX", "KEY"):
        cursor.accept_any("INDEX", "KEY")
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    name = _index_name(cursor) or name
    skip_index_type(cursor)
    parts = parse_key_parts(cursor.needed_group())
    skip_index_options(cursor)
    if word == "PRIMARY":
        return [AddKey("primary", "PRIMARY", parts, conditional)]
    return [AddKey("unique" if word == "UNIQUE" else "other", name, parts, conditional)]


def _foreign_key(cursor: Cursor, name: str) -> AddKey:
    conditional = cursor.accept("IF", "NOT", "EXISTS")
    _index_name(cursor)
    parts = parse_key_parts(cursor.needed_group())
    cursor.require("REFERENCES")
    skip_references(cursor)
    return AddKey("other", name, parts, conditional)


def _index_name(cursor: Cursor) -> str:
    """Read the name of an index; "" for an index without one."""
    token = cursor.peek()
    return "" if token is None or token.is_punctuation("(") or _is_index_type(cursor) else cursor.needed_name()


def _is_index_type(cursor: Cursor) -> bool:
    word = cursor.word()
    return word == "USING" or (word == "TYPE" and cursor.word(1) in _INDEX_TYPES)


def skip_index_type(cursor: Cursor) -> bool:
    """Pass over `USING BTREE`; return whether it was there."""
    if not _is_index_type(cursor):
        return False
    cursor.next()
    if not cursor.accept_any(*_INDEX_TYPES):
        raise cursor.unread()
    return True


def skip_index_options(cursor: Cursor) -> None:
    """Pass over the options of an index, none of which is about columns."""
    while True:
        if cursor.accept_any(*_INDEX_OPTIONS) or _is_assigned(cursor):
            cursor.value()
        elif cursor.accept("WITH", "PARSER"):
            cursor.needed_name()
        elif not (
            cursor.accept_any("VISIBLE", "INVISIBLE", "IGNORED") or cursor.accept("NOT", "IGNORED") or skip_index_type(cursor)
        ):
            return


def parse_key_parts(tokens: list[Token]) -> tuple[KeyPart, ...]:
    """Read the columns of an index; `UnreadError` for anything else."""
    return tuple(_key_part(Cursor(part)) for part in split_commas(tokens))


def _key_part(cursor: Cursor) -> KeyPart:
    name = cursor.name()  # "" before the parenthesis of an expression
    prefix = 0
    if not name:
        cursor.needed_group()
    elif inside := cursor.group():
        size = Cursor(inside)
        digits = size.number()
        size.end()
        if not digits.isdigit():
            raise cursor.unread()
        prefix = int(digits)
    cursor.accept_any("ASC", "DESC")
    cursor.end()
    return KeyPart(name, prefix)


# ── options ────────────────────────────────


def parse_options(cursor: Cursor) -> list[Clause]:
    """Read the options of a table or database, which need no commas between them, up to what is none.

    All that they say of columns is a character set.
    """
    charset = TableCharset(None, None)
    others: list[Clause] = []
    while not cursor.done:
        if _is_charset(cursor):
            charset = _charset_option(cursor, charset)
        elif cursor.accept("COMMENT"):
            text = cursor.value()
            if text.kind is not Kind.STRING:
                raise cursor.unread()
            others.append(TableComment(text.text))
        elif cursor.accept("WITH", "SYSTEM", "VERSIONING"):
            others.append(SystemVersioning())
        elif not skip_option(cursor):
            break
        cursor.accept_punctuation(",")
    return [charset, *others] if charset != TableCharset(None, None) else others


def _is_charset(cursor: Cursor) -> bool:
    ahead = int(cursor.word() == "DEFAULT")
    return cursor.word(ahead) in ("CHARACTER", "CHARSET", "CHAR", "COLLATE")


def _charset_option(cursor: Cursor, given: TableCharset) -> TableCharset:
    cursor.accept("DEFAULT")
    if cursor.accept("COLLATE"):
        collation = cursor.value()
        if collation.upper == "DEFAULT":
            raise UnreadError("the collation is the default one")
        return replace(given, collation=collation.text.lower())
    require_charset(cursor)
    return replace(given, charset=cursor.value().text.lower())


def require_charset(cursor: Cursor) -> None:
    """Move behind CHARACTER SET in one of its spellings."""
    if not any(cursor.accept(*words) for words in _CHARSET_WORDS):
        raise cursor.unread()


def skip_option(cursor: Cursor) -> bool:
    """Pass over an option that says nothing of columns and rows; return whether it was one."""
    if cursor.word() in _VALUE_OPTIONS:
        cursor.next()
        cursor.value()
    elif cursor.word() in ("DATA", "INDEX") and cursor.word(1) == "DIRECTORY":
        cursor.require(cursor.word(), "DIRECTORY")
        cursor.value()
    elif cursor.accept("UNION"):
        cursor.accept_punctuation("=")
        cursor.needed_group()
    elif _is_assigned(cursor):  # MariaDB's options of an engine
        cursor.value()
    else:
        return any(cursor.accept(*words) for words in _WORDS)
    return True


def _is_assigned(cursor: Cursor) -> bool:
    """Move to the `=` behind a name if one is there."""
    equals = cursor.peek(1)
    return equals is not None and equals.is_punctuation("=") and bool(cursor.name())


_PARTITION_WORDS: Final = frozenset(
    {
        "ALGORITHM", "AUTO", "BY", "COLUMNS", "DAY", "HASH", "HOUR", "INTERVAL", "KEY", "LIMIT", "LINEAR", "LIST", "MINUTE",
        "MONTH", "PARTITIONS", "QUARTER", "RANGE", "SECOND", "STARTS", "SUBPARTITION", "SUBPARTITIONS", "SYSTEM_TIME",
        "TIMESTAMP", "WEEK", "YEAR",
    }
)  # fmt: skip


def skip_partitioning(cursor: Cursor) -> None:
    """Pass over PARTITION BY, if it comes next, and all that belongs to it: it says nothing of columns and moves rows only."""
    if not cursor.accept("PARTITION", "BY"):
        return
    while (token := cursor.peek()) is not None:
        if token.is_punctuation("("):
            cursor.group()
        elif token.upper in _PARTITION_WORDS or token.kind in (Kind.NUMBER, Kind.STRING) or token.is_punctuation("="):
            cursor.next()
        else:
            return
