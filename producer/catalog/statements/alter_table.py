"""The clauses of ALTER TABLE. Each is read to its end, or is unclear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mysqlio.definitions.column_definition import ColumnDefinition, parse_default, parse_definition
from mysqlio.definitions.token_cursor import Cursor, split_commas
from mysqlio.definitions.tokens import Kind, Token
from producer.catalog.statements.clauses import (
    ChangeColumn,
    ChangeRows,
    Clause,
    Convert,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameKey,
    RenameTable,
    SetDefault,
    SystemVersioning,
    TableRef,
    Unclear,
)
from producer.catalog.statements.elements import (
    is_column,
    parse_element,
    parse_key,
    parse_options,
    parse_position,
    read_whole,
    require_charset,
    skip_option,
    skip_partitioning,
    with_its_key,
)

_COMMA: Final = Token(Kind.PUNCTUATION, ",")
_LOSES_ROWS: Final = frozenset({"DROP", "TRUNCATE", "DISCARD", "IMPORT"})
_PARTITION_VERBS: Final = _LOSES_ROWS | {
    "ADD", "ANALYZE", "CHECK", "COALESCE", "CONVERT", "EXCHANGE", "OPTIMIZE", "REBUILD", "REORGANIZE", "REPAIR"
}  # fmt: skip
_MAINTENANCE: Final = ("QUICK", "FAST", "MEDIUM", "EXTENDED", "CHANGED", "USE_FRM")
_BOUNDS: Final = ("VALUES", "LESS", "THAN", "MAXVALUE", "IN", "DEFAULT")
_HARMLESS: Final = (
    ("FORCE",), ("DISABLE", "KEYS"), ("ENABLE", "KEYS"), ("UPGRADE", "PARTITIONING"), ("SECONDARY_LOAD",), ("SECONDARY_UNLOAD",),
    ("WITH", "VALIDATION"), ("WITHOUT", "VALIDATION"),
)  # fmt: skip
_NAMES_TABLES: Final = ("RENAME", "EXCHANGE", "CONVERT")
"""Clauses that another table may take part in."""


def parse_alter(tokens: list[Token], parse_table: Callable[[Cursor], TableRef]) -> tuple[Clause, ...]:
    """Return the clauses of an ALTER TABLE, given what follows the table."""
    parser = _Parser(parse_table)
    tokens, partitioning = _without_partitioning(tokens)
    parts = split_commas(tokens)
    clauses = [] if not partitioning else read_whole(partitioning, parser.partitioning)
    for index, part in enumerate(parts):
        if not _is_a_list(Cursor(part)):
            clauses += parser.clauses(part)
            continue
        rest = [token for one in parts[index:] for token in (_COMMA, *one)][1:]
        return (*clauses, *parser.clauses(rest))
    return tuple(clauses)


def _without_partitioning(tokens: list[Token]) -> tuple[list[Token], list[Token]]:
    """Return the clauses, and what follows the last of them without a comma: PARTITION BY or REMOVE PARTITIONING."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += token.is_punctuation("(") - token.is_punctuation(")")
        words = [one.upper for one in tokens[index : index + 2]]
        if not depth and (words == ["PARTITION", "BY"] or (words == ["REMOVE", "PARTITIONING"] and index == len(tokens) - 2)):
            clauses = tokens[:index]
            return (clauses[:-1] if clauses and clauses[-1].is_punctuation(",") else clauses), tokens[index:]
    return tokens, []


def _is_a_list(cursor: Cursor) -> bool:
    """Return whether a clause has commas of its own; such a one is the last."""
    return _is_about_partitions(cursor) or (cursor.word(), cursor.word(1)) == ("ORDER", "BY")


def _is_about_partitions(cursor: Cursor) -> bool:
    return cursor.word() in _PARTITION_VERBS and cursor.word(1) == "PARTITION"


