"""Key ranges: how a chunk says, in SQL, which rows are its own (pure).

A key is a tuple of texts, one per column of the `RangeKey`: the PRIMARY KEY, else a unique key, or the column that a
signal chose. Each text is what the server itself gave
(`select_expression`) and becomes a literal of exactly the same value again (`literal`), so that it survives
JSON. Keys are compared by the server alone, under the columns' own types and collations: a range's two
sides partition the table whatever the order is, as long as the server is consistent with itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from mysqlio.quoting import qualified, quoted
from schemas.columns import YEAR_DIGITS, Column, TableSchema
from schemas.errors import SourceError, StateError
from schemas.types.column_facts import Semantic, semantic_of

Key = tuple[str, ...]
KeyIdentity = tuple[tuple[str, str, str], ...]

_MAX_MEMBERS: Final = 1000
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?\Z")
_FLOAT: Final = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?\Z", re.IGNORECASE)
_HEX: Final = re.compile(r"([0-9A-Fa-f]{2})*\Z")
_TEMPORAL: Final = re.compile(r"[-0-9:. ]+\Z")
_ADDRESS: Final = re.compile(r"[-0-9A-Fa-f:.]+\Z")
_CHARSET: Final = re.compile(r"\w+\Z")


class KeyKind(Enum):
    """How a key column's value is carried as text."""

    NUMBER = auto()
    ORDINAL = auto()  # YEAR, and BIT, ENUM, SET as the number they are ordered by
    FLOAT = auto()  # through a double, seventeen digits
    TEXT = auto()  # the bytes in the column's own character set, hexadecimal
    BINARY = auto()  # hexadecimal
    TEMPORAL = auto()
    ADDRESS = auto()  # UUID and INET as printed


_KINDS: Final = {
    **dict.fromkeys((Semantic.INTEGER, Semantic.DECIMAL), KeyKind.NUMBER),
    **dict.fromkeys((Semantic.YEAR, Semantic.BIT, Semantic.ENUM, Semantic.SET), KeyKind.ORDINAL),
    **dict.fromkeys((Semantic.DATE, Semantic.TIME, Semantic.DATETIME, Semantic.TIMESTAMP), KeyKind.TEMPORAL),
    **dict.fromkeys((Semantic.UUID, Semantic.INET), KeyKind.ADDRESS),
    Semantic.FLOATING: KeyKind.FLOAT,
    Semantic.TEXT: KeyKind.TEXT,
}
"""How the values of types are carried; the values of all others as bytes."""
_UNORDERED: Final = (Semantic.JSON, Semantic.VECTOR, Semantic.GEOMETRY, Semantic.POINT)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with `lower` < key <= `upper`; None is unbounded."""

    lower: Key | None = None
    upper: Key | None = None


@dataclass(frozen=True, slots=True)
class RangeKey:
    """The columns a table is cut by; none of them: it is read in one piece.

    Values may repeat in a column that a signal chose (`unique` is False): bounds are between values, so rows of
    one value are never parted. NULLs, which no comparison finds, belong to the first range.
    """

    columns: tuple[Column, ...]
    unique: bool
    hint: str = ""

    @property
    def select(self) -> str:
        """The key's texts as select expressions."""
        return ", ".join(select_expression(column) for column in self.columns)

    def order(self, direction: str = "ASC") -> str:
        """Return the columns of ORDER BY."""
        return ", ".join(f"{quoted(column.name)} {direction}" for column in self.columns)

    def with_values(self, condition: str) -> str:
        """Return a WHERE clause (maybe empty) for rows that have a key: no NULL is a bound."""
        nullable = [f"{quoted(column.name)} IS NOT NULL" for column in self.columns if column.nullable]
        if not nullable:
            return condition
        return f"{condition} AND {' AND '.join(nullable)}" if condition else f" WHERE {' AND '.join(nullable)}"


def range_key(table: TableSchema, surrogate: str | None = None) -> RangeKey:
    """Return what a table is divided by. `SurrogateKeyError` explains why a column can't serve."""
    if surrogate is not None:
        return RangeKey((_surrogate(table, surrogate),), unique=False)
    names = table.primary_key or table.unique_key
    columns = tuple(table.column(name) for name in names)
    return RangeKey(columns, unique=True, hint=" FORCE INDEX (PRIMARY)" if table.primary_key else "")


