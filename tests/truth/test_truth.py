"""Five minutes of `make truth`: so that what it rests on is run with every `make test-all`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truth.scripted_hour import play

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")
MINUTES = 5
SEED = 1624
"""Begins with a frozen merge job, a frozen broker, a snapshot and a killed page."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_is_shown_contradicts_nothing_that_is_known(tmp_path: Path) -> None:
    said: list[str] = []
    played = play(tmp_path, MINUTES, SEED, (), said.append)
    assert played.is_good, "\n".join(said)
    assert len(played.episodes) >= 2
    assert set(played.samples) == {
        "lag", "status", "fresh lag", "fresh status", "producer metrics", "merge metrics", "page json", "page html",
    }  # fmt: skip
    assert played.words["running"] > 20, played.words
    assert min(played.strictness["fault"], played.strictness["well"]) > 20, played.strictness
