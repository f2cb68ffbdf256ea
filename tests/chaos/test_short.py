"""Short rounds, so that what `make chaos` rests on is run with every `make test-all`.

`make test` kills the same processes at fixed moments, in `tests/e2e/test_crashes.py`, and judges with the same comparison.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devservers import Kafka, Registry
from tests.chaos.round import play
from tests.chaos.sink_servers import SinkServers
from tests.chaos.world import Servers
from tests.support.servers import own_database

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")
SEED = 4


@pytest.mark.slow
def test_a_round_of_kills_loses_nothing_and_doubles_nothing(kafka: Kafka, registry: Registry, tmp_path: Path) -> None:
    outcome = play(
        Servers(own_database("mysql80", "chaos"), kafka, registry),  # its log is purged here
        SEED,
        tmp_path / "round",
        only=("kill both", "purge logs", "kill producer"),
        compiled=False,
    )
    assert outcome.good, outcome.wrong
    assert (outcome.kills, outcome.faults) == (3, 0)
    assert outcome.events > 100, "the load did not write"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_round_into_a_lake_a_database_and_a_topic_loses_nothing_and_doubles_nothing(
    kafka: Kafka, registry: Registry, tmp_path: Path
) -> None:
    kinds = ("delta", "postgresql", "kafka")
    with SinkServers(tmp_path) as sinks:
        outcome = play(
            Servers(own_database("mysql80", "chaos"), kafka, registry, sinks=sinks),
            SEED,
            tmp_path / "round",
            only=("kill jvm", "truncate", "kill sink database", "alter", "kill merge in a batch"),
            compiled=False,
            kinds=kinds,
        )
    assert outcome.good, outcome.wrong
    assert (outcome.kills, outcome.sinks) == (3, kinds)
    assert outcome.rows > 100, "the sinks have nothing"
