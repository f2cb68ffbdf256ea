"""The judge finds planted contradictions, and none in what is true."""

from __future__ import annotations

from typing import Any

import pytest

from tests.truth import allowances, shown
from tests.truth.fault_spans import FaultSpan, FaultSpans
from tests.truth.known_rows import KnownRows, Row
from tests.truth.shown import Shown
from tests.truth.shown_against_known import Judge
from tidemark.status.lags import Word

T = 1_000_000.0
"""When it all begins."""


class Scene:
    """A judge with some rows, all of which arrived at once, and one that did not where a test says so."""

    def __init__(self) -> None:
        self.rows, self.spans = KnownRows(), FaultSpans()
        self.judge = Judge(self.rows, self.spans)
        for number in range(100):
            self.row(number, T + number, arrives_s=1.0)

    def row(self, number: int, at_s: float, *, arrives_s: float = 0.0, in_kafka: bool = True) -> None:
        """Commit a row; it comes into Kafka and the sink so much later, or not at all (0)."""
        row = Row("items", number, at_s, at_s + 0.01)
        if in_kafka:
            row.in_kafka_not_before_s, row.in_kafka_s = at_s + 0.1, at_s + 0.2
        if arrives_s:
            row.in_sink_not_before_s, row.in_sink_s = at_s + arrives_s, at_s + arrives_s + 0.3
        self.rows.add(row)

    def fault(self, begins_s: float, ends_s: float, **more: Any) -> None:
        self.spans.add(FaultSpan(name="a fault", began_s=T + begins_s, ended_s=T + ends_s, well_s=T + ends_s + 20, **more))

    def found(self, reader: str, at_s: float, word: str = "running", took_s: float = 0.5, **more: Any) -> list[str]:
        lags = {"has_lags": True, "to_kafka_s": 0.5, "to_sink_s": 1.0, **more} if reader != "producer metrics" else more
        one = Shown(reader=reader, asked_s=T + at_s, answered_s=T + at_s + took_s, word=word, **lags)
        found = self.judge.contradiction(one)
        return [] if found is None else list(found.truths)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def producer_dead(scene: Scene) -> None:
    scene.fault(100, 200, must=frozenset({Word.DEAD}), may=frozenset({Word.DEAD}), sees_s=allowances.DEAD_AFTER_S, dead=frozenset({"producer"}))


def test_what_is_true_is_not_contradicted(scene: Scene) -> None:
    producer_dead(scene)
    assert scene.found("lag", 50) == []
    assert scene.found("lag", 90, to_kafka_s=0.0, to_sink_s=0.0) == []
    assert scene.found("lag", 110) == []  # nobody can know it yet
    assert scene.found("lag", 150, "dead", to_kafka_s=45.0) == []
    assert scene.found("page json", 150, "dead", as_of_s=T + 145) == []
    assert scene.found("producer metrics", 50, live_lag_s=3.0) == []


def test_running_is_a_lie_while_the_producer_is_dead(scene: Scene) -> None:
    producer_dead(scene)
    for reader in ("lag", "status", "page html"):
        assert scene.found(reader, 102) == []
    (lie,) = scene.found("lag", 150)
    assert "must be one of" in lie
    assert scene.found("page html", 150)
    assert scene.found("page html", 100 + allowances.DEAD_AFTER_S + 5) == []  # what the page saw may be 10 s old
    assert scene.found("status", 150, "dead", alive={"producer": True}) == ["the producer is called alive, and is not"]


def test_samples_are_counted_by_how_strictly_their_words_are_judged(scene: Scene) -> None:
    producer_dead(scene)
    at = {"well": 50, "between": 110, "fault": 150}
    for strictness, at_s in at.items():
        assert scene.judge.strictness(Shown(reader="lag", asked_s=T + at_s, answered_s=T + at_s + 1)) == strictness


def test_an_answer_that_took_long_is_judged_over_all_of_its_time(scene: Scene) -> None:
    producer_dead(scene)
    assert scene.found("lag", 113, took_s=20) == []
    assert scene.found("lag", 135, took_s=20) == []  # it may have seen the last liveness record only then
    assert scene.found("lag", 160, took_s=20)
    assert scene.found("lag", 195, took_s=10) == []  # the producer was there again before the answer


@pytest.mark.parametrize("word", ["dead", "stalled", "needs_a_person", "unknown", "snapshotting", "behind"])
def test_a_bad_word_is_a_lie_while_all_is_well(scene: Scene, word: str) -> None:
    assert scene.found("lag", 20) == []
    assert scene.found("lag", 50, word)
    scene.fault(60, 70, may=frozenset({Word(word)}))
    assert scene.found("lag", 50, word)  # before
    assert scene.found("lag", 75, word) == []
    assert scene.found("lag", 92 + allowances.CALM_S + allowances.UNKNOWN_S, word)  # long after


