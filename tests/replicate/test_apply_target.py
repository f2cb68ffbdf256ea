"""The connection of a task to its target."""

from __future__ import annotations

from contextlib import closing

import pytest

from mysqlio.server_access import ServerAccess
from schemas.errors import RetriableSourceError
from spark_jobs.replicate.apply_target import ApplyTarget
from tests.replicate.task_scene import task_of
from tests.support.producers import Source
from tests.support.servers import database


def test_a_connection_that_is_lost_outside_of_a_transaction_is_replaced(fresh_database):
    server = database("mariadb114")
    source = Source(server, fresh_database(server), "nobody:1")
    with closing(source.connection), closing(ApplyTarget(ServerAccess.of(task_of(source, "http://nobody", server).target), "t", None)) as target:
        (number,) = target.rows("SELECT CONNECTION_ID()")[0]
        source.execute(f"KILL {number}")
        with pytest.raises(RetriableSourceError):
            target.rows("SELECT 1")
        assert target.rows("SELECT CONNECTION_ID()")[0] != (number,)
