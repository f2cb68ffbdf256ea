"""What is remembered of loads, without Spark: windows once, however their markers come; bounded; the same after a restart."""

from __future__ import annotations

from dataclasses import replace

from schemas.json_codec import decode, encode
from schemas.loads import LoadAnswer
from schemas.markers import CloseMarker, HeartbeatMarker, LoadMarker, Marker
from schemas.merge_rule import TableState
from schemas.position import Position
from spark_jobs.merge.load_record import LoadRecord
from tests.merge.lake import at

PARTITIONS = 2


def load(window: str, low: int, partition: int = 0, position: int | None = None) -> LoadMarker:
    where = {"position": at(low if position is None else position), "horizon": Position.MINIMUM}
    return LoadMarker(
        **where, partitions=PARTITIONS, partition=partition, table="t", window=window, request="r", chunk=0, low=at(low),
        query="SELECT 'ä'", server="s", value_schema=1, change_offsets={0: 5},
    )  # fmt: skip


def close(window: str, *, loaded: bool = True) -> CloseMarker:
    where = {"position": at(500), "horizon": Position.MINIMUM, "partitions": PARTITIONS, "table": "t"}
    return CloseMarker(**where, window=window, request="r", chunk=0, loaded=loaded)


def promised(*horizons: int) -> TableState:
    """The state of a table after a marker with that horizon in each partition."""
    common = {"position": at(900), "partitions": PARTITIONS, "table": "t"}
    return TableState().read([HeartbeatMarker(**common, horizon=at(one), partition=n) for n, one in enumerate(horizons)], {})


def noted(record: LoadRecord, *markers: Marker, state: TableState | None = None) -> LoadRecord:
    return record.noted(markers, state or TableState())


def test_a_window_is_pending_once_in_the_order_of_the_log_and_survives_a_restart() -> None:
    record = noted(LoadRecord(), load("b", 20), load("b", 20, 1), load("z", 10), load("a", 20))
    record = noted(record, load("z", 10, 1))
    assert [one.window for one in record.pending] == ["z", "a", "b"]
    assert decode(LoadRecord, encode(record)) == record
    done = record.answered(record.pending[0], LoadAnswer("z", 3)).answered(record.pending[1], LoadAnswer("a", error="x", retry=True))
    assert decode(LoadRecord, encode(done)) == done
    assert [one.window for one in done.pending] == ["b"]
    assert noted(done, load("z", 10, 1), load("a", 20, 1)) == done, "copies of what was answered"
    assert done.without_answers(["z"]).answers == (LoadAnswer("a", error="x", retry=True),)


def test_a_window_below_the_horizon_of_any_partition_is_dropped_and_one_at_it_is_not() -> None:
    markers = load("low", 10), load("at", 20)
    assert [one.window for one in noted(LoadRecord(), *markers, state=promised(20, 5)).pending] == ["at"]
    waits = noted(LoadRecord(), *markers)
    assert [one.window for one in noted(waits, state=promised(5, 20)).pending] == ["at"]


def test_a_window_that_was_carried_out_is_remembered_until_every_partition_is_beyond_it() -> None:
    record = noted(LoadRecord(), load("w", 20))
    record = record.answered(record.pending[0], LoadAnswer("w", 1))
    assert "w" in noted(record, state=promised(30, 20)).done
    assert noted(record, state=promised(30, 21)).done == {}


def test_rows_are_missing_where_a_window_was_closed_as_loaded_and_not_put_here() -> None:
    record = noted(LoadRecord(), load("put", 20), load("refused", 20), load("waits", 20))
    by_name = {one.window: one for one in record.pending}
    record = record.answered(by_name["put"], LoadAnswer("put", 1)).answered(by_name["refused"], LoadAnswer("refused", error="x"))
    assert not record.lacks([close("put"), close("other", loaded=False), replace(close("put"), partition=1)])
    assert all(record.lacks([close("put"), close(window)]) for window in ("refused", "waits", "other"))
