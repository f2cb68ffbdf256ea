"""What verification reads of a sink: an interface that each type of sink implements. No Spark, no JVM.

A `SinkReader` is a configured sink; it opens targets. `TargetRows` are the rows of one target. All that a type has to give is the
columns and the rows, as Arrow; comparison, judgement and report are the same for each. `tests/verify/test_reader_behaviour.py`
tests every implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from schemas.identity import TableName
from tidemark.verify.column_rule import ColumnRule

POSITION_COLUMN: Final = "_tm_position"
SOURCE_COLUMN: Final = "_tm_source"


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The rows whose column `name`, an integer, is at or above `first` and below `end`; None is no boundary."""

    name: str
    first: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The rows whose column `name`, an integer, has one of these values."""

    name: str
    values: tuple[int, ...]


Near = KeySpan | KeyValues


class TargetRows(ABC):
    """The rows of one target; with `source` (its text) those of that source table alone.

    Used by one thread. Each `scan` shows one committed state of the target, not older than its opening; a type that can shows the
    same state each time. A type that can ask for the rows of one source table may do so in `scan`; what it gives is filtered here.
    """

    def __init__(self, source: str | None = None) -> None:
        self.source = source
        self.kept: str | None = None
        """The column that is true in rows that are deleted at the source, of a target that keeps them: `read` leaves them out."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Names and Arrow types of all columns: also `POSITION_COLUMN`, and `SOURCE_COLUMN` where several tables go into it."""

    @abstractmethod
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, each row once, in batches and in any order.

        `near` is a hint: rows outside of it may be left out, and need not be. A value that cannot be read is a `pa.ArrowException`
        or an `OSError`.
        """

    def total(self) -> int:
        """Return the number of rows, of all source tables."""
        return sum(batch.num_rows for batch in self.scan([POSITION_COLUMN]))

    # --- what follows from it ----------------------------------------------------------------------------

    def find(self, name: str) -> pa.Field | None:
        """Find the column of that name: as written, else in other case; None when there is none."""
        if name in self.schema.names:
            return self.schema.field(name)
        for candidate in self.schema.names:
            if candidate.casefold() == name.casefold():
                return self.schema.field(candidate)
        return None

    def count(self) -> int:
        """Return the number of rows, as `read` gives them."""
        if self.source is None and self.kept is None:
            return self.total()
        return sum(batch.num_rows for batch in self.read([POSITION_COLUMN]))

    def count_of_others(self, sources: Sequence[str]) -> int:
        """Return the number of rows that are of none of these source tables."""
        known, found = pa.array(sources, pa.string()), 0
        for batch in self.scan([SOURCE_COLUMN]):
            found += pc.sum(pc.invert(pc.is_in(batch[SOURCE_COLUMN].cast(pa.string()), known))).as_py() or 0
        return found

    def read(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        """Yield these columns, and perhaps others, of the rows of the source table, or of all without one; no batch is empty."""
        asked = [SOURCE_COLUMN] * (self.source is not None) + ([] if self.kept is None else [self.kept])
        for batch in self.scan(list(dict.fromkeys([*columns, *asked])), near):
            own = batch if self.source is None else batch.filter(pc.equal(batch[SOURCE_COLUMN].cast(pa.string()), self.source))
            if self.kept is not None:
                own = own.filter(pc.invert(pc.fill_null(own[self.kept], fill_value=False)))
            if own.num_rows:
                yield own

    def read_all(self, rules: Sequence[ColumnRule], near: Near | None = None) -> Iterator[list[pa.Array]]:
        """Read the rows as columns of common type."""
        for batch in self.read([rule.sink_name for rule in rules if rule.sink_name is not None], near):
            yield [_common(rule, batch) for rule in rules]

    def read_with_positions(
        self, rules: Sequence[ColumnRule], near: Near | None = None
    ) -> Iterator[tuple[list[pa.Array], pa.Array]]:
        """Read the same with the position of each row, as text."""
        names = [rule.sink_name for rule in rules if rule.sink_name is not None]
        for batch in self.read([*names, POSITION_COLUMN], near):
            yield [_common(rule, batch) for rule in rules], batch[POSITION_COLUMN].cast(pa.string())

    def near_values(self, key_rule: ColumnRule, values: Sequence[Any]) -> KeyValues | None:
        """Return a hint for the rows with one of these (common) first key values; None where there can be none."""
        if not key_rule.ordered or key_rule.sink_name is None:
            return None
        if not pa.types.is_integer(self.schema.field(key_rule.sink_name).type):
            return None
        return KeyValues(key_rule.sink_name, tuple(sorted(set(values))))


def _common(rule: ColumnRule, batch: pa.RecordBatch) -> pa.Array:
    if rule.sink_name is None:
        return pa.nulls(batch.num_rows, rule.common)
    return rule.from_sink(batch.column(rule.sink_name))


class SinkReader(ABC):
    """A configured sink, opened for reading once per verification; any thread may call it."""

    @abstractmethod
    def rows(self, target: TableName, source: str | None = None) -> TargetRows:
        """Open a target as it is now; with `source` the rows of that source table, of several that go into it.

        Raises `IncomparableError`, with the sink's word for a target, where there is none yet or it cannot be read.
        """

    @abstractmethod
    def targets(self) -> Iterator[TableName]:
        """Yield the names of all targets that the sink has, also of those that no table goes into any longer.

        A sink that cannot be asked for them yields none.
        """
