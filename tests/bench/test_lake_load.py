"""The reader of the benchmark sees a transaction when its rows are in files of the Delta log, and not before."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench import lake_load

FIRST = 1_000


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "a": pa.array(values, pa.int32())})


def test_a_transaction_is_seen_when_its_rows_are_committed(tmp_path: Path) -> None:
    path, found = tmp_path / "t", {}
    write_deltalake(str(path), rows(1, 2, 3))
    ready = tmp_path / "ready"
    document: dict[str, Any] = {
        "paths": [str(path)], "seconds": 30, "transactions": 2, "first": FIRST, "ready": str(ready)
    }  # fmt: skip
    reader = threading.Thread(target=lambda: found.update(lake_load.read(document)))
    reader.start()
    while not ready.exists():
        time.sleep(0.01)

    began = time.time()
    write_deltalake(str(path), rows(FIRST, 2, 3), mode="append")
    time.sleep(0.3)
    second = time.time()
    DeltaTable(str(path)).update(predicate="a = 2", updates={"a": str(FIRST + 1)})
    reader.join(30)

    assert found.keys() == {0, 1}
    assert began < found[0] < second < found[1]
