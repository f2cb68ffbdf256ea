"""Offsets are 64-bit sums; a header that disagrees is an error, except where events may be left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from producer.binlog.framing import PacketFramer
from producer.binlog.positions import PositionTracker
from schemas.errors import DecodeError
from tests.binlog.build import batch_of, event, feed, format_description, gtid, packets, rotate


def advance(tracker: PositionTracker, *events: bytes) -> list[int]:
    found: list[int] = []
    for batch in feed(PacketFramer(), packets([format_description(), *events])):
        tracker.advance(batch)
        found += batch.offsets.tolist()
    return found[1:]


def xid(end: int) -> bytes:
    return event(16, b"12345678", log_pos=end & 0xFFFFFFFF)


XID_SIZE = len(xid(0))


def heartbeat(file: str, end: int) -> bytes:
    return event(27, file.encode(), log_pos=end & 0xFFFFFFFF)


def heartbeat_v2(file: str, end: int) -> bytes:
    body = b"\1" + bytes((len(file),)) + file.encode() + b"\2\x09\xfe" + end.to_bytes(8, "little") + b"\0"
    return event(41, body)


def test_offsets_are_the_sum_of_the_sizes() -> None:
    tracker = PositionTracker("b.7", 100)
    assert advance(tracker, xid(131), xid(162)) == [100, 131]
    assert (tracker.file, tracker.offset) == ("b.7", 162)


def test_offsets_pass_four_gibibytes_where_header_positions_wrap() -> None:
    start = (1 << 32) - 40
    tracker = PositionTracker("b.7", start)
    ends = [start + XID_SIZE * n for n in (1, 2, 3)]
    assert advance(tracker, *(xid(end) for end in ends)) == [start, *ends[:2]]
    assert tracker.offset > 1 << 32


def test_zeros_inside_a_mariadb_transaction_are_summed_over() -> None:
    first = event(162, bytes(13), log_pos=100 + 36)
    assert advance(PositionTracker("b.7", 100), first, xid(0), xid(0), xid(136 + 93)) == [100, 136, 167, 198]


def test_a_header_position_that_disagrees_stops_with_the_position() -> None:
    with pytest.raises(DecodeError, match=r"b\.7:131"):
        advance(PositionTracker("b.7", 100), xid(131), xid(170))
    with pytest.raises(DecodeError):
        advance(PositionTracker("b.7", 100), xid(125))


def test_what_the_server_makes_up_does_not_advance() -> None:
    tracker = PositionTracker("", 4)
    greeting = [
        rotate("b.9", 500),
        format_description(log_pos=0),
        heartbeat("b.9", 500),
        event(163, bytes(4), flags=0x20),
    ]
    assert advance(tracker, *greeting, xid(531))[1:] == [500, 500, 500, 500]
    assert (tracker.file, tracker.offset) == ("b.9", 531)


def test_the_format_description_of_a_file_read_from_its_start_is_part_of_it() -> None:
    description = format_description(log_pos=4 + len(format_description()))
    tracker = PositionTracker("", 4)
    assert advance(tracker, rotate("b.1"), description, xid(4 + len(description) + XID_SIZE))[1:] == [
        4,
        4 + len(description),
    ]
    assert tracker.server_version == "8.0.40"


def test_a_real_rotate_is_in_its_file_and_the_next_event_in_the_next() -> None:
    end = rotate("b.2", artificial=False)
    description = format_description(log_pos=4 + len(format_description()))
    tracker = PositionTracker("b.1", 1000)
    found = advance(
        tracker, rotate("b.2", artificial=False, log_pos=1000 + len(end)), rotate("b.2"), description
    )
    assert found[0] == 1000
    assert (tracker.file, tracker.offset) == ("b.2", 4 + len(format_description()))


@pytest.mark.parametrize("reported", [heartbeat, heartbeat_v2])
def test_in_a_stream_by_gtid_a_heartbeat_reports_the_position_behind_what_was_left_out(
    reported: Callable[[str, int], bytes],
) -> None:
    tracker = PositionTracker("", 4, by_gtid=True)
    found = advance(tracker, rotate("b.1", 100), reported("b.1", 9000), gtid(log_pos=9000 + len(gtid())))
    assert found[1:] == [9000, 9000]
    assert tracker.offset == 9000 + len(gtid())


def test_only_the_new_heartbeat_can_report_a_position_four_gibibytes_away() -> None:
    tracker = PositionTracker("", 4, by_gtid=True)
    advance(tracker, rotate("b.1", 100), heartbeat_v2("b.1", (5 << 32) + 77))
    assert tracker.offset == (5 << 32) + 77


def test_in_a_stream_by_gtid_the_next_group_may_stand_further_on() -> None:
    first = event(162, bytes(13), log_pos=9036)
    tracker = PositionTracker("", 4, by_gtid=True)
    assert advance(tracker, rotate("b.1", 100), first, xid(0), xid(9036 + 62))[1:] == [9000, 9036, 9067]


def test_a_jump_inside_a_group_is_an_error_even_by_gtid() -> None:
    with pytest.raises(DecodeError):
        advance(PositionTracker("b.1", 100, by_gtid=True), gtid(log_pos=100 + len(gtid())), xid(9999))


def test_a_jump_back_is_an_error_even_by_gtid() -> None:
    with pytest.raises(DecodeError):
        advance(PositionTracker("b.1", 5000, by_gtid=True), gtid(log_pos=900))
    with pytest.raises(DecodeError):
        advance(PositionTracker("b.1", 5000, by_gtid=True), heartbeat_v2("b.1", 900))


def test_a_stream_by_position_takes_no_jump() -> None:
    with pytest.raises(DecodeError, match="heartbeat"):
        advance(PositionTracker("b.1", 100), heartbeat("b.1", 9000))
    with pytest.raises(DecodeError):
        advance(PositionTracker("b.1", 100), gtid(log_pos=9000))


def test_the_event_that_mariadb_keeps_to_itself_in_an_encrypted_file_is_jumped_over() -> None:
    description = format_description(log_pos=4 + len(format_description()), version="11.4.5-MariaDB")
    hidden = 40
    start = 4 + len(description) + hidden
    found = advance(
        PositionTracker("", 4), rotate("b.1"), description, event(163, bytes(4), log_pos=start + 27)
    )
    assert found[-1] == start


def test_the_offsets_of_a_batch_carry_its_file() -> None:
    tracker = PositionTracker("b.3", 200)
    batch = batch_of(format_description(), xid(0), xid(0))
    tracker.advance(batch)
    assert batch.file == "b.3"
    assert batch.offsets.tolist() == [200, 200, 231]
