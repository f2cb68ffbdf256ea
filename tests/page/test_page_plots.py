"""Plots and the history behind them: what is unknown is a gap, and what is written in them cannot be markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from schemas.batch_stages import BatchStages, recent_batches
from schemas.json_codec import encode
from spark_jobs.merge.progress_report import StageClock
from tidemark.page.lag_history import KEPT_S, History, Sample, rate, runs
from tidemark.page.plots import Line, ceiling, cells, line_plot, stacked_bars
from tidemark.status.status_tree import TableStatus

SAMPLE = Sample(at_ms=0, to_kafka_s=0.0, to_sink_s={"lake": 1.0}, merged={"lake": 0}, log_at=("b.1", 4))


def test_an_unknown_value_and_a_long_silence_are_gaps_in_a_line() -> None:
    points = [(0, 1.0), (2000, 2.0), (4000, None), (6000, 1.0), (60_000, 3.0)]

    assert list(runs(points)) == [[(0, 1.0), (2000, 2.0)], [(6000, 1.0)], [(60_000, 3.0)]]
    drawn = line_plot([Line("a", points)], 0, 60_000, "s", "label")
    assert len(re.findall("<polyline", drawn)) == 1
    assert len(re.findall("<circle", drawn)) == 2


def test_what_is_written_in_a_plot_is_text_and_every_plot_is_xml() -> None:
    evil = '"><script>alert(1)</script>'

    for drawn in (
        line_plot([Line(evil, [(0, 1.0)])], 0, 1, "s", evil),
        stacked_bars([(evil, [1.0, 2.0])], "s", evil),
        cells(["done", "open"], evil),
    ):
        ET.fromstring(drawn)  # noqa: S314 - ours
        assert "<script" not in drawn


@pytest.mark.parametrize(("value", "end"), [(0, 1.0), (0.05, 0.1), (0.3, 0.5), (1, 1.0), (1.1, 2.0), (7, 10.0), (49, 50.0), (51, 100.0)])
def test_an_axis_ends_at_a_round_number_above_all(value: float, end: float) -> None:
    assert ceiling(value) == pytest.approx(end)


def test_parts_of_a_bar_stand_one_on_the_other_and_fill_it() -> None:
    drawn = ET.fromstring(stacked_bars([("t", [1.0, 3.0])], "s", "l"))  # noqa: S314 - ours
    low, high = (one for one in drawn.iter("rect"))

    assert float(low.attrib["y"]) == pytest.approx(float(high.attrib["y"]) + float(high.attrib["height"]), abs=0.2)
    assert float(high.attrib["height"]) == pytest.approx(3 * float(low.attrib["height"]), rel=0.02)


def test_a_rate_is_known_of_two_counts_that_grow() -> None:
    assert rate((1000, 10), (3000, 30)) == 10.0
    assert rate((1000, 10), (1000, 30)) is None
    assert rate((1000, 10), (3000, 5)) is None  # the sink began again: nobody knows how many
    assert rate(None, (3000, 5)) is None


def test_the_history_keeps_an_hour_and_knows_rates() -> None:
    history = History()
    for number in range(0, KEPT_S + 100, 10):
        history.add(replace(SAMPLE, at_ms=number * 1000, merged={"lake": number * 5}, log_at=("b.1", number * 100)))
    now_ms = (KEPT_S + 90) * 1000

    assert history.last(10**6, now_ms)[0].at_ms == now_ms - KEPT_S * 1000
    assert history.sink_rate("lake", 30, now_ms) == 5.0
    assert history.log_rate(30, now_ms) == 100.0
    history.add(replace(SAMPLE, at_ms=now_ms + 1000, log_at=("b.2", 4)))
    assert history.log_rate(30, now_ms + 1000) is None
    assert history.sink_rate("none", 30, now_ms) is None
    assert History().sink_rate("lake", 30, now_ms) is None


def test_the_stages_of_a_batch_add_up_and_survive_the_liveness_record() -> None:
    clock = StageClock()
    for number in range(100):
        clock.begin()
        for stage in ("read_s", "merge_s", "load_s", "save_s"):
            clock.passed(stage)
        clock.end(number, 5, 1000)

    assert [one.number for one in clock.recent] == list(range(40, 100))
    document = {"recent": [encode(one) for one in clock.recent], "last_s": 1.0}
    assert recent_batches(document) == clock.recent
    assert recent_batches({"last_s": 1.0}) == ()
    assert recent_batches({"recent": [{"number": 1, "of_another_version": 2}]}) == ()
    one = BatchStages(number=1, ended_ms=2, records=3, read_s=0.5, merge_s=1.0, load_s=0.0, save_s=0.25)
    assert one.seconds == 1.75


def test_more_rows_than_the_estimate_make_the_share_unknown() -> None:
    assert TableStatus(table="a", snapshot="running", rows_read=5, rows_estimated=10).share == 0.5
    assert TableStatus(table="a", snapshot="running", rows_read=11, rows_estimated=10).share is None
    assert TableStatus(table="a", snapshot="done", rows_read=11, rows_estimated=10).share == 1.0
