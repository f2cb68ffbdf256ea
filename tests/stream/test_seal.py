"""The seal of a checkpoint without servers: when it is made, what follows it, and that a failure behind it leaves nothing visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from producer.source.begun import Begun
from producer.stream.offset import LogOffset, Part
from producer.stream.ports import CheckpointParticipant, CheckpointWork, OutgoingRecord
from schemas.errors import PublishError
from schemas.position import Position
from tests.stream.test_checkpoint import AFTER, NEXT, START, Scene, later, row


class CountingSeal(CheckpointParticipant):
    """A seal of one record, which says how many works it was given. It keeps its number in the offset: here, the server's name."""

    def __init__(self) -> None:
        self.wanted = False
        self.sealed: list[LogOffset] = []

    def is_wanted(self, boundary: Position) -> bool:
        return self.wanted

    def seal(self, offset: LogOffset, works: Sequence[CheckpointWork]) -> tuple[LogOffset, Sequence[OutgoingRecord]]:
        self.sealed.append(offset)
        return replace(offset, server=f"seal {len(self.sealed)}"), [OutgoingRecord("commits", b"%d works" % len(works), b"")]


def test_the_seal_is_made_after_a_flush_and_written_last_before_the_offset() -> None:
    scene = Scene(more=[CountingSeal()])
    scene.give_work()
    scene.checkpoints.commit(NEXT)
    assert scene.topics()[-2:] == [("commits", b""), ("state", b"offset")]
    assert scene.publisher.visible[-2].value == b"3 works"
    assert scene.publisher.steps[-4:] == ["flush", "produce", "produce", "commit"]
    assert scene.checkpoints.committed.server == "seal 1"


def test_a_sealed_checkpoint_can_be_committed_while_the_log_is_read() -> None:
    seal = CountingSeal()
    scene = Scene(more=[seal])
    scene.publisher.answers_late = True
    later(scene)
    assert scene.publisher.steps == ["write", "flush", "produce", "produce", "commit_later"]
    assert scene.topics() == []
    later(scene, AFTER)
    assert scene.topics() == [("t", b"k"), ("commits", b""), ("state", b"offset")]
    assert scene.checkpoints.committed.server == "seal 2"
    assert [one.pos for one in seal.sealed] == [500, NEXT.pos, AFTER.pos]


def test_a_part_of_a_long_transaction_is_sealed_too() -> None:
    scene = Scene(more=[CountingSeal()])
    scene.publisher.write("t", row())
    scene.checkpoints.commit_part(replace(START, part=Part(Begun("binlog.000001", 4, "u:1", None, 1), 5)))
    assert scene.topics() == [("t", b"k"), ("state", b"first/part"), ("commits", b""), ("state", b"offset")]
    assert scene.checkpoints.committed.server == "seal 1"


@pytest.mark.parametrize("call", ["commit", "commit_later"])
def test_a_seal_that_is_wanted_is_written_without_anything_else(call: str) -> None:
    seal = CountingSeal()
    scene = Scene(more=[seal])
    scene.checkpoints.commit(NEXT)
    before = len(scene.publisher.visible)
    getattr(scene.checkpoints, call)(replace(NEXT, server="seal 1"))
    assert len(scene.publisher.visible) == before
    seal.wanted = True
    getattr(scene.checkpoints, call)(replace(NEXT, server="seal 1"))
    scene.checkpoints.settle()
    assert scene.topics()[before:] == [("commits", b""), ("state", b"offset")]


@pytest.mark.parametrize("step", ["flush", "produce", "commit"])
def test_a_failure_behind_the_seal_leaves_nothing_of_it_visible(step: str) -> None:
    def fault(name: str) -> None:
        if name == step and seal.sealed:
            message = f"broken at {step} (on purpose)"
            raise PublishError(message)

    seal = CountingSeal()
    scene = Scene(fault, more=[seal])
    seal.sealed.append(START)
    with pytest.raises(PublishError, match=step):
        scene.checkpoints.commit(NEXT)
    assert scene.topics() == []
    assert scene.checkpoints.committed == START
