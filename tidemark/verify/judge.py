"""The judgement of suspects: keys that differed in the bulk comparison, decided while both sides move.

One round for a set of keys k:

1. progress := what the sink has applied; low := the source's current binlog position.
2. barrier: a committed row in the signal table. Every transaction at or before low is visible from now on
   (`binlog_order_commits=ON`, or MariaDB). Where nothing may be written, low is a position that the server
   reports to be visible.
3. SELECT the keys: S(k), the state after some position between low and high.
4. high := the current position. The barrier's row is deleted, so the log ends behind high.
5. wait until the sink's `applied_position` is at or past high; it then holds every change up to high.
6. read the keys from the sink: T(k) with its `_tm_position` v.
7. S(k) = T(k): equal. Else, with v: **v <= low: error.  v > low: the row was changed after low; read again.**

Why a moving row is never reported: take a sink that is right. T(k) is the state after the last change of k
that the sink has applied, which is all of those up to high and perhaps more. With v <= low there is no
change of k in (low, high], so S(k) is the state after v too, and S(k) = T(k). (A snapshot row's v is its
window's low watermark, a boundary at or after the last change it saw.) With v above it nothing is said.

Why a real difference is always reported: a wrong row has some v. It either stays as it is, and then the
first round with low >= v reports it; or it is changed again, which replaces the whole row, and the wrong
value is gone. A row changed in every round is counted as *moving*.

A row absent from the sink has no v. If the source has it, a delete after low may be the reason. It is an
error at once when the table rested: its change topic did not grow, and no floor was set, from before low
until the sink was past a position taken after step 6; no change of the table is in between then. On a
table that never rests it is an error when every round finds it so; a right sink is then blamed only if the
key was deleted, between reading and reading, and inserted again, in each of the rounds. The sink's row of a
key that the source does not have is judged by its v like any other.

The epoch of low and high is that of the sink's applied position. When the sink comes to another one meanwhile, nothing is
said: it is past every position of the old epoch, and need not hold what the new server has.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mysqlio.server_errors import ServerCode, ServerError, server_code
from schemas.errors import ConfigError, SourceError, TidemarkError
from schemas.identity import SourceTable
from schemas.position import Position
from tidemark.verify.applied import Applied, read_applied
from tidemark.verify.bulk_comparison import Block, TablePlan
from tidemark.verify.expected_rows import ExpectedRows
from tidemark.verify.report import ColumnDifference, Difference, DifferenceKind
from tidemark.verify.sink_reader import TargetRows
from tidemark.verify.source import Key, Source

_POLL_S: Final = 0.2
_PAUSE_S: Final = 1.0
_NOT_WRITTEN: Final = frozenset({ServerCode.TABLE_ACCESS_DENIED, ServerCode.NO_SUCH_TABLE, ServerCode.DATABASE_ACCESS_DENIED})
_ABSENT: Final = "(no row)"

Row = tuple[Any, ...]


class CannotJudgeError(TidemarkError):
    """The suspects could not be judged; the message says why."""


@dataclass(frozen=True, slots=True)
class SinkEnd:
    """Where the judge reads the sink: what opens the rows of `table` in a target as they are now, and the file of the progress."""

    table: SourceTable
    rows: Callable[[], TargetRows]
    progress_path: str


@dataclass(slots=True)
class Judgement:
    """The differences (in the order they were found), and the keys that moved in every round."""

    differences: list[Difference] = field(default_factory=list)
    moving: list[Key] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One round's readings: both sides' rows by key, low, and what was applied before it."""

    source: dict[Key, Row]
    sink: dict[Key, tuple[Row, str]]
    copies: Counter[Key]
    low: Position
    before: Applied


