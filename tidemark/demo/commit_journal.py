"""Numbers that transactions write as they commit, and a watcher of the target which finds a number that is missing.

The last statements of each transaction take the next number of its source. The row of the last number stays locked until the
transaction is committed: numbers have the commit order. So a view of the target that has as many numbers as its highest one says
has a prefix of that order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from devservers import Database
from mysqlio.server_errors import ServerCode, ServerError, server_code
from schemas.errors import TidemarkError
from schemas.json_codec import decode
from spark_jobs.replicate.apply.apply_target import SourceState
from tidemark.demo.stack import TASK, DemoError

if TYPE_CHECKING:
    from mysqlio.connection import Connection

AT_COMMIT: Final = (
    "UPDATE journal_end SET n = LAST_INSERT_ID(n + 1) WHERE id = 1",
    "INSERT INTO journal (n) VALUES (LAST_INSERT_ID())",
)
_PAUSE_S: Final = 0.05
_JOIN_S: Final = 60.0


def create(connection: Connection, database: str) -> None:
    """Create the two tables of the numbers."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.journal (n BIGINT PRIMARY KEY)")
        cursor.execute(f"CREATE TABLE {database}.journal_end (id INT PRIMARY KEY, n BIGINT NOT NULL)")
        cursor.execute(f"INSERT INTO {database}.journal_end VALUES (1, 0)")


def count_and_last(connection: Connection, database: str) -> tuple[int, int]:
    """Return how many numbers there are, and the highest."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*), COALESCE(MAX(n), 0) FROM {database}.journal")
        ((numbers, last),) = cursor.fetchall()
    return int(numbers), int(last)


class JournalWatcher:
    """A thread that reads the numbers in the target again and again, of sources whose tables are loaded.

    `first`: the highest number of a source in its first view, `applied`: in the latest one.
    """

    def __init__(self, target: Database) -> None:
        self._target = target
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-watcher", daemon=True)
        self._failure: Exception | None = None
        self.first: dict[str, int] = {}
        self.applied: dict[str, int] = {}
        self.views = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_S)

    def check(self) -> None:
        """Raise `DemoError` if a view lacked a transaction, or the target could not be read."""
        if self._failure is not None:
            raise DemoError(str(self._failure)) from self._failure
        if not self._thread.is_alive():
            raise DemoError("the watcher of the target has ended")

    def _run(self) -> None:
        try:
            with self._target.connect() as connection:
                while not self._stop.wait(_PAUSE_S):
                    self._read_view(connection)
        except (ServerError, TidemarkError) as error:
            self._failure = error

    def _read_view(self, connection: Connection) -> None:
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            try:
                for name in _loaded(connection):
                    self._note(name, *count_and_last(connection, name))
                self.views += 1
            except ServerError as error:
                if server_code(error) != ServerCode.TABLE_CHANGED:  # a table that was created behind the snapshot
                    raise
            finally:
                cursor.execute("ROLLBACK")

    def _note(self, name: str, numbers: int, last: int) -> None:
        before = self.applied.get(name, 0)
        if numbers != last:
            raise DemoError(f"{name}: the target has transaction {last}, and {last - numbers} before it are missing")
        if last < before:
            raise DemoError(f"{name}: the target had transaction {before}, and has lost those behind {last}")
        self.first.setdefault(name, last)
        self.applied[name] = last


def _loaded(connection: Connection) -> Sequence[str]:
    """Return the sources of the task whose tables are loaded."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'tidemark_meta' AND TABLE_NAME = 'source'")
        if not cursor.fetchall():
            return []
        cursor.execute("SELECT name, state FROM tidemark_meta.source WHERE task = %s", (TASK,))
        states = {str(name): decode(SourceState, json.loads(state)) for name, state in cursor.fetchall()}
    return [name for name, state in states.items() if not state.loading]
