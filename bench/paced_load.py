"""A load at a fixed rate: a procedure of the server that inserts rows into a table, a few in each transaction.

Column `d` of a row has the server's clock at its statement, so that what a consumer needs to know of the moment of the commit is in
the table. The server keeps the pace by itself: a client in Python would take CPU from what is measured. A connection commits about
800 times a second, as the log is synchronised each time; more transactions are divided among connections.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from bench.stage import Stage
from mysqlio.server_errors import ServerError

_NAME = "paced_load"
_PER_CONNECTION = 625


class PacedLoad:
    """A running load; the end of its block, or `seconds`, ends it."""

    def __init__(self, stage: Stage, table: str, first: int, per_s: int, rows: int, seconds: float) -> None:
        """`per_s` rows a second in transactions of `rows`, with keys from `first` on."""
        self._stage, self._table, self._rows = stage, table, rows
        number = max(1, -(-per_s // (rows * _PER_CONNECTION)))
        self._per_s = per_s / number
        self._count = round(self._per_s * seconds) // rows * rows
        self._connections: list[Any] = []
        self._threads = [
            threading.Thread(target=self._run, args=(index, first + index * self._count), name=f"paced-load-{index}")
            for index in range(number)
        ]
        self._ended = False
        self._error: ServerError | None = None

    def __enter__(self) -> Self:
        self._stage.execute(f"DROP PROCEDURE IF EXISTS {_NAME}", self._procedure())
        self._connections = [self._stage.connect() for _ in self._threads]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        for thread, connection in zip(self._threads, self._connections, strict=True):
            with suppress(ServerError):
                if thread.is_alive():
                    self._stage.execute(f"KILL {connection.thread_id()}")
            thread.join()
            with suppress(ServerError):
                connection.close()
        if self._error is not None and error is None:
            raise self._error

    def wait(self) -> None:
        """Wait until all rows are inserted."""
        for thread in self._threads:
            thread.join()

    def _run(self, index: int, first: int) -> None:
        try:
            with self._connections[index].cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00'")
                cursor.execute(f"CALL {_NAME}({first})")
        except ServerError as error:
            if not self._ended:
                self._error = error

    def _procedure(self) -> str:
        values = ", ".join(
            f"(at + {row}, {row}, CONCAT('name ', at), 12.5, SYSDATE(6), REPEAT('x', 80), 0.1, 1)" for row in range(self._rows)
        )
        behind = "UNIX_TIMESTAMP(SYSDATE(6)) - begun"
        return (
            f"CREATE PROCEDURE {_NAME}(IN begins BIGINT) BEGIN DECLARE at BIGINT DEFAULT begins; DECLARE begun, due DOUBLE;"
            f" SET begun = UNIX_TIMESTAMP(SYSDATE(6)); WHILE at < begins + {self._count} DO"
            f" SET due = (at - begins) / {self._per_s};"
            f" IF due > {behind} THEN DO SLEEP(GREATEST(0, due - ({behind}))); END IF;"
            f" INSERT INTO {self._table} (id, a, b, c, d, e, f, g) VALUES {values}; SET at = at + {self._rows}; END WHILE; END"
        )
