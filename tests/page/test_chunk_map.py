"""The chunks of a table as cells: a cell has the state that needs most attention."""

from __future__ import annotations

from schemas.documents import ChunkDocument, PlanDocument, SnapshotState, TaskDocument
from tidemark.status.chunk_map import CELLS, ChunkState, chunk_map

PLAN = PlanDocument((), None, None, None, None, 10, complete=False)


def task(next_chunk: int, *open_chunks: int, failed: int | None = None) -> TaskDocument:
    chunks = [ChunkDocument(one, None, None, 0, "lost connection" if one == failed else "") for one in open_chunks]
    return TaskDocument(
        request="r", table="shop.a", condition=None, state=SnapshotState.RUNNING, status="", error="", rows=0, estimate=None,
        chunks_done=next_chunk - len(open_chunks), next_chunk=next_chunk, plan=PLAN, outstanding=tuple(chunks), first_bound=None,
        last_close=None,
    )  # fmt: skip


def test_each_chunk_has_a_cell_where_there_are_few() -> None:
    found = chunk_map(task(5, 2, 3, 4, failed=4), {3})

    assert found.cells == (ChunkState.DONE, ChunkState.DONE, ChunkState.OPEN, ChunkState.READING, ChunkState.RETRIED)
    assert (found.planned, found.done, found.is_planned, found.per_cell) == (5, 2, False, 1)
    assert found.errors == ("lost connection",)


def test_many_chunks_share_cells_and_none_is_hidden_behind_a_good_one() -> None:
    found = chunk_map(task(10 * CELLS, 7, 8, failed=8), {7})

    assert len(found.cells) == CELLS
    assert found.cells[0] is ChunkState.RETRIED
    assert set(found.cells[1:]) == {ChunkState.DONE}


def test_a_table_without_a_plan_has_no_cell() -> None:
    assert chunk_map(task(0), set()).cells == ()
