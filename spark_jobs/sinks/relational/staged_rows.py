"""The staging table: the winners of a batch enter; a table beside the target has them for one transaction.

Executors write the rows as lines of text, and the driver program has the database read them. Spark may run a task twice, but each
part is in the files once. Each fill has files and a table of its own. The table is temporary: it is of one connection, which
carries out the transaction, too, and in no log of the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.arrival import require_all
from spark_jobs.sinks.contract import Columns, Winners
from spark_jobs.sinks.relational.sink_connection import (
    DatabaseError,
    SinkConnection,
)
from spark_jobs.sinks.relational.sql_dialect import Dialect

_NUL: Final = 'invalid byte sequence for encoding "UTF8": 0x00'
_NUL_ADVICE: Final = (
    "PostgreSQL has no text with the character NUL: leave it out with select, `replace(column, char(0), '') AS column`, or take "
    "the column as bytes, `cast(column AS binary) AS column`"
)
_NO_NUMBERS: Final = ("'NaN", "'Infinity", "'-Infinity")
_NO_NUMBER_ADVICE: Final = (
    "MySQL and MariaDB have neither: make it NULL with select, `if(isnan(column) or abs(column) = double('infinity'), "
    "null, column) AS column`, or take the column as text"
)


def staging_prefix(sink: str) -> str:
    """Return what the names of a sink's staging tables begin with."""
    return f"stage_{hashlib.sha256(sink.encode()).hexdigest()[:10]}_"


@dataclass(frozen=True, slots=True)
class Staged:
    """A filled staging table, of the connection that filled it."""

    connection: SinkConnection
    table: str
    columns: Columns
    keys: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in the target, in the order of `c0`, `c1`, ..."""
        return tuple(name for name, _ in self.columns)


class StagedRows:
    """The staging tables of a sink."""

    def __init__(self, dialect: Dialect, sink: str, folder: Path) -> None:
        self._dialect = dialect
        self._prefix = staging_prefix(sink)
        self._folder = folder

    def fill(self, connection: SinkConnection, winners: Winners, location: str) -> Staged:
        """Return a new table with these rows. After an error it goes with the connection."""
        name = f"{self._prefix}{uuid.uuid4().hex[:16]}"
        staged = Staged(connection, self._dialect.staging(name), winners.columns, winners.keys)
        connection.execute(self._dialect.create_staging(staged.table, winners.columns, winners.keys))
        self._write(winners, staged, location)
        if self._dialect.analyzes_staging:
            connection.execute(self._dialect.analyze(staged.table))
        return staged

    def _write(self, winners: Winners, staged: Staged, location: str) -> None:
        lines = self._dialect.staged_lines(winners.rows, winners.columns, F.col(quoted(DELETED)), F.col(quoted(POSITION)))
        folder, counted = self._folder / uuid.uuid4().hex, Observation()
        try:
            measured = lines.observe(counted, F.count(F.lit(1)).alias("count"))
            measured.write.option("compression", "none").option("lineSep", "\n").text(str(folder))
            found = sum(staged.connection.fill(staged.table, file) for file in sorted(folder.glob("part-*")))
            written = int(counted.get.get("count", 0))
            if found < written:  # a row that is there twice is refused by its key
                require_all(f"rows of {location} to {folder}", written, found)
        except DatabaseError as error:
            raise self._explained(error, winners, location) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _explained(self, error: DatabaseError, winners: Winners, location: str) -> SinkError:
        """Return an error with the table that it is about, and what to do about a value that the database does not have."""
        if _NUL in str(error):
            return SinkError(f"{location}: {self._with_nul(winners)}: {_NUL_ADVICE}")
        if any(name in str(error) for name in _NO_NUMBERS):
            return SinkError(f"{location}: {self._with_no_number(winners)} has NaN or an infinity: {_NO_NUMBER_ADVICE}")
        return error.at(location) if error.passes is None else error

    @staticmethod
    def _with_nul(winners: Winners) -> str:
        texts = [name for name, kind in winners.columns if isinstance(kind, T.StringType)]
        if not texts:
            return "a text has the character NUL"
        counts = [F.max(F.col(quoted(name)).contains("\0")).alias(str(number)) for number, name in enumerate(texts)]
        (found,) = winners.rows.select(*counts).collect()
        named = [name for number, name in enumerate(texts) if found[str(number)]]
        return f"{', '.join(named) or 'a nested value'} has a value with the character NUL"

    @staticmethod
    def _with_no_number(winners: Winners) -> str:
        floats = [name for name, kind in winners.columns if isinstance(kind, (T.FloatType, T.DoubleType))]
        if not floats:
            return "a column"
        values = [F.col(quoted(name)).cast("double") for name in floats]
        bad = [F.max(F.isnan(value) | (F.abs(value) == F.lit(float("inf")))).alias(str(at)) for at, value in enumerate(values)]
        (found,) = winners.rows.select(*bad).collect()
        return ", ".join(name for at, name in enumerate(floats) if found[str(at)]) or "a column"

    def drop(self, staged: Staged) -> None:
        """Drop a table whose rows have taken effect; one that cannot be goes with the connection."""
        with contextlib.suppress(DatabaseError):
            staged.connection.execute(self._dialect.drop_staging(staged.table))

    def drop_former(self, connection: SinkConnection) -> Sequence[str]:
        """Drop what former owners left, and return the names."""
        shutil.rmtree(self._folder, ignore_errors=True)
        found = self._dialect.staging_tables(connection, self._prefix)
        for name in found:
            connection.execute(f"DROP TABLE IF EXISTS {self._dialect.service(name)}")
        return found
