"""The merge rule where the producer applies it (`merge: producer`): which rows of a chunk the log overtook (pure).

    A chunk's SELECT sees every transaction before its open row and none behind its close row. So a row whose
    key the log touches between the two may be older than that change and is dropped: the change itself is in
    the topic. A row whose key is not touched there is, at the position of the close row, exactly what the
    source has, and is written there. Per key the last record then is the last state.

That is the rule of `schemas.merge_rule` with the topic's order instead of versions: a dropped row's version
`low` is below its change's, a written row's is the highest of its key so far.

Keys are bytes that identify a row: those of the record key where it does, else of the primary key or of the whole row.
They are compared as bytes, not under the column's collation. The log carries the bytes as stored, as a
SELECT does; an UPDATE of `'a'` to `'A'` touches both spellings, and the chunk's row has one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

# What a key costs beside its own bytes: the object and its entry in a set.
_KEY_OVERHEAD_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Touched:
    """The keys that the log touched while one window was open."""

    parts: Sequence[AbstractSet[bytes]] = ()

    def __bool__(self) -> bool:
        return any(self.parts)

    def __contains__(self, key: bytes) -> bool:
        return any(key in part for part in self.parts)


@dataclass(slots=True)
class _Table:
    """The open windows of one table. Each opening begins a part, and a window has all parts from its own on."""

    parts: list[set[bytes]] = field(default_factory=list)
    size_bytes: int = 0
    starts: dict[str, int] = field(default_factory=dict)
    first: int = 0


class OpenWindows:
    """What the log touched since each open window's open row; fed in log order, by one thread.

    Windows of one table share what they remember. Its size is bounded: a table whose touched keys would take
    more than `limit_bytes` loses its windows (`touch` names them), and their chunks have to be read again.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._tables: dict[str, _Table] = {}

    def open(self, window: str, table: str) -> None:
        """Begin the window: its open row was seen."""
        state = self._tables.setdefault(table, _Table())
        if not state.parts or state.parts[-1]:
            state.parts.append(set())
        state.starts[window] = state.first + len(state.parts) - 1

    def watches(self, table: str) -> bool:
        """Return whether a window of the table is open: keys must be reported."""
        return table in self._tables

    def touch(self, table: str, keys: Iterable[bytes]) -> tuple[str, ...]:
        """Note that the log changed these rows; return the windows that are lost because they would remember too much."""
        state = self._tables.get(table)
        if state is None:
            return ()
        part = state.parts[-1]
        for key in keys:
            if key not in part:
                part.add(key)
                state.size_bytes += len(key) + _KEY_OVERHEAD_BYTES
        return () if state.size_bytes <= self._limit_bytes else self.lose(table)

    def lose(self, table: str) -> tuple[str, ...]:
        """Forget the open windows of a table, and return them: rows changed, and the log does not say which."""
        state = self._tables.pop(table, None)
        return () if state is None else tuple(state.starts)

    def close(self, window: str, table: str) -> Touched | None:
        """Return what was touched in the window, whose close row was seen; None for a window that is not open."""
        state = self._tables.get(table)
        if state is None or window not in state.starts:
            return None
        touched = Touched(tuple(state.parts[state.starts.pop(window) - state.first :]))
        self._forget(table, state)
        return touched

    def retain(self, windows: AbstractSet[str]) -> None:
        """Forget every window but these."""
        for table, state in list(self._tables.items()):
            for window in [window for window in state.starts if window not in windows]:
                del state.starts[window]
            self._forget(table, state)

    def _forget(self, table: str, state: _Table) -> None:
        """Drop the parts that no open window needs."""
        if not state.starts:
            del self._tables[table]
            return
        needless = min(state.starts.values()) - state.first
        for part in state.parts[:needless]:
            state.size_bytes -= sum(len(key) + _KEY_OVERHEAD_BYTES for key in part)
        del state.parts[:needless]
        state.first += needless
