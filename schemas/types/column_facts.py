"""Facts of each column type of MySQL and MariaDB: its semantic type, its codes in the protocol, its size."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from schemas.columns import Column, ColumnType


class Semantic(Enum):
    """The semantic types: column types of one kind of value."""

    INTEGER = auto()
    DECIMAL = auto()
    FLOATING = auto()
    BIT = auto()
    YEAR = auto()
    DATE = auto()
    TIME = auto()
    DATETIME = auto()
    TIMESTAMP = auto()
    TEXT = auto()
    BINARY = auto()
    ENUM = auto()
    SET = auto()
    JSON = auto()
    GEOMETRY = auto()
    POINT = auto()
    VECTOR = auto()
    UUID = auto()
    INET = auto()


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """The facts of one column type.

    `log` are the codes that a TABLE_MAP has for it, `result` the codes of a result set; the first is the usual one. `size`:
    bytes of a number or an address, most bytes of a TEXT or BLOB. `digits`: the width to which ZEROFILL fills. `length`: a
    column has a length: of each value, or of the longest one ("stripped": blanks at the end do not belong to a value).
    """

    semantic: Semantic
    log: tuple[int, ...]
    result: tuple[int, ...]
    size: int = 0
    digits: int = 0
    length: Literal["", "fixed", "stripped", "most"] = ""


FLOAT_BYTES: Final = 4
"""Of a FLOAT, and of each number of a VECTOR."""
_LONG_BYTES: Final = 8
_BLOB: Final = (252, 249, 250, 251)
_STRING: Final = 254
_VARIABLE: Final = ((15, 253), (253,))
_SPATIAL: Final = ((255,), (255,))


def _lob(semantic: Semantic, size: int) -> TypeFacts:
    return TypeFacts(semantic, _BLOB, _BLOB[:1], size)


FACTS: Final = {
    ColumnType.TINYINT: TypeFacts(Semantic.INTEGER, (1,), (1,), size=1, digits=3),
    ColumnType.SMALLINT: TypeFacts(Semantic.INTEGER, (2,), (2,), size=2, digits=5),
    ColumnType.MEDIUMINT: TypeFacts(Semantic.INTEGER, (9,), (9,), size=3, digits=8),
    ColumnType.INT: TypeFacts(Semantic.INTEGER, (3,), (3,), size=4, digits=10),
    ColumnType.BIGINT: TypeFacts(Semantic.INTEGER, (8,), (8,), size=8, digits=20),
    ColumnType.DECIMAL: TypeFacts(Semantic.DECIMAL, (246,), (246,)),
    ColumnType.FLOAT: TypeFacts(Semantic.FLOATING, (4,), (4,), size=FLOAT_BYTES),
    ColumnType.DOUBLE: TypeFacts(Semantic.FLOATING, (5,), (5,), size=8),
    ColumnType.BIT: TypeFacts(Semantic.BIT, (16,), (16,), length="fixed"),
    ColumnType.YEAR: TypeFacts(Semantic.YEAR, (13,), (13,)),
    ColumnType.DATE: TypeFacts(Semantic.DATE, (10, 14), (10,)),
    ColumnType.TIME: TypeFacts(Semantic.TIME, (19,), (11,)),
    ColumnType.DATETIME: TypeFacts(Semantic.DATETIME, (18,), (12,)),
    ColumnType.TIMESTAMP: TypeFacts(Semantic.TIMESTAMP, (17,), (7,)),
    ColumnType.CHAR: TypeFacts(Semantic.TEXT, (_STRING,), (_STRING,), length="stripped"),
    ColumnType.VARCHAR: TypeFacts(Semantic.TEXT, *_VARIABLE, length="most"),
    ColumnType.TINYTEXT: _lob(Semantic.TEXT, 0xFF),
    ColumnType.TEXT: _lob(Semantic.TEXT, 0xFFFF),
    ColumnType.MEDIUMTEXT: _lob(Semantic.TEXT, 0xFFFFFF),
    ColumnType.LONGTEXT: _lob(Semantic.TEXT, 0xFFFFFFFF),
    ColumnType.BINARY: TypeFacts(Semantic.BINARY, (_STRING,), (_STRING,), length="fixed"),
    ColumnType.VARBINARY: TypeFacts(Semantic.BINARY, *_VARIABLE, length="most"),
    ColumnType.TINYBLOB: _lob(Semantic.BINARY, 0xFF),
    ColumnType.BLOB: _lob(Semantic.BINARY, 0xFFFF),
    ColumnType.MEDIUMBLOB: _lob(Semantic.BINARY, 0xFFFFFF),
    ColumnType.LONGBLOB: _lob(Semantic.BINARY, 0xFFFFFFFF),
    ColumnType.ENUM: TypeFacts(Semantic.ENUM, (247,), (_STRING,)),
    ColumnType.SET: TypeFacts(Semantic.SET, (248,), (_STRING,)),
    ColumnType.JSON: TypeFacts(Semantic.JSON, (245, *_BLOB), (245, 252)),
    ColumnType.GEOMETRY: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.POINT: TypeFacts(Semantic.POINT, *_SPATIAL),
    ColumnType.LINESTRING: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.POLYGON: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.MULTIPOINT: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.MULTILINESTRING: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.MULTIPOLYGON: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.GEOMETRYCOLLECTION: TypeFacts(Semantic.GEOMETRY, *_SPATIAL),
    ColumnType.VECTOR: TypeFacts(Semantic.VECTOR, (242, 15), (242, 253)),  # MariaDB's is a VARBINARY in both
    ColumnType.UUID: TypeFacts(Semantic.UUID, (_STRING,), (_STRING,), size=16),
    ColumnType.INET4: TypeFacts(Semantic.INET, (_STRING,), (_STRING,), size=4),
    ColumnType.INET6: TypeFacts(Semantic.INET, (_STRING,), (_STRING,), size=16),
}
"""In the order of their sizes, spatial types in the order of WKB's numbers: a TABLE_MAP has those."""


