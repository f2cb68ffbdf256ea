"""The outbox: each change leaves once, and documents as they are at the checkpoint."""

from __future__ import annotations

from typing import Any

from producer.snapshot.outbox import DOCUMENTS_DELAY_S, CheckpointOutbox
from schemas.markers import MarkerType
from schemas.notifications import Notification
from tests.support.ledgers import at


def note(kind: str) -> Notification:
    return Notification("n", "Test", kind, 5)


def test_documents_are_written_as_they_are_at_the_checkpoint_and_once() -> None:
    documents: dict[str, dict[str, Any]] = {"table/a": {"rows": 1}, "table/b": {"rows": 2}}
    outbox = CheckpointOutbox()
    outbox.touch("table/a")
    outbox.touch("table/gone")
    outbox.touch("table/a")
    documents["table/a"]["rows"] = 7
    work = outbox.drain(documents.get, at(10), 0.0)
    assert (dict(work.state), work.horizon) == ({"table/a": {"rows": 7}, "table/gone": None}, at(10))
    assert not outbox.has_news
    assert dict(outbox.drain(documents.get, at(20), 1.0).state) == {}


def test_markers_and_notifications_keep_their_order_and_an_answer_can_precede_its_effects() -> None:
    outbox = CheckpointOutbox()
    outbox.notify(note("before"))
    waiting = len(outbox.notifications)
    outbox.notify(note("effect"))
    outbox.mark("db.t", MarkerType.OPEN, {"window": "w1"})
    outbox.mark("db.t", MarkerType.CLOSE, {"window": "w1"})
    outbox.notifications.insert(waiting, note("answer"))
    work = outbox.drain(lambda _: None, at(10), 0.0)
    assert [one.type for one in work.notifications] == ["before", "answer", "effect"]
    assert [marker.type for marker in work.markers] == [MarkerType.OPEN, MarkerType.CLOSE]


def test_documents_alone_wait_a_moment_for_others_and_nothing_else_waits() -> None:
    outbox = CheckpointOutbox()
    outbox.drain(lambda _: None, at(10), 5.0)
    assert not outbox.wants_checkpoint(100.0), "nothing is to be written"
    outbox.touch("table/a")
    assert not outbox.wants_checkpoint(5.0 + DOCUMENTS_DELAY_S - 0.01)
    assert outbox.wants_checkpoint(5.0 + DOCUMENTS_DELAY_S)
    outbox.notify(note("answer"))
    assert outbox.wants_checkpoint(5.0)
