"""One order of many sources, as random histories of a group have it; without each mechanism it is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.members import Members, SourceEntry, SourcePhase
from schemas.position import Position
from schemas.stream_order import StreamPosition
from spark_jobs.replicate.order.frontier import SourceCursor, StreamMerge
from spark_jobs.replicate.order.membership import Membership
from tests.replicate.members_model import World, WrongError

MECHANISMS = {
    "acknowledgement": "sources come online without waiting for readers",
    "position_check": "the end of the log is read before the clock",
    "floor": "a source that joins promises its own clock",
    "agreed_end": "each reader gives up a source that is forced offline at the record that it has read then",
    "fence": "a source is forced offline although its producer runs",
    "since_us": "readers do not know the promise before a record",
    "skew": "readers do not know how much is subtracted from the times in change records",
    "lifts": "readers do not know which times are less than the one before",
    "equal_times": "readers number the sources differently",
    "promise_in_offset": "a start forgets the promises before it",
    "stopped_frontier": "a source that joins ignores the frontiers of stopped readers",
}


def is_wrong(seed: int, off: str) -> bool:
    try:
        World(seed, off).run()
    except WrongError:
        return True
    return False


def test_all_readers_release_one_order_and_each_transaction_once() -> None:
    for seed in range(100):
        try:
            World(seed).run()
        except WrongError as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
def test_all_readers_release_one_order_in_many_more_histories() -> None:
    joins = 0
    for seed in range(100, 3_000):
        world = World(seed)
        world.run()
        joins += world.counts["joins"]
    assert joins > 10_000


@pytest.mark.parametrize("off", MECHANISMS)
def test_without_one_of_the_mechanisms_an_order_is_wrong(off: str) -> None:
    assert any(is_wrong(seed, off) for seed in range(200)), MECHANISMS[off]


def test_a_source_that_joined_while_a_reader_was_stopped_is_a_member_before_another_one_is_left() -> None:
    """The reader has stopped at the beginning: the new source may publish from there on, whatever the old one has promised."""
    cursors = {
        name: SourceCursor(number=number, offset=1, n=2, read=1, bound=StreamPosition(us, number, Position(0, 1, 1)))
        for name, number, us in (("left", 0, 0), ("ahead", 1, 900))
    }
    members, merge = Members(), StreamMerge[str](StreamPosition.START, cursors)
    entry = SourceEntry(state=SourcePhase.ONLINE, first=0, member=0, join=0, floor_us=1)
    members.note(3, "source/left", replace(entry, state=SourcePhase.OFFLINE, end=1))
    members.note(4, "source/ahead", replace(entry, member=1, join=1))
    members.note(5, "source/new", replace(entry, member=2, join=2))
    reader = Membership("r", 6, frozenset(["left", "ahead", "new"]), members, merge)
    reader.follow(0.0, {"left": 1, "ahead": 1})
    assert (merge.is_member("left"), merge.frontier.us, merge.blocked_by) == (False, 0, "new")
