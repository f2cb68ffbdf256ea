"""The planner: divides a table into key ranges, one at a time, ahead of the chunk readers.

A table that fits one chunk is one unbounded range. Otherwise its largest key is read behind a barrier (rows
with larger keys are in the log), and the ranges up to it are

* by arithmetic if the key is one integer and dense enough: no query per range;
* else by walking the index: a query per range and column of the key, `ORDER BY key LIMIT 1 OFFSET n-1`, with the n rows
  of one chunk: its cost grows with the chunk, never with the table.

A table without a PRIMARY KEY is cut by its first unique key of NOT NULL columns, or by the column a signal chose
(`surrogate-key`); without any of these it is one range.

The first range is unbounded below. What was planned is in `Plan`, so that planning continues after a restart
behind the last range; a range is never planned twice and none is left out, whatever is inserted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mysqlio.connection import server_version
from producer.snapshot.ranges import (
    Key,
    KeyRange,
    after_by_level,
    as_text,
    is_plain_integer,
    key_identity,
    range_key,
    table_name,
    up_to,
    where,
)
from producer.snapshot.watermark import LowWatermark
from schemas.columns import TableSchema
from schemas.documents import PlanDocument

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.pace import ChunkSizes

MAX_SPARSENESS: Final = 4.0


def estimated_rows(connection: Connection, table: TableSchema) -> tuple[int, int]:
    """Return rows and bytes of a table by the engine's statistics: a guess, for progress and chunk sizes only."""
    with connection.cursor() as cursor:
        if _has_cached_statistics(connection):
            cursor.execute("SET SESSION information_schema_stats_expiry = 0")
        cursor.execute(
            "SELECT table_rows, data_length FROM information_schema.tables "
            "WHERE table_schema = %s AND table_name = %s",
            (table.database, table.name),
        )
        row = cursor.fetchone() or (0, 0)
    return int(row[0] or 0), int(row[1] or 0)


def _has_cached_statistics(connection: Connection) -> bool:
    version = server_version(connection)
    return "mariadb" not in version.lower() and not version.startswith(("5.", "4."))


