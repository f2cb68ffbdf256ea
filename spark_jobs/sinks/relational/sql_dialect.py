"""What differs between databases: names, types and statements. Pure but for the questions to the catalog.

A staging table has the columns `c0`, `c1`, ... in the order of the columns that are put, `p` (the position) and `d` (1: deleted).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import TableName
from schemas.type_comments import type_comment, type_json
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.sinks.contract import Columns, Evolution
from spark_jobs.sinks.relational.sink_connection import SinkConnection
from spark_jobs.sinks.relational.table_keys import TableKeys

SERVICE: Final = "tidemark"
"""The schema (PostgreSQL) or database (MySQL, MariaDB) of the sink's own tables."""
OWNER, CHECKPOINT = "tidemark_owner", "tidemark_checkpoint"
NESTED: Final = (T.StructType, T.ArrayType, T.MapType)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the catalog has it. `kind` is the type that we gave it; one that is not ours has no exact type."""

    name: str
    kind: T.DataType
    is_ours: bool


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index: its columns in order, and whether it is the primary key."""

    name: str
    columns: tuple[str, ...]
    is_primary: bool


def escaped(value: Column, escapes: Mapping[str, str]) -> Column:
    """Return a text with an escape in the place of each of these characters, one after the other."""
    for character, escape in escapes.items():
        value = F.replace(value, F.lit(character), F.lit(escape))
    return value


def comment_of(kind: T.DataType) -> str:
    """Return the comment of a column, which says what Spark's type is: a database has fewer of them."""
    return type_comment(kind.json().strip('"'))


