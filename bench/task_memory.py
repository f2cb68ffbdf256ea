"""The memory of a replication task with `order: global`: a long transaction, a large row, a source that stops.

The transaction has twice `--rows` rows. While one source is stopped, transactions of the other one wait for it: `--minutes` long,
5,000 rows a second. The figures have the peak of resident memory of the process since its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

from bench.bench_figures import Figure, Found
from bench.benched_task import FollowingTask, TargetServer, task_document
from bench.cost import cost_of
from bench.lake_feed import Feed
from bench.scene import DATABASE as TABLE
from bench.stage import Stage
from bench.workload_context import Context

LONG: Final = "long transaction"
_GROUP: Final = "memory"
_BYTES: Final = 64 << 20
"""Of the large row."""
_BLOCK: Final = 1_000
_BLOCKS_PER_S: Final = 5
_SOON: Final = {"sync_binlog": "0", "innodb_flush_log_at_trx_commit": "0", "max_allowed_packet": "1G"}
Load = Callable[[Stage, Feed, Context], int]
"""Write to the source, the other one may be stopped meanwhile; return the rows that the table has then."""


def memory(context: Context) -> Found:
    """Measure each by itself."""
    loads: Mapping[str, Load] = {LONG: _transaction, "large row": _large_row, "stopped source": _stopped}
    return {name: [_measure(context, f"memory_{name.split()[0]}", load)] for name, load in loads.items()}


def _measure(context: Context, name: str, load: Load) -> Figure:
    with ExitStack() as stack:
        stages = [Stage(context.scene, context.folder, one) for one in (name, f"{name}_other")]
        stages[0].execute(f"ALTER TABLE {TABLE} MODIFY e LONGTEXT", "SET GLOBAL max_allowed_packet = 1 << 30")
        feeds = [Feed(stage, (TABLE,), {"order": {"group": _GROUP}}) for stage in stages]
        for feed in feeds:
            stack.callback(feed.stop)
            feed.start()
        target = TargetServer(stack, stages[0].folder, _SOON)
        for stage in stages:
            target.create(stage, (TABLE,))
        order = {"order": "global", "group": _GROUP}
        task = FollowingTask(stack, stages[0].folder, task_document(name, feeds, target.settings()) | order)
        probed, asked = (f"SELECT COUNT(*) FROM {name}.{TABLE} WHERE id {keys} 0" for keys in ("<", ">="))
        task.wait_until("a row", lambda: stages[0].probe() < 0 and target.value(probed) > 0)
        begun, before = time.monotonic(), cost_of(task.pid)
        with stages[0].written_soon():
            rows = load(stages[0], feeds[1], context)
        task.wait_until("the last row", lambda: target.value(asked) == rows)
        after = cost_of(task.pid)
    figure = Figure(rows, time.monotonic() - begun, after.cpu_s - before.cpu_s, after.peak_mib)
    print(f"  {name}: {figure.rows:,} rows in {figure.seconds:.1f} s, {figure.peak_mib:.0f} MiB", flush=True)
    return figure


def _transaction(stage: Stage, _other: Feed, context: Context) -> int:
    rows = 2 * context.rows
    blocks = [f"INSERT INTO {TABLE} SELECT {stage.row_at(at)} FROM thousand" for at in range(0, rows, _BLOCK)]
    stage.execute("BEGIN", *blocks, "COMMIT")
    return rows


def _large_row(stage: Stage, _other: Feed, _context: Context) -> int:
    """Insert, change and move it, so that a change has two rows of that size; the last row comes behind them."""
    text = f"REPEAT(HEX(RANDOM_BYTES(1024)), {_BYTES // 2048})"
    stage.execute(
        f"INSERT INTO {TABLE} (id, e) VALUES (1, {text})",
        f"UPDATE {TABLE} SET a = 1 WHERE id = 1",
        f"UPDATE {TABLE} SET e = REVERSE(e), id = 2 WHERE id = 1",
        f"INSERT INTO {TABLE} (id) VALUES (3)",
    )
    return 2


def _stopped(stage: Stage, other: Feed, context: Context) -> int:
    other.stop()
    begun = time.monotonic()
    blocks = round(_BLOCKS_PER_S * context.minutes * 60)
    for block in range(blocks):
        stage.execute(f"INSERT INTO {TABLE} SELECT {stage.row_at(block * _BLOCK)} FROM thousand")
        time.sleep(max(0.0, (block + 1) / _BLOCKS_PER_S - (time.monotonic() - begun)))
    other.start()
    return blocks * _BLOCK
