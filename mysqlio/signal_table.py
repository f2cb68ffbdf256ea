"""The signal table: rows that are committed to the source, so that the log has them in order with all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mysqlio.quoting import qualified, quoted
from mysqlio.server_errors import ServerCode, ServerError, server_code, source_error
from schemas.errors import RetriableSourceError, SourceError

if TYPE_CHECKING:
    from mysqlio.connection import Connection

_COLUMNS: Final = "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
_SIGNAL_LENGTHS: Final = (42, 21, 512)
TRANSACTIONAL_ENGINES: Final = frozenset({"innodb", "rocksdb"})


@dataclass(frozen=True, slots=True)
class SignalTable:
    """The signal table: Debezium's three columns, found by position, under whatever names."""

    database: str
    name: str

    @property
    def sql(self) -> str:
        """The name as SQL."""
        return qualified(self.database, self.name)

    @property
    def sql_with_arguments(self) -> str:
        """The name in a statement that has arguments: PyMySQL reads a `%` as the mark of one."""
        return self.sql.replace("%", "%%")

    @property
    def definition(self) -> str:
        """The statement that creates it."""
        return f"CREATE TABLE IF NOT EXISTS {self.sql} {_COLUMNS}"

    def ensure(self, connection: Connection) -> None:
        """Create the table if it does not exist; `SourceError` with the SQL if that is not granted.

        A table that is there must be able to carry our rows unchanged, and to be a barrier: `SourceError`
        says what is wrong with it.
        """
        try:
            if self.is_there(connection):
                return
            with connection.cursor() as cursor:
                cursor.execute(self.definition)
        except ServerError as error:
            refused = source_error(error, f"{connection.host}:{connection.port}")
            if isinstance(refused, RetriableSourceError):  # says nothing of the table
                raise refused from error
            message = (
                f"the signal table {self.database}.{self.name} does not exist and cannot be created "
                f"({error.args[-1]}). Run this as an administrator: {self.definition}; "
                f"GRANT SELECT, INSERT ON {self.sql} TO <the user of source.user>"
            )
            raise SourceError(message) from error

    def is_there(self, connection: Connection) -> bool:
        """Return whether the table exists; `SourceError` for one that cannot carry our rows."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT COALESCE(character_maximum_length, 0) FROM information_schema.columns "
                "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (self.database, self.name),
            )
            lengths = [int(length) for (length,) in cursor.fetchall()]
            if not lengths:
                return False
            cursor.execute(
                "SELECT engine FROM information_schema.tables "
                "WHERE table_schema = %s AND table_name = %s",
                (self.database, self.name),
            )
            (engine,) = cursor.fetchone() or ("",)
        self._check(lengths, str(engine))
        return True

    def _check(self, lengths: list[int], engine: str) -> None:
        wrong = ""
        if len(lengths) != len(_SIGNAL_LENGTHS):
            wrong = f"has {len(lengths)} columns, a signal has three (id, type, data)"
        elif any(length < needed for length, needed in zip(lengths, _SIGNAL_LENGTHS, strict=True)):
            wrong = f"has columns of {lengths} characters (0 = no text), a signal and its window rows need {list(_SIGNAL_LENGTHS)}"
        elif engine.lower() not in TRANSACTIONAL_ENGINES:
            wrong = f"is kept by {engine}, whose rows are not committed in the order of the log"
        if wrong:
            message = (
                f"{self.database}.{self.name} cannot be the signal table: it {wrong}. Leave it as it is and name another "
                f"table in source.signal_table; one that does not exist is made where that is granted, as follows: "
                f"CREATE TABLE <database>.tidemark_signal {_COLUMNS} ENGINE=InnoDB"
            )
            raise SourceError(message)


def insert_row(connection: Connection, table: SignalTable, row: tuple[str, str, str | None]) -> bool:
    """Commit a row of the signal table: id, type, data. Return False if one with that id is there already, which is as good."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(
                f"INSERT INTO {table.sql_with_arguments} VALUES (%s, %s, %s)",  # noqa: S608 - a quoted name
                row,
            )
        except ServerError as error:
            if server_code(error) != ServerCode.DUPLICATE_ENTRY:
                raise
            return False
    return True


def delete_row(connection: Connection, table: SignalTable, row_id: str) -> bool:
    """Delete a row of the signal table; return whether there was one. `SourceError` if that is not granted."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
            "ORDER BY ordinal_position LIMIT 1",
            (table.database, table.name),
        )
        (column,) = cursor.fetchone() or ("id",)
        name = quoted(str(column)).replace("%", "%%")
        try:
            return bool(
                cursor.execute(
                    f"DELETE FROM {table.sql_with_arguments} WHERE {name} = %s",  # noqa: S608 - quoted names
                    (row_id,),
                )
            )
        except ServerError as error:
            if server_code(error) != ServerCode.TABLE_ACCESS_DENIED:
                raise
            message = (
                f"snapshot.watermarking_strategy: insert_delete deletes from the signal table, which is not "
                f"granted ({error.args[-1]}). Run: GRANT DELETE ON {table.sql} TO <the user of source.user>"
            )
            raise SourceError(message) from error
