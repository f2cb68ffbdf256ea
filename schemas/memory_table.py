"""The whole merge rule on dictionaries: the twin of the Spark job, and the rule for consumers written in Python."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.markers import Marker
from schemas.merge_rule import NOTHING, DueSweep, Entry, TableState, wins_against


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read of one table in one go, in any order; `end_offsets` are the change topic's, exclusive.

    `left_out`, if records were read that are not among the entries: the end (exclusive) of those of the change topic.
    """

    entries: tuple[Entry, ...]
    markers: tuple[Marker, ...]
    end_offsets: Mapping[int, int]
    left_out: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What is recorded after a batch and read again after a crash: the markers' state and the tombstones."""

    state: TableState = field(default_factory=TableState)
    tombstones: Mapping[Hashable, str] = field(default_factory=dict)


class MemoryTable:
    """A mirror in a dictionary: the rule step by step, as the Spark job takes them.

    `rows` is the sink; it survives a crash at any point of `apply`. The `Progress` is written after it: a
    batch that is applied again with the progress of the batch before it changes nothing.

    Of statements that empty the table, the rows below those of the causes `keeps` stay.
    """

    def __init__(self, keeps: Container[str] = ()) -> None:
        self.rows: dict[Hashable, Entry] = {}
        self._keeps = keeps

    def apply(self, batch: Batch, progress: Progress) -> Progress:
        """Merge a batch and give the progress to record.

        1. drop snapshot rows under the guard, and everything below the floor;
        2. keep the highest version of each key;
        3. drop what a tombstone has overtaken, and note this batch's deletes as tombstones;
        4. update, insert or delete, guarded by the version in the sink;
        5. conclude what the rows allow; delete rows below the floor (truncate, drop, sweep), and those that due sweeps take;
        6. forget the tombstones that no row can need any more.
        """
        state = progress.state.read(batch.markers, batch.end_offsets, self._keeps)
        admitted = (entry for entry in batch.entries if self.admits(entry, progress.state, state))
        winners = self._winners(admitted)
        tombstones = dict(progress.tombstones)
        for entry in winners.values():
            if entry.deleted:
                tombstones[entry.key] = max(entry.version, tombstones.get(entry.key, NOTHING))
            if not self.overtaken(entry, progress.tombstones):
                self._write(entry)
        state = state.settled(batch.end_offsets, batch.left_out)
        self.rows = {
            key: entry
            for key, entry in self.rows.items()
            if not state.kept <= entry.version < state.floor and not any(self.sweeps(due, entry) for due in state.due)
        }
        kept = {key: version for key, version in tombstones.items() if not self.expired(version, state)}
        return Progress(state, kept)

    def admits(self, entry: Entry, before: TableState, after: TableState) -> bool:
        """Return the guard and the floor. The guard is that of earlier batches: rows of this one may precede it."""
        if entry.version < after.floor:
            return False
        return entry.partition is None or entry.version >= before.guard.get(entry.partition, NOTHING)

    def wins_against(self, challenger: Entry, holder: Entry) -> bool:
        """Return the order of two records of one key."""
        return wins_against(challenger, holder)

    def overtaken(self, entry: Entry, tombstones: Mapping[Hashable, str]) -> bool:
        """Whether the key was deleted after this record; at a tie the create wins."""
        return entry.version < tombstones.get(entry.key, NOTHING)

    def sweeps(self, due: DueSweep, entry: Entry) -> bool:
        """Whether a sweep takes a row that is there."""
        return due.takes(entry.row, entry.version)

    def expired(self, version: str, state: TableState) -> bool:
        """Whether a tombstone may go: nothing older than it can still come, or the floor stops it."""
        return version <= state.safe_horizon or version < state.floor

    def _winners(self, entries: Iterable[Entry]) -> dict[Hashable, Entry]:
        winners: dict[Hashable, Entry] = {}
        for entry in entries:
            holder = winners.get(entry.key)
            if holder is None or self.wins_against(entry, holder):
                winners[entry.key] = entry
        return winners

    def _write(self, entry: Entry) -> None:
        holder = self.rows.get(entry.key)
        if holder is not None and not self.wins_against(entry, holder):
            return
        if entry.deleted:
            self.rows.pop(entry.key, None)
        else:
            self.rows[entry.key] = entry
