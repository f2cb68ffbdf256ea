"""The documents of the views: what is too old, or not known, is said so and has no figure."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event

import pytest

from schemas.identity import SourceId
from schemas.state import State
from tests.cli.test_status import documents, progress, status_of
from tests.page.test_page_access import settings_of
from tidemark.api.source_log import UNSEEN, SourceLog
from tidemark.page import view_documents
from tidemark.page.lag_history import History, sample_of
from tidemark.page.page_facts import Facts, SourceQuestion
from tidemark.status.chunk_map import chunk_maps
from tidemark.status.lags import Lag, Lags, Verdict, Word
from tidemark.status.snapshot_list import snapshot_list
from tidemark.status.status_tree import Status

NOW_MS = 1_000_000
SETTINGS = settings_of()
OLD = "nothing is known of the last 30 s: Kafka is silent"


def facts_of(status: Status) -> Facts:
    state = State(documents(), SourceId("shop"))
    listed = snapshot_list(state, NOW_MS)
    statuses = {"lake": status}
    return Facts(
        began_s=0.0, began_ms=NOW_MS - 700, read_ms=NOW_MS, statuses=statuses, lags={"lake": UNSEEN.lags(status)}, source=UNSEEN,
        snapshots=listed, chunks=chunk_maps(state),
    )  # fmt: skip


@pytest.fixture
def facts() -> Facts:
    return facts_of(status_of(documents(), progress(), NOW_MS))


def test_nothing_of_an_old_look_passes_for_what_is_now(facts: Facts) -> None:
    history = History()
    history.add(sample_of(facts))
    old = facts.as_unknown(OLD)

    overview = view_documents.overview(SETTINGS, old, history)
    (sink,) = overview["sinks"]
    assert (sink["word"], sink["reasons"]) == ("unknown", [OLD])
    for lag in (sink["to_kafka"], sink["to_sink"], overview["to_kafka"]):
        assert lag["lag_s"] is None
        assert lag["unknown"] == OLD
    assert (sink["merge"]["state"], overview["producer"]["state"]) == ("unknown", "unknown")
    assert sink["records_per_s"] is None
    (listed,) = view_documents.sinks(SETTINGS, old, history)
    assert (listed["word"], listed["alive"], listed["records_per_s"]) == ("unknown", None, None)
    assert listed["lag"]["lag_s"] is None
    assert view_documents.tables(old, {})[0]["snapshot"]["rows_per_s"] is None
    reading = view_documents.snapshots(old)
    assert (reading["producer"]["state"], reading["producer"]["reason"], reading["producer"]["alive"]) == ("unknown", OLD, None)
    assert {table["rows_per_s"] for request in reading["requests"] for table in request["tables"]} == {None}
    (problem,) = view_documents.problems(old)
    assert problem["what"] == OLD


def test_a_look_says_when_it_was_and_why_there_is_no_newer_one(facts: Facts) -> None:
    of_now = view_documents.freshness(facts, 1.0, "", is_of_now=True)
    assert of_now == {"as_of_ms": NOW_MS - 700, "age_s": 1.0, "unknown": ""}
    old = view_documents.freshness(facts, 30.0, "Kafka is silent", is_of_now=False)
    assert old["unknown"] == OLD
    assert view_documents.freshness(None, float("inf"), "Kafka is silent", is_of_now=False)["unknown"] == "Kafka is silent"


def test_each_reason_has_an_advice_and_the_first_has_the_word(facts: Facts) -> None:
    found = view_documents.problems(facts)

    assert found
    assert found[0]["word"] == facts.lags["lake"].verdict.word.value
    assert all(one["word"] is None for one in found[1:])
    assert all(one["advice"] for one in found)
    assert "tidemark merge" in view_documents.advice("merge job: not running: start `tidemark merge`")
    assert "doctor" in view_documents.advice("something that nobody has thought of")


def test_problems_come_worst_first_over_all_sinks_and_none_twice(facts: Facts) -> None:
    late, dead = (Lags(Lag(seconds=1.0), Lag(seconds=1.0), {}, verdict) for verdict in (
        Verdict(Word.BEHIND, ("Kafka to sink: 40 s",)), Verdict(Word.DEAD, ("merge job: not running: start `tidemark merge`", "a note")),
    ))  # fmt: skip
    first = replace(facts.first, notes=("a note", "another note"))
    two = replace(
        facts, statuses={"slow": first, "gone": first}, lags={"slow": late, "gone": dead},
        source=SourceLog(None, "the source cannot be asked: refused"),
    )  # fmt: skip

    found = view_documents.problems(two)
    assert [one["sink"] for one in found] == ["gone", "gone", "slow", None, None]
    assert [one["what"] for one in found][-2:] == ["another note", "the source cannot be asked: refused"]
    paused = view_documents.advice("shop.orders: paused, 100 of about 1,000 rows read")
    assert "resume" in paused
    assert "clocks" in view_documents.advice("source to Kafka: unknown: it counts from 9 s in the future: compare the machines' clocks")
    assert "Nothing" in view_documents.advice("shop.batches: running, 5 rows read")


def test_nothing_reads_while_the_producer_is_dead_and_the_view_says_so(facts: Facts) -> None:
    found = view_documents.snapshots(facts)
    assert found["producer"]["alive"] is not True
    assert found["producer"]["state"]


def test_tables_and_snapshots_show_what_the_status_says(facts: Facts) -> None:
    orders, quiet = view_documents.tables(facts, {"shop.orders": 3})

    assert (orders["table"], orders["schema_version"], quiet["schema_version"]) == ("shop.orders", 3, None)
    assert (orders["snapshot"]["state"], orders["snapshot"]["share"]) == ("running", 0.4)
    assert orders["sinks"][0]["merged"] == 77
    newest, oldest = view_documents.snapshots(facts)["requests"]
    assert (newest["id"], newest["rows_read"], oldest["state"]) == ("r2", 400, "done")
    assert newest["tables"][0]["chunks"]["cells"] == []


def test_a_table_that_another_sink_does_not_know_yet_is_unknown_there(facts: Facts) -> None:
    both = replace(facts, statuses={**facts.statuses, "other": status_of({}, {}, NOW_MS)}, lags={**facts.lags, "other": facts.lags["lake"]})

    assert view_documents.tables(both, {})[0]["sinks"][1]["state"].startswith("unknown")


def test_a_source_that_does_not_answer_makes_its_part_unknown_and_its_late_answer_is_not_of_now() -> None:
    released, asked, silent = Event(), [], "the source cannot be asked: no answer for"

    def ask(status: Status) -> SourceLog:
        asked.append(status)
        released.wait(30)
        return SourceLog(None, "the answer", is_of_now=True)

    status = status_of(documents(), progress(), NOW_MS)
    look = SourceQuestion(ask, patience_s=1.0)
    began = time.monotonic()
    assert look.ask(status).problem.startswith(silent)
    assert look.ask(status).problem.startswith(silent)
    assert time.monotonic() - began < 10
    released.set()
    late = next(answer for answer in iter(lambda: look.ask(status), None) if not answer.problem.startswith(silent))
    assert (late.problem, late.is_of_now) == ("the answer", False)
    look._patience_s = 60.0
    assert look.ask(status).is_of_now
    assert len(asked) == 2
    assert look.ask(status_of({}, {}, NOW_MS)) == UNSEEN  # nothing is published: there is nothing to ask
    look.close()


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("producer: waiting: the registry at http://r cannot be reached; for 40 s", "continues when the cause is over"),
        ("merge job: starting", "it connects"),
        ("shop.orders: its snapshot failed: the table is locked", "read the table again"),
        ("merge job: unknown: /lake/_tidemark/alive.json cannot be read: no permission", "is mounted"),
        ("shop.orders: may not be read: GRANT SELECT ON shop.orders", "as an administrator of the source"),
        ("shop.orders is inexact: rows were left out", "`tidemark snapshot start`"),
        ("shop.orders: 3 records are in quarantine: tidemark quarantine list", "Remove the cause"),
        ("merge job: not running: start `tidemark merge`; the disk of /lake is full", "Make room"),
        ("shop.orders is set aside: no such column", "taken up by itself"),
        ("producer: not running: start `tidemark run`; it ended at 2027-01-15 08:00:00Z: denied", "Start the producer"),
    ],
)
def test_there_is_advice_for_each_word_that_is_shown(reason: str, part: str) -> None:
    assert part in view_documents.advice(reason)
