"""How much of a Delta table a batch touches: an open table and the keys of a batch enter, rows and bytes of its files leave."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_jobs.sinks.delta.writer_choice import Size

_BYTES_OF_ROW: Final = 30
"""Of a file whose log entry does not count its rows: a small one, so that it is taken for many."""


def touched_files(table: DeltaTable, rows: pa.Table, column: str | None) -> Size:
    """Return the size of the files that may have a key of these rows, by the statistics of an integer key column.

    Without one, or without statistics of a file, it may have one. A file is named whole, with the rows that are deleted in it.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    sizes = files["size_bytes"].to_pylist()
    counts = files["num_records"].to_pylist() if "num_records" in files.column_names else [None] * len(sizes)
    is_touched = _ranges_with_keys(files, rows, column)
    chosen = [
        (size // _BYTES_OF_ROW if count is None else count, size)
        for size, count, counts_in in zip(sizes, counts, is_touched, strict=True)
        if counts_in
    ]
    return Size(sum(count for count, _ in chosen), sum(size for _, size in chosen))


def _ranges_with_keys(files: pa.Table, rows: pa.Table, column: str | None) -> list[bool]:
    every = [True] * files.num_rows
    if column is None or not rows.num_rows:
        return every
    names = [f"{kind}.{column}" for kind in ("min", "max")]
    if any(files.column_names.count(name) != 1 for name in names):
        return every
    keys = np.sort(pc.drop_null(rows[column]).to_numpy())
    return [_has_key(keys, low, high) for low, high in zip(*(files[name].to_pylist() for name in names), strict=True)]


def _has_key(keys: Any, low: Any, high: Any) -> bool:
    if not isinstance(low, int) or not isinstance(high, int):
        return True
    return bool(np.searchsorted(keys, low, "left") < np.searchsorted(keys, high, "right"))