class Judge:
    """Judges the suspects of one table: `source` has positions, `expected` the rows. `patience_s` bounds each wait for the sink."""

    def __init__(
        self,
        plan: TablePlan,
        source: Source,
        expected: ExpectedRows,
        sink: SinkEnd,
        *,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._plan = plan
        self._source = source
        self._expected = expected
        self._sink = sink
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep

    def decide(self, suspects: Sequence[Key], rounds: int) -> Judgement:
        """Decide about each key in at most so many rounds. Raises `CannotJudgeError`."""
        result = Judgement()
        open_keys = list(dict.fromkeys(suspects))
        absences: Counter[Key] = Counter()
        for turn in range(rounds):
            if turn:
                self._sleep(_PAUSE_S)
            reading = self._read(open_keys)
            open_keys = [key for key in open_keys if not self._settle(key, reading, absences, result)]
            open_keys = self._absent_for_good(open_keys, reading, result)
            if not open_keys:
                return result
        for key in open_keys:
            if absences[key] == rounds:
                result.differences.append(self._missing(key, reading.source[key]))
            else:
                result.moving.append(key)
        return result

    # --- one round ---------------------------------------------------------------------------------------

    def _read(self, keys: Sequence[Key]) -> _Reading:
        before = self._applied()
        reached = self._within_source(before)
        if reached is None:
            raise CannotJudgeError(f"the sink has not reported how far it is with this table ({self._sink.progress_path})")
        low, high, rows = self._read_source(reached.epoch, keys)
        self._wait_for(high)
        wanted = set(keys)
        sink_rows: dict[Key, tuple[Row, str]] = {}
        copies: Counter[Key] = Counter()
        for key, row, position in self._sink_rows(keys):
            if key in wanted:
                copies[key] += 1
                sink_rows[key] = (row, position)
        return _Reading(rows, sink_rows, copies, low, before)

    def _read_source(self, epoch: int, keys: Sequence[Key]) -> tuple[Position, Position, dict[Key, Row]]:
        """low, high and the rows between them."""
        ident = str(uuid.uuid4())
        low = self._barrier(epoch, ident)
        wanted = set(keys)
        rows: dict[Key, Row] = {}
        for block in self._expected.read_keys(keys):
            rows |= {key: row for key, row in _rows(self._plan, block) if key in wanted}
        high = self._source.position(epoch)
        self._source.end_barrier(ident)
        return low, high, rows

    def _barrier(self, epoch: int, ident: str) -> Position:
        try:
            return self._source.barrier(epoch, ident)
        except (ConfigError, SourceError) as error:
            raise CannotJudgeError(str(error)) from error
        except ServerError as error:
            denied = server_code(error) in _NOT_WRITTEN
            hint = "; verify needs INSERT on the signal table" if denied else ""
            raise CannotJudgeError(f"the barrier row could not be written: {error}{hint}") from error

    def _wait_for(self, wanted: Position) -> Applied:
        deadline = self._clock() + self._patience_s
        while True:
            applied = self._applied()
            position = self._within_source(applied)
            if position is not None and position.epoch != wanted.epoch:
                message = "its log became another one meanwhile (another server took its place, or a reset): verify again"
                raise CannotJudgeError(message)
            if position is not None and position >= wanted:
                return applied
            if self._clock() >= deadline:
                at = position.text if position else "an unknown position"
                raise CannotJudgeError(
                    f"the sink is behind: at {at}, wanted {wanted.text}, after {self._patience_s:.0f} s;"
                    " is the producer running, and the merge job?"
                )
            self._sleep(_POLL_S)

    def _applied(self) -> Applied:
        return read_applied(self._sink.progress_path, self._sink.table)

    def _within_source(self, applied: Applied) -> Position | None:
        """Return the sink's position in the log of the source that is read here; those of other logs cannot be compared with it."""
        return None if applied.position is None else applied.position.within(self._sink.table.source)

    def _sink_rows(self, keys: Sequence[Key]) -> Iterator[tuple[Key, Row, str]]:
        wanted = self._plan.hash_keys(self._plan.key_columns(keys))
        sink = self._sink.rows()
        near = sink.near_values(self._plan.key_rules[0], [key[0] for key in keys])
        for block, positions in sink.read_with_positions(self._plan.rules, near):
            hashes = self._plan.hash_keys([block[index] for index in self._plan.key_indexes])
            chosen = pa.array(np.nonzero(np.isin(hashes, wanted))[0])
            rows = [column.take(chosen) for column in block]
            texts = positions.take(chosen).to_pylist()
            for (key, row), position in zip(_rows(self._plan, rows), texts, strict=True):
                yield key, row, position or ""

    # --- the decision ------------------------------------------------------------------------------------

    def _settle(self, key: Key, reading: _Reading, absences: Counter[Key], result: Judgement) -> bool:
        """Decide about one key if this reading allows it; True when it is decided."""
        ours = reading.source.get(key)
        found = reading.sink.get(key)
        if found is None:
            absences[key] += ours is not None
            return ours is None
        theirs, position = found
        if reading.copies[key] > 1:
            result.differences.append(Difference(DifferenceKind.DUPLICATE, self._named(key), (), position))
            return True
        if ours is not None and self._differing(ours, theirs) == ():
            return True
        if position > reading.low.text:
            return False
        result.differences.append(self._wrong(key, ours, theirs, position))
        return True

    def _absent_for_good(self, keys: list[Key], reading: _Reading, result: Judgement) -> list[Key]:
        """Decide about keys that only the source has, if the table rested meanwhile; the keys still open."""
        absent = [key for key in keys if key in reading.source and key not in reading.sink]
        if not absent or not self._applied().rested_since(reading.before):
            return keys
        # The barrier's row in the log is behind this position: the sink can get there.
        ident = str(uuid.uuid4())
        after = self._barrier(reading.low.epoch, ident)
        self._source.end_barrier(ident)
        if not self._wait_for(after).rested_since(reading.before):
            return keys
        result.differences.extend(self._missing(key, reading.source[key]) for key in absent)
        settled = set(absent)
        return [key for key in keys if key not in settled]

    def _wrong(self, key: Key, ours: Row | None, theirs: Row, position: str) -> Difference:
        if ours is None:
            shown = tuple(
                ColumnDifference(rule.name, _ABSENT, rule.shown(value))
                for rule, value in zip(self._plan.rules, theirs, strict=True)
            )
            return Difference(DifferenceKind.EXTRA, self._named(key), shown, position)
        return Difference(DifferenceKind.VALUE, self._named(key), self._differing(ours, theirs), position)

    def _missing(self, key: Key, ours: Row) -> Difference:
        shown = tuple(
            ColumnDifference(rule.name, rule.shown(value), _ABSENT)
            for rule, value in zip(self._plan.rules, ours, strict=True)
        )
        return Difference(DifferenceKind.MISSING, self._named(key), shown)

    def _differing(self, ours: Row, theirs: Row) -> tuple[ColumnDifference, ...]:
        return tuple(
            ColumnDifference(rule.name, rule.shown(left), rule.shown(right))
            for rule, left, right in zip(self._plan.rules, ours, theirs, strict=True)
            if not rule.equal(left, right)
        )

    def _named(self, key: Key) -> dict[str, str]:
        return {rule.name: rule.shown(value) for rule, value in zip(self._plan.key_rules, key, strict=True)}


def _rows(plan: TablePlan, block: Block) -> Iterator[tuple[Key, Row]]:
    """Key and row of each row of a block, as Python values."""
    for row in zip(*(column.to_pylist() for column in block), strict=True):
        yield tuple(row[index] for index in plan.key_indexes), row
