"""The registry of commands: who carries a signal out, and the answers."""

from __future__ import annotations

import pytest

from producer.control.command_registry import CommandRegistry
from producer.control.signal_row import SignalRow
from producer.snapshot.outbox import CheckpointOutbox
from schemas.errors import SignalError
from schemas.notifications import Notification
from schemas.position import Position
from schemas.signals import PauseSnapshot, StopSnapshot

AT = Position(0, 1, 100)


def note(kind: str) -> Notification:
    return Notification("n", "Test", kind, 5)


def sent(registry: CommandRegistry, kind: str, data: str | None = None, outbox: CheckpointOutbox | None = None) -> list[Notification]:
    outbox = outbox or CheckpointOutbox()
    registry.answer(SignalRow("s", kind, data), AT, outbox.notifications)
    return list(outbox.drain(lambda _: None, AT, 0.0).notifications)


def test_a_command_goes_to_the_handler_of_its_type_with_the_position_of_its_transaction() -> None:
    registry = CommandRegistry("srv", lambda: 5)
    carried_out: list[tuple[object, Position, bool]] = []

    def handler(command: object, position: Position, *, may_repeat: bool) -> bool:
        carried_out.append((command, position, may_repeat))
        return True

    registry.register(PauseSnapshot, handler)
    (answer,) = sent(registry, "pause-snapshot")
    assert carried_out == [(PauseSnapshot("s"), AT, True)]
    assert (answer.type, answer.timestamp_ms, answer.additional_data["connector_name"]) == ("ACCEPTED", 5, "srv")


def test_the_answer_is_behind_what_waits_and_before_what_the_handler_sends() -> None:
    registry, outbox = CommandRegistry("srv", lambda: 5), CheckpointOutbox()
    outbox.notify(note("EARLIER"))

    def handler(command: object, position: Position, *, may_repeat: bool) -> bool:
        outbox.notify(note("EFFECT"))
        return True

    registry.register(StopSnapshot, handler)
    assert [n.type for n in sent(registry, "stop-snapshot", outbox=outbox)] == ["EARLIER", "ACCEPTED", "EFFECT"]


def test_what_was_carried_out_before_is_not_answered_again() -> None:
    registry = CommandRegistry("srv", lambda: 5)
    registry.register(PauseSnapshot, lambda *_, **__: False)
    assert sent(registry, "pause-snapshot") == []


def test_a_handler_that_refuses_gives_the_reason() -> None:
    registry = CommandRegistry("srv", lambda: 5)

    def handler(command: object, position: Position, *, may_repeat: bool) -> bool:
        raise SignalError("not today")

    registry.register(PauseSnapshot, handler)
    (answer,) = sent(registry, "pause-snapshot")
    assert (answer.type, answer.additional_data["reason"]) == ("REJECTED", "not today")


def test_a_command_without_a_handler_is_rejected() -> None:
    (answer,) = sent(CommandRegistry("srv", lambda: 5), "pause-snapshot")
    assert "no handler" in answer.additional_data["reason"]


def test_a_log_signal_is_answered() -> None:
    assert [n.type for n in sent(CommandRegistry("srv", lambda: 5), "log", '{"message": "at {}"}')] == ["ACCEPTED"]


@pytest.mark.parametrize("kind", ["", "execute-snapshots", "snapshot-window-open"])
def test_what_is_no_command_is_rejected(kind: str) -> None:
    (answer,) = sent(CommandRegistry("srv", lambda: 5), kind)
    assert answer.type == "REJECTED"
