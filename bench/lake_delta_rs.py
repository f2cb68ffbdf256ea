"""delta-rs alone: changes that are an Arrow table already, one row per key, merged by a process that does nothing else.

`python -m bench.lake_delta_rs TABLE CHANGES` is that process; CHANGES is a Parquet file. It prints rows, seconds and CPU seconds.
Reading the file is not in the figure. The process is new each time: there is nothing in it to be warmed up.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from bench.bench_figures import Figure
from bench.lake_rows import POSITION, changed_rows
from bench.scene import BenchError

DELTA_RS = "delta-rs alone"


def merged(table: Path, changes: pa.Table) -> Figure:
    """Merge the changes into a table in a process of its own, and return what it took; the table is removed then."""
    file = table.with_suffix(".parquet")
    pq.write_table(changes, file)
    command = [sys.executable, "-m", "bench.lake_delta_rs", str(table), str(file)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if answer.returncode:
        message = f"delta-rs alone failed:\n{answer.stderr[-2000:]}"
        raise BenchError(message)
    whole = changed_rows(table, 0).num_rows
    if whole < changes.num_rows:
        message = f"delta-rs alone merged {whole} of {changes.num_rows} rows"
        raise BenchError(message)
    shutil.rmtree(table)
    file.unlink()
    return Figure(**json.loads(answer.stdout.splitlines()[-1]), note="the newest row of each key, in memory")


def main() -> None:
    """Merge, and print what it took."""
    changes = pq.read_table(sys.argv[2])
    table = DeltaTable(sys.argv[1])
    began, cpu = time.monotonic(), time.process_time()
    (
        table.merge(changes, "t.id = s.id", source_alias="s", target_alias="t", streamed_exec=True)
        .when_matched_update_all(f"s.{POSITION} > t.{POSITION}")
        .when_not_matched_insert_all()
        .execute()
    )  # fmt: skip
    seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": changes.num_rows, "seconds": seconds, "cpu_s": cpu_s, "peak_mib": peak}))


if __name__ == "__main__":
    main()
