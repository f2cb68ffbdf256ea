"""A steady load on many tables, and an independent reader of their Delta logs; each a process of its own.

`python -m bench.lake_load write DOCUMENT` makes transactions of ten updates at a fixed rate, the tables in turn, each row once. It
writes the number of each transaction and the time at which its statement was sent, which is before its commit.
`python -m bench.lake_load read DOCUMENT` looks at the log of every table each 50 ms, reads the files that a new commit adds, and
writes for each transaction when a row of it was first read. It knows nothing of the merge job.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq

from mysqlio.connection import connect_plainly

TRANSACTION_ROWS = 10
_LOOKS_S = 0.05


def write(document: dict[str, Any]) -> dict[int, float]:
    """Make the transactions, and return when each was sent."""
    connection = connect_plainly(**document["source"], autocommit=True, ssl_disabled=True)
    tables, sent, began = document["tables"], {}, time.time()
    with connection, connection.cursor() as cursor:
        for number in range(document["transactions"]):
            due = began + number / document["per_s"]
            time.sleep(max(0.0, due - time.time()))
            first = number // len(tables) * TRANSACTION_ROWS
            table, low, high = tables[number % len(tables)], first, first + TRANSACTION_ROWS
            sent[number] = time.time()
            cursor.execute(f"UPDATE {table} SET a = {document['first'] + number} WHERE id >= {low} AND id < {high}")
    return sent


class _Log:
    """The Delta log of one table, from a version on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = max(int(file.stem) for file in (path / "_delta_log").glob("[0-9]*.json")) + 1

    def new(self, least: int) -> list[int]:
        """Return what column `a` has in the files of new commits, from `least` on."""
        found: list[int] = []
        while (commit := self._path / "_delta_log" / f"{self._version:020}.json").exists():
            actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line.strip()]
            for action in actions:
                if "add" in action:
                    column = pq.read_table(self._path / unquote(action["add"]["path"]), columns=["a"])["a"]
                    found += pc.unique(column.filter(pc.greater_equal(column, least))).to_pylist()
            self._version += 1
        return found


def read(document: dict[str, Any]) -> dict[int, float]:
    """Follow the logs until all transactions were read, or time is up; return when each was."""
    logs = [_Log(Path(path)) for path in document["paths"]]
    seen: dict[int, float] = {}
    deadline = time.time() + document["seconds"]
    Path(document["ready"]).touch()
    while len(seen) < document["transactions"] and time.time() < deadline:
        for log in logs:
            numbers = log.new(document["first"])
            now = time.time()
            for number in numbers:
                seen.setdefault(number - document["first"], now)
        time.sleep(_LOOKS_S)
    return seen


def main() -> None:
    """Do what the arguments say, and write the result."""
    document = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    result = (write if sys.argv[1] == "write" else read)(document)
    Path(document["result"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
