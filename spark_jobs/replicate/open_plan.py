"""The rows of an open plan, read from Kafka again: states enter, the rows between them and the plan's end leave.

Each source is read from its state in the target on. The rows have the order in which the plan was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from spark_jobs.replicate.order.event_spill import SourceSpill
from spark_jobs.replicate.order.frontier import StreamMerge
from spark_jobs.replicate.rows.row_events import RowEvent

if TYPE_CHECKING:
    import threading

    from spark_jobs.replicate.apply.apply_target import SourceState, StreamProgress
    from spark_jobs.replicate.apply.plans import BatchPlan
    from spark_jobs.replicate.order.frontier import LoggedEvents, OrderedEvents
    from spark_jobs.replicate.order.log_order import Event
    from spark_jobs.replicate.order.stream_reader import KafkaTransaction, StreamReader
    from spark_jobs.replicate.task_source import SourceOfTask

_WAITS_S: Final = 0.5
_Events = Iterator[tuple[str, "Event"]]
"""Events with the names of their sources."""


class PlanReader:
    """Reads the rows of an open plan once. Errors as `StreamReader`. `ConfigError`: a source of it is missing in the settings."""

    def __init__(self, reader: StreamReader, sources: Mapping[str, SourceOfTask], stop: threading.Event) -> None:
        self._reader = reader
        self._sources = sources
        self._stop = stop

    def rows(self, plan: BatchPlan, states: Mapping[str, SourceState], progress: StreamProgress) -> list[RowEvent] | None:
        """Return the rows of a plan behind `states`, or `progress` with `order: global`. None: the task is stopped."""
        events = self._each(states, plan.states) if plan.stream is None else self._in_one_order(progress, plan.stream)
        wanted = [
            event
            for name, event in events
            if isinstance(event, RowEvent) and event.op != "t" and self._sources[name].wants(event, states[name])
        ]
        return None if self._stop.is_set() else wanted

    def _read(self, begins: Mapping[str, tuple[int, int]], note: Callable[[KafkaTransaction], bool]) -> None:
        """Read sources from offset and number of a commit record on, each until `note` returns that nothing more is needed."""
        missing = sorted(begins.keys() - self._sources.keys())
        if missing:
            raise ConfigError(f"sources: {', '.join(missing)} has changes in a batch that is not applied whole: name it until then")
        for name, begin in begins.items():
            self._reader.add(name, *begin)
        read = set[str]()
        while len(read) < len(begins) and not self._stop.is_set():
            transaction = self._reader.next(_WAITS_S, read)
            if transaction is not None and note(transaction):
                read.add(transaction.source)

    def _each(self, begins: Mapping[str, SourceState], ends: Mapping[str, SourceState]) -> _Events:
        """Yield the events between states, one source after the other."""
        spans = {name: (_at(begins[name]), _at(end)) for name, end in sorted(ends.items()) if _at(begins[name]) < _at(end)}
        events: dict[str, list[Event]] = {name: [] for name in spans}
        passed = dict.fromkeys(spans, 0)  # events of the present Kafka transaction in earlier slices

        def note(transaction: KafkaTransaction) -> bool:
            name, n = transaction.source, transaction.commit.n
            begin, end = spans[name]
            for event in self._sources[name].order.events(transaction):
                if begin <= (n, passed[name]) < end:
                    events[name].append(event)
                passed[name] += 1
            if transaction.open:
                return (n, passed[name]) >= end
            passed[name] = 0
            return (n + 1, 0) >= end

        self._read({name: (begins[name].offset, begins[name].n) for name in spans}, note)
        return ((name, event) for name, own in events.items() for event in own)

    def _in_one_order(self, begin: StreamProgress, end: StreamProgress) -> _Events:
        """Return the events between two progresses."""
        cursors = {name: one for name, one in begin.cursors.items() if one.offset < end.cursors[name].read}
        merge = StreamMerge["Event"](begin.released, cursors)
        slices: dict[str, list[LoggedEvents[Event]]] = {name: [] for name in cursors}
        spills = {name: SourceSpill(self._sources[name].order) for name in cursors.keys() & self._sources.keys()}
        for name in cursors:
            merge.end(name)

        def note(transaction: KafkaTransaction) -> bool:
            name = transaction.source
            slices[name] += spills[name].logged(transaction)
            if transaction.open:
                return False
            merge.note(name, transaction.offset, transaction.commit, slices[name])
            slices[name] = []
            return transaction.offset + 1 >= end.cursors[name].read

        self._read({name: (one.offset, one.n) for name, one in cursors.items()}, note)
        return _between(begin, end, merge.release())


def _at(state: SourceState) -> tuple[int, int]:
    return state.n, state.done  # the record of this number may have a higher offset than the state says


def _between(begin: StreamProgress, end: StreamProgress, released: Iterable[OrderedEvents[Event]]) -> _Events:
    """Yield the events behind the one progress and not behind the other."""
    at, done = begin.released, 0
    for ordered in released:
        if ordered.at != at:
            at, done = ordered.at, 0
        for event in ordered.events:
            if (begin.released, begin.done) <= (at, done) < (end.released, end.done):
                yield ordered.source, event
            done += 1
