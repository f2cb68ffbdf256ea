"""The clauses of ALTER TABLE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from producer.catalog.statements.column_definition import ColumnDefinition, parse_default, parse_definition
from producer.catalog.statements.elements import (
    is_column,
    parse_element,
    parse_key,
    parse_options,
    parse_position,
    with_its_key,
)
from producer.catalog.statements.token_cursor import Cursor, split_commas
from producer.catalog.statements.tokens import Token

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
_CHARSET_WORDS: Final = frozenset({"DEFAULT", "CHARACTER", "CHARSET", "COLLATE"})


def parse_alter(tokens: list[Token], parse_table: Callable[[Cursor], TableRef]) -> tuple[Clause, ...]:
    """Return the clauses of an ALTER TABLE, given what follows the table; `IndexError` where the text ends early."""
    parser = _Parser(parse_table)
    return tuple(clause for part in split_commas(tokens) for clause in parser.clauses(Cursor(part)))


class _Parser:
    """Reads one ALTER TABLE, clause by clause."""

    def __init__(self, parse_table: Callable[[Cursor], TableRef]) -> None:
        self._parse_table = parse_table
        self._in_partitions = False
        self._parsers: dict[str, Callable[[Cursor], list[Clause]]] = {
            "ADD": self._add,
            "DROP": self._drop,
            "MODIFY": self._modify,
            "CHANGE": self._change,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "CONVERT": self._convert,
            "TRUNCATE": self._change_partitions,
            "EXCHANGE": self._exchange,
            "DISCARD": self._change_partitions,
            "IMPORT": self._change_partitions,
        }

    def clauses(self, cursor: Cursor) -> list[Clause]:
        """Return what one part between commas asks for."""
        word = cursor.word()
        parse = self._parsers.get(word)
        if parse is not None:
            cursor.next()
            return parse(cursor)
        if word in _HARMLESS_PARTITION:
            self._in_partitions = True
            return []
        if self._in_partitions:
            return []  # the next name of `DROP PARTITION p0, p1`
        if word in _OPTIONS or word in _CHARSET_WORDS:
            return parse_options(cursor.rest())
        return [Unclear(f"the clause {word or '?'}")]

    # ---- columns and indexes

    def _add(self, cursor: Cursor) -> list[Clause]:
        if cursor.accept("PARTITION"):
            return []
        if cursor.accept("SYSTEM", "VERSIONING"):
            return [SystemVersioning()]
        if not is_column(cursor):
            return parse_key(cursor)
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "NOT", "EXISTS")
        group = cursor.group()
        parts = split_commas(group) if group else [cursor.rest()]
        return [clause for part in parts for clause in parse_element(Cursor(part), conditional=conditional)]

    def _drop(self, cursor: Cursor) -> list[Clause]:
        if cursor.accept("PARTITION"):
            return self._change_partitions(cursor)
        if cursor.accept("PRIMARY"):
            return [DropKey("PRIMARY", says_primary_key=True)]
        if cursor.accept("SYSTEM", "VERSIONING") or cursor.accept("PERIOD", "FOR"):
            return [SystemVersioning()]
        kind = cursor.accept_any("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK")
        if kind:
            rest = cursor.rest()
            return [DropKey(rest[-1].text)] if rest and kind not in ("FOREIGN", "CHECK") else []
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        return [DropColumn(cursor.name(), conditional)]

    def _modify(self, cursor: Cursor) -> list[Clause]:
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        name = cursor.name()
        return self._define(name, name, cursor, conditional=conditional)

    def _change(self, cursor: Cursor) -> list[Clause]:
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        old_name = cursor.name()
        return self._define(old_name, cursor.name(), cursor, conditional=conditional)

    @staticmethod
    def _define(old_name: str, new_name: str, cursor: Cursor, *, conditional: bool) -> list[Clause]:
        definition = parse_definition(cursor, new_name)
        return with_its_key(ChangeColumn(old_name, definition, parse_position(cursor), conditional))

    @staticmethod
    def _alter(cursor: Cursor) -> list[Clause]:
        if cursor.accept_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            return []
        cursor.accept("COLUMN")
        conditional = cursor.accept("IF", "EXISTS")
        definition = ColumnDefinition(cursor.name())
        if cursor.accept("SET", "VISIBLE") or cursor.accept("SET", "INVISIBLE"):
            return []
        if cursor.accept("SET", "DEFAULT"):
            parse_default(cursor, definition)
        elif not cursor.accept("DROP", "DEFAULT"):
            return [Unclear(f"the change of column {definition.name}")]
        return [SetDefault(definition, conditional)]

    def _rename(self, cursor: Cursor) -> list[Clause]:
        if cursor.accept_any("INDEX", "KEY"):
            cursor.accept("IF", "EXISTS")
            name = cursor.name()
            cursor.accept("TO")
            return [RenameKey(name, cursor.name())]
        if cursor.accept("COLUMN"):
            conditional = cursor.accept("IF", "EXISTS")
            name = cursor.name()
            cursor.accept("TO")
            return [RenameColumn(name, cursor.name(), conditional)]
        if not cursor.accept_any("TO", "AS"):
            cursor.accept_punctuation("=")
        return [RenameTable(self._parse_table(cursor))]

    def _convert(self, cursor: Cursor) -> list[Clause]:
        if cursor.accept("TABLE"):
            return [ChangeRows(self._parse_table(cursor), is_gone=True)]
        if cursor.accept("PARTITION"):
            return [ChangeRows(self._table_behind(cursor, "TABLE"))]
        cursor.accept("TO")
        if cursor.accept("CHARACTER"):
            cursor.accept("SET")
        else:
            cursor.accept("CHARSET")
        token = cursor.next()
        collation = cursor.next().text.lower() if cursor.accept("COLLATE") else None
        return [Convert(None if token.upper == "DEFAULT" else token.text.lower(), collation)]

    # ---- partitions

    def _change_partitions(self, _cursor: Cursor) -> list[Clause]:
        self._in_partitions = True
        return [ChangeRows()]

    def _exchange(self, cursor: Cursor) -> list[Clause]:
        return [ChangeRows(self._table_behind(cursor, "TABLE"))]

    def _table_behind(self, cursor: Cursor, word: str) -> TableRef | None:
        while not cursor.done:
            if cursor.next().upper == word:
                return self._parse_table(cursor)
        return None
