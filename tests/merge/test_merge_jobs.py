"""Several sinks in one driver: each has all rows, and an error of one holds up no other."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from schemas.errors import ConfigError, RetriableSinkError, SinkError
from schemas.settings import Settings
from schemas.waiting import Waits
from spark_jobs.jobs import merge_jobs, runner
from spark_jobs.jobs.jvm_start import LostClassError
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.merge_jobs import MergeJobs, may_pass
from spark_jobs.jobs.shared_folder import SharedFolder
from spark_jobs.spark_errors import lost_class
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, topics_of, wait_for
from tests.merge.topics import TableTopics
from tidemark.api.sink_folder import sink_facts
from tidemark.status.job_standing import JobState, Standing, merge_state

NAMES = ("lake", "mart")


class NoSession:
    """A session that is given on and not used."""

    def newSession(self) -> NoSession:  # noqa: N802 - Spark's
        return self


@pytest.fixture
def sinks(merge_settings: SinkFactory, tmp_path: Path) -> dict[str, Settings]:
    """The settings of two sinks of one producer."""
    settings = merge_settings()
    both = tuple(replace(settings.sink, name=name, path=str(tmp_path / name)) for name in NAMES)
    whole = replace(settings, sinks=both)
    return {name: whole.of_sink(name) for name in NAMES}


def filled(sinks: Mapping[str, Settings]) -> TableTopics:
    """Five rows of a table, in Kafka only."""
    topics = topics_of(sinks["lake"], ORDERS)
    for number in range(5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, number % 2)
    flush(topics)
    return topics


def standing(settings: Settings) -> Standing:
    """What the status says of the merge job of a sink."""
    return merge_state(time.time_ns() // 1_000_000, sink_facts(settings), merged=True, behind={})


ROWS = {str(number): number for number in range(5)}


def test_every_sink_has_all_rows_by_a_query_of_its_own(
    spark: SparkSession, sinks: dict[str, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = filled(sinks)
    jobs = MergeJobs(sinks)
    asked: list[SharedFolder] = []

    def require(folder: SharedFolder) -> None:
        asked.append(folder)

    monkeypatch.setattr(SharedFolder, "require", require)
    jobs.run(until_caught_up=True, spark=spark)
    assert len(asked) >= 4, "whether executors share its folder is asked at the start of a job, and before each batch"
    assert [amounts(sinks[name]) for name in NAMES] == [ROWS, ROWS]
    assert {name: one.delays["shop.orders"].count for name, one in jobs.figures.items()} == {"lake": 5, "mart": 5}
    for one in jobs.figures.values():
        assert (one.counts.merged, one.quarantined, one.set_aside, one.failures) == (5, 0, 0, 0)
        assert one.counts.batches >= 1
        assert one.counts.records >= 5
        assert abs((one.counts.ended_s or 0) - time.time()) < 300
    queries = {(Path(sinks[name].sink.service_path) / "checkpoint" / "metadata").read_text() for name in NAMES}
    assert len(queries) == 2
    topics.change("d", {"id": "1", "amount": 1}, at(200, 1).text, 1)
    flush(topics)
    MergeJobs({"mart": sinks["mart"]}).run(until_caught_up=True, spark=spark)
    assert "1" in amounts(sinks["lake"])
    MergeJobs(sinks).run(until_caught_up=True, spark=spark)
    assert [sorted(amounts(sinks[name])) for name in NAMES] == [["0", "2", "3", "4"]] * 2


def test_a_sink_whose_batch_fails_is_retried_while_another_is_merged_into(
    spark: SparkSession, sinks: dict[str, Settings]
) -> None:
    filled(sinks)
    attempts: list[str] = []

    def fails_twice(_: str, __: int) -> None:
        if len([name for name in attempts if name == "mart"]) < 3:
            raise RetriableSinkError("the disk is slow")

    def make(settings: Settings, session: SparkSession) -> MergeJob:
        attempts.append(settings.sink.name)
        if settings.sink.name == "mart":
            return MergeJob(settings, spark=session, on_step=fails_twice)
        return MergeJob(settings, spark=session)

    jobs, waits, ready = MergeJobs(sinks, make, first_pause_s=3.0), list[Standing](), list[str | None]()

    def look() -> bool:
        waits.append(standing(sinks["mart"]))
        ready.append(jobs.not_ready["mart"])
        return len(attempts) == 4

    looks = Thread(target=lambda: wait_for(look))
    looks.start()
    jobs.run(until_caught_up=True, spark=spark)
    looks.join()
    seen = [one for one in waits if one.state is JobState.WAITING]
    assert seen
    assert all(one.alive and "retried in up to" in one.reason and "the disk is slow" in one.reason for one in seen)
    lasting = waits[waits.index(seen[0]) : len(waits) - 1 - waits[::-1].index(seen[-1])]
    assert {one.state for one in lasting} == {JobState.WAITING}, "one failure lasts until an attempt succeeds"
    begun = next(number for number, reason in enumerate(ready) if reason and "the disk is slow" in reason)
    ended = len(ready) - next(number for number, reason in enumerate(reversed(ready)) if reason and "the disk is slow" in reason)
    assert all(reason and "the disk is slow" in reason for reason in ready[begun:ended])
    assert standing(sinks["mart"]).state is JobState.NOT_RUNNING
    assert sorted(attempts) == ["lake", "mart", "mart", "mart"]
    assert [amounts(sinks[name]) for name in NAMES] == [ROWS, ROWS]


def test_a_sink_that_needs_a_person_ends_and_the_others_continue(spark: SparkSession, sinks: dict[str, Settings]) -> None:
    topics = filled(sinks)
    MergeJobs(sinks).run(until_caught_up=True, spark=spark)
    Path(sinks["mart"].sink.progress_path).unlink()  # the sink was replaced under its checkpoint
    for state in Path(sinks["mart"].sink.service_path).glob("state*"):
        state.rename(state.with_name(f"gone-{state.name}"))
    jobs = MergeJobs(sinks)
    ended: list[Exception] = []

    def run() -> None:
        try:
            jobs.run(until_caught_up=False, spark=spark)
        except Exception as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: "mart" in jobs.ended)
        topics.change("c", {"id": "9", "amount": 9}, at(300, 1).text)
        flush(topics)
        wait_for(lambda: amounts(sinks["lake"]).get("9") == 9)
        assert jobs.not_ready["lake"] is None
        assert str(jobs.ended["mart"]) in str(jobs.not_ready["mart"])
        assert "9" not in amounts(sinks["mart"])
    finally:
        jobs.stop()
        thread.join(60)
    assert not thread.is_alive()
    assert not ended, "one of two was left"


def test_it_ends_with_the_reasons_when_no_sink_is_left(spark: SparkSession, sinks: dict[str, Settings]) -> None:
    def refuse(_: str, __: int) -> None:
        raise SinkError("it was put back")

    filled(sinks)
    jobs = MergeJobs(sinks, lambda settings, session: MergeJob(settings, spark=session, on_step=refuse))
    with pytest.raises(SinkError, match=r"it was put back.*; .*: it was put back"):
        jobs.run(until_caught_up=False, spark=spark)


def test_the_only_sink_is_retried_and_ends_with_its_own_error(spark: SparkSession, sinks: dict[str, Settings]) -> None:
    filled(sinks)
    errors: list[Exception] = [ConfigError("a setting is wrong"), RetriableSinkError("a server does not answer")]

    def fails(_: str, __: int) -> None:
        raise errors.pop()

    def make(settings: Settings, session: SparkSession) -> MergeJob:
        return MergeJob(settings, spark=session, on_step=fails)

    jobs = MergeJobs({"lake": sinks["lake"]}, make, first_pause_s=0.2)
    with pytest.raises(ConfigError, match=r"^a setting is wrong$"):
        jobs.run(until_caught_up=False, spark=spark)
    assert not errors


def test_a_name_that_no_sink_has_is_refused(sinks: dict[str, Settings]) -> None:
    with pytest.raises(ConfigError, match="--sink: no sink is named 'marts'; there are lake"):
        merge_jobs.run_merge(sinks["lake"], until_caught_up=True, sinks=["marts"])


def test_what_a_person_has_to_do_is_not_retried() -> None:
    assert not may_pass(SinkError("put back"))
    assert not may_pass(ConfigError("a setting"))
    assert not may_pass(AttributeError("ours"))
    assert may_pass(RetriableSinkError("a batch"))
    assert may_pass(OSError("a disk"))


def test_a_jvm_that_ended_between_two_attempts_is_what_the_sink_ends_with(
    sinks: dict[str, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first error says no more than that a batch failed, and the process is not yet gone: the second one finds no JVM."""
    ended = SinkError("the JVM ended")
    monkeypatch.setattr("spark_jobs.jobs.merge_jobs.jvm_ended", lambda _: ended)
    attempts: list[str] = []

    def make(settings: Settings, _: SparkSession) -> MergeJob:
        attempts.append(settings.sink.name)
        if len(attempts) > 1:
            raise ConnectionRefusedError(111, "Connection refused")
        raise_later = MergeJob(settings)
        monkeypatch.setattr(raise_later, "run", _failing)
        return raise_later

    def _failing(*, until_caught_up: bool) -> None:
        raise RetriableSinkError(f"a batch failed, {until_caught_up}")

    jobs = MergeJobs({"lake": sinks["lake"]}, make, first_pause_s=0.1)
    with pytest.raises(SinkError) as error:
        jobs.run(until_caught_up=False, spark=NoSession())  # type: ignore[arg-type]
    assert error.value is ended
    assert len(attempts) == 2


