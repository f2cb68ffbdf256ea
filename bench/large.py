"""`python -m bench.large [CASE ...]`: the producer's peak memory where things are large.

Resident memory of the `tidemark run` process (VmHWM), everything read and in Kafka at the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.cost import cost_of
from bench.scene import DATABASE, Round, Scene

TABLES: Final = 5_000
CHUNKS: Final = 1_000_000
CHUNKS_FOR_S: Final = 600
"""All of a million windows would take an hour; what is buffered for them shows long before."""
_KAFKA_HEAP_MIB: Final = 3 << 10
"""A broker with 512 MiB no longer answers when it has ten thousand partitions."""
_SNAPSHOT: Final[dict[str, dict[str, Any]]] = {"chunks": {"chunk_rows": 1}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.large", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--server", default="mysql80", help="database to run on (default: %(default)s)")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no case is called {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    for number, name in enumerate(options.cases, 1):
        with tempfile.TemporaryDirectory(prefix="tidemark-large-") as folder:
            scene = Scene(options.server, Path(folder), {"max_allowed_packet": "256M"}, _KAFKA_HEAP_MIB)
            with scene, scene.round(number, {"partitions": 1}, _SNAPSHOT.get(name)) as current:
                began = time.monotonic()
                what, peak = CASES[name](current)
                print(f"{name}: {what}, peak {peak:.0f} MiB, {time.monotonic() - began:.0f} s", flush=True)
    return 0


def _transaction(current: Round) -> tuple[str, float]:
    """One transaction of two million rows, about 400 MB of log."""
    pid = _started(current)
    rows = 2_000_000
    with current.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        current.insert_with(cursor, rows)
        cursor.execute("COMMIT")
    return f"{rows:,} rows in one transaction", _read_to_the_end(current, pid)


def _row(current: Round) -> tuple[str, float]:
    """One row of 64 MiB, inserted, changed (it is in the record twice) and deleted."""
    with current.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {DATABASE} MODIFY e LONGTEXT")
    pid = _started(current)
    with current.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {DATABASE} (id, e) VALUES (1, REPEAT(HEX(RANDOM_BYTES(1 << 10)), 32 << 10))")
        cursor.execute(f"UPDATE {DATABASE} SET a = 1")
        cursor.execute(f"DELETE FROM {DATABASE}")
    return "one row of 64 MiB: insert, update, delete", _read_to_the_end(current, pid)


def _backlog(current: Round) -> tuple[str, float]:
    """The producer starts two million rows behind."""
    pid = _started(current)
    current.stop("run")
    rows = 2_000_000
    current.insert(rows)
    pid = current.start("run")
    return f"{rows:,} rows behind", _read_to_the_end(current, pid)


def _tables(current: Round) -> tuple[str, float]:
    """Five thousand tables of one partition each, a row in every one."""
    count = TABLES
    with current.connect() as connection, connection.cursor() as cursor:
        for number in range(count):
            cursor.execute(f"CREATE TABLE {DATABASE}_{number} (id INT PRIMARY KEY, v VARCHAR(20))")
    pid = _started(current)
    with current.connect() as connection, connection.cursor() as cursor:
        for number in range(count):
            cursor.execute(f"INSERT INTO {DATABASE}_{number} VALUES (1, 'x')")
    return f"{count:,} tables", _read_to_the_end(current, pid)


def _chunks(current: Round) -> tuple[str, float]:
    """A table of a million chunks of one row, read for ten minutes, or to its end."""
    current.insert(CHUNKS)
    pid = _started(current)
    current.request_snapshot()
    began = time.monotonic()
    early = 0.0

    def enough(status: Any) -> bool:
        nonlocal early
        table = next((table for table in status.tables if table.table == current.table), None)
        if table is None or not table.rows_read:
            return False
        early = early or cost_of(pid).peak_mib
        time.sleep(1)
        return table.snapshot == "done" or time.monotonic() - began > CHUNKS_FOR_S

    status = current.wait_for("the chunks", enough, 2 * CHUNKS_FOR_S)
    table = next(table for table in status.tables if table.table == current.table)
    took = time.monotonic() - began
    share = "" if table.share is None else f" ({table.share:.0%} shown)"
    what = f"{table.rows_read:,} of {CHUNKS:,} chunks{share}, {table.rows_read / took:.0f} a second, {early:.0f} MiB at the first"
    return what, cost_of(pid).peak_mib


CASES: Final[dict[str, Callable[[Round], tuple[str, float]]]] = {
    "transaction": _transaction,
    "row": _row,
    "backlog": _backlog,
    "tables": _tables,
    "chunks": _chunks,
}


def _started(current: Round) -> int:
    pid = current.start("run")
    current.wait_for("the producer", lambda status: status.log is not None)
    return pid


def _read_to_the_end(current: Round, pid: int) -> float:
    end = current.end_of_log()

    def reached(status: Any) -> bool:
        return status.log is not None and (status.log.position.file, status.log.position.offset) >= end

    current.wait_for("the end of the log", reached, 3600)
    return cost_of(pid).peak_mib  # the kernel keeps the highest


if __name__ == "__main__":
    sys.exit(main())
