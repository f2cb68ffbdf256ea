"""Differences of rows by their transaction: blocks, XA, positions, versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.comparison import Comparison
from tests.compare.test_differences import judged
from tidemark.api.record_decoding import Record


def row_of_transaction(prefix: str, block: Any, **source: Any) -> Record:
    reported = {"name": prefix, "file": "binlog.000001", "pos": 5, "gtid": "u:1", "sequence": None, "ts_us": 7, **source}
    value = {"before": None, "after": {"v": 1}, "source": reported, "op": "c", "ts_ms": 1, "transaction": block}
    return Record("t", 0, 1, None, {"schema": None, "payload": value}, {})


BLOCK = {"id": "u:1", "total_order": 1, "data_collection_order": 1}
SEQUENCE = "0000.0000000001.000000000005.0000000001"


def test_a_row_without_a_transaction_block_is_one_of_xa_only_where_others_have_one() -> None:
    left, right = row_of_transaction("left", None), row_of_transaction("right", {**BLOCK, "id": "u:2"}, gtid="u:2", sequence=SEQUENCE)
    assert Comparison("mysql", "left", "right").judge("t", left, right).problems == ()
    without = Comparison("mysql", "left", "right", has_blocks=False)
    problems = without.judge("t", left, right).problems
    assert [name for name in ("source.gtid", "value.transaction") if any(name in problem for problem in problems)] == [
        "source.gtid",
        "value.transaction",
    ]
    assert without.xa == set()


def test_rows_of_xa_transactions_may_be_committed_in_another_file_than_they_were_prepared_in() -> None:
    left = row_of_transaction("left", None)
    right = row_of_transaction("right", BLOCK, file="binlog.000002", sequence=SEQUENCE.replace("1.", "2.", 1))
    assert Comparison("mysql", "left", "right").judge("t", left, right).problems == ()
    for wrong in ({"ts_us": 6}, {"file": "binlog.000001", "pos": 4}, {"gtid": "v:1"}):
        source = {**right.value["payload"]["source"], **wrong}
        block = {**BLOCK, "id": source["gtid"]}
        falsified = replace(right, value={"schema": None, "payload": {**right.value["payload"], "source": source, "transaction": block}})
        assert Comparison("mysql", "left", "right").judge("t", left, falsified).problems


def mariadb_row(prefix: str, pos: int, sequence: str | None = SEQUENCE, **source: Any) -> Record:
    reported = {"pos": pos, "gtid": "0-1-5", "sequence": sequence, **source}
    return row_of_transaction(prefix, None, **reported)


@pytest.mark.parametrize(
    ("debezium", "ours", "ordinal", "count"),
    [(5, 9, 1, 0), (5, 5, 1, 0), (4, 9, 1, 1), (5, 3, 1, 2), (5, 9, 0, 2), (6, 9, 1, 1)],
)
def test_a_later_position_on_mariadb_is_excused_only_in_its_own_transaction(debezium: int, ours: int, ordinal: int, count: int) -> None:
    sequence = f"0000.0000000001.000000000005.{ordinal:010d}"
    pair = mariadb_row("left", debezium, None), mariadb_row("right", ours, sequence)
    assert judged(Comparison("mariadb", "left", "right"), *pair) == count
    assert judged(Comparison("mysql", "left", "right"), *pair) >= (debezium != ours)


def test_a_position_on_mariadb_behind_the_next_transaction_is_noticed() -> None:
    second = SEQUENCE.replace("5.", "20.").replace("00020", "0020")
    for pos, count in ((19, 0), (20, 1), (1_000_000, 1)):
        comparison = Comparison("mariadb", "left", "right")
        assert judged(comparison, mariadb_row("left", 5, None), mariadb_row("right", pos)) == 0
        assert judged(comparison, mariadb_row("left", 20, None, gtid="0-1-6"), mariadb_row("right", 25, second, gtid="0-1-6")) == count


@pytest.mark.parametrize(
    ("pos", "sequence", "count"),
    [
        (30, "0000.0000000001.000000000005.0000000002", 0),
        (30, "0000.0000000001.000000000005.0000000001", 1),
        (3, "0000.0000000001.000000000005.0000000002", 1),
        (30, "0000.0000000001.000000000006.0000000002", 1),
        (30, "0001.0000000001.000000000005.0000000002", 1),
    ],
)
def test_the_version_of_a_row_fits_the_others_of_its_transaction(pos: int, sequence: str, count: int) -> None:
    comparison = Comparison("mysql", "left", "right")
    for offset, version, expected in ((20, SEQUENCE, 0), (pos, sequence, count)):
        pair = row_of_transaction("left", None, pos=offset), row_of_transaction("right", None, pos=offset, sequence=version)
        assert (judged(comparison, *pair) > 0) == expected


def test_what_the_server_lists_of_its_log_is_an_objection() -> None:
    pair = mariadb_row("left", 5, None), mariadb_row("right", 9)
    known = Comparison("mariadb", "left", "right", objections=lambda _op, source: ["no event"] if source["pos"] == 9 else [])
    assert judged(known, *pair) == 1
