"""The connection of a task to its target."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import pytest

from mysqlio.server_access import ServerAccess
from schemas.errors import FencedError, RetriableSourceError
from spark_jobs.replicate.apply import apply_target
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from tests.replicate.task_scene import task_of
from tests.support.producers import Source
from tests.support.servers import database, unique_name


def test_a_connection_that_is_lost_outside_of_a_transaction_is_replaced(fresh_database):
    server = database("mariadb114")
    source = Source(server, fresh_database(server), "nobody:1")
    with closing(source.connection), closing(ApplyTarget(ServerAccess.of(task_of(source, "http://nobody", server).target), "t", None)) as target:
        (number,) = target.rows("SELECT CONNECTION_ID()")[0]
        source.execute(f"KILL {number}")
        with pytest.raises(RetriableSourceError):
            target.rows("SELECT 1")
        assert target.rows("SELECT CONNECTION_ID()")[0] != (number,)


def test_a_process_from_before_a_restore_is_fenced_by_the_next_start(fresh_database):
    """The restored target has the epoch of an earlier start: the next one must not come to the epoch of a process that still runs."""
    server = database("mysql80")
    source = Source(server, fresh_database(server), "nobody:1")
    access, task = ServerAccess.of(task_of(source, "http://nobody", server).target), unique_name("task")
    with ExitStack() as stack:
        stack.enter_context(closing(source.connection))
        first, second, third = (stack.enter_context(closing(ApplyTarget(access, task, None))) for _ in range(3))
        first.take_over()
        second.take_over()
        source.execute(f"UPDATE tidemark_meta.task SET epoch = {first.epoch} WHERE name = '{task}'")
        third.take_over()
        for other in (first, second):
            with pytest.raises(FencedError), other.transaction():
                pass
        with third.transaction():
            pass


@pytest.mark.parametrize("kind", ["mysql80", "mariadb114"])
def test_a_process_that_hangs_within_a_transaction_does_not_stop_another_from_taking_over(fresh_database, monkeypatch, kind):
    """It may be frozen, or on a machine that is gone: the server does not notice that by itself for hours."""
    monkeypatch.setattr(apply_target, "_HANGS_S", 2)
    server = database(kind)
    source = Source(server, fresh_database(server), "nobody:1")
    access, task = ServerAccess.of(task_of(source, "http://nobody", server).target), unique_name("task")
    with ExitStack() as stack:
        stack.enter_context(closing(source.connection))
        first, second = (stack.enter_context(closing(ApplyTarget(access, task, None))) for _ in range(2))
        first.take_over()
        with pytest.raises(RetriableSourceError), first.transaction():
            second.take_over()
        assert second.epoch > first.epoch
        time.sleep(3)
        assert second.rows("SELECT 1"), "outside of a transaction a connection may be idle"
