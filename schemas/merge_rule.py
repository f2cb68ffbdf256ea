"""The merge rule (DESIGN, "Snapshots"): how change and snapshot records become the source's rows.

    A snapshot row has version `low`; a change has its own position; per key the highest position wins
    (create before delete at a tie); a delete leaves a tombstone that outlives every window that could
    still carry an older row.

This module is the rule itself, pure: `wins_against` orders two records of a key. `TableState` is what a reader must remember of a
table's markers from one batch to the next (`advance`). `schemas.memory_table` applies the whole rule to dictionaries.

Versions, positions and horizons are position texts (39 characters, sorting as the log does); the empty
text is "nothing yet" and sorts before all of them.

**Keys are equal by value, binary: spelling counts.** Under a case-insensitive collation the source has at
most one spelling of `'a'` and `'A'` at any moment, but it stores the spelling as written, a SELECT returns it
as stored, and every step from one spelling to another is in the log by its exact bytes: UPDATE `'a'` to `'A'`
is a delete of `'a'` and a create of `'A'` at one and the same position. So each spelling is a register of its
own, and the proof of DESIGN §4 applies to each by itself: let e be the last change of the spelling `'a'`. If e
is after the low watermark of a window, e wins. If e is at or before it, then the window returned `'a'` exactly when
that is what is stored; a window that returned `'A'` says nothing about `'a'`, and the delete in e removes it.
Comparing under the collation instead would let the delete of `'a'` and the create of `'A'` meet at one
position in one register, and a snapshot row `'A'` could be dropped by the tombstone of `'a'`. The same goes
for trailing spaces under PAD SPACE.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from schemas.errors import SinkError
from schemas.identity import SourceId
from schemas.json_codec import INLINE, decode, encode, json_field
from schemas.markers import CompleteMarker, FloorMarker, Marker, Sweep
from schemas.position import Position

NOTHING: Final = ""
MAX_PENDING_MARKS: Final = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, decoded: what it says about a key, and since when.

    `partition` is the snapshot topic's for a snapshot row, None for a change.
    """

    key: Hashable
    version: str
    deleted: bool = False
    row: Any = None
    partition: int | None = None


def wins_against(challenger: Entry, holder: Entry) -> bool:
    """Return whether a record supersedes another one of its key: newer, or a create against a delete."""
    return (challenger.version, not challenger.deleted) > (holder.version, not holder.deleted)


@dataclass(frozen=True, slots=True, order=True)
class Promise:
    """What the markers of one partition have promised so far."""

    position: str
    horizon: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker not yet applied: it counts when all partitions and the change topic have come that far."""

    promise: Promise = field(metadata=INLINE)
    change_offsets: Mapping[int, int]

    def covered_by(self, end_offsets: Mapping[int, int]) -> bool:
        """Whether a change topic read up to these end offsets has every change up to the position."""
        return all(end_offsets.get(partition, 0) >= end for partition, end in self.change_offsets.items())


@dataclass(frozen=True, slots=True)
class Completion:
    """A `complete` marker on its way: read in `partitions` of `expected`."""

    mark: Mark = field(metadata=INLINE)
    first_bound: str
    whole_table: bool
    expected: int
    partitions: frozenset[int]
    sweep: Sweep | None = None

    def reached(self, end_offsets: Mapping[int, int]) -> bool:
        """Whether all rows of the snapshot and all changes up to its end have been read."""
        return len(self.partitions) >= self.expected and self.mark.covered_by(end_offsets)


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of a table that were read and not merged: unreadable ones, or rows of a table that was passed over.

    A snapshot that may have rows among them is not whole. `changes` is the end (exclusive) of those in the change topic, per
    partition; `seen` the partitions of the snapshot topic where a marker was read that was written after all of them, `until` the
    highest position of these markers. A snapshot whose first bound is above it read the table after them. Records that were
    `given_up` are not kept to be merged later: only such a snapshot brings them back.
    """

    changes: Mapping[int, int] = json_field(factory=dict, required=True)
    seen: frozenset[int] = json_field(frozenset(), required=True)
    until: str = json_field(NOTHING, required=True)
    given_up: bool = json_field(default=False, required=True)

    def widened(self, changes: Mapping[int, int]) -> Gap:
        """Return the gap with further records: what was seen before says nothing of them."""
        numbers = self.changes.keys() | changes.keys()
        ends = {n: max(self.changes.get(n, 0), changes.get(n, 0)) for n in numbers}
        return replace(self, changes=ends, seen=frozenset())

    def noted(self, markers: Iterable[Marker]) -> Gap:
        """Return the gap after markers of a later batch."""
        seen, until = set(self.seen), self.until
        for marker in markers:
            behind = all(marker.change_offsets.get(number, 0) >= end for number, end in self.changes.items())
            if behind and marker.partition not in seen:
                seen.add(marker.partition)
                until = max(until, marker.position.text)
        return replace(self, seen=frozenset(seen), until=until)

    def is_before(self, first_bound: str, partitions: int) -> bool:
        """Whether none of the records can be of a snapshot with this first bound."""
        return 0 < partitions <= len(self.seen) and first_bound > self.until

