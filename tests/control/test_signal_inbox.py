"""The inbox: nothing is carried out twice or out of order, and a channel waits for what it handed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from producer.control.channels import Arrived
from producer.control.signal_inbox import SignalInbox
from producer.control.signal_row import SignalRow

PATIENCE_S = 30.0


class MemoryChannel:
    """A channel of numbered signals; `memory` is the number of the next one."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.next = 0
        self.closed = False

    def restore(self, memory: Mapping[str, Any] | None) -> None:
        self.next = 0 if memory is None else memory["next"]

    def poll(self) -> Sequence[Arrived]:
        if self.next == self.count:
            return ()
        self.next += 1
        if self.next == 2:
            raise OSError("out of order")
        return (Arrived(SignalRow(f"{self.name}{self.next}", "log", None), "", self.name, {"next": self.next}),)

    def close(self) -> None:
        self.closed = True


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_signals_are_carried_out_in_order_and_errors_of_a_channel_do_not_end_it() -> None:
    channel = MemoryChannel("a", 4)
    inbox = SignalInbox([channel], 0.001)
    (worker,) = inbox.workers()
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    done: list[str] = []
    memory: dict[str, Any] = {}
    while len(done) < 3:
        wait(lambda: not inbox.is_empty)
        memory |= inbox.drain(lambda signal: done.append(signal.row.id))
    assert done == ["a1", "a3", "a4"]
    assert memory == {"a": {"next": 4}}
    worker.break_off()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert channel.closed


def test_a_channel_is_not_asked_for_more_before_everything_was_carried_out() -> None:
    inbox, returned = SignalInbox([], 0.001), threading.Event()
    row = SignalRow("1", "log", None)

    def hand_over() -> None:
        inbox.put([Arrived(row, "", "a", {"next": 1})])
        returned.set()

    thread = threading.Thread(target=hand_over, daemon=True)
    thread.start()
    wait(lambda: not inbox.is_empty)
    assert not returned.wait(0.1)
    assert inbox.drain(print) == {"a": {"next": 1}}
    assert returned.wait(PATIENCE_S)


def test_channels_continue_where_their_documents_say() -> None:
    channels = [MemoryChannel("a", 9), MemoryChannel("b", 9)]
    SignalInbox(channels, 1.0).restore({"a": {"next": 7}, "other": {}})
    assert [channel.next for channel in channels] == [7, 0]


def test_a_checkpoint_without_signals_writes_no_documents() -> None:
    inbox = SignalInbox([MemoryChannel("a", 0)], 1.0)
    assert inbox.drain(print) == {}
