"""Random histories of one table: source, log reader, windows, topics, as DESIGN §4 has them, on one thread.

A `History` runs a little world step by step: transactions at the source, a log reader that lags behind it,
chunk readers whose rows reach the topic at any time between SELECT and close, attempts that are abandoned and
whose rows arrive long after, keys that move to another partition, truncates, a stretch of log that is lost. Where a
reader is `slow`, the last parents go when it has its rows, and all that follows from that is in the topics before them.
With `merge: producer` a window's rows go into the change topic where its close row is, but for those the log
touched since its open row; after a truncate in between they are read again. With `cascades` the rows' values are of a few,
as if foreign keys, and now and then all rows of a value go or get another one in silence; the log has the parent's change
only, whose children are read in a window of their own and swept. With `loads` the merge job reads the rows of some
windows itself: what it finds, at several times, is in `loads`. What leaves are two topics with
partitions and offsets, the source's final rows, and counts of what happened.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from schemas.markers import (
    CloseMarker,
    CompleteMarker,
    FloorMarker,
    HeartbeatMarker,
    LoadMarker,
    Marker,
    OpenMarker,
    Sweep,
)
from schemas.memory_table import Batch
from schemas.merge_rule import Entry
from schemas.position import Position

TABLE = "shop.orders"
PARENTS = 6


@dataclass(frozen=True)
class Shape:
    """How eventful a history is."""

    keys: int = 12
    partitions: int = 3
    steps: int = 160
    zombies: float = 0.3
    truncates: float = 0.01
    key_moves: float = 0.03
    lost_log: float = 0.3
    cascades: float = 0.0
    slow: float = 0.0
    loads: float = 0.0
    merge: Literal["spark", "producer"] = "spark"


@dataclass
class Window:
    """An attempt at a chunk: registered with a bound, read, produced, closed. `values` are those of children's parents."""

    request: str
    chunk: int
    keys: tuple[str, ...]
    bound: Position
    low: Position
    rows: list[Entry] | None = None
    closed_at: Position | None = None
    values: frozenset[int] = frozenset()
    slow: bool = False
    load: str = ""
    is_marked: bool = False


@dataclass
class Request:
    """A snapshot of the whole table, or of the rows that have values of `old` or `new`."""

    name: str
    todo: list[int]
    old: frozenset[int] = frozenset()
    new: frozenset[int] = frozenset()
    first_bound: Position | None = None
    rows: int = 0
    open_chunks: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class LogItem:
    """One transaction of the log: row changes, or one of the events that matter to windows."""

    position: Position
    changes: tuple[Entry, ...] = ()
    opened: Window | None = None
    closed: Window | None = None
    truncates: bool = False
    old: int | None = None
    new: int | None = None


