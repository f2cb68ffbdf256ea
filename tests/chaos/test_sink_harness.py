"""What chaos over sinks counts with: which sinks a round has, and that a wrong event of a changelog is found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.settings import from_mapping
from tests.chaos.sink_judgement import (
    Judgement,
    compare_rows,
    judge_events,
    rows_of_changelog,
    text_of,
)
from tests.chaos.sink_plans import KINDS, OTHERS, RELATIONAL, Feed, kinds_of, plans_of
from tests.e2e.topics import Change

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")
ODD = next(feed for feed in OTHERS if feed.tables == ("odd *",))
SOURCE = "chaos:shop.odd *"
PIPELINE: Any = SimpleNamespace(name="chaos", database="shop")


def test_three_rounds_in_a_row_have_every_type_of_sink() -> None:
    for first in range(0, 300, 3):
        drawn = [kind for seed in range(first, first + 3) for kind in kinds_of(seed)]
        assert sorted(drawn) == sorted(KINDS), first
    assert all(2 <= len(kinds_of(seed)) <= 3 for seed in range(300))


def test_the_settings_of_every_round_are_accepted() -> None:
    for seed in range(60):
        reached = {"url": "{}://127.0.0.1:1/x", "user": "u", "password": "p"}
        sinks = [
            plan.settings("chaos_1", Path("/x"), {**reached, "url": f"{plan.kind}://127.0.0.1:1/x"} if plan.kind in RELATIONAL else {})
            for plan in plans_of(seed, kinds_of(seed))
        ]
        found = from_mapping({"name": "chaos", "source": {"tables": [".*"]}, "sinks": sinks})
        assert [sink.type for sink in found.sinks] == list(kinds_of(seed))


def event(op: str, number: int, n: int, key: int = 1) -> dict[str, Any]:
    values = dict.fromkeys(ODD.columns("odd *")) | {"id": key, "n": n}
    return {**values, "_tm_op": op, "_tm_position": f"p{number}", "_tm_source": SOURCE}


def change(number: int, feed: Feed = ODD) -> Change:
    return Change(0, 0, {"id": 1}, "c", None, dict.fromkeys(feed.compared), f"p{number}")


@pytest.mark.parametrize(
    ("events", "lost", "duplicated", "differing"),
    [
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 6)], 0, 0, 0),
        ([event("+I", 1, 5)], 1, 0, 1),
        ([event("-U", 2, 5), event("+U", 2, 6)], 1, 0, 0),
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 6), event("+U", 2, 6)], 0, 1, 0),
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 7)], 0, 0, 1),
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 6), event("+I", 3, 0, key=2)], 0, 0, 1),
    ],
)
def test_an_event_that_is_lost_doubled_wrong_or_too_many_is_found(
    events: Sequence[dict[str, Any]], lost: int, duplicated: int, differing: int
) -> None:
    found = Judgement()
    published = {"odd *": [change(1), change(2)]}
    judge_events(PIPELINE, ODD, events, published, found, "files")
    wanted = {(SOURCE, "1"): dict.fromkeys(ODD.columns("odd *")) | {"id": "1", "n": "6"}}
    compare_rows(wanted, rows_of_changelog(PIPELINE, ODD, events), found, "files")
    assert (found.lost, found.duplicated, found.differing) == (lost, duplicated, differing), found.text
    assert bool(found.wrong) == bool(lost or duplicated or differing)


def test_a_change_that_no_row_of_matches_has_no_event_and_one_that_leaves_has() -> None:
    pairs = OTHERS[0]
    kept, other = {"id": 1, "slot": 2, "n": 0}, {"id": 1, "slot": 3, "n": 0}
    published = {
        "pairs": [
            Change(0, 0, {"id": 1}, "c", None, kept, "p1"), Change(0, 0, {"id": 1}, "u", kept, other, "p2"),
            Change(0, 0, {"id": 1}, "u", other, other, "p3"),
        ]
    }  # fmt: skip
    own = {"_tm_source": "chaos:shop.pairs"}
    events = [
        {**kept, **own, "_tm_op": "+I", "_tm_position": "p1"}, {**kept, **own, "_tm_op": "-D", "_tm_position": "p2"},
        {**other, **own, "_tm_op": "+I", "_tm_position": "p3"},
    ]  # fmt: skip
    found = Judgement()
    judge_events(PIPELINE, pairs, events[:2], published, found, "files")
    assert not found.wrong
    judge_events(PIPELINE, pairs, [events[0], events[2]], published, found, "files")
    assert (found.lost, found.differing) == (1, 1), found.text


def test_a_change_of_the_key_is_two_changes_of_one_position() -> None:
    pairs = OTHERS[0]
    kept, other = {"id": 1, "slot": 2, "n": 0}, {"id": 2, "slot": 3, "n": 0}
    published = {"pairs": [Change(0, 0, {"id": 1}, "d", kept, None, "p1"), Change(0, 0, {"id": 2}, "c", None, other, "p1")]}
    event = {**kept, "_tm_source": "chaos:shop.pairs", "_tm_op": "-D", "_tm_position": "p1"}
    found = Judgement()
    judge_events(PIPELINE, pairs, [event], published, found, "files")
    assert not found.wrong


def test_a_value_is_the_same_text_however_it_was_read() -> None:
    assert text_of(Decimal("7.50")) == text_of(7.5) == text_of(Decimal("7.5"))
    assert text_of(0) == text_of(Decimal("0.00")) == "0"
    assert text_of(datetime(2024, 2, 29, 1, 2, 3)) == "2024-02-29 01:02:03.000000"
    assert text_of(10_000_000_000_000_000_000_000) == "10000000000000000000000"
