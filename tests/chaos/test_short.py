"""A short round, so that what `make chaos` rests on is run with every `make test-all`.

`make test` kills the same processes at fixed moments, in `tests/e2e/test_crashes.py`, and judges with the same comparison.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devservers import Kafka, Registry
from tests.chaos.round import play
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
