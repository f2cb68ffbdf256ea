"""Chunks that the merge job reads, on real servers: the log reader's and the merge job's parts are played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from devservers import Database
from producer.snapshot import asked_loads, load_worker
from producer.snapshot.asked_loads import WAITS_FOR_MERGE
from schemas.errors import LoadError
from schemas.loads import LOAD_ANSWER, LoadAnswer
from schemas.markers import LoadMarker
from spark_jobs.loads.chunk_source import TableChunks
from tests.support.memory_log import MemoryLog, running
from tests.support.played_loads import MemoryRegistry, PlayedMergeJob, load_log, marker_of, pairs
from tests.support.servers import database
from tests.support.snapshots import Source

SERVERS = ("mysql80", "mariadb114")


@pytest.fixture(params=SERVERS)
def source(request: pytest.FixtureRequest, fresh_database: Callable[[Database], str]) -> Iterator[Source]:
    server = database(request.param)
    made = Source(server, fresh_database(server))
    yield made
    made.connection.close()


@pytest.fixture
def mysql(fresh_database: Callable[[Database], str]) -> Iterator[Source]:
    server = database("mysql80")
    made = Source(server, fresh_database(server))
    yield made
    made.connection.close()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    made = MemoryRegistry()
    made.serve(monkeypatch)
    return made


def ask(source: Source, table: str = "t", **data: object) -> None:
    source.signal("execute-snapshot", {"data-collections": [rf"{source.schema}\.{table}"], **data}, "r")


def in_topics(log: MemoryLog, table: str = "t") -> int:
    return len(log.durable.topics.records.get(f"srv-snapshot.{log.settings.source.signal_names[0]}.{table}", []))


def loaded_windows(log: MemoryLog) -> list[str]:
    return [marker.fields["window"] for marker in log.durable.marked("close") if marker.fields.get("loaded")]


def the_task(log: MemoryLog) -> dict[str, object]:
    (document,) = log.durable.documents("table")
    return document


def test_every_chunk_is_asked_for_read_answered_and_closed(source: Source, registry: MemoryRegistry) -> None:
    source.numbers("t", 1000)
    log = load_log(source, registry)
    with running(log), PlayedMergeJob(log) as job:
        ask(source)
        log.wait_reported("COMPLETED", timeout_s=30)
        assert len(job.rows) >= 10
        keys = [key for rows in job.rows.values() for key, _ in rows]
    assert len(set(keys)) == len(keys) == 1000
    assert in_topics(log) == 0
    assert sorted(loaded_windows(log)) == sorted(job.rows)
    opens = {marker.fields["window"]: marker.fields["position"] for marker in log.durable.marked("open")}
    for load in job.asked:
        assert opens[load.window] == load.position.text
        assert load.low <= load.position
    (complete,) = log.durable.marked("complete")
    assert complete.fields["rows"] == 1000
    assert complete.fields["first_bound"] <= min(load.low.text for load in job.asked)
    assert log.durable.documents("window") == []
    assert (the_task(log)["via"], the_task(log)["rows"]) == ("spark", 1000)
    assert source.rows(f"SELECT count(*) FROM signals WHERE type = '{LOAD_ANSWER}'") == [(len(job.rows),)]


def test_the_signal_table_stays_empty_where_open_rows_are_deleted(source: Source, registry: MemoryRegistry) -> None:
    source.numbers("t", 300)
    log = load_log(source, registry, watermarking_strategy="insert_delete")
    with running(log), PlayedMergeJob(log):
        ask(source)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert source.rows("SELECT id FROM signals") == [("r",)]


def test_what_changes_between_barrier_and_reading_is_read_with_the_older_version(
    mysql: Source, registry: MemoryRegistry
) -> None:
    """It may be newer than its version says, and never older: the log has the change with a later one."""
    mysql.numbers("t", 50)
    log = load_log(mysql, registry)
    changed: list[int] = []

    def change_and_read(_, load: LoadMarker) -> LoadAnswer:
        mysql.run("UPDATE t SET v = -1 WHERE id = 7")
        changed.append(1)
        return job.load(TableChunks(log.settings), load)

    with running(log), PlayedMergeJob(log, change_and_read) as job:
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert changed
    (load,) = job.asked
    assert len(job.rows[load.window]) == 50


def test_an_error_that_may_pass_is_retried_and_counted(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 20)
    log = load_log(mysql, registry)

    def fail_once(source, load: LoadMarker) -> LoadAnswer:
        if len(job.asked) == 1:
            return LoadAnswer(load.window, error="the source went away", retry=True)
        return job.load(source, load)

    with running(log), PlayedMergeJob(log, fail_once) as job:
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert len(job.asked) == 2
    assert job.asked[0].window != job.asked[1].window
    assert loaded_windows(log) == [job.asked[1].window]
    assert the_task(log)["via"] == "spark"


@pytest.mark.parametrize(("retry", "attempts"), [(True, asked_loads.MOST_FAILED), (False, 1)])
def test_a_table_that_cannot_be_loaded_goes_through_kafka(
    mysql: Source, registry: MemoryRegistry, retry: bool, attempts: int
) -> None:
    mysql.numbers("t", 60)
    log = load_log(mysql, registry)
    with running(log), PlayedMergeJob(log, lambda _, load: LoadAnswer(load.window, error="no such type", retry=retry)) as job:
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert len(job.asked) == attempts
    assert in_topics(log) == 60
    assert loaded_windows(log) == []
    assert the_task(log).get("via") is None
    assert "no such type" in str(the_task(log)["via_reason"])
    (progress,) = log.coordinator.progress()
    assert (progress.state, progress.via, progress.rows) == ("done", "kafka", 60)


def test_chunks_that_were_loaded_before_stay_so_when_the_rest_goes_through_kafka(
    mysql: Source, registry: MemoryRegistry
) -> None:
    mysql.numbers("t", 500)
    log = load_log(mysql, registry, loads=2, chunk_rows=100)

    def refuse_later(source, load: LoadMarker) -> LoadAnswer:
        if len(job.asked) < 3:
            return job.load(source, load)
        return LoadAnswer(load.window, error="full", retry=False)

    with running(log), PlayedMergeJob(log, refuse_later) as job:
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    closed = loaded_windows(log)
    assert closed
    assert in_topics(log) + sum(len(job.rows[window]) for window in closed) == 500
    assert log.durable.marked("complete")[0].fields["rows"] == 500


def test_auto_gives_up_where_nobody_answers(
    mysql: Source, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_loads, "LOAD_PATIENCE_S", 1.0)
    mysql.numbers("t", 250)
    log = load_log(mysql, registry, via="auto", spark_min_rows=100)
    with running(log):
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert log.durable.marked("load")
    assert in_topics(log) == 250
    assert "has answered nothing" in str(the_task(log)["via_reason"])


def test_spark_waits_for_the_merge_job_and_the_state_says_so(
    mysql: Source, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_loads, "LOAD_PATIENCE_S", 0.5)
    monkeypatch.setattr(asked_loads, "SHOWN_AFTER_S", 0.2)
    mysql.numbers("t", 50)
    log = load_log(mysql, registry)
    with running(log):
        ask(mysql)
        log.wait(lambda: any(d["error"] == WAITS_FOR_MERGE for d in log.durable.documents("table")), "it is said")
        job = PlayedMergeJob(log)
        job._seen = 0
        with job:
            log.wait_reported("COMPLETED", timeout_s=30)
    assert the_task(log)["error"] == ""
    assert len(loaded_windows(log)) == 1


def test_auto_leaves_small_tables_and_conditions_to_kafka(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 200)
    mysql.numbers("small", 10)
    log = load_log(mysql, registry, via="auto", spark_min_rows=100)
    with running(log), PlayedMergeJob(log) as job:
        ask(mysql, "small")
        log.wait_reported("COMPLETED", timeout_s=30)
        condition = {"data-collection": rf"{mysql.schema}\.t", "filter": "id > 100"}
        mysql.signal(
            "execute-snapshot",
            {"data-collections": [rf"{mysql.schema}\.t"], "additional-conditions": [condition], "via": "spark"},
            "filtered",
        )
        log.wait_reported("COMPLETED", 2)
        mysql.signal("execute-snapshot", {"data-collections": [rf"{mysql.schema}\.t"], "via": "kafka"}, "by-kafka")
        log.wait_reported("COMPLETED", 3)
        assert job.asked == []
        mysql.signal("execute-snapshot", {"data-collections": [rf"{mysql.schema}\.t"]}, "large")
        log.wait_reported("COMPLETED", 4)
    ways = {d["request"]: (d.get("via", "kafka"), d.get("via_reason", "")) for d in log.durable.documents("table")}
    assert ways == {
        "r": ("kafka", ""),
        "filtered": ("kafka", "the request has a condition"),
        "by-kafka": ("kafka", ""),
        "large": ("spark", ""),
    }


def test_after_a_crash_chunks_not_closed_are_asked_for_again(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 600)
    log = load_log(mysql, registry, loads=2)

    def stop_after_three(source, load: LoadMarker) -> LoadAnswer | None:
        return job.load(source, load) if len(job.asked) <= 3 else None

    with PlayedMergeJob(log, stop_after_three) as job:
        log.start()
        ask(mysql)
        log.wait(lambda: len(loaded_windows(log)) == 3 and len(job.asked) >= 5, "three chunks are in the sink")
        log.crash()
    unanswered = [load.window for load in job.asked if load.window not in job.rows]
    assert unanswered
    again = load_log(mysql, registry, log.durable, loads=2)
    with running(again), PlayedMergeJob(again) as second:
        TableChunks(again.settings).answer([LoadAnswer(window, 100) for window in unanswered])  # it comes too late
        again.wait_reported("COMPLETED", timeout_s=30)
    closed = loaded_windows(again)
    assert not set(unanswered) & set(closed)
    rows = {**job.rows, **second.rows}
    keys = [key for window in closed for key, _ in rows[window]]
    assert len(set(keys)) == len(keys) == 600
    assert again.durable.documents("window") == []


def test_a_pause_waits_for_what_was_handed_over_and_begins_no_more(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 1000)
    log = load_log(mysql, registry, loads=2)

    def pause_first(source, load: LoadMarker) -> LoadAnswer:
        if len(job.asked) == 1:
            mysql.signal("pause-snapshot")
            log.wait(lambda: log.coordinator.progress()[0].state == "paused", "the pause is noted")
        return job.load(source, load)

    with running(log), PlayedMergeJob(log, pause_first) as job:
        ask(mysql)
        log.wait_reported("PAUSED")
        asked = len(job.asked)
        assert asked <= 4
        log.wait(lambda: not log.durable.documents("window"), "no window registered")
        assert len(loaded_windows(log)) == asked == len(job.asked)
        mysql.signal("resume-snapshot")
        log.wait_reported("COMPLETED", timeout_s=30)
    assert sum(len(job.rows[window]) for window in loaded_windows(log)) == 1000


def test_a_stop_ends_a_table_whose_chunks_were_asked_for(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 500)
    log = load_log(mysql, registry)
    with running(log), PlayedMergeJob(log, lambda _, __: None) as job:
        ask(mysql)
        log.wait(lambda: bool(job.asked), "a chunk is asked for")
        mysql.signal("stop-snapshot")
        log.wait_reported("ABORTED")
        log.wait(lambda: not log.durable.documents("window"), "no window registered")
        position, horizon = log.durable.horizons[-1]
        assert horizon == position
    assert loaded_windows(log) == []


def test_ddl_between_low_and_close_voids_the_window_and_the_chunk_is_asked_for_again(
    source: Source, registry: MemoryRegistry
) -> None:
    source.numbers("t", 40)
    log = load_log(source, registry)

    def alter_first(chunks, load: LoadMarker) -> LoadAnswer | None:
        if len(job.asked) == 1:
            source.run("ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT 5")
            with pytest.raises(LoadError, match="changed"):
                pairs(chunks.read(source.schema, "t", load))
            return None
        return job.load(chunks, load)

    with running(log), PlayedMergeJob(log, alter_first) as job:
        ask(source)
        log.wait_reported("COMPLETED", timeout_s=30)
    first, second = job.asked
    assert second.low > first.low
    assert second.value_schema != first.value_schema
    assert loaded_windows(log) == [second.window]
    assert len(job.rows[second.window]) == 40


def test_an_answer_that_nobody_waits_for_changes_nothing_and_is_not_rejected(
    mysql: Source, registry: MemoryRegistry
) -> None:
    mysql.numbers("t", 5)
    log = load_log(mysql, registry)
    with running(log), PlayedMergeJob(log):
        TableChunks(log.settings).answer([LoadAnswer("00000000-0000-0000-0000-000000000000", 7)])
        mysql.run(f"INSERT INTO signals VALUES ('odd', '{LOAD_ANSWER}', 'no JSON')")
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert log.durable.reported("REJECTED") == []


def test_settings_that_changed_have_the_rest_go_through_kafka(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 300)
    log = load_log(mysql, registry, loads=1)
    with PlayedMergeJob(log, lambda _, __: None) as job:
        log.start()
        ask(mysql)
        log.wait(lambda: bool(job.asked), "a chunk is asked for")
        log.crash()
    again = load_log(mysql, registry, log.durable, via="kafka")
    with running(again):
        again.wait_reported("COMPLETED", timeout_s=30)
    assert in_topics(again) == 300
    assert the_task(again)["via_reason"] == "snapshot.via is kafka"


def test_rows_per_second_hold_loads_back_too(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 300)
    log = load_log(mysql, registry, max_rows_per_s=100, load_rows=50)
    began = load_worker.dt.datetime.now()
    with running(log), PlayedMergeJob(log):
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    assert (load_worker.dt.datetime.now() - began).total_seconds() > 1.0


def test_another_server_and_a_schema_of_other_columns_are_refused(mysql: Source, registry: MemoryRegistry) -> None:
    mysql.numbers("t", 5)
    log = load_log(mysql, registry)
    with running(log), PlayedMergeJob(log):
        ask(mysql)
        log.wait_reported("COMPLETED", timeout_s=30)
    load = marker_of(log.durable.marked("load")[0])
    source = TableChunks(log.settings)
    assert len(pairs(source.read(mysql.schema, "t", load))) == 5
    for changed, reason in (
        (replace(load, server="another"), "another server"),
        (replace(load, value_schema=999), "no schema 999"),
        (replace(load, key_schema=None), "has no schema of"),
        (replace(load, query=load.query.replace("`v`", "`id`")), "column v: named id"),
        (replace(load, query="SELECT nonsense"), "Unknown column"),
    ):
        with pytest.raises(LoadError, match=reason):
            pairs(source.read(mysql.schema, "t", changed))
    with pytest.raises(LoadError, match="does not exist"):
        pairs(source.read(mysql.schema, "gone", load))
