"""Pipelines on dictionaries: tables filtered and changed on their way, put together in targets by identity. The twin of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.memory_table import Batch, MemoryTable, Progress
from schemas.merge_rule import NOTHING, Entry

Rule = Callable[[Any], Any]
"""What a row's value becomes in a target; None for no image."""


@dataclass(frozen=True)
class View:
    """A source table in a target."""

    table: str
    target: str
    rule: Rule


@dataclass
class Pipeline:
    """Tables merged into targets. `targets` has entries by (table, key); each table has progress and tombstones of its own."""

    views: tuple[View, ...]
    targets: dict[str, dict[tuple[str, Hashable], Entry]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    rule: MemoryTable = field(default_factory=MemoryTable)

    def identity(self, table: str, key: Hashable) -> tuple[str, Hashable]:
        """What distinguishes the rows of a target."""
        return table, key

    def apply(self, batches: Mapping[str, Batch], progress: Mapping[str, Progress]) -> dict[str, Progress]:
        """Merge what was read of all tables in one go, and give the progress to record."""
        return {table: self._apply(table, batch, progress.get(table, Progress())) for table, batch in batches.items()}

    def _apply(self, table: str, batch: Batch, progress: Progress) -> Progress:
        state = progress.state.read(batch.markers, batch.end_offsets)
        admitted = [entry for entry in batch.entries if self.rule.admits(entry, progress.state, state)]
        changed = {entry.key for entry in admitted if entry.partition is None}
        tombstones = dict(progress.tombstones)
        views = [view for view in self.views if view.table == table]
        for entry in self.rule._winners(admitted).values():
            images = [(view, None if entry.deleted else view.rule(entry.row)) for view in views]
            lost = any(image is None for _, image in images)
            if entry.deleted or (lost and self.leaves_tombstone(entry, changed)):
                tombstones[entry.key] = max(entry.version, tombstones.get(entry.key, NOTHING))
            if not self.rule.overtaken(entry, progress.tombstones):
                for view, image in images:
                    self._write(view, entry, image)
        state = state.settled(batch.end_offsets, batch.left_out)
        for view in views:
            self._delete_what_is_gone(view, state)
        return Progress(state, {key: version for key, version in tombstones.items() if not self.rule.expired(version, state)})

    def leaves_tombstone(self, entry: Entry, changed: set[Hashable]) -> bool:
        """Whether a winner without an image leaves a tombstone: a change, or a snapshot row that won over a change of its key."""
        return entry.partition is None or entry.key in changed

    def _write(self, view: View, entry: Entry, image: Any) -> None:
        rows = self.targets.setdefault(view.target, {})
        name = self.identity(view.table, entry.key)
        holder = rows.get(name)
        seen = replace(entry, deleted=image is None, row=(view.table, image))
        if holder is not None and not self.rule.wins_against(seen, holder):
            return
        if image is None:
            self.counts["rows that stopped matching"] += holder is not None and not entry.deleted
            rows.pop(name, None)
        else:
            self.counts["rows that match"] += holder is None
            rows[name] = seen

    def _delete_what_is_gone(self, view: View, state: Any) -> None:
        rows = self.targets.setdefault(view.target, {})
        gone = [name for name, entry in rows.items() if self.is_of(view.table, entry) and entry.version < state.floor]
        others = [entry for name, entry in rows.items() if not self.is_of(view.table, entry) and entry.version < state.floor]
        self.counts["rows of other tables below a floor"] += len(others)
        for name in gone:
            del rows[name]

    def is_of(self, table: str, entry: Entry) -> bool:
        """Whether a row is of this table: floors concern no other."""
        return bool(entry.row[0] == table)

    def rows(self, target: str) -> dict[tuple[str, Hashable], Any]:
        """The rows of a target as (table, key) → image."""
        return {(entry.row[0], entry.key): entry.row[1] for entry in self.targets.get(target, {}).values()}