def type_of_comment(comment: str) -> T.DataType | None:
    """Return the type that a comment of ours names; None for another comment."""
    text = type_json(comment)
    try:
        return None if text is None else T._parse_datatype_json_string(text)  # noqa: SLF001
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Dialect(ABC):
    """The words of one kind of server."""

    index_prefix: ClassVar[str] = "tm_key_"
    plain_prefix: ClassVar[str] = "tm_by_"
    most_name: ClassVar[int]
    text_as: ClassVar[str]
    ddl_is_transactional: ClassVar[bool]
    analyzes_staging: ClassVar[bool] = False
    """Whether statistics of a temporary table are made for the planner."""
    kinds: ClassVar[Mapping[str, T.DataType]]
    """The types of columns that are not ours."""
    exists_sql: ClassVar[str]
    """Takes, as the next two queries do, a database and a table."""
    columns_sql: ClassVar[str]
    """Rows: name, type, comment."""
    indexes_sql: ClassVar[str]
    """Rows: name of the index, whether it is the primary key, column."""

    # ── the server ────────────────────

    @property
    @abstractmethod
    def service_tables(self) -> Sequence[str]:
        """The statements that make the sink's own tables, where they are missing."""

    @property
    def share_lock(self) -> str:
        """What a SELECT ends with that lets nobody change its row before this transaction ends."""
        return "FOR SHARE"

    @abstractmethod
    def claim(self, connection: SinkConnection, name: str, wait_s: int) -> bool:
        """Take the lock of a name, which lasts as long as the connection; return False if another has it after that time."""

    @abstractmethod
    def add_owner(self) -> str:
        """Return the statement that adds the owner `?` with epoch 0 if it is missing."""

    # ── names and values ────────────────────

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Return an identifier in quotes."""

    @abstractmethod
    def name_size(self, name: str) -> int:
        """Return the size of a name as the server counts it."""

    def table(self, name: TableName) -> str:
        """Return a table's name in SQL."""
        return f"{self.quoted(name.database)}.{self.quoted(name.table)}"

    def service(self, name: str) -> str:
        """Return the name of a table of the sink's own in SQL."""
        return self.table(TableName(SERVICE, name))

    def require_names(self, location: str, names: Sequence[str]) -> None:
        """Refuse names that the server would cut short (`SinkError`)."""
        for name in names:
            if self.name_size(name) > self.most_name:
                message = (
                    f"{location}: the name {name!r} is longer than the {self.most_name} that {self.text_as} has room for: give it "
                    "a shorter one (`select` with AS for a column, a route for a table)"
                )
                raise SinkError(message)

    @abstractmethod
    def literal(self, value: Any, kind: T.DataType) -> str | None:
        """Return a value as SQL; None for one that the type does not have here."""

    @abstractmethod
    def column_type(self, kind: T.DataType) -> str:
        """Return the type of a column that is no key."""

    @abstractmethod
    def key_types(self, columns: Columns, keys: Sequence[str]) -> Mapping[str, str]:
        """Return the types of the key's columns: those that an index may have."""

    @abstractmethod
    def staged(self, value: Column, kind: T.DataType) -> Column:
        """Return a value of Spark as the staging table takes it without any loss."""

    # ── the catalog ────────────────────

    def exists(self, connection: SinkConnection, name: TableName) -> bool:
        """Return whether there is anything of that name."""
        return bool(connection.query(self.exists_sql, name.database, name.table))

    def columns(self, connection: SinkConnection, name: TableName) -> list[TableColumn]:
        """Return the columns but for the position, in their order."""
        found = []
        for column, kind, comment in connection.query(self.columns_sql, name.database, name.table):
            ours = type_of_comment(str(comment))
            if column != POSITION:
                found.append(TableColumn(str(column), ours or self.kinds.get(str(kind), T.StringType()), ours is not None))
        return found

    def indexes(self, connection: SinkConnection, name: TableName) -> list[TableIndex]:
        """Return the primary key, and the indexes that we made."""
        found: dict[tuple[str, bool], list[str]] = {}
        for index, is_primary, column in connection.query(self.indexes_sql, name.database, name.table):
            found.setdefault((str(index), bool(is_primary)), []).append(str(column))
        return [TableIndex(index, tuple(columns), is_primary) for (index, is_primary), columns in found.items()]

    @abstractmethod
    def plain_index(self, connection: SinkConnection, name: TableName) -> TableIndex | None:
        """Return the index that a transform asks for and that is not of the identity, if there is one."""

    def staging_tables(self, connection: SinkConnection, prefix: str) -> list[str]:
        """Return the names of the staging tables that begin so."""
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND LEFT(table_name, %s) = %s"
        return [str(table) for (table,) in connection.query(sql, SERVICE, len(prefix), prefix)]

    # ── definitions ────────────────────

    @abstractmethod
    def schema_statement(self, connection: SinkConnection, database: str) -> str | None:
        """Return the statement that makes a schema; None where it is there."""

    @abstractmethod
    def create_table(self, name: TableName, columns: Columns, keys: TableKeys) -> Sequence[str]:
        """Return the statements that make a target without rows."""

    def index_name(self, prefix: str, name: TableName, columns: Sequence[str]) -> str:
        """Return the name of an index of ours."""
        listed = ", ".join(map(self.quoted, columns))
        return prefix + hashlib.sha256(f"{name.plain} {listed}".encode()).hexdigest()[:16]

    @abstractmethod
    def create_staging(self, staging: str, columns: Columns, keys: Sequence[str]) -> str:
        """Return the statement that makes a staging table."""

    @abstractmethod
    def alter_table(
        self,
        name: TableName,
        change: Evolution,
        existing: Sequence[TableColumn],
        index: TableIndex | None,
        plain: TableIndex | None = None,
    ) -> Sequence[str]:
        """Return the statements that change columns, and fill the added ones. `index` is the index of the key, `plain` another."""

    @abstractmethod
    def change_key(
        self, name: TableName, columns: Columns, keys: Sequence[str], indexes: Sequence[TableIndex]
    ) -> Sequence[str]:
        """Return the statements that give a target a plain index on another key, in the place of the indexes that it has."""

    @abstractmethod
    def analyze(self, table: str) -> str:
        """Return the statement that has the planner know a table."""

    def staging(self, name: str) -> str:
        """Return the temporary table of a name in SQL."""
        return self.service(name)

    def drop_staging(self, staging: str) -> str:
        """Return the statement that drops a staging table."""
        return f"DROP TABLE IF EXISTS {staging}"

    # ── rows ────────────────────

    @abstractmethod
    def delete_staged(self, target: str, staging: str, match: str) -> str:
        """Return the guarded DELETE."""

    @abstractmethod
    def update_staged(self, target: str, staging: str, match: str, assigned: Sequence[tuple[str, str]]) -> str:
        """Return the guarded UPDATE; `assigned` are columns and what they become."""

    @abstractmethod
    def text_of(self, column: str, kind: T.DataType) -> str:
        """Return an expression with the text of a key, as `sql_values.parsed` reads it."""

    def insert_staged(self, target: str, staging: str, match: str, assigned: Sequence[tuple[str, str]]) -> str:
        """Return the INSERT of rows whose key is missing."""
        names = ", ".join(name for name, _ in assigned)
        values = ", ".join(value for _, value in assigned)
        return (
            f"INSERT INTO {target} ({names}) SELECT {values} FROM {staging} s "  # noqa: S608 - quoted names only
            f"LEFT JOIN {target} t ON {match} WHERE s.d = 0 AND t.{self.quoted(POSITION)} IS NULL"
        )

    def match(self, keys: Sequence[str], columns: Sequence[str]) -> str:
        """Return the condition under which a row `s` of the staging table and a row `t` of the target have one key."""
        at = {name: number for number, name in enumerate(columns)}
        return " AND ".join(f"t.{self.quoted(key)} = s.c{at[key]}" for key in keys)

    def staged_frame(self, rows: DataFrame, columns: Columns, deleted: Column, position: Column) -> DataFrame:
        """Return rows as the staging table has them."""
        values = [self.staged(F.col(f"`{name.replace('`', '``')}`"), kind).alias(f"c{n}") for n, (name, kind) in enumerate(columns)]
        return rows.select(*values, position.alias("p"), deleted.cast("int").alias("d"))

    def staged_lines(self, rows: DataFrame, columns: Columns, deleted: Column, position: Column) -> DataFrame:
        """Return rows of the staging table as lines of text, which `SinkConnection.fill` reads: no value has an end of line."""
        frame = self.staged_frame(rows, columns, deleted, position)
        return frame.select(self.line([(F.col(field.name), field.dataType) for field in frame.schema]).alias("value"))

    @abstractmethod
    def line(self, values: Sequence[tuple[Column, T.DataType]]) -> Column:
        """Return the values of a row as one line."""

    def lossless(self, column: str, given: T.DataType, kind: T.DataType) -> str | None:
        """Return the condition that a narrower type has every value of a column; None where that is not known."""
        numbers: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
        bits = numbers.get(type(kind))
        if bits is not None and (type(given) in numbers or isinstance(given, T.DecimalType)):
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            return f"{column} BETWEEN {low} AND {high} AND {column} = ROUND({column}, 0)"
        if isinstance(kind, T.DecimalType) and isinstance(given, T.DecimalType):
            return f"{column} = ROUND({column}, {kind.scale}) AND ABS({column}) < 1{'0' * (kind.precision - kind.scale)}"
        return None
