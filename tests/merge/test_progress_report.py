"""What progress.json has, and that the command reads it."""

from __future__ import annotations

import json
from pathlib import Path

from schemas.delay_histogram import DelayCounter, DelayHistogram
from schemas.identity import SourceId, SourceTable
from schemas.json_codec import decode
from schemas.merge_progress import MergeProgress
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.progress_report import publish_progress
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import PROGRESS

ORDERS, QUIET = (SourceTable.of(SourceId("shop"), "shop", name) for name in ("orders", "quiet"))


def test_it_has_the_delays_of_the_recent_past_and_of_all_time_where_some_were_counted(tmp_path: Path) -> None:
    counter = DelayCounter()
    counter.add(DelayHistogram.of([20.0]), 1_000_000.0)
    counter.add(DelayHistogram.of([1.7, 1.8]), 1_000_900.0)
    state = MergeState("q", 5, {ORDERS: SourceRecord(merged=3), QUIET: SourceRecord()})
    publish_progress(LocalFiles(tmp_path), state, {ORDERS: counter}, caught_up=True)
    tables = decode(MergeProgress, json.loads((tmp_path / PROGRESS).read_text(encoding="utf-8"))).tables
    assert tables["shop.orders"].delays == counter.total
    recent = tables["shop.orders"].recent_delays
    assert recent is not None
    assert (recent.histogram.count, recent.newest_ms) == (2, 1_000_900_000)
    assert (tables["shop.quiet"].delays, tables["shop.quiet"].recent_delays) == (None, None)