def semantic_of(column: Column) -> Semantic:
    """Return the semantic type of a column."""
    return FACTS[column.type].semantic


def is_beyond_long(column: Column) -> bool:
    """Return whether a column is a BIGINT UNSIGNED, whose values need more than a signed number of eight bytes."""
    return column.unsigned and FACTS[column.type].size == _LONG_BYTES and semantic_of(column) is Semantic.INTEGER


def fixed_length(column: Column) -> int:
    """Return the length of each value of a BINARY or BIT column, 0 for others."""
    return (column.length or 0) if FACTS[column.type].length == "fixed" else 0


def types_of(*semantics: Semantic) -> tuple[ColumnType, ...]:
    """Return the column types of some semantic types, in the order of the table."""
    return tuple(kind for kind, facts in FACTS.items() if facts.semantic in semantics)


def _with_size(semantic: Semantic) -> tuple[ColumnType, ...]:
    return tuple(kind for kind in types_of(semantic) if FACTS[kind].size)


INTEGER_TYPES: Final = types_of(Semantic.INTEGER)
TEXT_TYPES: Final = types_of(Semantic.TEXT)
BINARY_TYPES: Final = types_of(Semantic.BINARY)
TO_BINARY: Final = dict(zip(TEXT_TYPES, BINARY_TYPES, strict=True))
"""The types that types of text become in the character set `binary`."""
LARGE_TEXTS: Final = _with_size(Semantic.TEXT)
LARGE_BINARIES: Final = _with_size(Semantic.BINARY)
MEMBER_TYPES: Final = types_of(Semantic.ENUM, Semantic.SET)
FRACTION_TYPES: Final = types_of(Semantic.TIME, Semantic.DATETIME, Semantic.TIMESTAMP)
FLOAT_TYPES: Final = types_of(Semantic.FLOATING)
SPATIAL_TYPES: Final = types_of(Semantic.GEOMETRY, Semantic.POINT)
ADDRESS_TYPES: Final = types_of(Semantic.UUID, Semantic.INET)
"""MariaDB's types that are text in SQL and BINARY in the log."""
SHORT_BINARIES: Final = tuple(kind for kind in BINARY_TYPES if FACTS[kind].length)
"""BINARY and VARBINARY: in the log, MariaDB's types of its own are among them."""


def sized(kind: ColumnType, size: int) -> ColumnType:
    """Return the smallest type of those of a TEXT or BLOB that has room for `size` bytes."""
    family = LARGE_TEXTS if kind in LARGE_TEXTS else LARGE_BINARIES
    return next((one for one in family if size <= FACTS[one].size), family[-1])
