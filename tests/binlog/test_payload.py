"""Compressed transactions: their events come out as they went in, in bounded memory."""

from __future__ import annotations

import random

import pytest
import zstandard

from producer.binlog.events import payload_batches
from schemas.errors import DecodeError
from tests.binlog.build import bodies, copied, event, packed


def inner(count: int, size: int = 300) -> list[bytes]:
    chance = random.Random(count)
    made = [event(2, b"BEGIN", checksum=False)]
    made += [event(30, chance.randbytes(chance.randrange(size)), checksum=False) for _ in range(count)]
    return [*made, event(16, bytes(8), checksum=False)]


def payload(events: list[bytes], *, compression: int = 0, claimed: int | None = None, removed: int = 0) -> bytes:
    plain = b"".join(events)
    data = zstandard.ZstdCompressor().compress(plain) if compression == 0 else plain
    data = data[: len(data) - removed]
    fields = {
        2: packed(compression),
        3: packed(len(plain) if claimed is None else claimed),
        1: packed(len(data)),
    }
    head = b"".join(bytes((code, len(value))) + value for code, value in fields.items())
    return event(40, head + b"\0" + data)


def test_an_unknown_field_of_the_header_is_passed_over_and_a_missing_one_refused() -> None:
    data = payload(inner(3))
    more = data[:19] + bytes((9, 2)) + b"??" + data[19:]
    assert read(more) == expected(inner(3))
    at = data.index(b"\2\1\0")
    with pytest.raises(DecodeError, match="how it is compressed"):
        read(data[:at] + data[at + 3 :])


def expected(events: list[bytes]) -> list[tuple[int, bytes]]:
    return [(one[4], one[19:]) for one in events]


def read(data: bytes, block: int = 4096) -> list[tuple[int, bytes]]:
    return bodies([copied(batch) for batch in payload_batches(data, 0, len(data) - 4, block)])


@pytest.mark.parametrize("compression", [0, 255])
def test_the_events_inside_come_out_whole(compression: int) -> None:
    events = inner(200)
    data = payload(events, compression=compression)
    assert read(data) == expected(events)


def test_an_event_larger_than_the_block_is_read() -> None:
    events = [*inner(3), event(30, bytes(100_000), checksum=False), *inner(3)]
    assert read(payload(events)) == expected(events)


def test_a_transaction_is_read_in_blocks() -> None:
    data = payload(inner(5000))
    sizes = [batch.buf.size for batch in payload_batches(data, 0, len(data) - 4, 65536)]
    assert len(sizes) > 5
    assert max(sizes) == 65536


@pytest.mark.parametrize(
    "data",
    [
        payload(inner(9), compression=7),
        payload(inner(9), claimed=10),
        payload(inner(9), claimed=1 << 50),
        payload(inner(9), claimed=1_000_000),
        payload(inner(9), removed=20),
        payload([*inner(2), b"half an event"]),
        payload([event(40, b"\0", checksum=False)]),
        payload([event(40, b"\0", checksum=False)], compression=255),
        event(40, b"\1"),
        event(40, b""),
    ],
)
def test_payloads_that_are_not_what_they_claim_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read(data)
