"""GTID sets: the same transactions as a plain set of them, in the server's own words."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.source.gtid_bytes import decode_gtids, encode_gtids
from schemas.errors import DecodeError
from schemas.gtid_sets import MariadbGtidSet, MysqlGtidSet, parse_gtid_set

A = "342accec-e5a0-11f1-8f1c-02fc00000001"
B = "68aade09-e59f-11f1-9c0d-02fc00000001"
SOURCES = [(A, ""), (A, "tag"), (A, "other_1"), (B, "")]
TRANSACTIONS = st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40)), max_size=60)


def text_of(source: tuple[str, str], number: int) -> str:
    uuid, tag = source
    return f"{uuid}:{tag}:{number}" if tag else f"{uuid}:{number}"


@settings(max_examples=200, deadline=None)
@given(TRANSACTIONS)
def test_a_set_holds_what_was_added_in_any_order(transactions: list[tuple[tuple[str, str], int]]) -> None:
    found = MysqlGtidSet()
    for source, number in transactions:
        found.add(text_of(source, number))
    plain = set(transactions)
    for source in SOURCES:
        for number in range(1, 42):
            assert found.contains(text_of(source, number)) == ((source, number) in plain)
    assert MysqlGtidSet.parse(str(found)) == found
    encoded = encode_gtids(found)
    assert decode_gtids(encoded) == found
    assert decode_gtids(b"??" + encoded + b"?", 2, 2 + len(encoded)) == found
    assert found.is_subset_of(found.copy())
    assert bool(found) == bool(plain)


@settings(max_examples=100, deadline=None)
@given(TRANSACTIONS, TRANSACTIONS)
def test_subsets_are_those_of_the_plain_sets(
    left: list[tuple[tuple[str, str], int]], right: list[tuple[tuple[str, str], int]]
) -> None:
    sets = []
    for transactions in (left, right):
        one = MysqlGtidSet()
        for source, number in transactions:
            one.add(text_of(source, number))
        sets.append(one)
    assert sets[0].is_subset_of(sets[1]) == (set(left) <= set(right))


def test_the_text_is_the_server_s() -> None:
    text = f"{A}:1-5:7:9-10:tag:1-3,{B}:4"
    assert str(MysqlGtidSet.parse(text)) == text
    assert str(MysqlGtidSet.parse(f"{B}:4 ,\n {A.upper()}:9-10:1-5:7:Tag:1:2-3")) == text
    assert str(MysqlGtidSet.parse("")) == ""
    assert str(MysqlGtidSet.parse(f"{A}:1-3:4-9")) == f"{A}:1-9"


def test_adding_in_the_order_of_the_log_is_one_interval() -> None:
    found = MysqlGtidSet()
    for number in range(1, 100_000):
        found.add(f"{A}:{number}")
    assert str(found) == f"{A}:1-99999"


@pytest.mark.parametrize("text", ["nonsense", f"{A}:0", f"{A}:5-3", f"{A}:x-y", f"{A[:-1]}:1", f"{A}:-1"])
def test_texts_that_are_no_set_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        MysqlGtidSet.parse(text)


def test_damaged_bytes_of_a_set_give_only_decode_errors() -> None:
    chance = random.Random(7)
    good = encode_gtids(MysqlGtidSet.parse(f"{A}:1-5:7:tag:1-3,{B}:4"))
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(DecodeError):
            decode_gtids(data[: chance.randrange(len(data) + 1)])


def test_mariadb_keeps_the_last_of_each_domain() -> None:
    found = MariadbGtidSet.parse("0-1-5, 3-2-9")
    found.add("0-7-6")
    found.add("3-2-8")
    assert str(found) == "0-7-6,3-2-9"
    assert found.contains("0-1-5")
    assert found.contains("0-7-6")
    assert not found.contains("0-7-7")
    assert not found.contains("4-1-1")
    copy = found.copy()
    copy.add("4-1-1")
    assert str(found) == "0-7-6,3-2-9"
    assert not MariadbGtidSet.parse("")
    for text in ("0-1", "a-b-c", f"{A}:1", "0-1-5;"):
        with pytest.raises(ValueError, match="not a MariaDB GTID"):
            MariadbGtidSet.parse(text)


def test_the_flavour_chooses_the_kind_of_set() -> None:
    assert str(parse_gtid_set("0-1-5", "mariadb")) == "0-1-5"
    assert str(parse_gtid_set(f"{A}:1", "mysql")) == f"{A}:1"
