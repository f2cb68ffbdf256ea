"""Columns and tables of a source, as both sides of Kafka need to know them (value objects only)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal

from schemas.json_codec import Form


class ColumnType(StrEnum):
    """The column types that are captured. FLOAT(M,D) and DOUBLE(M,D) keep their M and D in the column."""

    TINYINT = "tinyint"
    SMALLINT = "smallint"
    MEDIUMINT = "mediumint"
    INT = "int"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BIT = "bit"
    YEAR = "year"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    CHAR = "char"
    VARCHAR = "varchar"
    TINYTEXT = "tinytext"
    TEXT = "text"
    MEDIUMTEXT = "mediumtext"
    LONGTEXT = "longtext"
    BINARY = "binary"
    VARBINARY = "varbinary"
    TINYBLOB = "tinyblob"
    BLOB = "blob"
    MEDIUMBLOB = "mediumblob"
    LONGBLOB = "longblob"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    GEOMETRY = "geometry"
    POINT = "point"
    LINESTRING = "linestring"
    POLYGON = "polygon"
    MULTIPOINT = "multipoint"
    MULTILINESTRING = "multilinestring"
    MULTIPOLYGON = "multipolygon"
    GEOMETRYCOLLECTION = "geometrycollection"
    VECTOR = "vector"
    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"


YEAR_DIGITS: Final = 2
"""The width of a YEAR(2), which MariaDB still has: 70 to 99 are of the 1900s, 0 to 69 of the 2000s."""

@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table version.

    `length` is characters for CHAR and VARCHAR, bytes for BINARY and VARBINARY, bits for BIT, M for
    FLOAT(M,D) and DOUBLE(M,D). `precision` is p of DECIMAL(p,s) and the fraction digits of TIME, DATETIME
    and TIMESTAMP. `scale` is s of DECIMAL(p,s) and D of FLOAT(M,D). `default` is the literal as
    information_schema gives it; an expression default is only named (`default_is_expression`).
    Not in the log, and only one value depends on it: `comment`, `zerofill`, and `display`, the width of a signed
    TINYINT(1), of ZEROFILL integers and of MariaDB's YEAR(2), whose 0 is 2000, None for others; `filled_by` says that the
    server makes the values (AUTO_INCREMENT, a generated column).
    """

    JSON: ClassVar = Form(omits_defaults=True, refuses_unknown=True)

    name: str
    type: ColumnType
    nullable: bool
    unsigned: bool = False
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    charset: str | None = None
    collation: str | None = None
    members: tuple[str, ...] = ()
    default: str | None = None
    has_default: bool = False
    default_is_expression: bool = False
    comment: str | None = None
    display: int | None = None
    zerofill: bool = False
    filled_by: Literal["", "counter", "expression"] = ""


@dataclass(frozen=True, slots=True)
class Mask:
    """What the texts of a column become before they leave.

    `hash`: the lower-case hex digest of salt and text by `algorithm` (Java's name, as `SHA-256`), truncated to the column's
    length; `asterisks`: `length` asterisks; `truncate`: the first `length` characters. NULL stays NULL.
    """

    kind: Literal["hash", "asterisks", "truncate"]
    length: int = 0
    algorithm: str = ""
    salt: str = ""

    @property
    def parameter(self) -> tuple[str, str]:
        """Return the schema parameter that informs consumers (Debezium's)."""
        return ("truncateLength", str(self.length)) if self.kind == "truncate" else ("masked", "true")


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table. `primary_key` has the column names in the key's definition order, () = none.

    `unique_key` is the first unique index of NOT NULL columns, the record key where there is no primary key.
    What the settings make of it: `message_key` is a record key chosen by them, `dropped` the columns that are
    not written, `masks` (name, mask) of the masked ones, `typed` the columns whose schemas name their source types;
    `comments`: they have comments.
    """

    database: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    message_key: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()
    masks: tuple[tuple[str, Mask], ...] = ()
    typed: frozenset[str] = frozenset()
    comments: bool = False

    @property
    def full_name(self) -> str:
        """`database.table`."""
        return f"{self.database}.{self.name}"

    def column(self, name: str) -> Column:
        """Return the column of that name; `KeyError` when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def record_key(self) -> tuple[str, ...]:
        """The columns of the record key: chosen, else primary key, else the first unique NOT NULL index."""
        return self.message_key or self.primary_key or self.unique_key

    def mask_of(self, name: str) -> Mask | None:
        """Return the mask of a column, None where it is written as it is."""
        return next((mask for column, mask in self.masks if column == name), None)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the record key, in key order."""
        return tuple(self.column(name) for name in self.record_key)
