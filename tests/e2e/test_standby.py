"""A standby continues where the leader died: nothing is lost, nothing comes twice."""

from __future__ import annotations

from devservers import Database
from tests.chaos.takeover import take_overs
from tests.e2e.conftest import MakePipeline
from tests.support.servers import new_database


def test_a_standby_takes_over_when_the_leader_dies(mysql80: Database, make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(mysql80, new_database(mysql80))
    assert len(take_overs(pipeline, 2)) == 2
