"""The definition of a column in a DDL statement, read from its tokens as the text has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mysqlio.definitions.character_sets import charset_name
from mysqlio.definitions.token_cursor import Cursor, UnreadError, split_commas
from mysqlio.definitions.tokens import Kind


@dataclass(slots=True)
class ColumnDefinition:
    """What a DDL statement says about a column. Only the parser changes one.

    `default` is the text of the literal: numbers as written, strings unquoted, bits as `b'101'`, hex as `0x..`.
    `default_word` is the bare word behind DEFAULT in upper case, "" for other tokens. `default_has_escapes` says that the value
    is not certain; `default_is_expression` covers functions and parenthesised expressions; `default_dropped` says that a later
    ALTER COLUMN removed the default. `nullable` is None where the text does not say.
    `type_name` is the server's name of the type, `type_words` are the words that the text uses for it.
    `understood` is False when a word of the definition is not known here. `binary_collation` is the attribute BINARY of text: the
    collation `_bin` of its character set. `members_uncertain` says that the text of ENUM or SET members is not certain (they
    have backslashes, or are hex). `compressed` is MariaDB's COMPRESSED, which gives a NOT NULL column a default of its own.
    """

    name: str
    type_name: str = ""
    arguments: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str | None = None
    collation: str | None = None
    nullable: bool | None = None
    default: str | None = None
    has_default: bool = False
    default_is_expression: bool = False
    default_is_string: bool = False
    generated: bool = False
    auto_increment: bool = False
    primary: bool = False
    unique: bool = False
    understood: bool = True
    on_update: bool = False
    default_has_escapes: bool = False
    binary_collation: bool = False
    default_dropped: bool = False
    compressed: bool = False
    comment: str | None = None
    zerofill: bool = False
    members_uncertain: bool = False
    type_words: tuple[str, ...] = ()
    default_word: str = ""


def parse_definition(cursor: Cursor, name: str) -> ColumnDefinition:
    """Read the type and the attributes of a column; stop before FIRST, AFTER and at the end."""
    definition = ColumnDefinition(name)
    definition.type_words = _type_words(cursor)
    _parse_type(cursor, definition)
    while not cursor.done and cursor.word() not in ("FIRST", "AFTER"):
        _parse_attribute(cursor, definition)
    return definition


# ── types ────────────────────────────────

_ALIASES: Final = {
    "INTEGER": "INT",
    "INT1": "TINYINT",
    "INT2": "SMALLINT",
    "INT3": "MEDIUMINT",
    "MIDDLEINT": "MEDIUMINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "FIXED": "DECIMAL",
    "NUMBER": "DECIMAL",
    "REAL": "DOUBLE",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "CHARACTER": "CHAR",
    "NCHAR": "CHAR",
    "NVARCHAR": "VARCHAR",
    "VARCHARACTER": "VARCHAR",
    "VARCHAR2": "VARCHAR",
    "CLOB": "LONGTEXT",
    "RAW": "VARBINARY",
    "GEOMCOLLECTION": "GEOMETRYCOLLECTION",
}
_NATIONAL: Final = frozenset({"NCHAR", "NVARCHAR", "NATIONAL"})
_SECOND_WORDS: Final = {
    "DOUBLE": {"PRECISION"},
    "LONG": {"VARCHAR", "VARBINARY"},
    "NATIONAL": {"VARCHAR", "CHAR", "CHARACTER"},
    "CHAR": {"VARYING"},
    "CHARACTER": {"VARYING"},
}


def _type_words(cursor: Cursor) -> tuple[str, ...]:
    """Return the words of the type that comes next, without moving the cursor."""
    first, second = cursor.word(), cursor.word(1)
    if first == "SERIAL":
        return ("BIGINT",)
    if second not in _SECOND_WORDS.get(first, set()):
        return (first,)
    if first == "NATIONAL" and cursor.word(2) == "VARYING":
        return first, second, "VARYING"
    return first, second


def _parse_type(cursor: Cursor, definition: ColumnDefinition) -> None:
    word = cursor.word()
    if not word:
        definition.understood = False
        return
    cursor.next()
    if word == "NATIONAL":
        word = f"N{cursor.next().upper}"
    national = word in _NATIONAL or word in ("NCHARACTER", "NVARCHARACTER")
    word = word.removeprefix("N") if national else word
    word = _ALIASES.get(word, word)
    if word == "LONG":
        varbinary = cursor.accept_any("VARBINARY", "VARCHAR", "VARCHARACTER") == "VARBINARY"
        word = "MEDIUMBLOB" if varbinary else "MEDIUMTEXT"
    if word in ("CHAR", "BINARY") and cursor.accept("VARYING"):
        word = f"VAR{word}"
    if word in ("BOOL", "BOOLEAN"):
        word, definition.arguments = "TINYINT", ("1",)
    if word == "SERIAL":
        definition.type_name = "BIGINT"
        definition.unsigned = definition.auto_increment = definition.unique = True
        definition.nullable = False
        return
    definition.type_name = word
    if national:
        definition.charset = "utf8mb3"
    if (token := cursor.peek()) is not None and token.is_punctuation("("):
        parts = split_commas(cursor.group())
        arguments = [token for part in parts for token in part if token.kind in (Kind.STRING, Kind.NUMBER)]
        definition.understood &= len(arguments) == len(parts) == sum(map(len, parts))
        definition.arguments = tuple(token.text for token in arguments)
        definition.members_uncertain = word in ("ENUM", "SET") and any(
            token.has_escapes or token.kind is Kind.NUMBER for token in arguments
        )


# ── attributes ────────────────────────────────

_IS_PRIMARY: Final = {"primary": True, "nullable": False}
_IS_GENERATED: Final = {"generated": True}
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "NULL": {"nullable": True},
    "UNSIGNED": {"unsigned": True},
    "ZEROFILL": {"unsigned": True, "zerofill": True},
    "BINARY": {"binary_collation": True},
    "ASCII": {"charset": "latin1"},
    "UNICODE": {"charset": "ucs2"},
    "BYTE": {"charset": "binary"},
    "AUTO_INCREMENT": {"auto_increment": True},
    "UNIQUE": {"unique": True},
    "PRIMARY": _IS_PRIMARY,
    "KEY": _IS_PRIMARY,
    "GENERATED": _IS_GENERATED,
    "AS": _IS_GENERATED,
    "COMPRESSED": {"compressed": True},
}
"""What an attribute sets by its word alone. Others say it by what follows the word."""
_WITHOUT_MEANING: Final = frozenset(
    {"SIGNED", "PRECISION", "ENFORCED", "ALWAYS", "VIRTUAL", "STORED", "PERSISTENT", "VISIBLE", "INVISIBLE"}
)
_ACTIONS: Final = (("RESTRICT",), ("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"), ("NO", "ACTION"))


def _parse_attribute(cursor: Cursor, definition: ColumnDefinition) -> None:
    word = cursor.next().upper
    fields, follows = _FIELDS.get(word), _FOLLOWS.get(word)
    if fields is None and follows is None and word not in _WITHOUT_MEANING:
        definition.understood = False
        return
    for field, value in (fields or {}).items():
        setattr(definition, field, value)
    if follows is None:
        return
    try:
        follows(cursor, definition)
    except UnreadError:
        definition.understood = False


def _parse_not(cursor: Cursor, definition: ColumnDefinition) -> None:
    if cursor.accept("NULL"):
        definition.nullable = False
    elif not cursor.accept_any("ENFORCED", "SECONDARY"):
        raise cursor.unread()


def _parse_comment(cursor: Cursor, definition: ColumnDefinition) -> None:
    text = cursor.value()
    if text.kind is not Kind.STRING:
        raise cursor.unread()
    definition.comment = text.text or None


def _skip_given_value(cursor: Cursor, _definition: ColumnDefinition) -> None:
    if cursor.accept_punctuation("="):
        cursor.value()


def _parse_character_set(cursor: Cursor, definition: ColumnDefinition) -> None:
    cursor.require("SET")
    _parse_charset(cursor, definition)


def _parse_charset(cursor: Cursor, definition: ColumnDefinition) -> None:
    definition.charset = charset_name(cursor.value().text)


def _parse_collation(cursor: Cursor, definition: ColumnDefinition) -> None:
    definition.collation = cursor.value().text.lower()


def _parse_on(cursor: Cursor, definition: ColumnDefinition) -> None:
    cursor.require("UPDATE")
    definition.on_update = True
    cursor.needed_name()
    cursor.group()


def skip_references(cursor: Cursor) -> None:
    """Pass over the table, the columns and the actions of a foreign key; `UnreadError` if they are not there."""
    cursor.needed_name()
    if cursor.accept_punctuation("."):
        cursor.needed_name()
    cursor.group()
    while True:
        if cursor.accept("MATCH"):
            if not cursor.accept_any("FULL", "PARTIAL", "SIMPLE"):
                raise cursor.unread()
        elif cursor.accept("ON"):
            is_event = cursor.accept_any("DELETE", "UPDATE")
            if not is_event or not any(cursor.accept(*words) for words in _ACTIONS):
                raise cursor.unread()
        else:
            return


def _skip_constraint_name(cursor: Cursor, _definition: ColumnDefinition) -> None:
    if cursor.word() != "CHECK":
        cursor.needed_name()


def skip_check(cursor: Cursor) -> None:
    """Pass over the expression of a CHECK, and whether it is enforced."""
    cursor.needed_group()
    if cursor.word(1) == "ENFORCED":
        cursor.accept("NOT")
    cursor.accept("ENFORCED")


def _skip_expression(cursor: Cursor, _definition: ColumnDefinition) -> None:
    if not cursor.accept("ROW"):
        cursor.needed_group()
    elif not cursor.accept_any("START", "END"):
        raise cursor.unread()


# ── defaults ────────────────────────────────


def parse_default(cursor: Cursor, definition: ColumnDefinition) -> None:
    """Read what follows DEFAULT into the definition: a literal, NULL, or an expression."""
    definition.has_default = True
    definition.default_is_expression = definition.default_is_string = False
    definition.default_word = cursor.word()
    sign = "-" if cursor.accept_punctuation("-") else ""
    if not sign:
        cursor.accept_punctuation("+")
    token = cursor.peek()
    if token is None:
        definition.understood = False
    elif token.is_punctuation("("):
        cursor.group()
        definition.default, definition.default_is_expression = None, True
    elif token.kind is Kind.NUMBER:
        cursor.next()
        definition.default = sign + _number_literal(token.text)
    elif token.kind is Kind.STRING:
        _parse_strings(cursor, definition)
    else:
        _parse_default_word(cursor, definition)


def _number_literal(text: str) -> str:
    lower = text.lower()
    if lower.startswith("0b"):
        return f"b'{text[2:]}'"
    if lower.startswith("x'"):
        return f"0x{text[2:-1].upper()}"
    return f"b'{text[2:-1]}'" if lower.startswith("b'") else text


def _parse_strings(cursor: Cursor, definition: ColumnDefinition) -> None:
    pieces = []
    while (token := cursor.peek()) is not None and token.kind is Kind.STRING:
        definition.default_has_escapes |= token.has_escapes
        pieces.append(cursor.next().text)
    definition.default, definition.default_is_string = "".join(pieces), True


def _parse_default_word(cursor: Cursor, definition: ColumnDefinition) -> None:
    word = cursor.next().upper
    token = cursor.peek()
    if word == "NULL":
        definition.default, definition.has_default = None, False
    elif word in ("TRUE", "FALSE"):
        definition.default = "1" if word == "TRUE" else "0"
    elif word.startswith("_") and token is not None and token.kind in (Kind.STRING, Kind.NUMBER):
        cursor.next()
        definition.default, definition.default_is_expression = None, True
    elif word in ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"):
        cursor.group()
        definition.default, definition.default_is_expression = "CURRENT_TIMESTAMP", True
    elif word in ("DATE", "TIME", "TIMESTAMP") and token is not None and token.kind is Kind.STRING:
        _parse_strings(cursor, definition)
    else:
        _parse_expression(cursor, definition)


def _parse_expression(cursor: Cursor, definition: ColumnDefinition) -> None:
    definition.default, definition.default_is_expression = None, True
    if cursor.accept("VALUE", "FOR"):
        cursor.name()
    while cursor.accept_punctuation("."):
        cursor.name()
    cursor.group()


_FOLLOWS: Final[dict[str, Callable[[Cursor, ColumnDefinition], object]]] = {
    "NOT": _parse_not,
    "DEFAULT": parse_default,
    "CHARACTER": _parse_character_set,
    "CHAR": _parse_character_set,
    "CHARSET": _parse_charset,
    "COLLATE": _parse_collation,
    "UNIQUE": lambda cursor, _: cursor.accept("KEY"),
    "PRIMARY": lambda cursor, _: cursor.accept("KEY"),
    "COMMENT": _parse_comment,
    "COLUMN_FORMAT": lambda cursor, _: cursor.value(),
    "STORAGE": lambda cursor, _: cursor.value(),
    "ENGINE_ATTRIBUTE": lambda cursor, _: cursor.value(),
    "SECONDARY_ENGINE_ATTRIBUTE": lambda cursor, _: cursor.value(),
    "SRID": lambda cursor, _: cursor.value(),
    "ON": _parse_on,
    "REFERENCES": lambda cursor, _: skip_references(cursor),
    "CONSTRAINT": _skip_constraint_name,
    "CHECK": lambda cursor, _: skip_check(cursor),
    "GENERATED": lambda cursor, _: cursor.accept("ALWAYS"),
    "AS": _skip_expression,
    "COMPRESSED": _skip_given_value,
    "WITH": lambda cursor, _: cursor.require("SYSTEM", "VERSIONING"),
    "WITHOUT": lambda cursor, _: cursor.require("SYSTEM", "VERSIONING"),
}
"""What reads or skips the tokens that follow an attribute's word."""
