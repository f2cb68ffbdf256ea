"""Packets into events: however the bytes are divided, each event once, unharmed; anything else is a DecodeError."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
import zlib
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
import pytest

from producer.binlog import crc32_folding, framing, log_kernels
from producer.binlog.framing import PacketFramer, frame_events
from producer.binlog.framing_kernels import CRC_TABLES, crc32, crc32_by_tables, scan_packets
from schemas.errors import DecodeError
from tests.binlog.build import (
    array_of,
    bodies,
    event,
    feed,
    format_description,
    packet,
    packets,
    rotate,
)

SEED = 20261121
_NO_ACCESS = 0  # PROT_NONE


def un_jitted(kernel: Any) -> Any:
    return getattr(kernel, "__wrapped__", kernel)


def some_events(count: int, seed: int = SEED) -> list[bytes]:
    chance = random.Random(seed)
    return [
        rotate("binlog.000001"),
        format_description(log_pos=126),
        *(
            event(chance.choice((2, 16, 19, 30)), chance.randbytes(chance.randrange(300)))
            for _ in range(count)
        ),
    ]


def expected(events: list[bytes]) -> list[tuple[int, bytes]]:
    return [(one[4], one[19:-4]) for one in events]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 23, 24, 100, 1 << 20])
def test_events_come_out_whole_however_the_bytes_are_divided(step: int) -> None:
    events = some_events(60)
    found = feed(PacketFramer(), packets(events), step)
    assert bodies(found) == expected(events)


def test_header_fields_are_the_event_s() -> None:
    one = event(
        16, b"12345678", log_pos=4_000_000_000, flags=9, timestamp=4_100_000_000, server_id=4_200_000_000
    )
    (first, batch) = feed(PacketFramer(), packets([rotate("b.1"), format_description(), one]))
    assert first.count == 1
    assert batch.timestamps[1] == 4_100_000_000
    assert batch.server_ids[1] == 4_200_000_000
    assert batch.log_pos[1] == 4_000_000_000
    assert batch.flags[1] == 9
    assert batch.sizes[1] == 19 + 8 + 4
    assert batch.ends[1] - batch.starts[1] == 19 + 8


def test_a_batch_ends_behind_a_rotate_so_that_it_is_in_one_file() -> None:
    events = [*some_events(3), rotate("b.2", artificial=False), rotate("b.2"), event(16)]
    assert [batch.count for batch in feed(PacketFramer(), packets(events))] == [1, 5, 1, 1]


def test_more_events_than_slots_come_in_several_batches() -> None:
    events = some_events(100)
    found = feed(PacketFramer(events=7), packets(events))
    assert bodies(found) == expected(events)
    assert max(batch.count for batch in found) == 7


@pytest.mark.parametrize("size", [*range(70), 255, 1000, 65_537])
def test_the_checksum_is_zlib_s_by_every_way(size: int) -> None:
    data = array_of(random.Random(size).randbytes(size + 5))
    for way in (crc32, crc32_by_tables, un_jitted(crc32_by_tables)):
        assert way(data, 3, 3 + size, CRC_TABLES) == zlib.crc32(data[3 : 3 + size])


def test_the_checksum_is_folded_where_the_processor_can() -> None:
    cpus = Path("/proc/cpuinfo")
    can = cpus.exists() and " pclmulqdq " in cpus.read_text(encoding="ascii")
    assert crc32_folding.multiplies_without_carries() == can
    _, code = log_kernels.GROUP._files.code()
    assert (b"crc32_factors" in code) == can


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("", False),
        ("+sse2,+sse4.2", False),
        ("+sse2,+pclmul", True),
        ("+pclmul,-pclmul", False),
        ("+pclmul,-sse2", False),
        ("+vpclmulqdq", False),
    ],
)
def test_features_that_numba_is_given_decide_about_folding(features: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc32_folding.numba.config, "CPU_FEATURES", features)
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: {"pclmul": True})
    assert crc32_folding.multiplies_without_carries() == expected
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", dict)
    assert not crc32_folding.multiplies_without_carries()


def test_nothing_behind_the_last_byte_of_the_array_is_read() -> None:
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    try:
        bytes_of = np.frombuffer(memory, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(bytes_of.ctypes.data + page), page, _NO_ACCESS) == 0
        for size in range(70):
            bytes_of[page - size : page] = np.frombuffer(random.Random(size).randbytes(size), np.uint8)
            expected = zlib.crc32(bytes_of[page - size : page].tobytes())
            assert crc32(bytes_of[:page], page - size, page, CRC_TABLES) == expected
            assert crc32_by_tables(bytes_of[:page], page - size, page, CRC_TABLES) == expected
        for size in range(40):  # packets, and their first bytes
            data = packets([rotate("binlog.000001"), format_description(log_pos=126), event(16, b"x" * size)])
            for length in range(len(data) + 1):
                part = data[:length]
                bytes_of[page - length : page] = np.frombuffer(part, np.uint8)
                columns, state = framing.EventColumns(8), np.array([-1, 255], np.int64)
                at = page - length
                for _ in range(3):  # it stops behind the rotation
                    _, at, _ = scan_packets(bytes_of[:page], at, page, state, CRC_TABLES, *columns.arrays)
                assert (at == page) == (length in whole_packets(data))
        del bytes_of
    finally:
        with contextlib.suppress(BufferError):
            memory.close()


def whole_packets(data: bytes) -> set[int]:
    """The lengths of the beginnings of `data` that end with a packet."""
    found, at = {0}, 0
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 3], "little")
        found.add(at)
    return found


def test_the_kernel_does_the_same_without_the_jit() -> None:
    data = array_of(packets(some_events(20)))
    results = []
    for kernel in (scan_packets, un_jitted(scan_packets)):
        state = np.array([1, 255], np.int64)
        columns = framing.EventColumns(64)
        at, taken = 0, []
        while at < data.size:
            count, at, _ = kernel(data, at, data.size, state, CRC_TABLES, *columns.arrays)
            taken.append([array[:count].tolist() for array in columns.arrays])
        results.append((taken, state.tolist()))
    assert results[0] == results[1]


def test_a_flipped_bit_is_found_and_the_events_before_it_still_come() -> None:
    events = some_events(10)
    data = bytearray(packets(events))
    data[-30] ^= 4
    framer = PacketFramer()
    space = framer.space()
    space[: len(data)] = data
    framer.filled(len(data))
    assert framer.next_batch().count == 1
    batch = framer.next_batch()
    assert 0 < batch.count < 11
    with pytest.raises(DecodeError, match="CRC32"):
        framer.next_batch()
    with pytest.raises(DecodeError, match="CRC32"):
        framer.next_batch()


def test_without_checksums_the_whole_body_is_the_event_s() -> None:
    plain = [
        event(4, bytes(8) + b"b.1", timestamp=0, flags=32, checksum=False),
        format_description(algorithm=0),
    ]
    one = event(16, b"12345678", checksum=False)
    found = feed(PacketFramer(), packets([*plain, one]))
    assert bodies(found)[0] == (4, bytes(8) + b"b.1")
    assert bodies(found)[2] == (16, b"12345678")


def test_the_algorithm_changes_with_each_format_description() -> None:
    events = [
        format_description(), event(16, b"1" * 8), format_description(algorithm=0),
        event(16, b"2" * 8, checksum=False), format_description(), event(16, b"3" * 8),
    ]  # fmt: skip
    found = bodies(feed(PacketFramer(), packets(events)))
    assert [body for kind, body in found if kind == 16] == [b"1" * 8, b"2" * 8, b"3" * 8]


@pytest.mark.parametrize("over", [-1, 0, 1, 5, 0xFFFFFF, 0xFFFFFF + 1])
def test_events_of_sixteen_mebibytes_and_more_are_joined(over: int) -> None:
    size = 0xFFFFFF - 1 - 23 + over  # the packet's payload is a status byte, the event, and exactly full at 0
    large = event(30, random.Random(over).randbytes(size))
    events = [format_description(), event(16, b"x" * 8), large, event(16, b"y" * 8)]
    framer = PacketFramer(capacity=1 << 16, sequence=1)
    found = bodies(feed(framer, packets(events), step=3_000_000))
    assert [kind for kind, _ in found] == [15, 16, 30, 16]
    assert found[2][1] == large[19:-4]
    assert framer.checksum_algorithm == 1


def test_the_memory_of_a_large_event_is_given_back() -> None:
    framer = PacketFramer(capacity=1 << 16)
    feed(framer, packets([format_description(), event(30, bytes(20_000_000))]))
    assert framer._buf.size >= 20_000_000
    feed(framer, packets([event(16, b"12345678")], sequence=4))
    assert framer._buf.size == 1 << 16


def test_a_damaged_join_is_found() -> None:
    data = bytearray(packets([format_description(), event(30, bytes(20_000_000))]))
    data[-17_000_000] ^= 1
    with pytest.raises(DecodeError, match="CRC32"):
        feed(PacketFramer(), bytes(data))


def test_sequence_numbers_wrap_and_a_gap_is_found() -> None:
    events = some_events(600)
    assert len(bodies(feed(PacketFramer(sequence=1), packets(events)))) == 602
    data = packets(events[:5]) + packets([event(16, b"12345678")], sequence=9)
    with pytest.raises(DecodeError, match="out of order"):
        feed(PacketFramer(sequence=1), data)


def test_an_error_packet_is_the_server_s_message_behind_the_last_event() -> None:
    framer = PacketFramer()
    words = packet(b"\xff" + (1236).to_bytes(2, "little") + b"#HY000" + b"purged", 4)
    found = feed(framer, packets(some_events(1)) + words)
    assert len(bodies(found)) == 3
    message = framer.message
    assert message is not None
    assert (message.code, message.sql_state, message.text) == (1236, "HY000", "purged")
    assert framer.next_batch() is None


def test_an_end_packet_is_reported() -> None:
    framer = PacketFramer()
    feed(framer, packets(some_events(1)) + packet(b"\xfe\0\0\2\0", 4))
    assert framer.message is not None
    assert framer.message.code == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x07nonsense",
        b"\0",
        b"\0" + bytes(10),
        b"\0" + event(16, b"12345678"),
        b"\0" + format_description() + b"more",
        b"\0" + event(15, b"", checksum=False),
        b"\0" + format_description(algorithm=1)[:-5] + b"\x09" + bytes(4),
    ],
)
def test_packets_that_hold_no_event_are_refused(bad: bytes) -> None:
    with pytest.raises(DecodeError):
        feed(PacketFramer(), packet(bad))


def test_random_bytes_give_only_decode_errors() -> None:
    chance = random.Random(SEED)
    outcomes = {"error": 0, "waits": 0}
    for _ in range(3000):
        data = chance.randbytes(chance.randrange(1, 200))
        if chance.random() < 0.5:
            data = packet(b"\0" + data)
        framer = PacketFramer(capacity=1 << 16)
        try:
            feed(framer, data, chance.randrange(1, 100))
            outcomes["waits"] += 1
        except DecodeError:
            outcomes["error"] += 1
    assert outcomes["error"] > 1000


def test_a_damaged_stream_gives_the_events_before_the_damage_or_a_decode_error() -> None:
    chance = random.Random(SEED)
    events = some_events(30)
    data = packets(events)
    wanted = expected(events)
    greeting = 5 + len(events[0])  # before the format description nobody knows whether there are checksums
    refused = 0
    for _ in range(400):
        broken = bytearray(data)
        broken[chance.randrange(greeting, len(data))] ^= 1 << chance.randrange(8)
        framer = PacketFramer(sequence=1)
        found: list[tuple[int, bytes]] = []
        try:
            found = bodies(feed(framer, bytes(broken)))
        except DecodeError:
            refused += 1
        assert found == wanted[: len(found)]
    assert refused > 300


def test_events_without_packets_are_framed_and_the_rest_is_reported() -> None:
    events = [event(2, b"abc", checksum=False), event(16, b"12345678", checksum=False)]
    data = array_of(b"".join(events) + events[0][:10])
    batch, consumed = frame_events(data, 0, data.size)
    assert bodies([batch]) == [(2, b"abc"), (16, b"12345678")]
    assert consumed == data.size - 10
    with pytest.raises(DecodeError):
        frame_events(array_of(bytes(40)), 0, 40)