class _Parser:
    """Reads one ALTER TABLE, clause by clause."""

    def __init__(self, parse_table: Callable[[Cursor], TableRef]) -> None:
        self._parse_table = parse_table
        self._parsers: dict[str, Callable[[Cursor], list[Clause]]] = {
            "ADD": self._add,
            "DROP": self._drop,
            "MODIFY": self._modify,
            "CHANGE": self._change,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "CONVERT": self._convert,
            "DISCARD": self._tablespace,
            "IMPORT": self._tablespace,
            "ORDER": self._order,
        }

    def clauses(self, tokens: list[Token]) -> list[Clause]:
        """Return the clauses of one part of an ALTER TABLE; an `Unclear` one if a token of it is not understood."""
        word = Cursor(tokens).word()
        clauses = read_whole(tokens, self._clause)
        is_known = word in self._parsers and word not in _NAMES_TABLES
        return [Unclear(one.what, names_tables=not is_known) if isinstance(one, Unclear) else one for one in clauses]

    def partitioning(self, cursor: Cursor) -> list[Clause]:
        """Read what follows the last clause without a comma."""
        if not cursor.accept("REMOVE", "PARTITIONING"):
            skip_partitioning(cursor)
        return []

    def _clause(self, cursor: Cursor) -> list[Clause]:
        if _is_about_partitions(cursor):
            return self._partitions(cursor)
        parse = self._parsers.get(cursor.word())
        if parse is not None:
            cursor.next()
            return parse(cursor)
        if any(cursor.accept(*words) for words in _HARMLESS):
            return []
        if cursor.accept_any("ALGORITHM", "LOCK"):
            cursor.value()
            return []
        return parse_options(cursor)

    # ---- columns and indexes

    @staticmethod
    def _add(cursor: Cursor) -> list[Clause]:
        if cursor.accept("SYSTEM", "VERSIONING"):
            return [SystemVersioning()]
        if not is_column(cursor):
            return parse_key(cursor)
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        group = cursor.group()
        if not group:
            return parse_element(cursor, conditional=conditional)
        clauses = []
        for part in split_commas(group):
            one = Cursor(part)
            clauses += parse_element(one, conditional=conditional)
            one.end()
        return clauses

    @staticmethod
    def _drop(cursor: Cursor) -> list[Clause]:
        if cursor.accept("PRIMARY"):
            cursor.require("KEY")
            return [DropKey("PRIMARY", says_primary_key=True)]
        if cursor.accept("SYSTEM", "VERSIONING"):
            return [SystemVersioning()]
        if cursor.accept("PERIOD", "FOR"):
            cursor.needed_name()
            return [SystemVersioning()]
        kind = cursor.accept_any("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK")
        if kind:
            if kind == "FOREIGN":
                cursor.require("KEY")
            cursor.accept("IF", "EXISTS")
            name = cursor.needed_name()
            return [] if kind in ("FOREIGN", "CHECK") else [DropKey(name)]
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        name = cursor.column()
        cursor.accept_any("RESTRICT", "CASCADE")
        return [DropColumn(name, conditional)]

    def _modify(self, cursor: Cursor) -> list[Clause]:
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        name = cursor.column()
        return self._define(name, name, cursor, conditional=conditional)

    def _change(self, cursor: Cursor) -> list[Clause]:
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        old_name = cursor.column()
        return self._define(old_name, cursor.column(), cursor, conditional=conditional)

    @staticmethod
    def _define(old_name: str, new_name: str, cursor: Cursor, *, conditional: bool) -> list[Clause]:
        definition = parse_definition(cursor, new_name)
        return with_its_key(ChangeColumn(old_name, definition, parse_position(cursor), conditional))

    @staticmethod
    def _alter(cursor: Cursor) -> list[Clause]:
        if cursor.accept_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            cursor.accept("IF", "EXISTS")
            cursor.needed_name()
            cursor.accept("NOT")
            if not cursor.accept_any("VISIBLE", "INVISIBLE", "IGNORED", "ENFORCED"):
                raise cursor.unread()
            return []
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        definition = ColumnDefinition(cursor.column())
        if cursor.accept("SET", "VISIBLE") or cursor.accept("SET", "INVISIBLE"):
            return []
        if cursor.accept("SET"):
            cursor.require("DEFAULT")
            parse_default(cursor, definition)
            if not definition.understood:
                raise cursor.unread()
        else:
            cursor.require("DROP", "DEFAULT")
        return [SetDefault(definition, conditional)]

    def _rename(self, cursor: Cursor) -> list[Clause]:
        if cursor.accept_any("INDEX", "KEY"):
            cursor.accept("IF", "EXISTS")
            name = cursor.needed_name()
            cursor.require("TO")
            return [RenameKey(name, cursor.needed_name())]
        if cursor.accept("COLUMN"):
            conditional = cursor.accept("IF", "EXISTS")
            name = cursor.needed_name()
            cursor.require("TO")
            return [RenameColumn(name, cursor.needed_name(), conditional)]
        if not cursor.accept_any("TO", "AS"):
            cursor.accept_punctuation("=")
        return [RenameTable(self._parse_table(cursor))]

    def _convert(self, cursor: Cursor) -> list[Clause]:
        if cursor.accept("TABLE"):
            return self._convert_table(cursor)
        cursor.require("TO")
        require_charset(cursor)
        token = cursor.value()
        collation = cursor.value() if cursor.accept("COLLATE") else None
        name = None if collation is None or collation.upper == "DEFAULT" else collation.text.lower()
        return [Convert(None if token.upper == "DEFAULT" else token.text.lower(), name)]

    @staticmethod
    def _order(cursor: Cursor) -> list[Clause]:
        cursor.require("BY")
        while True:
            cursor.column()
            cursor.accept_any("ASC", "DESC")
            if not cursor.accept_punctuation(","):
                return []

    # ---- partitions and tablespaces

    @staticmethod
    def _tablespace(cursor: Cursor) -> list[Clause]:
        cursor.require("TABLESPACE")
        return [ChangeRows()]

    def _convert_table(self, cursor: Cursor) -> list[Clause]:
        other = self._parse_table(cursor)
        cursor.require("TO", "PARTITION")
        cursor.needed_name()
        while not cursor.done:
            if not (cursor.accept_any(*_BOUNDS) or cursor.group() or skip_option(cursor) or _skip_validation(cursor)):
                raise cursor.unread()
        return [ChangeRows(other, is_gone=True)]

    def _partitions(self, cursor: Cursor) -> list[Clause]:
        verb = cursor.next().upper
        cursor.require("PARTITION")
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if verb in ("EXCHANGE", "CONVERT"):
            cursor.needed_name()
            cursor.require(*(("WITH", "TABLE") if verb == "EXCHANGE" else ("TO", "TABLE")))
            other = self._parse_table(cursor)
            _skip_validation(cursor)
            return [ChangeRows(other)]
        if verb == "COALESCE" or (verb == "ADD" and cursor.accept("PARTITIONS")):
            cursor.number()
        elif verb == "ADD":
            cursor.accept("IF", "NOT", "EXISTS")
            cursor.needed_group()
        elif not (verb == "REORGANIZE" and cursor.done):
            self._named_partitions(cursor, verb)
        return [ChangeRows()] if verb in _LOSES_ROWS else []

    @staticmethod
    def _named_partitions(cursor: Cursor, verb: str) -> None:
        cursor.accept("IF", "EXISTS")
        cursor.needed_name()
        while cursor.accept_punctuation(","):
            cursor.needed_name()
        if verb == "REORGANIZE":
            cursor.require("INTO")
            cursor.needed_group()
        elif verb in ("DISCARD", "IMPORT"):
            cursor.require("TABLESPACE")
        while cursor.accept_any(*_MAINTENANCE) or cursor.accept("FOR", "UPGRADE"):
            pass


def _skip_validation(cursor: Cursor) -> bool:
    return cursor.accept("WITH", "VALIDATION") or cursor.accept("WITHOUT", "VALIDATION")
