"""Random tables of all column kinds, with random rows."""

from __future__ import annotations

import os
from random import Random
from typing import Any

from hypothesis import strategies as st

from schemas.columns import Column, ColumnType, TableSchema
from tests.codec.kinds import KINDS, Kind, named

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
ROWS = 100 if JIT else 10
WIDTH = 15  # columns of a table


class RandomTable:
    """Columns and rows of one example; the first column is the key."""

    def __init__(
        self, kinds: tuple[Kind, ...], nullable: tuple[bool, ...], rows: tuple[tuple[Any, ...], ...]
    ) -> None:
        self.kinds, self.nullable, self.rows = kinds, nullable, rows

    def __repr__(self) -> str:
        return f"<{len(self.kinds)} columns, {len(self.rows)} rows>"

    def schema(self, database_name: str, name: str) -> TableSchema:
        columns = [
            named(kind, f"c{index}", nullable=nullable)
            for index, (kind, nullable) in enumerate(zip(self.kinds, self.nullable, strict=True))
        ]
        return TableSchema(database_name, name, (Column("id", ColumnType.INT, False), *columns), ("id",))

    def ddl(self, name: str) -> str:
        columns = ", ".join(
            f"c{index} {kind.sql} {'NULL' if nullable else 'NOT NULL'}"
            + (" DEFAULT '1999-01-01'" if kind.column.type is ColumnType.TIMESTAMP and not nullable else "")
            for index, (kind, nullable) in enumerate(zip(self.kinds, self.nullable, strict=True))
        )
        return f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC"


@st.composite
def tables(draw: st.DrawFn, server: str, rows: int = ROWS) -> list[RandomTable]:
    """All column kinds of a server, dealt to random tables; values come from a pool per column, rows mix the pools."""
    random = Random(draw(st.integers(0, 2**32)))
    offered = [kind for kind in KINDS if server in kind.servers]
    random.shuffle(offered)
    return [_table(draw, random, offered[first : first + WIDTH], rows) for first in range(0, len(offered), WIDTH)]


def _table(draw: st.DrawFn, random: Random, kinds: list[Kind], count: int) -> RandomTable:
    nullable = tuple(random.random() < 0.6 for _ in kinds)
    pools = [draw(st.lists(kind.values, min_size=3, max_size=9)) for kind in kinds]
    rows = tuple(
        tuple(
            None if null and random.random() < 0.15 else random.choice(pool)
            for pool, null in zip(pools, nullable, strict=True)
        )
        for _ in range(count)
    )
    return RandomTable(tuple(kinds), nullable, rows)
