"""How far a sink is behind, and the word for it: from documents, progress and what Kafka said, as a person reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.json_codec import decode
from schemas.liveness import Sign
from schemas.merge_progress import MergeProgress
from tests.cli.test_status import documents, request, status_of, task
from tidemark.status.job_standing import SinkFacts
from tidemark.status.lags import LOST, NOTHING_LEFT, Lag, Lags, Word, lags_of
from tidemark.status.reckoning import is_ahead
from tidemark.status.status_tree import Status

NOW_MS = 1_000_000
TABLE = "shop.orders"
BOTH = ("shop.shop.orders", "shop-snapshot.shop.orders")


def documents_of_one() -> dict[str, Any]:
    """The state of a producer that reads, with one table whose snapshot is done."""
    found = documents()
    for key in ("topics/shop.quiet", "request/r2", "table/r2/shop.orders"):
        del found[key]
    return {**found, "alive": {"v": 1, "at_ms": NOW_MS, "every_s": 2.0, "state": "reading", "in_kafka_ms": NOW_MS - 1_500}}


def facts(end: int = 100, **more: Any) -> SinkFacts:
    """A merge job that is alive, and topics that end there."""
    values: dict[str, Any] = {"topics": {TABLE: BOTH}, "ends": {BOTH[0]: {0: end}, BOTH[1]: {0: 0}}, "ends_unknown": ""}
    return SinkFacts(**{"sign": Sign(at_ms=NOW_MS), "locked": True, **values, **more})


def progress(done: int = 100, **values: Any) -> dict[str, Any]:
    """What is merged of the table."""
    one = {"rows": 7, "applied_position": None, "consistent_at": None, "change_offsets": {"0": done}, "snapshot_offsets": {}}
    return {"updated_ms": NOW_MS, "tables": {TABLE: {**one, **values}}}


def status(done: int = 100, end: int = 100, oldest_ms: int | str | None = None, more: dict[str, Any] | None = None, **values: Any) -> Status:
    """A status, as the observer would read it."""
    found = status_of({**documents_of_one(), **(more or {})}, progress(done, **values), NOW_MS, facts(end))
    return replace(found, tables=tuple(replace(table, oldest_ms=oldest_ms) for table in found.tables))


def read(left_bytes: int | None = 0, **values: Any) -> Lags:
    return lags_of(status(**values), left_bytes)


def test_all_is_well_where_both_ends_are_reached() -> None:
    found = read()
    assert (found.verdict.word, found.verdict.reasons) == (Word.RUNNING, ())
    assert (found.to_kafka, found.to_sink) == (NOTHING_LEFT, NOTHING_LEFT)


def test_what_is_left_is_counted_and_as_old_as_the_oldest() -> None:
    found = read(70, done=60, oldest_ms=NOW_MS - 41_700)
    assert found.to_kafka == Lag(seconds=1.5, left=70)
    assert found.to_sink == found.tables[TABLE] == Lag(seconds=41.7, left=40)
    assert found.verdict.word is Word.BEHIND
    assert status(done=60).tables[0].unmerged == ((BOTH[0], 0, 60),)


def test_records_that_kafka_does_not_have_any_more_are_no_zero_and_need_a_person() -> None:
    found = read(done=60, oldest_ms=f"{BOTH[0]}[0] from offset 60 on: {LOST}")
    assert found.to_sink is not None
    assert (found.to_sink.seconds, found.to_sink.left) == (None, 40)
    assert found.verdict.word is Word.NEEDS_A_PERSON


def test_a_topic_that_was_created_again_is_unknown_however_few_records_it_has() -> None:
    found = read(done=5_000, end=300)
    assert found.tables[TABLE].seconds is None
    assert found.verdict.word is Word.UNKNOWN
    assert "created again" in status(done=5_000, end=300).merge.reason


def test_more_merged_than_the_topics_had_means_that_they_are_asked_once_more() -> None:
    assert not is_ahead(decode(MergeProgress, progress(100)), facts(100))
    assert is_ahead(decode(MergeProgress, progress(101)), facts(100))
    assert not is_ahead(decode(MergeProgress, progress(101)), facts(ends=None))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"incomplete": "records are no longer in Kafka. Snapshot this table again"}, "Snapshot this table again"),
        ({"set_aside": {"reason": "it fails", "since_ms": 0}}, "it fails"),
        ({"quarantined": 3}, "3 records are in quarantine: tidemark quarantine list"),
        ({"more": {"table/r1/shop.orders": task(1, TABLE, state="failed", error="it broke")}}, "it broke"),
        ({"more": {"coverage": {"v": 1, "captured": 1, "unmatched": {}, "unreadable": ["shop.secret"]}}}, "GRANT SELECT"),
    ],
)
def test_what_a_person_has_to_do_is_said_though_nothing_is_left(values: dict[str, Any], says: str) -> None:
    found = read(**values)
    assert found.verdict.word is Word.NEEDS_A_PERSON
    assert any(says in reason for reason in found.verdict.reasons), found.verdict


@pytest.mark.parametrize(
    "more",
    [
        {"table/r1/shop.orders": task(1, TABLE, state="failed", status="UNKNOWN_SCHEMA", error="it was dropped")},
        {"coverage": {"v": 1, "captured": 1, "unmatched": {"shop.later": "no table yet"}, "unreadable": []}},
    ],
)
def test_what_nobody_can_mend_needs_nobody(more: dict[str, Any]) -> None:
    assert read(more=more).verdict.word is Word.RUNNING


def test_a_table_that_is_set_aside_or_left_out_has_no_lag_and_the_second_is_in_no_sum() -> None:
    assert read(set_aside={"reason": "it fails", "since_ms": 0}).tables[TABLE].seconds is None
    left_out = read(skipped="no primary key")
    assert "no primary key" in left_out.tables[TABLE].unknown
    assert left_out.left_out == {TABLE}


def test_a_snapshot_that_runs_is_named() -> None:
    found = read(more={"request/r2": request(2), "table/r2/shop.orders": task(2, TABLE)})
    assert (found.verdict.word, found.verdict.reasons) == (Word.SNAPSHOTTING, ("shop.orders: running, 400 of about 1,000 rows read",))


def test_a_sink_whose_progress_is_not_seen_here_is_unknown() -> None:
    unread = lags_of(status_of(documents_of_one(), {}, NOW_MS, SinkFacts(topics={TABLE: BOTH}, ends=facts().ends, ends_unknown="")), 0)
    assert unread.tables[TABLE].seconds is None
    assert unread.verdict.word is Word.UNKNOWN
    broken = lags_of(status_of(documents_of_one(), {}, NOW_MS, facts(unreadable="progress.json cannot be read")), 0)
    assert broken.tables[TABLE].unknown == "progress.json cannot be read"


def test_a_pipeline_into_kafka_alone_needs_no_sink() -> None:
    found = lags_of(status_of(documents_of_one(), {}, NOW_MS, SinkFacts(unreadable="the settings have no sink", has_sink=False)), 0)
    assert (found.verdict.word, found.to_sink) == (Word.RUNNING, None)


def test_the_source_s_problem_and_what_the_producer_has_not_said_are_shown() -> None:
    assert lags_of(status(), 0, "the log may be purged").verdict.word is Word.NEEDS_A_PERSON
    silent = {"alive": {"v": 1, "at_ms": NOW_MS, "every_s": 2.0, "state": "reading"}}
    assert read(None, more=silent).to_kafka.seconds is None
    assert read(0, more=silent).to_kafka == NOTHING_LEFT