class History:
    """See the module; `run` makes the whole history. Everything follows from the seed."""

    def __init__(self, seed: int, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self._random = random.Random(seed)
        self._keys = [f"k{number}" for number in range(self.shape.keys)]
        self._epoch = 1
        self._offset = 4
        self._value = 0
        self._key_schema = 0
        self._names = itertools.count(1)
        self._log: list[LogItem] = []
        self._read = 0
        self._position = self._end
        self._windows: list[Window] = []
        self._zombies: list[Entry] = []
        self._requests: list[Request] = []
        self._chunks = [tuple(self._keys[start::3]) for start in range(3)]
        self.loads: dict[str, list[list[Entry]]] = {}
        self.source: dict[str, int] = {}
        self.changes: list[list[Entry]] = [[] for _ in range(self.shape.partitions)]
        self.snapshots: list[list[Entry | Marker]] = [[] for _ in range(self.shape.partitions)]
        self.counts: Counter[str] = Counter()

    def run(self) -> History:
        """Make the history; at its end everything is read, all windows are closed, H has arrived."""
        lost_at = (
            self._random.randrange(self.shape.steps) if self._random.random() < self.shape.lost_log else -1
        )
        self._request()
        for step in range(self.shape.steps):
            if step == lost_at:
                self._lose_log()
            self._step()
        if self.shape.slow and self._random.random() < self.shape.slow:
            self._read_slowly()
        self._settle()
        return self

    # ── the world's steps ────────────────────

    def _step(self) -> None:
        shape = self.shape
        action = self._random.choices(
            (self._transaction, self._read_log, self._open_window, self._move_windows, self._heartbeat,
             self._late_row, self._request, self._move_keys, self._truncate, self._cascade),
            (40, 30, 12, 25, 8, 8 if self._zombies else 0, 2, 100 * shape.key_moves, 100 * shape.truncates,
             100 * shape.cascades),
        )[0]  # fmt: skip
        action()

    @property
    def _end(self) -> Position:
        """The end of the log: where the next transaction will start."""
        return Position(self._epoch, 1, self._offset)

    def _append(self, **what: object) -> Position:
        position = self._end
        self._log.append(LogItem(position, **what))  # type: ignore[arg-type]
        self._offset += self._random.randint(40, 400)
        return position

    def _transaction(self) -> None:
        position, changes = self._end, []
        for ordinal in range(1, self._random.choice((1, 1, 2, 3)) + 1):
            changes.extend(
                self._change(Position(position.epoch, position.file, position.offset, ordinal).text)
            )
        self._append(changes=tuple(changes))

    def _change(self, version: str) -> list[Entry]:
        """One row change: insert, update, delete, or an update of the key."""
        key = self._random.choice(self._keys)
        self._value = self._random.randint(1, PARENTS) if self.shape.cascades else self._value + 1
        if key not in self.source:
            self.source[key] = self._value
            return [Entry(key, version, row=self._value)]
        kind = self._random.random()
        if kind < 0.45:
            del self.source[key]
            return [Entry(key, version, deleted=True)]
        if kind < 0.6:
            return self._change_key(key, version)
        self.source[key] = self._value
        return [Entry(key, version, row=self._value)]

    def _change_key(self, key: str, version: str) -> list[Entry]:
        free = [other for other in self._keys if other not in self.source]
        del self.source[key]
        gone = Entry(key, version, deleted=True)
        if not free:
            return [gone]
        new = self._random.choice(free)
        self.source[new] = self._value
        self.counts["key updates"] += 1
        return [gone, Entry(new, version, row=self._value)]

    def _cascade(self) -> None:
        """A parent goes, or gets another key: its children go or follow, and the log says nothing of them."""
        old, new = self._random.randint(1, PARENTS), self._random.choice((None, self._random.randint(1, PARENTS)))
        children = [key for key, value in self.source.items() if value == old]
        for key in children:
            del self.source[key]
            if new is not None:
                self.source[key] = new
        self.counts["children changed in silence"] += len(children)
        self._append(old=old, new=new)

    def _truncate(self) -> None:
        self.source.clear()
        self._append(truncates=True)
        self.counts["truncates"] += 1

    def _move_keys(self) -> None:
        """The key schema gets another id: from here on most keys lie in another partition."""
        self._key_schema += 1
        self.counts["key moves"] += 1

    def partition_of(self, key: str) -> int:
        """Where a key is written now."""
        return random.Random(f"{key}/{self._key_schema}").randrange(self.shape.partitions)

    # ── snapshots ────────────────────

    def _request(self) -> None:
        if sum(not request.old for request in self._requests) < 2:
            self._requests.append(Request(f"r{next(self._names)}", list(range(len(self._chunks)))))

    def _open_window(self) -> None:
        waiting = [request for request in self._requests if request.todo]
        if not waiting:
            return
        request = self._random.choice(waiting)
        chunk = request.todo.pop()
        request.open_chunks.add(chunk)
        # the low watermark is between the bound, which is the log reader's position, and the end of the log.
        lows = [item.position for item in self._log[self._read :]] + [self._end] * 3
        keys = tuple(self._keys) if request.old else self._chunks[chunk]
        window = Window(request.name, chunk, keys, self._position, self._random.choice(lows))
        window.values = request.old | request.new
        if self.shape.loads and not request.old and self._random.random() < self.shape.loads:
            window.load = f"load{next(self._names)}"
        if request.first_bound is None or window.bound < request.first_bound:
            request.first_bound = window.bound
        self._windows.append(window)
        self._append(opened=window)

    def _move_windows(self) -> None:
        """The next step of some window: SELECT, give up, or rows committed and the close row written."""
        running = [window for window in self._windows if window.closed_at is None and (not window.load or window.is_marked)]
        ready = [window for window in running if not window.slow or self._is_idle]
        if not ready:
            return
        window = self._random.choice(ready)
        if window.slow and self._random.random() < 0.8:
            self._heartbeat()
        elif window.rows is None or (window.load and self._random.random() < 0.4):
            self._select(window)
        elif self._random.random() < self.shape.zombies:
            self._abandon(window)
        else:
            for row in window.rows if self.shape.merge == "spark" and not window.load else ():
                self._produce_row(row)
            window.closed_at = self._append(closed=window)

    def _select(self, window: Window) -> None:
        found = [(key, self.source[key]) for key in window.keys if key in self.source]
        wanted = [(key, value) for key, value in found if not window.values or value in window.values]
        window.rows = [Entry(key, window.low.text, row=value) for key, value in wanted]
        if window.load:
            self.loads.setdefault(window.load, []).append(window.rows)

    def _read_slowly(self) -> None:
        """A reader has its rows when parents go."""
        self.counts["slow readers"] += 1
        self._request()
        self._open_window()
        window = self._windows[-1]
        window.slow = True
        self._select(window)
        for _ in range(2):
            self._cascade()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is left to do but what slow readers do."""
        only_slow = all(window.slow for window in self._windows)
        return only_slow and self._read == len(self._log) and not any(request.todo for request in self._requests)

    def _abandon(self, window: Window) -> None:
        """The attempt leaves the register, its chunk is read again, some of its rows come late."""
        rows = window.rows or []
        if window.is_marked:
            self._select(window)
            self.counts["loads given up"] += 1
        elif self.shape.merge == "spark":
            self._zombies.extend(self._random.sample(rows, self._random.randint(0, len(rows))))
        self._windows.remove(window)
        self._read_again(window)

    def _read_again(self, window: Window) -> None:
        request = next(request for request in self._requests if request.name == window.request)
        request.open_chunks.discard(window.chunk)
        request.todo.append(window.chunk)

    def _late_row(self) -> None:
        if self._zombies:
            self._produce_row(self._zombies.pop(self._random.randrange(len(self._zombies))))
            self.counts["late rows"] += 1

    def _produce_row(self, row: Entry) -> None:
        partition = self.partition_of(str(row.key))
        self.snapshots[partition].append(Entry(row.key, row.version, row=row.row, partition=partition))

    # ── the log reader ────────────────────

    def _read_log(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            if self._read < len(self._log):
                self._read_item(self._log[self._read])

    def _read_item(self, item: LogItem) -> None:
        self._read += 1
        after = self._log[self._read].position if self._read < len(self._log) else self._end
        self._position = after
        for change in item.changes:
            self.changes[self.partition_of(str(change.key))].append(change)
        if item.opened is not None and item.opened in self._windows:
            self._mark(OpenMarker, window="w", request=item.opened.request, chunk=item.opened.chunk)
            if item.opened.load:
                self._mark_load(item.opened)
        if item.closed is not None:
            self._close(item.closed)
        if item.old is not None:
            new = frozenset({item.new} - {None})
            self._requests.append(Request(f"children-{next(self._names)}", [0], frozenset({item.old}), new))
        if item.truncates:
            self._mark(FloorMarker, position=item.position, reason="truncate", cause="truncate")

    def _mark_load(self, window: Window) -> None:
        window.is_marked = True
        where = {"window": window.load, "request": window.request, "chunk": window.chunk}
        self._mark(LoadMarker, low=window.low, query="", server="", value_schema=0, key_schema=0, **where)

    def _close(self, window: Window) -> None:
        """The close row was seen: the window leaves the register; the last one of a request completes it."""
        self._windows.remove(window)
        self.counts["windows"] += 1
        self._count_deletes(window)
        done = self.shape.merge == "spark" or self._write_buffered(window)
        name, is_loaded = window.load or "w", bool(window.load)
        self._mark(CloseMarker, window=name, request=window.request, chunk=window.chunk, loaded=is_loaded)
        self.counts["windows loaded"] += is_loaded
        if not done:
            self._read_again(window)
            return
        request = next(request for request in self._requests if request.name == window.request)
        request.open_chunks.discard(window.chunk)
        if not request.todo and not request.open_chunks:
            self._requests.remove(request)
            self.counts["complete snapshots"] += 1
            bound = request.first_bound
            assert bound is not None
            sweep = Sweep(("amount",), frozenset((str(value),) for value in request.old)) if request.old else None
            self.counts["sweeps of children"] += sweep is not None
            whole = {"request": request.name, "first_bound": bound, "whole_table": sweep is None, "rows": 0}
            self._mark(CompleteMarker, sweep=sweep, **whole)

    def _write_buffered(self, window: Window) -> bool:
        """Write the rows that the log did not touch between open and close; not at all across a truncate."""
        opened = next(number for number, item in enumerate(self._log) if item.opened is window)
        between = self._log[opened : self._read]
        if any(item.truncates for item in between):
            self.counts["windows read again"] += 1
            return False
        touched = {change.key for item in between for change in item.changes}
        for row in window.rows or ():
            if row.key in touched:
                self.counts["rows not written"] += 1
            else:
                self.changes[self.partition_of(str(row.key))].append(row)
                self.counts["rows written"] += 1
        return True

    def _count_deletes(self, window: Window) -> None:
        """Deletes of rows that the window has read: what would come back without tombstones."""
        assert window.closed_at is not None
        read = {row.key for row in window.rows or ()}
        for item in self._log:
            if window.low <= item.position < window.closed_at:
                self.counts["deletes in windows"] += sum(c.deleted and c.key in read for c in item.changes)

    def _heartbeat(self) -> None:
        self._mark(HeartbeatMarker)

    @property
    def _horizon(self) -> Position:
        return min([window.bound for window in self._windows] + [self._position])

    def _mark(self, kind: type[Marker], **details: object) -> None:
        ends = {number: len(records) for number, records in enumerate(self.changes) if records}
        common = {"position": self._position, "horizon": self._horizon, "change_offsets": ends}
        marker = kind(table=TABLE, partitions=self.shape.partitions, **common | details)  # type: ignore[arg-type]
        for one in marker.for_partitions():
            self.snapshots[one.partition].append(one)

    # ── losing log, and the end ────────────────────

    def _lose_log(self) -> None:
        """The rest of the log is gone unread: a new epoch, all windows aborted, a new snapshot."""
        for window in list(self._windows):
            self._abandon(window)
        self.counts["lost changes"] += sum(len(item.changes) for item in self._log[self._read :])
        self._epoch += 1
        self._offset = 4
        self._read = len(self._log)
        self._position = self._end
        self._requests = [Request(f"again-{self._epoch}", list(range(len(self._chunks))))]

    def _settle(self) -> None:
        """Everything comes to an end: windows, the log, late rows; markers say so."""
        if not self._requests and not self.shape.cascades:  # a last snapshot of the whole table would mend every sweep
            self._request()
        while self._requests or self._windows or self._read < len(self._log):
            self._open_window()
            self._move_windows()
            self._read_log()
        self._heartbeat()
        while self._zombies:
            self._late_row()


def batches(history: History, seed: int, most: int = 25) -> Iterator[Batch]:
    """The history's topics cut into batches: every partition at its own pace, everything read in the end."""
    rng = random.Random(seed)
    starts = {("c", n): 0 for n in range(history.shape.partitions)} | {
        ("s", n): 0 for n in range(history.shape.partitions)
    }
    topics = {("c", n): history.changes[n] for n in range(history.shape.partitions)} | {
        ("s", n): history.snapshots[n] for n in range(history.shape.partitions)
    }
    pace = {part: rng.choice((1.0, 1.0, 0.3, 0.05)) for part in topics}
    while any(starts[part] < len(topics[part]) for part in topics):
        records: list[Entry | Marker] = []
        for part, topic in topics.items():
            take = rng.randint(0, most) if rng.random() < pace[part] else 0
            records.extend(topic[starts[part] : starts[part] + take])
            starts[part] = min(len(topic), starts[part] + take)
        rng.shuffle(records)
        yield Batch(
            entries=tuple(record for record in records if isinstance(record, Entry)),
            markers=tuple(record for record in records if not isinstance(record, Entry)),
            end_offsets={n: starts["c", n] for n in range(history.shape.partitions)},
        )
