"""Signals from elsewhere than the signal table: a Kafka topic, a file.

A channel hands over signals in order, each with what is to be remembered when it was carried out (`Arrived`).
The coordinator carries them out at a checkpoint of the log reader and writes that memory into the same Kafka
transaction as their effects and answers. So none is carried out twice and none is lost, whenever the process dies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from kafkaio.committed_reader import CommittedReader, CommittedRecord
from kafkaio.slices import EARLIEST
from producer.control.signal_row import SignalRow
from schemas.errors import PublishError, SignalError, StateError
from schemas.overriding import override
from schemas.signals import channel_signal

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

log = structlog.get_logger(__name__)

KAFKA: Final = "signals/kafka"
FILE: Final = "signals/file"
_MAX_WAITING: Final = 100
_READ_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Arrived:
    """A signal, or why a record or a line is none; `memory` is the channel's document once it is answered."""

    row: SignalRow
    problem: str
    channel: str
    memory: Mapping[str, Any]


class SignalChannel(Protocol):
    """Where signals come from; used by one thread."""

    @property
    def name(self) -> str:
        """Key of its document in the state topic."""

    def restore(self, memory: Mapping[str, Any] | None) -> None:
        """Continue where the document says; without one, start with the first signal."""

    def poll(self) -> Sequence[Arrived]:
        """Return the next signals, a bounded number; wait a moment for them. Raises when the channel is out of order."""

    def close(self) -> None:
        """Close the channel."""


class KafkaSignals(SignalChannel):
    """Partition 0 of a topic; a record is for us when its key is our name, as Debezium has it."""

    def __init__(self, topic: str, key: str, kafka: KafkaSettings) -> None:
        self._topic = topic
        self._key = key
        self._kafka = kafka
        self._offset: int | None = None
        self._reader: CommittedReader | None = None

    @property
    @override
    def name(self) -> str:
        return KAFKA

    @override
    def restore(self, memory: Mapping[str, Any] | None) -> None:
        if memory is None:
            return
        try:
            topic, offset = str(memory["topic"]), int(memory["offset"])
        except (KeyError, TypeError, ValueError) as error:
            message = f"the state of the signal topic cannot be understood ({error!r}): {memory!r}"
            raise StateError(message) from error
        if topic == self._topic:
            self._offset = offset

    @override
    def poll(self) -> Sequence[Arrived]:
        found: list[Arrived] = []
        try:
            reader = self._reader or self._open()
            wait_s = _READ_S
            while len(found) < _MAX_WAITING and (record := reader.next_record(wait_s)) is not None:
                found += self._arrived(record)
                wait_s = 0.0
            if reader.is_cut_off:
                raise PublishError("no broker is left")
        except PublishError as error:
            self.close()  # and opened again behind what was found
            broken = PublishError(f"signals cannot be read from {self._topic}: {error}")
            if not found:
                raise broken from error
            log.warning("signals.not_read", channel=self.name, error=str(broken))
        return found

    @override
    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _open(self) -> CommittedReader:
        reader = self._reader = CommittedReader(self._kafka, f"{self._topic}-{self._key}")
        one = self._topic, 0
        if self._offset is not None:
            first, _ = reader.bounds([one])[one]
            if first > self._offset:
                log.error("signals.lost", topic=self._topic, from_offset=self._offset, to_offset=first)
        reader.begin({one: EARLIEST if self._offset is None else self._offset})
        return reader

    def _arrived(self, record: CommittedRecord) -> Sequence[Arrived]:
        offset, key, value = record.offset, record.key, record.value
        self._offset = offset + 1
        if key is None or key.decode(errors="replace") != self._key:
            log.info("signals.not_for_us", topic=self._topic, offset=offset)
            return ()
        memory = {"v": 1, "topic": self._topic, "offset": offset + 1}
        text = "" if value is None else value.decode(errors="replace")
        return (_arrived(text, f"{self._topic}-{offset}", KAFKA, memory),)


class FileSignals(SignalChannel):
    """A file with one JSON object per line. It is never written: lines that were read are known by their digest.

    A line counts once it ends in a line feed. A file that does not begin with what was read is a new one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._digest = hashlib.sha256(b"").hexdigest()
        self._seen: tuple[int, int] | None = None

    @property
    @override
    def name(self) -> str:
        return FILE

    @override
    def restore(self, memory: Mapping[str, Any] | None) -> None:
        if memory is None:
            return
        try:
            self._size, self._digest = int(memory["size"]), str(memory["digest"])
        except (KeyError, TypeError, ValueError) as error:
            message = f"the state of the signal file cannot be understood ({error!r}): {memory!r}"
            raise StateError(message) from error

    @override
    def poll(self) -> Sequence[Arrived]:
        try:
            facts = self._path.stat()
            seen = (facts.st_mtime_ns, facts.st_size)
            if seen == self._seen:
                return ()
            data = self._path.read_bytes()
        except FileNotFoundError:
            return ()
        if hashlib.sha256(data[: self._size]).hexdigest() != self._digest:
            self._size = 0
        found: list[Arrived] = []
        while len(found) < _MAX_WAITING and (end := data.find(b"\n", self._size) + 1):
            line = data[self._size : end].decode(errors="replace").strip()
            self._size, self._digest = end, hashlib.sha256(data[:end]).hexdigest()
            if line:
                memory = {"v": 1, "size": self._size, "digest": self._digest}
                found.append(_arrived(line, f"{self._path.name}-{end}", FILE, memory))
        if len(found) < _MAX_WAITING:
            self._seen = seen
        return found

    @override
    def close(self) -> None:
        pass


def _arrived(text: str, fallback_id: str, channel: str, memory: Mapping[str, Any]) -> Arrived:
    try:
        ident, kind, data = channel_signal(text, fallback_id)
    except SignalError as error:
        return Arrived(SignalRow(fallback_id, "", None), str(error), channel, memory)
    return Arrived(SignalRow(ident, kind, data), "", channel, memory)
