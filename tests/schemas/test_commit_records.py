"""Commit records and stream positions: their texts, and values that are refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from schemas.commit_records import ChunkRows, CommitRecord, CompleteTable, Continued, OpenPart, RowTimes
from schemas.errors import DecodeError
from schemas.position import Position
from schemas.stream_order import StreamPosition

FROM, TO = Position(0, 3, 154), Position(0, 3, 900)
RECORD = CommitRecord(
    n=12,
    begin=FROM,
    to=TO,
    since_us=1_000,
    promise_us=3_000,
    lifts=((Position(0, 3, 200), 2_000),),
    caps=((Position(0, 3, 300), 2_500), (Position(0, 3, 400), 2_500)),
    rows={"shop.shop.orders": 5},
    spans={"shop.shop.orders": {0: (10, 13), 3: (7, 9)}},
    chunks=(ChunkRows(request="r", table="shop.orders", file="b.000003", pos=700, at=Position(0, 3, 600), us=2_700, rows=2),),
    complete=(CompleteTable("r", "shop.orders"),),
)
PART = replace(RECORD, to=FROM, lifts=(), caps=(), open=OpenPart(Position(0, 3, 160), 3_500), reset="lost", is_last=True)
PART = replace(PART, continues=Continued(Position(0, 2, 160), Position(0, 3, 160)))


def changed(**fields: Any) -> bytes:
    """The record with other fields; None removes one."""
    document = {**json.loads(RECORD.to_bytes()), **fields}
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


@pytest.mark.parametrize("record", [RECORD, PART])
def test_a_record_is_read_as_it_was_written(record: CommitRecord) -> None:
    assert CommitRecord.parse(record.to_bytes()) == record


def test_a_record_names_its_fields_as_the_protocol_does() -> None:
    names = ["n", "from", "to", "since_us", "promise_us", "lifts", "caps", "rows", "spans", "chunks", "complete"]
    assert list(json.loads(RECORD.to_bytes())) == names
    assert set(json.loads(PART.to_bytes())) == {*names, "open", "continues", "reset", "end"}
    assert json.loads(RECORD.to_bytes())["spans"] == {"shop.shop.orders": {"0": [10, 13], "3": [7, 9]}}


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"\xff", b"null", changed(later=1), changed(n=None), changed(n=0), changed(n="12"), changed(lifts=None),
        changed(open={"position": TO.text, "us": 3_000, "rows": 1}), changed(complete=[{"request": "r"}]),
        changed(lifts=[["0003.1", 2_000]]), changed(promise_us=999), changed(to=Position(0, 3, 100).text), changed(since_us=2_000),
        changed(lifts=[[Position(0, 3, 200).text, 3_001]]), changed(caps=[[Position(0, 3, 900).text, 2_000]]),
        changed(caps=[[Position(0, 3, 300).text, 2_000]] * 2), changed(rows={"shop.shop.orders": 6}), changed(rows={}),
        changed(spans={"shop.shop.orders": {"0": [10, 9]}}), changed(open={"position": FROM.text, "us": 3_000}),
        changed(open={"position": TO.text, "us": 2_999}), changed(lifts=[[Position(0, 3, 200, 1).text, 2_000]]),
    ],
)  # fmt: skip
def test_what_is_no_record_or_has_unknown_fields_is_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="not a commit record"):
        CommitRecord.parse(value)


def test_the_time_of_a_row_follows_from_the_record_of_its_transaction() -> None:
    time_of = RowTimes(RECORD)
    assert time_of(Position(0, 3, 160, 1), 900) == 1_000  # the promise before
    assert time_of(Position(0, 3, 160, 1), 1_500) == 1_500
    assert time_of(Position(0, 3, 200, 7), 1_500) == 2_000  # lifted
    assert time_of(Position(0, 3, 250, 1), 1_500) == 2_000
    assert time_of(Position(0, 3, 300, 2), 9_000) == 2_500  # capped
    assert time_of(Position(0, 3, 310, 1), 2_900) == 2_900


def test_the_texts_of_stream_positions_sort_as_they_do() -> None:
    chance = random.Random(5)
    positions = [
        StreamPosition(chance.choice([0, 7, 1_790_000_000_000_000]), chance.randrange(3), Position(0, 1, chance.randrange(3), 1))
        for _ in range(200)
    ]
    assert sorted(positions) == sorted(positions, key=lambda one: one.text)
    assert {len(one.text) for one in positions} == {63}
    assert [StreamPosition.parse(one.text) for one in positions] == positions


@pytest.mark.parametrize("text", ["", "7.1.0", FROM.text, f"{'0' * 16}.{'0' * 6}.{FROM.text}x"])
def test_other_texts_are_no_stream_positions(text: str) -> None:
    with pytest.raises(ValueError, match="position"):
        StreamPosition.parse(text)


@pytest.mark.parametrize(("us", "member"), [(-1, 0), (10**16, 0), (0, 10**6)])
def test_a_stream_position_has_digits_for_its_numbers(us: int, member: int) -> None:
    with pytest.raises(ValueError, match="digits"):
        StreamPosition(us, member, FROM)