@dataclass(frozen=True, slots=True)
class DueSweep:
    """Rows of `sweep` with a version below `below` go, now: rows that are still in the source were read again, above it.

    Rows with a version below `above` are kept.
    """

    sweep: Sweep
    below: str
    above: str = NOTHING

    def takes(self, row: Any, version: str) -> bool:
        """Whether a row (columns by name) goes."""
        return self.above <= version < self.below and tuple(str(row[name]) for name in self.sweep.columns) in self.sweep.values


@dataclass(frozen=True, slots=True)
class TableState:
    """What is remembered of a table's markers between batches; `advance` gives the state after a batch.

    * `source`: whose log the positions are of; None until a marker has named it.
    * `promises`: per partition of the snapshot topic the last marker read; its horizon is the *guard* of the
      next batch: a snapshot row below it comes from an abandoned attempt and is dropped.
    * `safe_horizon`: tombstones at or below it may go. It has been read in every partition (one never seen
      holds it back) and the change topic was applied up to that marker.
    * `applied_position`: every change of the table at or before it is in the sink.
    * `consistent_at`: position of the last snapshot of the whole table that is complete, with all changes up to it, or where
      the table was last seen to be empty. A snapshot with a condition says nothing of the rows it left out: the table stays
      what it was before.
    * `emptied`: where the table was last seen to be empty (it was created, truncated, dropped), until all changes up to
      there are applied.
    * `floor`: rows below it are gone and never return. Truncate and drop set it; so does the sweep: when a
      snapshot of the whole table is consistent, every live row has a version at or above its first bound.
    * `kept`: where the table was last emptied by a statement whose floor does not count (`read` was given its cause): rows
      below it stay in the sink, whatever snapshots find later.
    * `swept`: no sweep of some rows took any at or above it. An older record that is found later may be of a row that went
      so: only a snapshot says whether it is there.
    * `gap`: records that were read and not merged, None where all were. Nothing is concluded from a snapshot that they may be of:
      it waits until they are merged after all, or is superseded by a snapshot that began after them.
    * `completed`: the first bounds of the snapshots of the whole table that the batch which led to this state has completed, by the
      request and the position of its end; not remembered.
    * `due`: what the batch that led to this state sweeps, after its rows; not remembered. A sweep of some rows leaves
      no floor: it waits until the horizon is at its first bound, so that nothing it takes can return.
    """

    partitions: int = json_field(0, required=True)
    promises: Mapping[int, Promise] = json_field(factory=dict, name="borders", required=True, listed=True)
    marks: tuple[Mark, ...] = json_field((), required=True)
    completions: Mapping[str, Completion] = json_field(factory=dict, required=True)
    floor: str = json_field(NOTHING, required=True)
    applied_position: str = json_field(NOTHING, required=True)
    safe_horizon: str = json_field(NOTHING, required=True)
    consistent_at: str = json_field(NOTHING, required=True)
    emptied: str = NOTHING
    swept: str = NOTHING
    kept: str = json_field(NOTHING, omits_default=True)
    gap: Gap | None = None
    source: SourceId | None = json_field(None, omits_default=True)
    due: tuple[DueSweep, ...] = json_field((), absent=True, compare=False)
    completed: Mapping[str, str] = json_field(factory=dict, absent=True, compare=False)

    def advance(self, markers: Iterable[Marker], end_offsets: Mapping[int, int]) -> TableState:
        """Return the state after a batch that had these markers and read the change topic up to `end_offsets`.

        `end_offsets` are exclusive, per partition. Reading markers twice changes nothing. All records were merged.
        """
        return self.read(markers, end_offsets).settled(end_offsets)

    def read(self, markers: Iterable[Marker], end_offsets: Mapping[int, int], keeps: Container[str] = ()) -> TableState:
        """Return the state after the markers, before it is known whether the rows beside them could be merged.

        Floors of the log apply: a truncate is a fact, as a delete is. Those of the causes `keeps` are noted only: their rows stay.
        What follows from complete snapshots is up to `settled`.
        """
        return _concluded(_noted(self, markers, keeps), end_offsets)

    def floors_of(self, markers: Iterable[Marker], keeps: Container[str] = ()) -> tuple[str, ...]:
        """Return the floors of these markers that no marker read before has set, the lowest first: each counts once.

        The markers of a partition are in the order of the log, so one that is not above the floor was read in another partition.
        """
        floors = {_floor_text(one.position) for one in markers if isinstance(one, FloorMarker) and one.cause not in keeps}
        return tuple(sorted(floor for floor in floors if floor > self.floor))

    @property
    def doomed(self) -> tuple[str, str]:
        """Rows from the first position on and below the second are gone: those below the floor, but for the ones that are kept."""
        return self.kept, self.floor

    def settled(self, end_offsets: Mapping[int, int], left_out: Mapping[int, int] | None = None) -> TableState:
        """Return the state with what follows from the snapshots that are complete and merged whole.

        `left_out` is given when records of the batch were not merged: the end (exclusive) of those of the change topic.
        """
        gap = self.gap if left_out is None else (self.gap or Gap()).widened(left_out)
        return _settled(replace(self, gap=gap), end_offsets)

    def without_gap(self) -> TableState:
        """Return the state after all records that are kept to be merged later were merged."""
        return self if self.gap is None or self.gap.given_up else replace(self, gap=None)

    def giving_up(self) -> TableState:
        """Return the state when the records that were left out are not kept any longer."""
        return self if self.gap is None else replace(self, gap=replace(self.gap, given_up=True))

    def with_changes_recreated(self) -> TableState:
        """Return the state where the change topic was created again: offsets of the former one say nothing of markers to come."""
        return self if self.gap is None else replace(self, gap=replace(self.gap, changes={}, seen=frozenset()))

    @property
    def is_consistent(self) -> bool:
        """Whether the table is a state that the source was in: a snapshot is complete, and no record is left out."""
        return self.gap is None and self.consistent_at > NOTHING

    @property
    def guard(self) -> dict[int, str]:
        """Per partition of the snapshot topic the horizon applied so far."""
        return {partition: promise.horizon for partition, promise in self.promises.items()}

    @property
    def lowest_promise(self) -> Promise | None:
        """Return the promise of the least advanced partition; None while a partition has not been seen."""
        if not self.partitions or any(number not in self.promises for number in range(self.partitions)):
            return None
        return min(self.promises[number] for number in range(self.partitions))

    @property
    def has_pending_work(self) -> bool:
        """Whether a marker was read that waits for other partitions or for the change topic."""
        return bool(self.marks) or any(not _is_pending(one, self) for one in self.completions.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that `from_json` reads."""
        form: dict[str, Any] = encode(self)
        return form

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> TableState:
        """Return the state of a JSON form; `KeyError`, `TypeError` or `ValueError` if it is none."""
        return decode(TableState, document)


def _source_of(state: TableState, markers: Iterable[Marker]) -> SourceId | None:
    """Return the source of the state and the markers; `SinkError` if there are two: their positions cannot be compared."""
    source = state.source
    for marker in markers:
        if source is None:
            source = marker.source
        elif marker.source is not None and marker.source != source:
            message = (
                f"the snapshot topic of {marker.table} has markers of source {marker.source}, its rows are of source {source}: "
                f"two producers write to it; give each its own `name`, and merge them into two sinks"
            )
            raise SinkError(message)
    return source


def _noted(state: TableState, markers: Iterable[Marker], keeps: Container[str]) -> TableState:
    """Return the state with the markers written down, nothing concluded from them yet."""
    markers = tuple(markers)
    source = _source_of(state, markers)
    partitions, floor, emptied, kept_below = state.partitions, state.floor, state.emptied, state.kept
    promises, completions = dict(state.promises), dict(state.completions)
    marks = {mark.promise: mark for mark in state.marks}
    for marker in markers:
        promise = Promise(marker.position.text, marker.horizon.text)
        mark = Mark(promise, dict(marker.change_offsets))
        partitions = max(partitions, marker.partitions)
        promises[marker.partition] = max(promise, promises.get(marker.partition, promise))
        marks[promise] = _stricter(mark, marks.get(promise))
        if isinstance(marker, FloorMarker):
            if marker.cause in keeps:
                kept_below = max(kept_below, _floor_text(marker.position))
            else:
                floor = max(floor, _floor_text(marker.position))
            emptied = max(emptied, marker.position.text) if marker.empty else emptied
        if isinstance(marker, CompleteMarker):
            name = f"{marker.request}@{promise.position}"
            completions[name] = _with_partition(completions.get(name), marker, mark)
    kept = _thinned(sorted(marks.values(), key=lambda mark: mark.promise))
    gap = None if state.gap is None else state.gap.noted(markers)
    return replace(
        state,
        partitions=partitions,
        promises=promises,
        marks=kept,
        completions=completions,
        floor=floor,
        emptied=emptied,
        kept=kept_below,
        gap=gap,
        source=source,
    )


def _stricter(mark: Mark, other: Mark | None) -> Mark:
    if other is None:
        return mark
    numbers = mark.change_offsets.keys() | other.change_offsets.keys()
    ends = {n: max(mark.change_offsets.get(n, 0), other.change_offsets.get(n, 0)) for n in numbers}
    return Mark(mark.promise, ends)


def _floor_text(position: Position) -> str:
    """Return the lowest version that is not below a floor.

    The marker gives the transaction boundary where the DDL starts. A snapshot row may have that very boundary as its
    version and be from before (its reader saw the log end there); rows from after are in the log, above it.
    """
    return replace(position, ordinal=max(1, position.ordinal)).text


def _with_partition(known: Completion | None, marker: CompleteMarker, mark: Mark) -> Completion:
    before = known.partitions if known is not None else frozenset()
    return Completion(
        mark=mark,
        first_bound=marker.first_bound.text,
        whole_table=marker.whole_table,
        expected=marker.partitions,
        partitions=before | {marker.partition},
        sweep=marker.sweep,
    )


def _thinned(marks: list[Mark]) -> tuple[Mark, ...]:
    """No more marks than needed: leaving one out only delays what it would have said."""
    while len(marks) > MAX_PENDING_MARKS:
        marks = marks[::2] if len(marks) % 2 else [*marks[::2], marks[-1]]
    return tuple(marks)


def _concluded(state: TableState, end_offsets: Mapping[int, int]) -> TableState:
    """Return the state after drawing every conclusion about the log that the partitions read so far allow."""
    reached = _reached_marks(state, end_offsets)
    last = max((mark.promise for mark in reached), default=Promise(NOTHING, NOTHING))
    return replace(
        state,
        marks=tuple(mark for mark in state.marks if mark.promise > last),
        applied_position=max(state.applied_position, last.position),
        safe_horizon=max(state.safe_horizon, *(mark.promise.horizon for mark in reached), NOTHING),
        due=(),
        completed={},
    )


def _settled(state: TableState, end_offsets: Mapping[int, int]) -> TableState:
    """Return the state after drawing every conclusion about the rows that complete snapshots allow."""
    done = {
        name: completion
        for name, completion in state.completions.items()
        if completion.reached(end_offsets)
        and (completion.sweep is None or completion.first_bound <= state.safe_horizon)
        and not _is_pending(completion, state)
    }
    completed = {name: one for name, one in done.items() if one.sweep is None and one.whole_table}
    whole = list(completed.values())
    bound = max((one.first_bound for one in whole), default=NOTHING)
    waiting = {
        name: one
        for name, one in state.completions.items()
        if name not in done and not _is_stale(one, state) and not (_is_pending(one, state) and one.first_bound <= bound)
    }
    empty_at = state.emptied if state.gap is None and state.emptied <= state.applied_position else NOTHING
    return replace(
        state,
        completions=waiting,
        floor=max(state.floor, bound),
        consistent_at=max(state.consistent_at, empty_at, *(one.mark.promise.position for one in whole), NOTHING),
        emptied=NOTHING if empty_at else state.emptied,
        swept=max(state.swept, *(one.first_bound for one in done.values() if one.sweep is not None), NOTHING),
        gap=None if whole else state.gap,
        completed={name: one.first_bound for name, one in completed.items()},
        due=tuple(DueSweep(one.sweep, one.first_bound, state.kept) for one in done.values() if one.sweep is not None),
    )


def _is_pending(completion: Completion, state: TableState) -> bool:
    """Whether records that were left out may be of this snapshot; one with a condition says nothing, and waits for nothing."""
    if state.gap is None or (completion.sweep is None and not completion.whole_table):
        return False
    return not state.gap.is_before(completion.first_bound, state.partitions)


def _is_stale(completion: Completion, state: TableState) -> bool:
    """Whether all partitions continued without the rest of it: a marker read again after it was done."""
    lowest = state.lowest_promise
    complete = len(completion.partitions) >= completion.expected
    return not complete and lowest is not None and lowest > completion.mark.promise


def _reached_marks(state: TableState, end_offsets: Mapping[int, int]) -> list[Mark]:
    lowest = state.lowest_promise
    if lowest is None:
        return []
    return [mark for mark in state.marks if mark.promise <= lowest and mark.covered_by(end_offsets)]