def _surrogate(table: TableSchema, name: str) -> Column:
    found = next((column for column in table.columns if column.name.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(column.name for column in table.columns)
        message = f"surrogate-key: {table.full_name} has no column {name!r}; it has {known}"
        raise SurrogateKeyError(message)
    if semantic_of(found) in _UNORDERED:
        message = f"surrogate-key: {table.full_name}.{name} is {found.type.value}, by which rows have no order"
        raise SurrogateKeyError(message)
    return found


def key_identity(table: TableSchema, surrogate: str | None = None) -> KeyIdentity:
    """Return what a plan rests on: names, types and order of the key. If it changes, key ranges mean nothing."""
    return tuple(
        (column.name, _type_of(column), column.collation or column.charset or "")
        for column in range_key(table, surrogate).columns
    )


def _type_of(column: Column) -> str:
    details = [str(column.type), "unsigned" if column.unsigned else ""]
    details += [str(column.precision or ""), str(column.scale or ""), ",".join(column.members)]
    return " ".join(details).strip()


class SurrogateKeyError(SourceError):
    """The column a signal chose cannot cut the table."""


def table_name(table: TableSchema) -> str:
    """Return the table's name as SQL."""
    return qualified(table.database, table.name)


def kind_of(column: Column) -> KeyKind:
    """Return how a column's key values are carried."""
    return _KINDS.get(semantic_of(column), KeyKind.BINARY)


def is_plain_integer(column: Column) -> bool:
    """Return whether chunk bounds may be calculated by arithmetic."""
    return semantic_of(column) is Semantic.INTEGER


def select_expression(column: Column) -> str:
    """Return SQL that gives a key column's value as its text."""
    name = quoted(column.name)
    kind = kind_of(column)
    if kind in (KeyKind.TEXT, KeyKind.BINARY):
        return f"HEX({name})"
    if kind is KeyKind.FLOAT:
        return f"{name} + 0e0"
    if kind is KeyKind.ORDINAL:
        return f"CAST({name} + 0 AS UNSIGNED)"
    return f"CAST({name} AS CHAR)"


def as_text(value: Any) -> str:
    """Return what a query of `select_expression` returned, as the key's text."""
    if isinstance(value, bytes):
        return value.decode("ascii")
    return repr(value) if isinstance(value, float) else str(value)


def literal(column: Column, text: str) -> str:
    """Return the SQL literal of a key column's text; `StateError` for text that never came from such a column."""
    kind = kind_of(column)
    if kind in (KeyKind.TEXT, KeyKind.BINARY):
        charset = (column.charset or "utf8mb4") if kind is KeyKind.TEXT else "binary"
        return f"_{_checked(charset, _CHARSET)} X'{_checked(text, _HEX)}'"
    if kind is KeyKind.TEMPORAL:
        return f"'{_checked(text, _TEMPORAL)}'"
    if kind is KeyKind.ADDRESS:
        return f"'{_checked(text, _ADDRESS)}'"
    if kind is KeyKind.FLOAT:
        number = _checked(text, _FLOAT)
        return number if "e" in number.lower() else f"{number}e0"
    return _checked(text, _NUMBER)


def _checked(text: str, pattern: re.Pattern[str]) -> str:
    if not pattern.match(text):
        message = f"{text!r} is not the text of a key of its column"
        raise StateError(message)
    return text


def after(columns: Sequence[Column], key: Key) -> str:
    """Return the predicate "key of the row > `key`", over the whole tuple."""
    return _compared(columns, key, ">", ">")


def after_by_level(columns: Sequence[Column], key: Key) -> list[str]:
    """Return predicates that together say "key of the row > `key`", in the order of the key; each is one range of the index.

    First the rows that share all but the last column with `key`, last those with a larger first column. Their union in one
    predicate is several ranges, of which MySQL reckons too much: it reads the index from its beginning instead.
    """
    levels = []
    for depth in reversed(range(len(columns))):
        shared = [_comparison(columns[part], "=", key[part]) for part in range(depth)]
        levels.append(" AND ".join([*shared, _comparison(columns[depth], ">", key[depth])]))
    return levels


def up_to(columns: Sequence[Column], key: Key) -> str:
    """Return the predicate "key of the row <= `key`", over the whole tuple."""
    return _compared(columns, key, "<", "<=")


def _compared(columns: Sequence[Column], key: Key, inner: str, last: str) -> str:
    """Compare, expanded by OR: row constructors are not used for ranges by every server."""
    if len(columns) != len(key):
        message = f"a key of {len(key)} parts for {len(columns)} key columns"
        raise StateError(message)
    column, value = columns[0], key[0]
    if len(columns) == 1:
        return _comparison(column, last, value)
    rest = _compared(columns[1:], key[1:], inner, last)
    beyond, here = _comparison(column, inner, value), _comparison(column, "=", value)
    return f"{_comparison(column, f'{inner}=', value)} AND ({beyond} OR ({here} AND ({rest})))"


def _comparison(column: Column, operator: str, text: str) -> str:
    name, value = quoted(column.name), literal(column, text)
    if semantic_of(column) is Semantic.YEAR and column.display == YEAR_DIGITS:
        # MariaDB orders them by year and compares them by their two digits: < and > lose rows, a list does not
        years = [str(year) for year in range(100) if _matches(_rank(year), operator, _rank(int(value)))]
        return f"{name} IN ({', '.join(years)})" if years else "FALSE"
    if semantic_of(column) is not Semantic.ENUM or len(column.members) > _MAX_MEMBERS:
        return f"{name} {operator} {value}"
    # no server uses an index for < or > on ENUM, but each does for a list of its numbers
    chosen = [str(index) for index in range(len(column.members) + 1) if _matches(index, operator, int(value))]
    return f"{name} IN ({', '.join(chosen)})" if chosen else "FALSE"


def _rank(year: int) -> int:
    """Return the rank of a two-digit year in the order of an index: 70 to 99, then 0 to 69."""
    return (year - 70) % 100


def _matches(index: int, operator: str, value: int) -> bool:
    return {"=": index == value, "<": index < value, "<=": index <= value}.get(
        operator, index > value or (operator == ">=" and index == value)
    )


def where(columns: Sequence[Column], bounds: KeyRange, condition: str | None = None) -> str:
    """Return the WHERE clause of a chunk, with its leading space; empty for the whole table."""
    parts = []
    if bounds.lower is not None:
        parts.append(f"({after(columns, bounds.lower)})")
    if bounds.upper is not None:
        nulls = [f"{quoted(c.name)} IS NULL" for c in columns if c.nullable and bounds.lower is None]
        parts.append(f"({' OR '.join([up_to(columns, bounds.upper), *nulls])})")
    if condition is not None:
        parts.append(f"(\n{condition}\n)")
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def rows_query(table: TableSchema, rest: str, shown: Sequence[str] | None = None) -> str:
    """Return the SELECT of every column, in table order; `rest` is what follows the table's name.

    By their names, also of invisible ones. Where a server takes the name `*` for all visible columns, `shown` are those
    (`producer.snapshot.reader.shown_by_star`): whatever they lack is asked for beside them, and all are put in order.
    """
    source = f"{table_name(table)}{rest}"
    names = [column.name for column in table.columns]
    if shown is None:
        return f"SELECT {', '.join(map(quoted, names))} FROM {source}"  # noqa: S608 - quoted
    hidden = [name for name in names if name not in shown]
    if not hidden:
        return f"SELECT * FROM {source}"  # noqa: S608 - quoted
    given = [*shown, *hidden]
    inner = ", ".join([f"{table_name(table)}.*", *map(quoted, hidden)])
    outer = ", ".join(f"d.c{given.index(name)} AS {quoted(name)}" for name in names)
    aliases = ", ".join(f"c{number}" for number in range(len(given)))
    return f"SELECT {outer} FROM (SELECT {inner} FROM {source}) AS d ({aliases})"  # noqa: S608 - quoted


def chunk_query(
    table: TableSchema,
    bounds: KeyRange,
    condition: str | None = None,
    surrogate: str | None = None,
    shown: Sequence[str] | None = None,
) -> str:
    """Return the SELECT of a chunk: every column, in table order; `shown` as `rows_query` has it."""
    key = range_key(table, surrogate)
    return rows_query(table, f"{key.hint}{where(key.columns, bounds, condition)}", shown)
