from __future__ import annotations

import pytest

from schemas.identity import SourceId
from schemas.position import Position
from tidemark.demo.progress_display import Display, LagMeter, ProgressView
from tidemark.demo.workload import WorkloadCounts
from tidemark.status.status_tree import Status, TableStatus


def test_the_lag_is_the_age_of_the_oldest_position_not_reached() -> None:
    meter = LagMeter()
    for second in range(5):
        meter.sample(float(second), (3, 100 * second))

    assert meter.lag_s(5.0, (3, 150)) == 3.0
    assert meter.lag_s(5.0, (2, 999_999)) == 5.0
    assert meter.lag_s(5.0, None) is None


def test_who_has_reached_the_end_has_no_lag_however_long_the_log_is_idle() -> None:
    meter = LagMeter()
    meter.sample(0.0, (3, 100))
    meter.sample(50.0, (3, 100))

    assert meter.lag_s(60.0, (3, 100)) == 0.0
    assert meter.lag_s(60.0, (3, 99)) == 60.0


def view(elapsed_s: float, rows: int = 400) -> ProgressView:
    table = TableStatus(
        table="shop.orders", snapshot="running", rows_read=rows, rows_estimated=1000, sink_rows=7,
        consistent_at=Position(0, 1, 1),
    )  # fmt: skip
    read_ms = int(elapsed_s * 1000)
    status = Status(source=SourceId("shop"), read_ms=read_ms, log=None, paused=False, tables=(table,), sink_updated_ms=None)
    counts = WorkloadCounts(10, 5, 3, 2, 1, 0)
    return ProgressView(
        elapsed_s=elapsed_s, phase="under load", status=status, load=counts, log_lag_s=0.25, sink_lag_s=None
    )


def test_away_from_a_terminal_progress_is_a_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display() as display:
        for tenth in range(70):
            display.show(view(tenth / 10))
        display.say("done [not markup]")

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "orders 400 of 1,000 40%" in lines[0]
    assert "lag to Kafka 0.2 s, to the lake -" in lines[0]
    assert lines[-1].endswith("done [not markup]")


def test_the_rate_forgets_the_rows_of_long_ago(capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as display:
        for second in range(31):
            display.show(view(float(second), 100 * min(second, 8)))
    lines = capsys.readouterr().out.splitlines()
    assert "100/s ETA 2 s" in lines[2]
    assert "/s ETA" not in lines[-1]
