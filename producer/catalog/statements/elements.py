"""Elements of CREATE TABLE and ALTER TABLE: columns, indexes, and the options of a table or database."""

from __future__ import annotations

from typing import Final

from producer.catalog.statements.clauses import (
    FIRST,
    AddColumn,
    AddKey,
    ChangeColumn,
    Clause,
    KeyPart,
    TableCharset,
    TableComment,
)
from producer.catalog.statements.column_definition import parse_definition
from producer.catalog.statements.token_cursor import Cursor, outside_groups, split_commas
from producer.catalog.statements.tokens import Kind, Token

_NOT_COLUMNS: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK"}
)


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
    definition = parse_definition(cursor, cursor.name())
    return with_its_key(AddColumn(definition, parse_position(cursor), conditional))


def parse_body(body: list[Token]) -> list[Clause]:
    """Read the columns and indexes of a CREATE TABLE."""
    return [clause for part in split_commas(body) for clause in parse_element(Cursor(part))]


def parse_position(cursor: Cursor) -> str | None:
    """Read the position behind a column definition."""
    if cursor.accept("FIRST"):
        return FIRST
    return cursor.name() if cursor.accept("AFTER") else None


def with_its_key(clause: AddColumn | ChangeColumn) -> list[Clause]:
    """Return the clause of a column, and that of the index which its definition makes."""
    definition = clause.definition
    parts = (KeyPart(definition.name),)
    new = definition.name if isinstance(clause, AddColumn) and clause.conditional else ""
    if definition.primary:
        return [clause, AddKey("primary", "", parts, new_column=new)]
    return [clause, AddKey("unique", "", parts, new_column=new)] if definition.unique else [clause]


def parse_key(cursor: Cursor) -> list[Clause]:
    """Read the index of a table element; [] for a CHECK and a PERIOD."""
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
    while (token := cursor.peek()) is not None and not token.is_punctuation("("):
        cursor.next()
    parts = parse_key_parts(cursor.group())
    if word == "PRIMARY":
        return [AddKey("primary", "PRIMARY", parts, conditional)]
    return [AddKey("unique" if word == "UNIQUE" else "other", name, parts, conditional)]


def parse_key_parts(tokens: list[Token]) -> tuple[KeyPart, ...]:
    """Read the columns of an index."""
    parts = []
    for part in split_commas(tokens):
        cursor = Cursor(part)
        name = cursor.name()  # "" before the parenthesis of an expression
        numbers = [token.text for token in cursor.group() if token.kind is Kind.NUMBER] if name else []
        parts.append(KeyPart(name, int(numbers[0]) if numbers and numbers[0].isdigit() else 0))
    return tuple(parts)


def parse_options(tokens: list[Token]) -> list[Clause]:
    """Read the character set and the comment among the options of a table, which need no commas between them.

    What is in parentheses belongs to partitions.
    """
    charset = collation = comment = None
    cursor = Cursor(outside_groups(tokens))
    while not cursor.done:
        if cursor.accept("CHARACTER", "SET") or cursor.accept("CHARSET") or cursor.accept("CHAR", "SET"):
            cursor.accept_punctuation("=")
            charset = cursor.next().text.lower()
        elif cursor.accept("COLLATE"):
            cursor.accept_punctuation("=")
            collation = cursor.next().text.lower()
        elif cursor.accept("COMMENT"):
            cursor.accept_punctuation("=")
            text = cursor.peek()
            if text is not None and text.kind is Kind.STRING:
                comment = cursor.next().text
        else:
            cursor.next()
    clauses: list[Clause] = [TableCharset(charset, collation)] if charset or collation else []
    return clauses if comment is None else [*clauses, TableComment(comment)]
