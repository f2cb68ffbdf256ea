"""Loads in the ledger alone: which way a table goes, what is planned and registered for each way, and what ends a load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from producer.snapshot.asked_loads import (
    LOAD_PATIENCE_S,
    SHOWN_AFTER_S,
    WAITS_FOR_MERGE,
    LoadRequest,
    LoadRule,
)
from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ledger import LedgerOptions, SnapshotLedger
from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import ReadTask, Window, WindowState
from schemas.documents import Origin, PlanDocument
from schemas.loads import LoadAnswer
from schemas.settings import Settings, SinkSettings, from_mapping
from tests.support.ledgers import READERS, at

LOADS = 3
SPARK = LoadRule(via="spark", chunk_rows=50)
TASK = ReadTask("r", "db.t", estimate=5_000)


def a_ledger(rule: LoadRule = SPARK) -> SnapshotLedger:
    ids = iter(range(1000))
    options = LedgerOptions(loads=rule, load_workers=LOADS)
    return SnapshotLedger("srv", READERS, lambda: 0, lambda: f"w{next(ids)}", options)


def planned(ledger: SnapshotLedger, *tables: str, chunks: int = 40) -> None:
    """Submit tables and plan as much of them as is to be planned now."""
    ledger.requests.submit("r", Origin.SIGNAL, [(table, None) for table in tables])
    plan_on(ledger, chunks)


def plan_on(ledger: SnapshotLedger, chunks: int = 40) -> None:
    while (task := ledger.turns.to_plan(0.0)) is not None:
        ledger.tasks.planning(task, 5_000)
        ledger.loads.choose(task)
        lower = None if task.plan.upto is None else task.plan.upto
        upper = (str(int(lower[0]) + 1 if lower else 1),)
        plan = PlanDocument(key=(("id", "int", ""),), upto=upper, rows_per_chunk=200, complete=upper == (str(chunks),))
        ledger.tasks.planned(task, task.generation, KeyRange(lower, upper), plan)


def asked(ledger: SnapshotLedger, offset: int = 100) -> Window:
    """A window whose load was handed over."""
    window = ledger.turns.start_next_load()
    assert window is not None
    window.low = at(offset)
    ledger.windows.opened(window, at(offset))
    request = LoadRequest(at(offset), "binlog.000001", "incremental", "SELECT 1", "srv", 1, 2)
    ledger.windows.ask_for(window, request.fields, 0.0)
    return window


def checkpoint(ledger: SnapshotLedger, offset: int) -> Any:
    work = ledger.prepare(at(offset), 0.0)
    ledger.windows.committed()
    return work


@pytest.mark.parametrize(
    ("rule", "task", "expected"),
    [
        (LoadRule("kafka"), TASK, ("kafka", "")),
        (LoadRule("auto", 5_000), TASK, ("spark", "")),
        (LoadRule("auto", 5_001), TASK, ("kafka", "")),
        (LoadRule("auto", 0), replace(TASK, estimate=None), ("kafka", "")),
        (LoadRule("auto", 0, "no sink"), TASK, ("kafka", "")),
        (LoadRule("spark", 9_999), TASK, ("spark", "")),
        (LoadRule("spark", 0, "no sink"), TASK, ("kafka", "no sink")),
        (LoadRule("kafka"), replace(TASK, asked_via="spark"), ("spark", "")),
        (LoadRule("spark"), replace(TASK, asked_via="kafka"), ("kafka", "")),
        (LoadRule("spark"), replace(TASK, condition="id > 5"), ("kafka", "the request has a condition")),
        (LoadRule("spark"), replace(TASK, surrogate="c"), ("kafka", "the request has a surrogate key")),
        (LoadRule("spark"), replace(TASK, merge="producer"), ("kafka", "the producer merges its rows (merge: producer)")),
        (LoadRule("spark"), replace(TASK, children=ChildRows(("p",), frozenset())), ("kafka", "these are rows of changed parents")),
    ],
)
def test_the_way_of_a_table_is_chosen_by_what_is_known_before_it_is_read(
    rule: LoadRule, task: ReadTask, expected: tuple[str, str]
) -> None:
    assert rule.choose(task) == expected


def test_each_way_is_planned_and_registered_for_by_its_own_workers() -> None:
    ledger = a_ledger(LoadRule("kafka", chunk_rows=50))
    ledger.requests.submit("a", Origin.SIGNAL, [("db.large", None)], via="spark")
    ledger.requests.submit("b", Origin.SIGNAL, [("db.small", None)])
    plan_on(ledger)
    large, small = ledger.tasks["a", "db.large"], ledger.tasks["b", "db.small"]
    assert (large.via, small.via) == ("spark", "kafka")
    assert (len(large.chunks), len(small.chunks)) == (4 * LOADS, READERS)
    checkpoint(ledger, 10)
    windows = [window.table for window in ledger.windows.values()]
    assert (windows.count("db.large"), windows.count("db.small")) == (LOADS, READERS)
    loads = [ledger.turns.start_next_load() for _ in range(LOADS + 1)]
    reads = [ledger.turns.start_next_window() for _ in range(READERS + 1)]
    assert [load is None for load in loads] == [False] * LOADS + [True]
    assert {load.table for load in loads if load} == {"db.large"}
    assert {read.table for read in reads if read} == {"db.small"}
    assert reads[-1] is None


def test_a_load_holds_the_horizon_until_it_is_closed_or_given_up() -> None:
    ledger = a_ledger()
    planned(ledger, "db.t", chunks=1)
    checkpoint(ledger, 10)
    window = asked(ledger)
    work = checkpoint(ledger, 200)
    assert work.horizon == at(10)
    (load,) = [marker for marker in work.markers if marker.type == "load"]
    assert load.fields["window"] == window.id
    assert load.fields["low"] == at(100).text
    assert ledger.loads.answered(LoadAnswer(window.id, 7), 1.0)
    assert checkpoint(ledger, 300).horizon == at(10)
    ledger.windows.closing(window, 7, {})
    ledger.tasks.close(window, at(310))
    work = checkpoint(ledger, 320)
    assert work.horizon == at(320)
    close, complete = work.markers
    assert close.fields["loaded"] is True
    assert complete.fields["rows"] == 7
    assert ledger.tasks["r", "db.t"].rows == 7


def test_the_marker_of_a_load_says_for_which_plan_of_the_table_it_is() -> None:
    """Chunks of two plans may have the same rows: the merge job must not load them at once."""
    ledger = a_ledger()
    planned(ledger, "db.t", chunks=1)
    generations = []
    for number in (1, 2):
        checkpoint(ledger, 1000 * number)
        asked(ledger, 1000 * number + 100)
        work = checkpoint(ledger, 1000 * number + 200)
        generations += [marker.fields["generation"] for marker in work.markers if marker.type == "load"]
        ledger.tasks.replan(ledger.tasks["r", "db.t"])
        plan_on(ledger, 1)
    assert generations == [0, 1]


def test_an_answer_counts_only_for_a_window_that_was_asked_for() -> None:
    ledger = a_ledger()
    planned(ledger, "db.t")
    checkpoint(ledger, 10)
    unasked = ledger.turns.start_next_load()
    assert unasked is not None
    assert not ledger.loads.answered(LoadAnswer(unasked.id, 7), 1.0)
    assert not ledger.loads.answered(LoadAnswer("w999", 7), 1.0)
    window = asked(ledger)
    assert ledger.loads.answered(LoadAnswer(window.id, 7), 1.0)
    assert ledger.loads.answered(LoadAnswer(window.id, error="later", retry=True), 1.0)
    assert window.load is not None
    assert window.load.answer == LoadAnswer(window.id, 7), "the first one counts"


def test_a_table_given_up_reads_its_open_chunks_by_kafka_and_keeps_what_was_loaded() -> None:
    ledger = a_ledger()
    planned(ledger, "db.t", chunks=3)
    checkpoint(ledger, 10)
    loaded, answered, waiting = asked(ledger), asked(ledger), asked(ledger)
    ledger.windows.closing(loaded, 5, {})
    ledger.loads.answered(LoadAnswer(answered.id, 6), 1.0)
    task = ledger.tasks["r", "db.t"]
    ledger.loads.give_up(task, "why")
    assert (loaded.reread, answered.reread, waiting.reread) == (False, False, True)
    assert (task.via, task.via_reason, task.chunk_rows) == ("kafka", "why", 50)
    ledger.tasks.close(loaded, at(150))
    ledger.tasks.release(waiting)
    checkpoint(ledger, 200)
    checkpoint(ledger, 210)
    again = ledger.turns.start_next_window()
    assert again is not None
    assert (again.chunk, again.load) == (waiting.chunk, None)
    ledger.loads.choose(task)
    assert task.via == "kafka", "what was given up is not chosen again"


def test_silence_is_shown_and_then_ends_the_way_of_auto_alone() -> None:
    for via, way in (("auto", "kafka"), ("spark", "spark")):
        ledger = a_ledger(LoadRule(via, chunk_rows=50))
        planned(ledger, "db.t")
        checkpoint(ledger, 10)
        window, other = asked(ledger), asked(ledger)
        task = ledger.tasks["r", "db.t"]
        ledger.loads.unanswered(window, SHOWN_AFTER_S - 1)
        assert task.error == ""
        ledger.loads.unanswered(window, SHOWN_AFTER_S)
        assert task.error == WAITS_FOR_MERGE
        ledger.loads.answered(LoadAnswer(other.id, 1), 100.0)
        assert task.error == ""
        ledger.loads.unanswered(window, 99 + LOAD_PATIENCE_S)
        assert task.via == "spark", "another chunk was answered since"
        ledger.loads.unanswered(window, 100 + LOAD_PATIENCE_S)
        assert (task.via, window.reread) == (way, way == "kafka")


def test_the_way_survives_a_restart_unless_the_settings_forbid_it() -> None:
    ledger = a_ledger()
    planned(ledger, "db.t")
    work = checkpoint(ledger, 10)
    documents = {key: document for key, document in work.state.items() if document is not None}
    for rule, expected in (
        (SPARK, ("spark", "")),
        (LoadRule("auto", 1 << 40), ("spark", "")),
        (LoadRule("kafka"), ("kafka", "snapshot.via is kafka")),
        (LoadRule("spark", 0, "no sink"), ("kafka", "no sink")),
    ):
        again = a_ledger(rule)
        again.restore(documents)
        task = again.tasks["r", "db.t"]
        assert (task.via, task.via_reason) == expected


def test_pausing_waits_for_loads_that_were_handed_over() -> None:
    ledger = a_ledger()
    planned(ledger, "db.t")
    checkpoint(ledger, 10)
    window = asked(ledger)
    ledger.requests.pause()
    assert ledger.turns.start_next_load() is None
    reported = [one.type for one in checkpoint(ledger, 20).notifications]
    assert "PAUSED" not in reported
    ledger.loads.answered(LoadAnswer(window.id, 5), 1.0)
    ledger.windows.closing(window, 5, {})
    ledger.tasks.close(window, at(30))
    assert "PAUSED" in [one.type for one in checkpoint(ledger, 40).notifications]


def test_while_the_source_is_loaded_no_load_begins() -> None:
    ledger = a_ledger()
    planned(ledger, "db.t")
    checkpoint(ledger, 10)
    ledger.hold("Threads_running 90 > 50")
    assert ledger.turns.start_next_load() is None
    assert not [window for window in ledger.windows.values() if window.state is WindowState.READY]


def loading(**sections: dict[str, Any]) -> Settings:
    given: dict[str, Any] = {
        "name": "s",
        "source": {"host": "h", "user": "u", "tables": [".*"], "signal_table": "a.b"},
        "format": {"registry": "http://r"},
        "sinks": [{"path": "/lake"}],
    }
    for section, values in sections.items():
        given[section] = {**given.get(section, {}), **values}
    return from_mapping(given)


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({}, ""),
        ({"source": {"read_only": True}}, "its answers are rows of a signal table"),
        ({"source": {"signal_table": None}}, "its answers are rows of a signal table"),
        ({"format": {"type": "json", "registry": None}}, "its rows are Avro"),
        ({"records": {"message_key_columns": {"a.t": "c"}}}, "rows may share a key"),
    ],
)
def test_settings_say_whether_the_merge_job_can_read_tables(sections: dict[str, Any], reason: str) -> None:
    found = loading(**sections).why_no_loads
    assert reason in found
    assert bool(found) == bool(reason)


def test_one_sink_is_needed() -> None:
    made = loading()
    assert "there must be one" in replace(made, sinks=()).why_no_loads
    assert "there must be one" in replace(made, sinks=(SinkSettings(path="/a"), SinkSettings(name="b", path="/b"))).why_no_loads
