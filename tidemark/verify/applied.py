"""How far the merge job has come with a table, as its progress file says: the same for sinks of every type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.identity import SourceTable
from schemas.json_codec import decode
from schemas.merge_progress import MergeProgress, TableProgress
from schemas.position import SourcePosition


@dataclass(frozen=True, slots=True)
class Applied:
    """How far the sink has come with a table.

    It holds every change up to `position`. `change_offsets` are the ends of what was read of the change
    topic, per partition, and `floor` is the highest floor: while neither moves, no change of the table came.
    `consistent` says that its snapshot is complete in the sink.
    """

    position: SourcePosition | None
    change_offsets: Mapping[int, int]
    floor: SourcePosition | None = None
    consistent: bool = False

    def rested_since(self, earlier: Applied) -> bool:
        """Return whether nothing came from the log between the earlier reading and this one."""
        return self.change_offsets == earlier.change_offsets and self.floor == earlier.floor


def read_applied(progress_path: str, table: SourceTable) -> Applied:
    """Return what the merge job's progress file says about a table; nothing is known without such a file."""
    try:
        progress = decode(MergeProgress, json.loads(Path(progress_path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Applied(None, {})
    one = progress.tables.get(table.name.plain, TableProgress())
    position, floor = (None if at is None else at.of(table.source) for at in (one.applied_position, one.floor))
    return Applied(position, one.change_offsets, floor, one.consistent_at is not None)
