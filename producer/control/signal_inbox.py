"""The inbox: signals of other channels than the signal table, from their threads to the log reader's checkpoint."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from schemas.errors import TidemarkError

if TYPE_CHECKING:
    from producer.control.channels import Arrived, SignalChannel

log = structlog.get_logger(__name__)


class SignalInbox:
    """Signals in order of arrival, until a checkpoint carries them out; each channel has a thread that fills it.

    A channel is asked for more only when everything before was carried out.
    """

    def __init__(self, channels: Sequence[SignalChannel], interval_s: float) -> None:
        self._channels = channels
        self._interval_s = interval_s
        self._arrived: deque[Arrived] = deque()
        self._changed = threading.Condition()
        self._stopping = False

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue each channel at the position in its document of the state topic."""
        for channel in self._channels:
            channel.restore(state.get(channel.name))

    def workers(self) -> list[ChannelWorker]:
        """Return the workers that poll the channels; each runs in a thread of its own."""
        return [ChannelWorker(channel, self) for channel in self._channels]

    @property
    def is_empty(self) -> bool:
        """Whether no signal waits to be carried out."""
        return not self._arrived

    @property
    def is_stopping(self) -> bool:
        """Whether polling is to end."""
        return self._stopping

    def drain(self, carry_out: Callable[[Arrived], None]) -> dict[str, Mapping[str, Any]]:
        """Carry out the signals that have arrived; return the documents of its channels, durable with the effects or not at all."""
        memory: dict[str, Mapping[str, Any]] = {}
        while self._arrived:
            signal = self._arrived[0]
            memory[signal.channel] = signal.memory
            carry_out(signal)
            self._arrived.popleft()
        if memory:
            with self._changed:
                self._changed.notify_all()
        return memory

    def put(self, found: Sequence[Arrived]) -> None:
        """Add signals, and wait until everything has been carried out or polling is to end; then wait an interval."""
        with self._changed:
            self._arrived.extend(found)
            while self._arrived and not self._stopping:
                self._changed.wait(self._interval_s)
            self._changed.wait_for(lambda: self._stopping, self._interval_s)

    def stop(self) -> None:
        """End polling."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()


class ChannelWorker:
    """A worker that polls one channel until the inbox stops."""

    def __init__(self, channel: SignalChannel, inbox: SignalInbox) -> None:
        self._channel = channel
        self._inbox = inbox

    @property
    def name(self) -> str:
        """The name of its thread."""
        return self._channel.name.replace("/", "-")

    def run(self) -> None:
        """Poll; a channel that is out of order is polled again after the interval."""
        try:
            while not self._inbox.is_stopping:
                try:
                    signals = self._channel.poll()
                except (TidemarkError, OSError) as error:
                    log.warning("signals.not_read", channel=self._channel.name, error=str(error))
                    signals = ()
                self._inbox.put(signals)
        finally:
            self._channel.close()

    def break_off(self) -> None:
        """End polling; a poll that is under way ends by itself."""
        self._inbox.stop()
