"""The reader of the benchmark sees a transaction when its rows are in files of the Delta log, and not before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench import lake_load

FIRST = 1_000


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "a": pa.array(values, pa.int32())})


def test_a_transaction_is_seen_when_its_rows_are_committed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), rows(1, 2, 3))

    def seen_of(transactions: int, write: Callable[[], object]) -> tuple[float, dict[int, float], float]:
        """Return when a reader saw each, between the time before the write and the one after the reader's end."""
        found: dict[int, float] = {}
        ready = tmp_path / f"ready{transactions}"
        document = {"paths": [str(path)], "seconds": 30, "transactions": transactions, "first": FIRST, "ready": str(ready)}
        reader = threading.Thread(target=lambda: found.update(lake_load.read(document)))
        reader.start()
        while not ready.exists():
            time.sleep(0.01)
        before = time.time()
        write()
        reader.join(60)
        return before, found, time.time()

    began, first, ended = seen_of(1, lambda: write_deltalake(str(path), rows(FIRST, 2, 3), mode="append"))
    assert list(first) == [0]
    assert began < first[0] < ended
    began, second, ended = seen_of(2, lambda: DeltaTable(str(path)).update(predicate="a = 2", updates={"a": str(FIRST + 1)}))
    assert list(second) == [0, 1]
    assert began < second[1] < ended
