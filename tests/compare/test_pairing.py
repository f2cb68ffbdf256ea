"""Which records belong together, and what is reported of those that belong to none."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from conformance.comparison import Comparison
from conformance.pairing import (
    SIDES,
    Coordinates,
    Incoming,
    Pairing,
    Span,
    Tally,
    coordinates_of,
    is_read,
    key_text,
    own_key,
)
from conformance.wire_check import partition_of
from tidemark.api.record_decoding import Record

WHOLE = Span()
SEQUENCE = "0000.0000000001.{:012d}.{:010d}"


def record(prefix: str, key: Any, pos: int, *, op: str = "c", **row: Any) -> Record:
    source = {"name": prefix, "ts_ms": pos, "snapshot": "true" if op == "r" else "false", "file": "binlog.000001",
              "pos": pos, "gtid": None, "sequence": SEQUENCE.format(pos, op != "r") if prefix == "right" else None}  # fmt: skip
    value = {"before": None, "after": row or None, "source": source, "op": op, "ts_ms": 1}
    document = None if key is None else {"schema": None, "payload": {"id": key}}
    return Record("t", 0, pos, document, {"schema": None, "payload": value}, {})


def tombstone(key: Any, pos: int) -> Record:
    return Record("t", 0, pos, {"schema": None, "payload": {"id": key}}, None, {})


def incoming(found: Record, *, is_left: bool, coordinates: Coordinates | None = None, size: int = 100) -> Incoming:
    payload = found.value and found.value["payload"]
    return Incoming(
        is_left=is_left,
        topic="t",
        partition=0,
        offset=found.offset,
        key=key_text(found.key),
        coordinates=coordinates or coordinates_of(payload),
        is_read=is_read(payload),
        size=size,
        load=lambda: found,
    )


class Case:
    """A pairing, fed in the order given."""

    def __init__(self, span: Span = WHOLE, scenario: str = "mysql", **options: Any) -> None:
        self.comparison = Comparison(scenario, "left", "right", names=("left", "right"))
        self.tally = Tally("t")
        self.pairing = Pairing(self.comparison, span, self.tally, **{"kept_bytes": 10_000, **options})

    def play(self, items: Iterable[Incoming]) -> list[str]:
        for item in items:
            self.pairing.add(item)
        self.pairing.finish()
        assert self.comparison.differing == len(self.comparison.problems)
        return self.comparison.problems


def left(*arguments: Any, **row: Any) -> Incoming:
    return incoming(record("left", *arguments, **row), is_left=True)


def right(*arguments: Any, **row: Any) -> Incoming:
    return incoming(record("right", *arguments, **row), is_left=False)


def test_records_of_one_key_are_paired_in_their_order_however_the_sides_interleave() -> None:
    case = Case()
    items = [left(1, 10, v=1), left(2, 20, v=1), left(1, 30, v=2), right(2, 20, v=1), right(1, 10, v=1), right(1, 30, v=2)]
    assert case.play(items) == []
    assert case.comparison.records == 3


def test_a_record_one_side_lost_is_one_difference_and_the_others_are_still_compared() -> None:
    case = Case()
    items = [left(1, pos, v=pos) for pos in (10, 20, 30, 40)] + [right(1, pos, v=pos) for pos in (10, 30, 40)]
    (problem,) = case.play(items)
    assert "only on the left: op c of key" in problem
    assert "binlog.000001:20" in problem
    assert case.comparison.records == 3


def test_a_record_only_the_right_has_is_reported_of_the_right() -> None:
    case = Case()
    items = [right(1, pos, v=pos) for pos in (10, 20, 30)] + [left(1, pos, v=pos) for pos in (10, 30)]
    (problem,) = case.play(items)
    assert "t [right 0:20]: only on the right" in problem


def test_records_of_one_change_that_differ_are_a_pair_that_differs() -> None:
    (problem,) = Case().play([left(1, 10, v=1), right(1, 10, v=2)])
    assert problem.endswith(": left 1, right 2")


def test_a_tombstone_is_missed() -> None:
    gone = Coordinates(10, "binlog.000001", 10)
    items = [left(1, 10, op="d"), incoming(tombstone(1, 11), is_left=True, coordinates=gone), right(1, 10, op="d")]
    (problem,) = Case().play(items)
    assert "only on the left: a tombstone of key" in problem


def test_tombstones_of_both_sides_are_a_pair() -> None:
    gone = Coordinates(10, "binlog.000001", 10)
    case = Case()
    tombstones = [incoming(tombstone(1, 11), is_left=is_left, coordinates=gone) for is_left in (True, False)]
    assert case.play([left(1, 10, op="d"), right(1, 10, op="d"), *tombstones]) == []
    assert case.comparison.records == 2


def test_what_the_other_side_cannot_have_is_counted_and_is_no_difference() -> None:
    whole = Span().with_coordinates(Coordinates(20, "binlog.000001", 20)).with_coordinates(Coordinates(40, "binlog.000001", 40))
    case = Case(whole)
    items = [*(left(1, pos, v=1) for pos in (9, 10, 20, 30, 40)), *(right(1, pos, v=1) for pos in (20, 30, 40, 50))]
    assert case.play(items) == []
    assert (case.tally.earlier, case.tally.later) == ([2, 0], [0, 1])
    assert case.comparison.records == 3


def test_the_transaction_at_the_edge_may_be_incomplete_the_one_behind_may_not() -> None:
    whole = Span().with_coordinates(Coordinates(20, "binlog.000001", 20)).with_coordinates(Coordinates(90, "binlog.000001", 90))
    case = Case(whole)
    (problem,) = case.play([left(1, 20, v=1), left(1, 30, v=1)])
    assert "binlog.000001:30" in problem
    assert case.tally.earlier == [1, 0]


def at(pos: int, gtid: str = "u:7") -> Coordinates:
    return Coordinates(pos, "binlog.000001", pos, gtid)


@pytest.mark.parametrize(("scenario", "missed"), [("mysql", ["binlog.000001:30", "binlog.000001:50"]), ("mariadb", [])])
def test_what_is_lost_inside_of_the_first_or_the_last_transaction_is_reported_where_positions_are_exact(
    scenario: str, missed: list[str]
) -> None:
    whole = Span().with_coordinates(at(20, "u:6")).with_coordinates(at(60))
    case = Case(whole)
    case.comparison.scenario = scenario
    items = []
    for pos, gtid in ((20, "u:6"), (30, "u:6"), (50, "u:7"), (60, "u:7")):
        found = [incoming(record(side, pos, pos, v=1), is_left=side == "left", coordinates=at(pos, gtid)) for side in SIDES]
        items += found if pos in (20, 60) else found[:1]
    problems = case.play(items)
    assert [coordinates for problem, coordinates in zip(problems, missed, strict=True) if coordinates in problem] == missed


FLAT = {"id": 1, "status": "BEGIN", "ts_ms": "noon", "__deleted": "false", "__source_ts_ms": 5}


def test_flat_rows_show_where_they_come_from() -> None:
    assert is_read({**FLAT, "__op": "r"})
    assert not is_read({**FLAT, "__op": "c"})
    assert coordinates_of(FLAT) == Coordinates(5)


def test_flat_rows_of_mariadb_are_no_transaction_boundaries() -> None:
    case = Case()
    case.comparison.scenario = "mariadb"
    flat = Record("t", 0, 1, {"schema": None, "payload": {"id": 1}}, {"schema": None, "payload": FLAT}, {})
    (problem,) = case.play([incoming(flat, is_left=True)])
    assert "only on the left" in problem


def test_records_without_a_key_are_distinguished_whatever_their_form() -> None:
    values = [FLAT, {**FLAT, "status": "x"}, "no JSON", record("left", None, 10, v=1).value["payload"]]
    values += [record("left", None, pos, op="r", v=pos).value["payload"] for pos in (1, 2)]
    assert len({own_key(value, coordinates_of(value)) for value in values}) == len(values)


def test_what_two_spans_share_begins_with_the_later_and_ends_with_the_earlier() -> None:
    ends = [Coordinates(number, f"binlog.{number:06d}", 4) for number in range(1, 5)]
    shared = Span().with_coordinates(ends[0]).with_coordinates(ends[2]).both(Span().with_coordinates(ends[1]).with_coordinates(ends[3]))
    assert (shared.first, shared.last) == (ends[1], ends[2])
    assert (shared.first_ms, shared.last_ms) == (2, 3)


def test_of_compacted_topics_records_may_be_missing_on_one_side() -> None:
    case = Case(is_compacted=True)
    assert case.play([left(1, 10, v=1), left(1, 20, v=2), right(1, 20, v=2)]) == []
    assert case.tally.compacted == [1, 0]
    assert case.comparison.records == 1


def test_a_tombstone_whose_delete_is_compacted_away_waits_for_its_like() -> None:
    gone = [Coordinates(coordinates, "binlog.000001", coordinates) for coordinates in (20, 40)]
    changes = [
        left(1, 10, v=1),
        left(1, 20, op="d"),
        incoming(tombstone(1, 21), is_left=True, coordinates=gone[0]),
        left(1, 30, v=2),
        left(1, 40, op="d"),
        incoming(tombstone(1, 41), is_left=True, coordinates=gone[1]),
    ]
    late = incoming(tombstone(1, 7), is_left=False)
    for items in ([late, *changes], [*changes, late]):
        case = Case(is_compacted=True)
        assert case.play(items) == []
        assert (case.comparison.records, case.tally.compacted) == (1, [5, 0])


def test_rows_of_snapshots_are_compared_only_when_asked() -> None:
    case = Case()
    assert case.play([left(1, 10, op="r", v=1), right(1, 99, op="r", v=2)]) == []
    assert (case.tally.snapshot, case.comparison.records) == ([1, 1], 0)
    asked = Case(with_snapshots=True)
    (problem,) = asked.play([left(1, 10, op="r", v=1), right(1, 99, op="r", v=2)])
    assert problem.endswith(": left 1, right 2")


def test_what_waits_is_bounded_and_the_oldest_is_reported_first() -> None:
    case = Case(kept_bytes=250)
    items = [left(number, number, v=1) for number in (1, 2, 3)]
    for item in items:
        case.pairing.add(item)
    (problem,) = case.comparison.problems
    assert "binlog.000001:1" in problem
    assert case.tally.given_up == 1


def test_boundaries_of_xa_transactions_and_of_mariadbs_ddl_may_be_alone_and_no_others() -> None:
    def boundary(is_left: bool, status: str, ident: str) -> Incoming:
        payload = {"status": status, "id": ident, "event_count": None, "data_collections": None, "ts_ms": 5}
        document = {"schema": None, "payload": {"id": ident}}
        return incoming(Record("t", 0, 1, document, {"schema": None, "payload": payload}, {}), is_left=is_left)

    case = Case()
    case.comparison.xa.add("x")
    (problem,) = case.play([boundary(False, "BEGIN", "x"), boundary(False, "END", "x"), boundary(False, "BEGIN", "y")])
    assert '"y"' in problem
    case = Case()
    case.comparison.scenario = "mariadb"
    (problem,) = case.play([boundary(True, "BEGIN", "d"), boundary(True, "END", "e")])
    assert '"e"' in problem


JSON_DECIMAL = {"field": "id", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"schema": {"fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": -1}},
            {"schema": {"fields": [JSON_DECIMAL]}, "payload": {"id": base64.b64encode(b"\0" + b"\xff" * 8).decode()}},
        ),
        ({"schema": {}, "payload": {"id": 7}}, {"schema": {}, "payload": {"id": Decimal(7)}}),
        ({"schema": None, "payload": {"id": "ü"}}, {"schema": {}, "payload": {"id": "ü"}}),
    ],
)
def test_a_key_is_the_same_text_in_either_form(one: Any, other: Any) -> None:
    assert key_text(one) == key_text(other)


def test_keys_that_differ_are_different_texts() -> None:
    texts = {key_text({"schema": None, "payload": {"id": value}}) for value in (1, "1", 1.5, None, b"1", True)}
    assert len(texts) == 6
    assert key_text(None) == ""


def test_the_last_change_is_missing_where_the_other_side_has_surely_written_it() -> None:
    ends_at = Span(last=Coordinates(100, "binlog.000001", 100), last_ms=100)
    for proven, count in ((None, 0), (200, 0), (201, 1), (100, 0)):
        checkpoint = None if proven is None else Coordinates(0, "binlog.000001", proven)
        case = Case(ends_at, proven=(None, checkpoint))
        problems = case.play([left(1, 100, a=1), right(1, 100, a=1), left(1, 200, a=2)])
        assert len(problems) == count, (proven, problems)
        assert case.tally.later == [1 - count, 0]


@pytest.mark.parametrize("behind", [0, 1])
def test_what_one_side_showed_late_is_paired_or_not_demanded(behind: int) -> None:
    """Kafka shows a transaction partition by partition: either side may have had less at the first look than it has now."""
    ends_at, written = Span(last=Coordinates(100, "binlog.000001", 100), last_ms=100), Coordinates(0, "binlog.000001", 300)
    lasts = [Coordinates(200, "binlog.000001", 200)] * 2
    lasts[behind] = Coordinates(100, "binlog.000001", 100)
    case = Case(ends_at, proven=(written, None), lasts=lasts)
    assert not case.play([left(1, 100, a=1), right(1, 100, a=1), left(1, 200, a=2), right(1, 200, a=2)])
    case = Case(ends_at, proven=(written, None), lasts=lasts)
    problems = case.play([left(1, 100, a=1), right(1, 100, a=1), right(1, 200, a=2)])
    assert len(problems) == (behind == 0), "the left side has surely written what the right one had at the first look"


def test_the_last_change_on_mariadb_is_there_where_its_position_is_another_for_each_reader() -> None:
    ends = Coordinates(100, "binlog.000001", 100, "0-1-7")
    for proven in (None, Coordinates(0, "binlog.000001", 300)):
        one, other = (of_transaction(is_left=is_left, pos=pos, v=1) for is_left, pos in ((True, 100), (False, 120)))
        case = Case(Span(last=ends, last_ms=100), proven=(None, proven), scenario="mariadb")
        assert not any("only on" in problem for problem in case.play([one, other]))
        assert (case.comparison.records, case.tally.later) == (1, [0, 0]), proven


def of_transaction(*, is_left: bool, pos: int, gtid: str = "0-1-7", **row: Any) -> Incoming:
    """A record of MariaDB without a key, in a topic of several partitions."""
    prefix = SIDES[not is_left]
    found = record(prefix, None, pos, **row)
    found.value["payload"]["source"] |= {"connector": "mariadb", "gtid": gtid, "row": 0}
    item = incoming(found, is_left=is_left)
    item.key = own_key(found.value["payload"], item.coordinates)
    return item


def test_records_of_a_transaction_on_mariadb_without_a_key_have_no_order_and_each_is_paired_once() -> None:
    lefts = [of_transaction(is_left=True, pos=100, v=value) for value in (1, 2, 3)]
    rights = [of_transaction(is_left=False, pos=100, v=value) for value in (3, 1, 2)]
    assert Case().play([*lefts, *rights]) == []
    for false in ((3, 1, 4), (3, 1), (3, 1, 2, 2)):
        rights = [of_transaction(is_left=False, pos=100, v=value) for value in false]
        assert len(Case().play([*lefts, *rights])) == 1, false
    others = [of_transaction(is_left=False, pos=200, gtid="0-1-8", v=value) for value in (1, 2, 3)]
    assert len(Case().play([*lefts, *others])) == 6


@pytest.mark.parametrize(("key", "number"), [(b"21", 1), (b"foobar", 2), (b"a-little-bit-long-string", 2), (b"", 1)])
def test_a_key_is_in_the_partition_of_its_hash(key: bytes, number: int) -> None:
    """Hashes of Kafka's own test of murmur2."""
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"": 275646681}
    assert partition_of(key, 1000) == (hashes[key] & 0x7FFFFFFF) % 1000
    assert 0 <= partition_of(key, number) < number
