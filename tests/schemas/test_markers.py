"""Markers survive the way through Kafka, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import DecodeError
from schemas.identity import SourceId
from schemas.markers import (
    MARKER_KEY,
    CloseMarker,
    CompleteMarker,
    FloorMarker,
    HeartbeatMarker,
    LoadMarker,
    Marker,
    OpenMarker,
    Sweep,
    is_marker,
    parse_marker,
)
from schemas.position import Position

SHOP = SourceId("shop")
AT = Position(1, 2, 300)
COMMON = {"table": "shop.ünï", "position": AT, "horizon": Position(1, 1, 4), "partitions": 3}
MARKERS = [
    HeartbeatMarker(**COMMON),
    HeartbeatMarker(**COMMON, change_offsets={0: 17, 10: 3, 2: 0}),
    OpenMarker(**COMMON, window="w", request="r", chunk=7),
    CloseMarker(**COMMON, window="w", request="r", chunk=7, rows={0: 5}, first_offsets={0: 99, 2: 1}),
    CloseMarker(**COMMON, window="w", request="r", chunk=7, loaded=True),
    LoadMarker(**COMMON, window="w", request="r", chunk=7, low=AT, query="SELECT 1", server="u", value_schema=3, key_schema=2),
    LoadMarker(**COMMON, window="w", request="r", chunk=7, low=AT, query="SELECT 1", server="u", value_schema=3),
    CompleteMarker(**COMMON, request="r", first_bound=Position(1, 1, 4), whole_table=False, rows=12),
    FloorMarker(**COMMON, reason="truncate"),
    FloorMarker(**COMMON, reason="truncate", empty=True),
    CompleteMarker(
        **COMMON,
        request="c",
        first_bound=AT,
        whole_table=False,
        rows=0,
        sweep=Sweep(("parent", "n"), frozenset({("5", "-1"), ("6", "00FF")})),
    ),
]


RECORDED = json.loads((Path(__file__).parent / "recorded" / "documents.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("was", [one["text"] for one in RECORDED if one["kind"] == "marker"])
def test_a_marker_of_an_earlier_version_is_read_as_one_of_the_only_source(was: str) -> None:
    assert parse_marker(was.encode()).to_bytes().decode() == was
    marker = parse_marker(was.encode(), SHOP)
    assert marker.source == SHOP
    assert json.loads(marker.to_bytes()) == json.loads(was) | {"source": "shop"}


def test_a_marker_that_names_its_source_keeps_it() -> None:
    marker = replace(MARKERS[0], source=SourceId("billing"))
    assert parse_marker(marker.to_bytes(), SHOP) == marker
    with pytest.raises(DecodeError, match="not the name of a source"):
        parse_marker(marker.to_bytes().replace(b'"billing"', b'"a/b"'))


@pytest.mark.parametrize("marker", MARKERS, ids=lambda marker: str(marker.type))
def test_a_marker_comes_back_as_it_went(marker: Marker) -> None:
    assert parse_marker(marker.to_bytes()) == marker


def test_a_marker_is_written_as_the_contract_says() -> None:
    document = json.loads(MARKERS[3].to_bytes())
    assert document == {
        "v": 1,
        "type": "close",
        "position": "0001.0000000002.000000000300.0000000000",
        "horizon": "0001.0000000001.000000000004.0000000000",
        "partitions": 3,
        "partition": 0,
        "table": "shop.ünï",
        "change_offsets": {},
        "window": "w",
        "request": "r",
        "chunk": 7,
        "rows": {"0": 5},
        "first_offsets": {"0": 99, "2": 1},
    }


def test_a_marker_goes_to_every_partition() -> None:
    copies = MARKERS[0].for_partitions()
    assert [copy.partition for copy in copies] == [0, 1, 2]
    assert {type(copy) for copy in copies} == {HeartbeatMarker}


def test_the_key_is_no_avro_and_no_json_key() -> None:
    assert is_marker(MARKER_KEY)
    assert not is_marker(None)
    assert MARKER_KEY[:1] not in (b"\x00", b"{")


def test_keys_of_a_later_version_of_the_same_format_are_ignored() -> None:
    document = json.loads(MARKERS[0].to_bytes()) | {"new": 1}
    assert parse_marker(json.dumps(document).encode()) == MARKERS[0]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"v":2}',
        b'{"v":1,"type":"other"}',
        b'{"v":1,"type":"floor","table":"t"}',
    ],
)
def test_what_is_no_marker_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_marker(value)


@pytest.mark.parametrize(
    "change", [{"position": "x"}, {"partitions": None}, {"table": 5}, {"change_offsets": []}]
)
def test_a_marker_with_a_wrong_value_is_a_decode_error(change: dict[str, object]) -> None:
    document = json.loads(MARKERS[0].to_bytes()) | change
    with pytest.raises(DecodeError, match="not a marker"):
        parse_marker(json.dumps(document).encode())


@pytest.mark.parametrize(
    "sweep", [[], {"columns": []}, {"columns": [], "values": []}, {"columns": ["a"], "values": [["1", "2"]]}]
)
def test_a_sweep_that_cannot_be_understood_is_a_decode_error(sweep: object) -> None:
    document = json.loads(MARKERS[-1].to_bytes()) | {"sweep": sweep}
    with pytest.raises(DecodeError, match="not a marker"):
        parse_marker(json.dumps(document).encode())