def test_a_lag_of_zero_is_a_lie_while_a_row_is_missing(scene: Scene) -> None:
    scene.row(200, T + 60)
    (lie,) = scene.found("lag", 65, to_sink_s=0.0)
    assert "row 200" in lie
    assert scene.found("lag", 65, to_sink_s=4.0)
    assert scene.found("lag", 65, to_sink_s=5.0) == []
    assert scene.found("page html", 65, to_sink_s=0.0) == []  # it may have looked before the row was written
    assert scene.found("page html", 75, to_sink_s=0.0)
    assert scene.found("producer metrics", 85, tables={"items": 0.0})
    assert scene.found("status", 65, to_sink_s=5.0, caught_up=True)


def test_a_lag_to_kafka_of_zero_is_a_lie_while_a_row_is_in_the_log_alone(scene: Scene) -> None:
    scene.row(200, T + 60, in_kafka=False)
    assert scene.found("lag", 65, to_kafka_s=0.0)
    assert scene.found("producer metrics", 65, live_lag_s=0.5)
    assert scene.found("producer metrics", 65, live_lag_s=6.0) == []


def test_running_is_a_lie_where_a_row_is_missing_for_long_whatever_the_harness_did(scene: Scene) -> None:
    scene.row(200, T + 30)
    assert scene.found("lag", 80, to_sink_s=50.0)
    assert scene.found("lag", 80, "behind", to_sink_s=50.0) == []


def test_a_lag_that_is_far_too_large_is_a_lie(scene: Scene) -> None:
    assert scene.found("lag", 80, to_kafka_s=30.0)
    assert scene.found("lag", 80, to_sink_s=30.0)
    assert scene.found("lag", 80, tables={"items": 30.0})
    assert scene.found("producer metrics", 80, live_lag_s=30.0)
    scene.fault(55, 60)
    assert scene.found("lag", 78, to_sink_s=30.0) == []  # it is not well yet: 23 s, and what is allowed above


def test_unknown_lags_and_missing_answers_are_contradicted_while_all_is_well_only(scene: Scene) -> None:
    assert scene.found("lag", 45) == []
    assert scene.found("lag", 55, to_kafka_s=None) == []  # it knew a moment ago
    assert scene.found("lag", 80, to_kafka_s=None)
    assert scene.found("lag", 80, "unknown", trouble="it ended")
    scene.fault(70, 100, must=frozenset({Word.UNKNOWN}))
    assert scene.found("lag", 80, "unknown", to_kafka_s=None, to_sink_s=None) == []
    assert scene.found("lag", 80, "unknown", trouble="it ended") == []
    assert scene.found("lag", 80)


def test_an_old_look_that_the_page_shows_as_new_is_a_lie(scene: Scene) -> None:
    (lie,) = scene.found("page json", 80, as_of_s=T + 60)
    assert "as new" in lie
    assert scene.found("page json", 80, as_of_s=T + 75) == []


def test_figures_must_be_those_that_the_harness_made(scene: Scene) -> None:
    assert scene.found("status", 50, counts={"quarantined": 0, "set aside": 0}) == []
    assert scene.found("status", 50, counts={"quarantined": 1})
    scene.fault(60, 150, counts={"quarantined": 1}, may=frozenset({Word.NEEDS_A_PERSON}))
    assert scene.found("status", 80, "needs_a_person", counts={"quarantined": 1}) == []
    assert scene.found("status", 80, "needs_a_person", counts={"quarantined": 0})


def test_answers_are_read_in_the_forms_that_are_shown() -> None:
    sink = {"word": "behind", "reasons": ["r"], "to_kafka": {"lag_s": 40.5}, "to_sink": {"lag_s": None}}
    lag = shown.of_lag("lag", 1.0, 2.0, {"sinks": {"lake": {**sink, "tables": {"d.t": {"lag_s": 3.0}}}}})
    assert (lag.word, lag.to_kafka_s, lag.to_sink_s, lag.tables) == ("behind", 40.5, None, {"t": 3.0})
    html = '<article class="state" data-sink="lake" data-word="behind" data-to-kafka="40.5" data-to-sink=""></article>'
    page = shown.of_page_html(1.0, 2.0, html)
    assert (page.word, page.to_kafka_s, page.to_sink_s) == ("behind", 40.5, None)
    metrics = shown.of_producer_metrics(
        1.0, 2.0, 'tidemark_state{sink="lake",state="dead"} 1\ntidemark_state{sink="lake",state="running"} 0\ntidemark_log_lag_seconds 7\n'
    )
    assert (metrics.word, metrics.live_lag_s) == ("dead", 7.0)
    assert shown.of_producer_metrics(1.0, 2.0, "tidemark_ready 1\n").word == "unknown"
