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
            scene = Scene(options.server, Path(folder), {"max_allowed_packet": "256M"})
            with scene, scene.round(number) as current:
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
    """One row of 40 MiB: a record holds it once, and Kafka takes records of up to 64 MiB."""
    with current.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {DATABASE} MODIFY e LONGTEXT")
    pid = _started(current)
    with current.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {DATABASE} (id, e) VALUES (1, REPEAT('x', 40 << 20))")
    return "one row of 40 MiB", _read_to_the_end(current, pid)


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
    count = 5_000
    with current.connect() as connection, connection.cursor() as cursor:
        for number in range(count):
            cursor.execute(f"CREATE TABLE {DATABASE}_{number} (id INT PRIMARY KEY, v VARCHAR(20))")
    pid = _started(current)
    with current.connect() as connection, connection.cursor() as cursor:
        for number in range(count):
            cursor.execute(f"INSERT INTO {DATABASE}_{number} VALUES (1, 'x')")
    return f"{count:,} tables", _read_to_the_end(current, pid)


CASES: Final[dict[str, Callable[[Round], tuple[str, float]]]] = {
    "transaction": _transaction,
    "row": _row,
    "backlog": _backlog,
    "tables": _tables,
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
