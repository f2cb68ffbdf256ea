"""Which chunks of a table that is being read are done: documents of the state topic enter, a row of cells leaves (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from schemas.documents import TaskDocument, WindowDocument
from schemas.state import State

CELLS: Final = 120


class ChunkState(StrEnum):
    """How far a chunk is."""

    DONE = "done"
    OPEN = "open"
    READING = "reading"
    RETRIED = "retried"
    """It failed at least once and is to be read again."""


_WORST: Final = (ChunkState.RETRIED, ChunkState.READING, ChunkState.OPEN, ChunkState.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkMap:
    """The chunks of a table in the order of its key.

    `planned` are known, of which `done` are done; `is_planned`: the whole table is divided, there will be no more. Each of `cells`
    stands for up to `per_cell` chunks, and has the state of the one that needs most attention.
    """

    planned: int
    done: int
    is_planned: bool
    cells: tuple[ChunkState, ...]
    per_cell: int
    errors: tuple[str, ...] = ()


def chunk_maps(state: State) -> Mapping[tuple[str, str], ChunkMap]:
    """Return the map of each table that is not read to its end, by request and table."""
    reading: dict[tuple[str, str], set[int]] = {}
    for window in state.all(WindowDocument).values():
        reading.setdefault((window.request, window.table), set()).add(window.chunk)
    return {
        (task.request, task.table): chunk_map(task, reading.get((task.request, task.table), set()))
        for task in state.all(TaskDocument).values()
        if not task.state.final
    }


def chunk_map(task: TaskDocument, reading: set[int]) -> ChunkMap:
    """Return the map of a table; `reading` are the chunks with an open window."""
    states = {chunk.id: ChunkState.RETRIED if chunk.error else ChunkState.OPEN for chunk in task.outstanding}
    states |= {chunk: ChunkState.READING for chunk in reading if states.get(chunk) is not ChunkState.RETRIED}
    per_cell = max(1, -(-task.next_chunk // CELLS))
    cells = []
    for first in range(0, task.next_chunk, per_cell):
        seen = {states.get(chunk, ChunkState.DONE) for chunk in range(first, min(first + per_cell, task.next_chunk))}
        cells.append(next(one for one in _WORST if one in seen))
    return ChunkMap(
        planned=task.next_chunk,
        done=task.chunks_done,
        is_planned=task.plan.complete,
        cells=tuple(cells),
        per_cell=per_cell,
        errors=tuple(dict.fromkeys(chunk.error for chunk in task.outstanding if chunk.error)),
    )