@pytest.mark.parametrize("ends", [True, False])
def test_a_batch_that_fails_after_a_stop_is_passed_over_only_if_the_process_ends(
    ends: bool, sinks: dict[str, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop of the jobs alone does not hide an error that comes with it: it may be of the commit that was running."""
    waits = Waits()
    monkeypatch.setattr(runner, "WAITS", waits)

    def make(settings: Settings, _: SparkSession) -> MergeJob:
        job = MergeJob(settings)
        monkeypatch.setattr(job, "run", fails)
        return job

    def fails(*, until_caught_up: bool) -> None:
        jobs.stop()
        if ends:
            waits.end()
        raise RetriableSinkError(f"the commit failed, {until_caught_up}")

    jobs = MergeJobs({"lake": sinks["lake"]}, make)
    with nullcontext() if ends else pytest.raises(RetriableSinkError, match="the commit failed"):
        jobs.run(until_caught_up=False, spark=NoSession())  # type: ignore[arg-type]
    assert bool(jobs.ended) is not ends


def test_a_sink_whose_folder_cannot_be_read_at_its_end_has_ended_with_its_error(
    sinks: dict[str, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that says nothing and exits with 0 is not started again."""

    def fails(**_: object) -> None:
        raise SinkError("the target is gone")

    def stale(_reason: str, _begun_ms: int) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    def make(settings: Settings, _: SparkSession) -> MergeJob:
        job = MergeJob(settings)
        monkeypatch.setattr(job, "run", fails)
        monkeypatch.setattr(job, "note_end", stale)
        return job

    jobs = MergeJobs({"lake": sinks["lake"]}, make)
    with pytest.raises(SinkError, match="the target is gone"):
        jobs.run(until_caught_up=False, spark=NoSession())  # type: ignore[arg-type]


def test_a_jvm_that_lost_a_class_ends_the_jobs_of_all_sinks(spark: SparkSession, sinks: dict[str, Settings]) -> None:
    """No table is set aside, and no sink retried: only another process has the class."""
    filled(sinks)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook("package lost; public class Library { static int zero = 0; static int loaded = 1 / zero; }")
    load = partial(jvm.java.lang.Class.forName, "lost.Library", True, compiler.getClassLoader())
    with pytest.raises(Py4JJavaError, match="ExceptionInInitializerError") as first:
        load()
    assert lost_class(first.value) is not None
    with pytest.raises(Py4JJavaError, match="ClassNotFoundException") as missing:
        jvm.java.lang.Class.forName("lost.Jar", True, compiler.getClassLoader())
    assert lost_class(missing.value) is None, "the next JVM has no more jars"
    assert lost_class(PySparkException("java.lang.NoClassDefFoundError: com/example/Client")) is None

    def make(settings: Settings, session: SparkSession) -> MergeJob:
        if settings.sink.name == "mart":
            return MergeJob(settings, spark=session, on_step=lambda *_: load())
        return MergeJob(settings, spark=session)

    jobs = MergeJobs(sinks, make)
    with pytest.raises(LostClassError, match=r"could not initialise a class \(lost\.Library\).*next start"):
        jobs.run(until_caught_up=False, spark=spark)
    assert jobs.ended.keys() == {"mart"}
    assert not Path(sinks["mart"].sink.progress_path).exists(), "the batch failed as a whole"
