"""Twins of `producer.stream.ports`: a publisher with transactions, a store and participants in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from producer.stream.ports import CheckpointParticipant, CheckpointWork
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.kafka.key_headers import KeyText
    from producer.stream.ports import Document, RecordPublisher, State
    from rowcodec import Records
    from schemas.position import Position

Fault = Callable[[str], None]
"""Called with the name of each step; may raise."""


def no_fault(_step: str) -> None:
    """Let every step pass."""


@dataclass(frozen=True, slots=True)
class Produced:
    """One record in a topic of the memory twin."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int


class MemoryPublisher:
    """The memory twin of the transactional publisher; with a `fault` the failing one.

    Steps: "write", "produce", "flush", "commit" (nothing is visible yet), "committed" (everything is); "commit_later", "settle"
    (the commit that was begun is not visible yet), "settled". With `answers_late` such a commit is answered only where `settle`
    waits for it.
    """

    def __init__(self, fault: Fault = no_fault) -> None:
        self.visible: list[Produced] = []
        self.steps: list[str] = []
        self.in_transaction = False
        self.is_long_open = False
        self.answers_late = False
        self._pending: list[Produced] = []
        self._begun: list[Produced] | None = None
        self._fault = fault

    @property
    def uncommitted(self) -> int:
        """How many records the open transaction has."""
        return len(self._pending)

    @property
    def uncommitted_bytes(self) -> int:
        """How many bytes their keys and values have."""
        return sum(len(one.value or b"") + len(one.key or b"") for one in self._pending)

    def write(self, topic: str, records: Records, key_text: KeyText | None = None) -> None:
        """Add the records to the open transaction."""
        self._step("write")
        values, keys = records.value_offsets.tolist(), records.key_offsets.tolist()
        for at in range(records.count):
            key = records.keys[keys[at] : keys[at + 1]] if records.has_key else None
            value = None if records.is_tombstone[at] else records.values[values[at] : values[at + 1]]
            self._add(Produced(topic, value, key, -1))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Add one record to the open transaction."""
        self._step("produce")
        self._add(Produced(topic, value, key, partition))

    def flush(self) -> None:
        """Note the step: in memory every record is acknowledged at once."""
        self._step("flush")

    def commit(self) -> None:
        """Make the open transaction visible."""
        self.settle()
        self._step("commit")
        self.visible += self._pending
        self._pending, self.in_transaction = [], False
        self._fault("committed")

    def commit_later(self) -> None:
        """Begin to make the open transaction visible."""
        self.settle()
        self._step("commit_later")
        if self.in_transaction:
            self._begun, self._pending, self.in_transaction = self._pending, [], False

    def commit_flushed(self) -> None:
        """Begin to make the open transaction visible."""
        self.commit_later()

    @property
    def is_answered(self) -> bool:
        """Whether `settle` would not wait."""
        return self._begun is None or not self.answers_late

    def settle(self) -> None:
        """Make the transaction visible whose commit was begun."""
        if self._begun is None:
            return
        self._step("settle")
        self.visible += self._begun
        self._begun = None
        self._fault("settled")

    def abort(self) -> None:
        """Drop the open transaction."""
        self.settle()
        self.steps.append("abort")
        self._pending, self.in_transaction = [], False

    def _add(self, record: Produced) -> None:
        self.in_transaction = True
        self._pending.append(record)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        self._fault(name)


class MemoryStore:
    """The memory twin of the state topic: every document is a record of the publisher."""

    topic = "state"

    def put(self, publisher: RecordPublisher, key: str, document: Document) -> None:
        """Write one document inside the publisher's open transaction."""
        publisher.produce(self.topic, None if document is None else repr(dict(document)).encode(), key.encode())


@dataclass(slots=True)
class MemoryParticipant(CheckpointParticipant):
    """The memory twin of a checkpoint participant; with a `fault` the failing one.

    `calls` collects what it was called with. `work` is what the next `prepare` returns.
    """

    name: str
    calls: list[tuple[str, str]] = field(default_factory=list)
    work: CheckpointWork = field(default_factory=CheckpointWork)
    fault: Fault = no_fault
    restored: Mapping[str, object] = field(default_factory=dict)

    @override
    def restore(self, state: State) -> None:
        self._step("restore")
        self.restored = dict(state)

    @override
    def prepare(self, boundary: Position, _now_s: float) -> CheckpointWork:
        self._step("prepare")
        work, self.work = self.work, CheckpointWork()
        return work

    @override
    def committed(self, boundary: Position) -> None:
        self._step("committed")

    def _step(self, step: str) -> None:
        self.calls.append((self.name, step))
        self.fault(f"{self.name}.{step}")