class TablePlanner:
    """A planner of one table version. `barrier` commits a window row and returns once the log reader has read it.

    `sizes` are for the table's first chunks; `next` may be given another size, which then holds for that chunk.
    """

    def __init__(
        self,
        connection: Connection,
        table: TableSchema,
        sizes: ChunkSizes,
        barrier: Callable[[], LowWatermark],
        surrogate: str | None = None,
    ) -> None:
        self._surrogate = surrogate
        self._key = range_key(table, surrogate)
        self._connection = connection
        self._table = table
        self._sizes = sizes
        self._barrier = barrier

    def next(self, plan: PlanDocument, rows: int = 0) -> tuple[KeyRange, PlanDocument] | None:
        """Return the next range, of about `rows` rows, and the plan that includes it; None when the plan is complete.

        0 rows: as many as the table's first chunks. The plan does not rest on the sizes of its chunks: another process may
        continue it with others.
        """
        if plan.complete:
            return None
        if plan.cap is None:
            plan = self._begin()
            if plan.cap is None:
                return KeyRange(), replace(plan, complete=True)
        rows = rows or plan.rows_per_chunk
        if plan.step:
            return self._by_arithmetic(plan, max(1, plan.step * rows // plan.rows_per_chunk))
        return _planned(plan, self._probe(plan, rows) or plan.cap)

    def _begin(self) -> PlanDocument:
        rows, size_bytes = estimated_rows(self._connection, self._table)
        plan = PlanDocument(
            key=key_identity(self._table, self._surrogate),
            rows_per_chunk=self._sizes.first(rows, size_bytes),
        )
        if not self._key.columns or self._probe(plan, plan.rows_per_chunk) is None:
            return plan
        cap, low = largest_key(self._connection, self._table, self._barrier, self._surrogate)
        step = self._step(rows, cap, plan.rows_per_chunk)
        return replace(plan, cap=cap, cap_low=low.position, step=step)

    def _step(self, rows: int, cap: Key | None, per_chunk: int) -> int | None:
        key = self._key.columns
        first = outer_key(self._connection, self._table, "ASC", self._surrogate)
        if len(key) != 1 or not is_plain_integer(key[0]) or first is None or cap is None or rows <= 0:
            return None
        if not self._key.unique:
            return None
        sparseness = (int(cap[0]) - int(first[0]) + 1) / rows
        if sparseness > MAX_SPARSENESS:
            return None
        return max(1, int(per_chunk * max(sparseness, 1.0)))

    def _by_arithmetic(self, plan: PlanDocument, step: int) -> tuple[KeyRange, PlanDocument]:
        assert plan.cap is not None
        cap = int(plan.cap[0])
        if plan.upto is None:
            first = outer_key(self._connection, self._table, "ASC", self._surrogate)
            upper = cap if first is None else int(first[0]) + step - 1
        else:
            upper = int(plan.upto[0]) + step
        return _planned(plan, plan.cap if upper >= cap else (str(upper),))

    def _probe(self, plan: PlanDocument, rows_ahead: int) -> Key | None:
        """Return the key that is so many rows behind the last range; None when there are fewer. The index is read so far only."""
        key = self._key
        levels = [""] if plan.upto is None else [f" WHERE {one}" for one in after_by_level(key.columns, plan.upto)]
        is_planned = "TRUE" if plan.cap is None else up_to(key.columns, plan.cap)
        with self._connection.cursor() as cursor:
            for number, level in enumerate(levels):
                source = f"{table_name(self._table)}{key.hint}{key.with_values(level)}"
                cursor.execute(
                    f"SELECT {key.select}, {is_planned} FROM {source} "  # noqa: S608 - quoted
                    f"ORDER BY {key.order()} LIMIT 1 OFFSET {rows_ahead - 1}"
                )
                found = cursor.fetchone()
                if found is not None:
                    return key_of(found[:-1]) if found[-1] else None
                if number + 1 < len(levels):
                    cursor.execute(f"SELECT COUNT(*) FROM (SELECT 1 AS n FROM {source} LIMIT {rows_ahead}) AS d")  # noqa: S608
                    rows_ahead = max(1, rows_ahead - int((cursor.fetchone() or (0,))[0]))
        return None


def largest_key(
    connection: Connection, table: TableSchema, barrier: Callable[[], LowWatermark], surrogate: str | None = None
) -> tuple[Key | None, LowWatermark]:
    """Return the table's largest key, read behind a barrier, and the barrier's low watermark; None for an empty table.

    A row with a larger key is in the log behind the low watermark. Without the barrier that is not so: a row may be in
    the log already and not yet be visible to this query.
    """
    low = barrier()
    return outer_key(connection, table, "DESC", surrogate), low


def outer_key(
    connection: Connection, table: TableSchema, direction: str, surrogate: str | None = None
) -> Key | None:
    """Return the first key in ASC or DESC order, None for an empty table."""
    key = range_key(table, surrogate)
    source = f"{table_name(table)}{key.hint}{key.with_values('')}"
    sql = f"SELECT {key.select} FROM {source} ORDER BY {key.order(direction)} LIMIT 1"  # noqa: S608 - quoted
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return key_of(cursor.fetchone())


def key_of(row: Sequence[Any] | None) -> Key | None:
    """Return the key of a row of `select_expression`s."""
    return None if row is None else tuple(as_text(value) for value in row)


def split_bounds(
    connection: Connection,
    table: TableSchema,
    bounds: KeyRange,
    rows: int,
    condition: str | None = None,
    surrogate: str | None = None,
) -> list[Key]:
    """Return keys that divide a range into pieces of about `rows` rows, in order; an empty list if the range is smaller."""
    key = range_key(table, surrogate)
    found: list[Key] = []
    if not key.columns:
        return found
    with connection.cursor() as cursor:
        while True:
            rest = KeyRange(found[-1] if found else bounds.lower, bounds.upper)
            cursor.execute(
                f"SELECT {key.select} FROM {table_name(table)}{key.hint}"  # noqa: S608 - quoted
                f"{key.with_values(where(key.columns, rest, condition))} ORDER BY {key.order()} "
                f"LIMIT 1 OFFSET {max(0, rows - 1)}"
            )
            key_at = key_of(cursor.fetchone())
            if key_at is None or key_at == bounds.upper:
                return found
            found.append(key_at)


def _planned(plan: PlanDocument, upper: Key) -> tuple[KeyRange, PlanDocument]:
    return KeyRange(plan.upto, upper), replace(plan, upto=upper, complete=upper == plan.cap)
