"""A source of the model of a group: a server with its clock and its log, and the producer that follows it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from producer.kafka.span_publisher import WrittenSpans
from producer.source.source_clock import ClockReading, SourceClock
from producer.stream.handlers.commit_seal import CommitSeal
from producer.stream.offset import LogOffset
from schemas.commit_records import CommitRecord, StreamState
from schemas.members import (
    Admitted,
    SourceEntry,
    SourcePhase,
    closing_step,
    next_step,
    parse,
    source_key,
)
from schemas.position import Position
from schemas.stream_order import StreamPosition

if TYPE_CHECKING:
    from tests.replicate.members_model import World

NOON_US = 1_790_000_000_000_000
TICK_US = 100_000
"""Clocks go by so much: many transactions of different sources have equal times."""
SECOND_US = 1_000_000
Event = tuple[str, int, int]
"""MemberSource, number of the transaction in its log, number of the event in it."""


class WrongError(AssertionError):
    """A reader has released something wrong, or cannot continue."""


class NoSpans:
    """A publisher of which nobody wants to know the offsets."""

    def pop_spans(self) -> WrittenSpans:
        return WrittenSpans({}, {})


@dataclass(slots=True)
class Log:
    """The log and the clock of a server; its times are multiples of `unit_us`."""

    unit_us: int
    skew_us: int
    is_steady: bool
    transactions: list[tuple[int, ...]] = field(default_factory=list)

    def commit(self, now_us: int, chance: random.Random) -> None:
        us = (now_us + self.skew_us) // self.unit_us * self.unit_us
        events = chance.choice([1, 1, 1, 3])
        if not self.is_steady and chance.random() < 0.05:
            us += chance.choice([60, -60]) * SECOND_US  # SET timestamp
        times = [us] * 3
        if self.unit_us > 1 and chance.random() < 0.4:
            times[0] += chance.choice([-1, -1, -1, 20]) * self.unit_us  # with 20 the clock was set back within the transaction
        self.transactions.append(tuple(times[:events]))


def position_of(number: int) -> Position:
    return Position(0, 1, 100 + number)


@dataclass(slots=True)
class _InFlight:
    """A Kafka transaction that is sealed and not committed."""

    record: CommitRecord
    events: list[tuple[Position, int, Event]]
    offset: dict[str, Any]
    part: int


class ModelSource:
    """A server and its producer. `commits`, `offset` (with `join` and `part`) and the server survive a process."""

    def __init__(self, world: World, name: str, chance: random.Random) -> None:
        self.world, self.name, self.random = world, name, chance
        unit_us = chance.choice([1, 1, SECOND_US])
        skew_us = chance.choice([0, 0, -1, -3, -20, 20]) * SECOND_US
        self.log = Log(unit_us, skew_us, is_steady=unit_us == 1 and chance.random() < 0.6)
        self.corrects = chance.random() < 0.4
        """order.correct_skew"""
        self.commits: list[tuple[CommitRecord, list[tuple[Position, int, Event]]]] = []
        self.offset: dict[str, Any] | None = None
        self.join: int | None = None
        self.part = 0
        self.floors: dict[Event, int] = {}
        self.floor_us = 0
        self.process: _Producer | None = None
        self.intent = "run"
        self.token = 0
        self.forcing: int | None = None

    def published(self) -> list[Event]:
        """The events of transactions that are in Kafka to their end."""
        events = [event for _, of in self.commits for _, _, event in of]
        return [one for one in events if (*one[:2], len(self.log.transactions[one[1]]) - 1) in self.floors]

    def step(self) -> None:
        chance = self.random
        action = chance.choices(
            ["commit", "clock", "start", "die", "force", "pause", "close", "work"],
            [4, 0.3, 1, 0.15, 1 if self.forcing else 0.15, 0.1, 0.1, 14],
        )[0]
        if action == "commit":
            self.log.commit(self.world.now_us, chance)
        elif action == "clock" and not self.log.is_steady:
            self.log.skew_us = chance.choice([-15, -1, 0, 1, 15]) * SECOND_US
        elif action == "start" and self.process is None:
            self.start()
        elif action == "die":
            self.die()
        elif action == "force":
            self.force()
        elif action in ("pause", "close"):
            if self.process is not None and self.process.is_admitted and self.intent == "run":
                self.intent = action
        elif self.process is not None:
            self.process.work()

    def settle(self) -> None:
        if self.process is None and self.state() not in (None, SourcePhase.OFFLINE):
            self.intent = "close" if self.state() is SourcePhase.CLOSING else "run"
            self.start()
        self.intent = "run" if self.intent == "pause" else self.intent
        for _ in range(12):
            if self.process is not None:
                self.process.work()

    def state(self) -> SourcePhase | None:
        """The state of the newest record."""
        for key, value in reversed(self.world.topic):
            if key == source_key(self.name):
                record = parse(key, value)
                assert isinstance(record, SourceEntry)
                return record.state
        return None

    def start(self) -> None:
        self.token += 1
        self.world.counts["starts"] += 1
        self.process = _Producer(self)

    def die(self) -> None:
        if self.process is not None and self.process.in_flight and self.random.random() < 0.5:
            self.process.complete()  # nobody got the answer
        self.process = None

    def force(self) -> None:
        """Take the ids of the producer; at a later call write its end, unless a start has taken them back meanwhile."""
        if self.forcing is None:
            self.token += 1
            self.forcing, self.process = self.token, None
            return
        is_fenced, self.forcing = self.forcing == self.token or self.world.off == "fence", None
        if is_fenced and self.state() not in (None, SourcePhase.OFFLINE):
            end = 0 if self.world.off == "agreed_end" else len(self.commits)
            source = self.world.members().sources[self.name]
            record = source.record_of(SourcePhase.OFFLINE, end=end, by="somebody", reason="a model")
            self.world.append(source_key(self.name), record)
            self.world.counts["forced"] += 1

    def require_honest(self, at: StreamPosition, event: Event) -> None:
        """Require the time of the transaction, where no clock was set and none has whole seconds."""
        times = self.log.transactions[event[1]]
        skew_us = self.log.skew_us if self.corrects else 0
        expected_us = max(times[0] - skew_us, self.floors[*event[:2], len(times) - 1])
        if self.log.is_steady and at.us != expected_us:
            raise WrongError(f"{event} has the time {at.us}, and was to have {expected_us}")


class _Producer:
    """A process of a source."""

    def __init__(self, source: ModelSource) -> None:
        self.source, self.world, self.random = source, source.world, source.random
        self.members = self.world.members()
        self.seen = len(self.world.topic)
        self.own = 0  # the offset behind its last record
        self.joins: set[int] = set() if source.join is None else {source.join}
        self.admission: Admitted | None = None
        self.in_flight: list[_InFlight] = []
        self.asked: tuple[int, float] | None = None
        self.clock_end: Position | None = None
        self.closing_at: int | None = None

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None

    def work(self) -> None:
        """Do one thing."""
        self.follow()
        if self.seen < self.own:
            return
        if self.admission is None:
            self.join()
        elif self.source.intent == "pause" and not self.in_flight:
            state = self.members.sources[self.source.name].state
            later = SourcePhase.PAUSED if state is SourcePhase.PAUSING else SourcePhase.PAUSING
            self.append(self.members.sources[self.source.name].record_of(later))
            if later is SourcePhase.PAUSED:
                self.world.counts["paused"] += 1
                self.source.intent, self.source.process = "run", None
        elif self.source.intent == "close":
            self.close()
        else:
            self.publish()

    def follow(self) -> None:
        """Read the members further: sometimes up to the end, at least one record."""
        topic = self.world.topic
        until = len(topic) if self.random.random() < 0.7 else min(len(topic), self.seen + 1)
        for offset in range(self.seen, until):
            key, value = topic[offset]
            self.members.note(offset, key, parse(key, value))
        self.seen = until

    def append(self, record: SourceEntry) -> int:
        offset = self.world.append(source_key(self.source.name), record)
        self.own = offset + 1
        return offset

    # ---- joining

    def join(self) -> None:
        step = next_step(self.members, self.source.name, frozenset(self.joins), len(self.source.commits))
        if isinstance(step, SourceEntry):
            offset = self.append(step)
            if step.state is SourcePhase.JOINING:
                self.joins.add(offset)
                self.world.counts["joins"] += 1
        elif isinstance(step, Admitted):
            self.admission = step
            self.begin(step)

    def begin(self, admission: Admitted) -> None:
        source, log = self.source, self.source.log
        if source.offset is None:
            start = position_of(len(log.transactions)).offset
            offset = LogOffset(0, "binlog.000001", start, "", "server")
        else:
            offset = LogOffset.parse(source.offset)
        state = offset.stream or StreamState()
        if self.world.off == "promise_in_offset":
            state = replace(state, promise_us=0)
        if self.world.off != "floor":
            state = replace(state, promise_us=max(state.promise_us, admission.floor_us))
        self.offset = offset.sealed(state)
        self.floor_us = max(source.floor_us, admission.floor_us)
        self.clock = SourceClock(lambda: None, 0, 1.0, lambda: self.world.now_us / SECOND_US, corrects=source.corrects)  # type: ignore[arg-type,return-value]
        self.clock.note(ClockReading(self.server_us(), position_of(len(log.transactions))), self.world.now_us / SECOND_US)
        self.seal = CommitSeal("commits", NoSpans(), self.clock, self.offset)
        self.read = self.offset.pos - 100
        self.part = source.part
        self.events: list[tuple[Position, int, Event]] = []
        self.note(self.read, 0, self.part, is_in_kafka=True)

    # ---- publishing

    def publish(self) -> None:
        action = self.random.choice(["read", "read", "read", "clock", "clock", "seal", "complete"])
        log = self.source.log
        if action == "read" and self.read < len(log.transactions) and self.may_read():
            self.read_one()
        elif action == "clock":
            self.read_clock()
        elif action == "seal" and (self.events or (self.part == 0 and self.seal.is_due(self.boundary, 0.0))):
            self.write(0)
        elif self.in_flight:
            self.complete()

    def may_read(self) -> bool:
        return self.source.intent != "close" or self.closing_at is None or self.read < self.closing_at

    def boundary(self) -> Position:
        return position_of(self.read)

    def read_one(self) -> None:
        """Publish the next transaction, or a part of it if everything before it is committed."""
        times = self.source.log.transactions[self.read]
        is_alone = not self.in_flight and not self.events
        if is_alone and self.part < len(times) - 1 and self.random.random() < 0.5:
            self.note(self.read, self.part, self.part + 1)
            self.part += 1
            self.write(self.part)
            return
        if self.part and self.in_flight:
            return
        self.note(self.read, self.part, len(times))
        self.read, self.part = self.read + 1, 0

    def note(self, number: int, first: int, end: int, *, is_in_kafka: bool = False) -> None:
        position = position_of(number)
        for event in range(first, end):
            ts_us = self.source.log.transactions[number][event]
            row: Any = SimpleNamespace(
                transaction=SimpleNamespace(position=position), context=SimpleNamespace(ts_us=ts_us), is_in_kafka=is_in_kafka
            )
            self.seal.rows(row)
            if not is_in_kafka:
                self.events.append((position, ts_us, (self.source.name, number, event)))

    def read_clock(self) -> None:
        """Read the clock, and at a later step the end of the log; in the other order if the position check is off."""
        log = self.source.log
        if self.world.off == "position_check":
            if self.clock_end is None:
                self.clock_end = position_of(len(log.transactions))
                return
            end, self.clock_end = self.clock_end, None
            self.clock.note(ClockReading(self.server_us(), end), self.world.now_us / SECOND_US)
        elif self.asked is None:
            self.asked = self.server_us(), self.world.now_us / SECOND_US
        else:
            us, at_s = self.asked
            self.asked = None
            self.clock.note(ClockReading(us, position_of(len(log.transactions))), at_s)

    def server_us(self) -> int:
        """Return the server's time, corrected if the source corrects it; an answer takes long at times."""
        asked_us = self.world.now_us - (0 if self.source.log.is_steady else self.random.choice([0, 0, TICK_US, 5 * TICK_US]))
        return self.clock.corrected_us(self.world.now_us + self.source.log.skew_us, asked_us * 1000, self.world.now_us * 1000)

    def write(self, part: int) -> None:
        """Seal a Kafka transaction; at most one other is not committed."""
        if len(self.in_flight) > 1:
            self.complete()
        offset, (sent,) = self.seal.seal(replace(self.offset, pos=self.boundary().offset), ())
        self.offset = offset
        self.in_flight.append(_InFlight(CommitRecord.parse(sent.value), self.events, offset.document(0), part))
        self.events = []

    def complete(self) -> None:
        """Commit the oldest Kafka transaction: another is never visible before it."""
        one, source = self.in_flight.pop(0), self.source
        assert self.admission is not None
        source.commits.append((one.record, one.events))
        source.offset, source.part, source.join = one.offset, one.part, self.admission.join
        source.floor_us = self.floor_us
        source.floors |= {event: self.floor_us for _, _, event in one.events}

    # ---- closing

    def close(self) -> None:
        source = self.source
        if self.closing_at is None:
            self.closing_at = max(len(source.log.transactions), self.read)
        is_read = self.read >= self.closing_at and not (self.events or self.in_flight or self.part)
        is_closing = self.members.sources[source.name].state is SourcePhase.CLOSING
        step = closing_step(self.members, source.name, len(source.commits) if is_read and is_closing else None)
        if isinstance(step, SourceEntry):
            self.append(step)
        elif self.members.sources[source.name].state is SourcePhase.OFFLINE:
            self.world.counts["closed"] += 1
            source.intent, source.process = "run", None
        elif step is None:
            self.publish()
