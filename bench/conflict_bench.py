"""How long a batch takes to be divided into conflict components, and how much memory: key sets, then components.

    python -m bench.conflict_bench [rows] [batch ...]

The updates are in memory, with the texts of their statements. A MySQL 8.0 has the table, and weighs texts.
"""

from __future__ import annotations

import gc
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro

from devservers import start_database
from mysqlio.information_schema import read_table_facts
from mysqlio.server_access import ServerAccess
from schemas.applied.avro_decoding import parsed
from schemas.avro import to_avro
from schemas.settings.task_section import TaskTarget
from schemas.types.connect import value_schema
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.components import components
from spark_jobs.replicate.apply.key_sets import KeySets
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_statements import TableStatements, TextedRow
from spark_jobs.replicate.rows.row_values import RowDecoder, RowRecord

_ROWS: Final = 200_000
_SCHEMA: Final = "conflicts"
_SOURCE: Final = {
    "version": "1", "connector": "mysql", "name": "srv", "ts_ms": 1, "db": _SCHEMA, "table": "t", "server_id": 1, "file": "b.1",
    "pos": 4, "row": 0, "sequence": "p", "ts_us": 5, "ts_ns": 0,
}  # fmt: skip
_PLAIN: Final = "id BIGINT PRIMARY KEY, u BIGINT, w VARCHAR(80) CHARACTER SET utf8mb4, v BIGINT"
_TEXTS: Final = f"{_PLAIN}, UNIQUE (w)"

Batch = Callable[[int], tuple[int | None, int | None, str | None, str | None]]
"""Returns old and new u, old and new w of the update with a number."""
_BATCHES: Final[dict[str, tuple[str, Batch]]] = {
    "no-conflicts": (_PLAIN, lambda _: (0, 0, "", "")),
    "no-conflicts-2-keys": (f"{_PLAIN}, UNIQUE (u)", lambda n: (n, n, "", "")),
    "one-key-links-all": (f"{_PLAIN}, UNIQUE (u)", lambda n: (n, n + 1, "", "")),
    "pairs": (f"{_PLAIN}, UNIQUE (u)", lambda n: (n - n % 2, None, "", "")),
    "ascii-texts": (_TEXTS, lambda n: (0, 0, f"customer {n}", f"customer-{n}")),
    "weighed-texts": (_TEXTS, lambda n: (0, 0, f"Käufer {n}", f"Käufer-{n}")),
}


def main(arguments: list[str]) -> None:
    """Measure the batches that are named, or all."""
    rows = int(arguments[0]) if arguments else _ROWS
    gc.set_threshold(100_000, 50, 50)  # as a task does
    with tempfile.TemporaryDirectory() as folder, start_database("mysql80", Path(folder)) as server:
        access = TaskTarget(type="mysql", host=server.host, port=server.port, user=server.user, password=server.password)
        target = ApplyTarget(ServerAccess.of(access), "bench", None)
        for name in arguments[1:] or _BATCHES:
            measure(target, name, rows)
        target.close()


def measure(target: ApplyTarget, name: str, rows: int) -> None:
    """Divide a batch, and print a line."""
    columns, batch = _BATCHES[name]
    target.execute(f"DROP DATABASE IF EXISTS {_SCHEMA}")
    target.execute(f"CREATE DATABASE {_SCHEMA} CHARACTER SET utf8mb4")
    target.execute(f"CREATE TABLE {_SCHEMA}.t ({columns})")
    facts = read_table_facts(target.connection, _SCHEMA, "t")
    assert facts is not None
    schema = to_avro(value_schema(facts.schema, "srv", "mysql"))
    decoder = RowDecoder(lambda _: schema)
    events = [_update(decoder, number, *batch(number)) for number in range(rows)]
    texts = TableStatements(facts.schema, decoder).texts(events)
    texted = [TextedRow(event, text, is_strict=True, is_whole=True) for event, text in zip(events, texts, strict=True)]
    keys = KeySets(target, decoder)
    keys.entries(texted[:10])  # kernels are loaded, and tables read
    before, began, began_cpu = _peak_mib(), time.perf_counter(), time.process_time()
    entries = keys.entries(texted)
    noted, noted_cpu = time.perf_counter(), time.process_time()
    groups = Counter(components(entries))
    ended_cpu = time.process_time()
    print(
        f"{name:22}{rows:9,} rows {len(groups):9,} components, largest {max(groups.values()):9,} "
        f"{noted - began:6.2f} s {(noted_cpu - began_cpu) / rows * 1e6:6.2f} µs/row for entries, "
        f"{(ended_cpu - noted_cpu) / rows * 1e6:5.2f} µs/row for components, {_peak_mib() - before:4.0f} MiB more",
        flush=True,
    )


def _update(decoder: RowDecoder, number: int, old_u: Any, new_u: Any, old_w: Any, new_w: Any) -> RowEvent:
    before = {"id": number, "u": old_u, "w": old_w or f"{number}", "v": 1}
    after = {"id": number, "u": new_u, "w": new_w or f"{number}", "v": 2}
    out = BytesIO()
    out.write(b"\0\0\0\0\1")
    fastavro.schemaless_writer(out, parsed(decoder.schema(1)), {"op": "u", "before": before, "after": after, "source": _SOURCE})
    record = RowRecord(out.getvalue())
    return RowEvent("p", "u", (_SCHEMA, "t"), 1, record, record, checks_keys=True)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
