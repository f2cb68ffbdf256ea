"""A task as the reader of a group whose sources leave and join again: it drains, acknowledges, and waits for nobody who is offline."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from schemas.members import ReaderPhase, SourcePhase
from schemas.signals import CLOSE_SOURCE
from spark_jobs.replicate.task import run_task
from tests.integration.group_scene import GroupScene, RunningSource, started, until
from tests.replicate.task_scene import rows_of, task_of
from tests.support.servers import database
from tidemark.api.group_members import GroupMembers, Operator


@pytest.fixture
def scene(kafka, registry, fresh_database) -> Iterator[GroupScene]:
    with ExitStack() as stack:
        yield GroupScene(fresh_database, kafka.bootstrap_servers, registry.url, stack)


def test_sources_leave_a_task_and_join_it_again(scene, registry):
    target = database("mariadb114")
    one, two, three = (scene.source(server) for server in ("mysql80", "mysql97", "mysql80"))
    started(one, two, three)
    task = task_of(one.source, registry.url, target, two.source, three.source, order="global", group=scene.group)
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            run_task(task, stop)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def has(source: RunningSource, number: int) -> bool:
        assert not failures, failures
        try:
            return (number,) in rows_of(target, source.source.schema, "t")
        except Exception:  # noqa: BLE001 - the table is not there yet
            return False

    try:
        for number, source in enumerate((one, two, three)):
            source.insert(number)
            until(lambda source=source, number=number: has(source, number), f"{number} is applied")
        three.insert(3)
        three.signal(CLOSE_SOURCE)
        until(lambda: not three.run.thread.is_alive(), "the task has released it to its end")
        three.run.check()
        assert has(three, 3)
        one.insert(4)
        until(lambda: has(one, 4), "the task waits for the closed one no more")
        three.insert(5)
        started(three)
        until(lambda: has(three, 5), "it has joined again")
        GroupMembers.of(one.settings).put_source_offline(two.name, Operator("a test", "the others are to continue"))
        two.insert(6)
        one.insert(7)
        until(lambda: has(one, 7), "the task waits for the one that was forced offline no more")
        assert not has(two, 6)
        two.run.thread.join(60)
        started(two)
        until(lambda: has(two, 6), "it has joined again")
        members = scene.members(one)
        assert {one.state for one in members.sources.values()} == {SourcePhase.ONLINE}
    finally:
        stop.set()
        thread.join(60)
    assert not failures, failures
    assert next(iter(scene.members(one).readers.values())).record.state is ReaderPhase.STOPPED
