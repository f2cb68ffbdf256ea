"""What markers say to a sink that lacks the beginning of a table's topics."""

from __future__ import annotations

import pytest

from schemas.identity import SourceId, SourceTable
from schemas.markers import FloorMarker, HeartbeatMarker
from schemas.merge_rule import TableState
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.table_topics import noted, without_conclusions
from tests.merge.lake import at

ORDERS = SourceTable.of(SourceId("p"), "shop", "orders")


@pytest.mark.parametrize(
    ("starts", "floor_at", "believed"),
    [
        (0, 100, True),  # all is there
        (5, 100, False),  # rows that came after the CREATE may be gone
        (5, 200, False),  # of the very place from which on all is there
        (5, 300, True),
    ],
)
def test_that_a_table_was_empty_counts_only_where_all_that_came_since_is_at_hand(starts: int, floor_at: int, believed: bool) -> None:
    common = {"table": "shop.orders", "horizon": at(100), "partitions": 1}
    early = HeartbeatMarker(**common, position=at(200), change_offsets={0: 7})  # type: ignore[arg-type]
    made = FloorMarker(**common, position=at(floor_at), change_offsets={0: 9}, reason="create", empty=True)  # type: ignore[arg-type]
    work = TableInput(
        *(ORDERS, "p.shop.orders", "p-snapshot.shop.orders"),
        {0: 9},
        {0: 2},
        markers=(early, made),
        change_starts={0: starts},
        trimmed=starts > 0,
    )
    record, markers = noted(SourceRecord(), work)
    assert (record.state.advance(markers, {0: 9}).consistent_at != "") == believed


def test_that_a_table_was_empty_does_not_count_once_records_after_it_are_gone() -> None:
    waiting = SourceRecord(TableState(emptied=at(100).text))
    work = TableInput(ORDERS, "p.shop.orders", "p-snapshot.shop.orders", {0: 9}, {0: 2}, lost="gone")
    marks = HeartbeatMarker(table="shop.orders", position=at(200), horizon=at(200), partitions=1, change_offsets={0: 9})
    assert waiting.state.advance([marks], {0: 9}).consistent_at == at(100).text
    assert without_conclusions(waiting, work).state.advance([marks], {0: 9}).consistent_at == ""
