"""What a target must have of one source table: read from the source, in blocks of columns of common type, one per rule.

`TextRows` are the columns as they are, read as text. `ImageRows` are what the plan makes of the rows (`image_rows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.overriding import override

if TYPE_CHECKING:
    from tidemark.verify.bulk_comparison import TablePlan
    from tidemark.verify.source import Key, Source

Spans = Sequence[tuple[int | None, int | None]]


class ExpectedRows(ABC):
    """The rows that a target must have of one table."""

    failing: frozenset[Key] = frozenset()
    """Keys of rows, of those that were read, on which an expression fails: they have no image, and are in quarantine."""

    @abstractmethod
    def read_all(self, *, in_key_order: bool) -> Iterator[list[pa.Array]]:
        """Read all rows; in the order of the key, where that is one integer column."""

    @abstractmethod
    def read_between(self, spans: Spans) -> Iterator[list[pa.Array]]:
        """Read the rows whose (single, integer) key is in one of the half-open spans; None is no boundary."""

    @abstractmethod
    def read_keys(self, keys: Sequence[Key]) -> Iterator[list[pa.Array]]:
        """Read the rows of these keys, and perhaps of keys that the server holds equal (collations)."""


class TextRows(ExpectedRows):
    """The rows as they are, over the connection of `source`: for one thread."""

    def __init__(self, source: Source, plan: TablePlan) -> None:
        self._source = source
        self._plan = plan

    @override
    def read_all(self, *, in_key_order: bool) -> Iterator[list[pa.Array]]:
        return self._source.read_all(self._plan.table, self._plan.rules, in_key_order=in_key_order)

    @override
    def read_between(self, spans: Spans) -> Iterator[list[pa.Array]]:
        return self._source.read_between(self._plan.table, self._plan.rules, spans)

    @override
    def read_keys(self, keys: Sequence[Key]) -> Iterator[list[pa.Array]]:
        return self._source.read_keys(self._plan.table, self._plan.rules, self._plan.key_rules, keys)
