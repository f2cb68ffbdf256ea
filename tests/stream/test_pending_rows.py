"""Pending rows: in memory or in a file, they come back as they went in."""

from __future__ import annotations

import resource
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from producer.binlog.framing import frame_events
from producer.source.begun import Begun
from producer.stream.offset import LogOffset, Part, ResumePoint
from producer.stream.pending_rows import PendingMemory, PendingRows, PreparedGroup, PreparedGroups
from schemas.errors import DecodeError, RetriableSourceError, StateError


def event(number: int, size: int = 100) -> bytes:
    head = number.to_bytes(4, "little") + b"\x1e" + (7).to_bytes(4, "little") + (19 + size).to_bytes(4, "little")
    return head + bytes(6) + bytes([number % 256]) * size


def keep(rows: PendingRows, *numbers: int, size: int = 100) -> None:
    data = b"".join(event(number, size) for number in numbers)
    batch, _ = frame_events(np.frombuffer(bytearray(data), np.uint8), 0, len(data))
    for index, number in enumerate(numbers):
        rows.add(batch, index, (1 << 33) + number)


def read(rows: PendingRows) -> list[int]:
    found = []
    for batch in rows.batches():
        for index in range(batch.count):
            number = int(batch.timestamps[index])
            body = batch.memory[int(batch.starts[index]) + 19 : int(batch.ends[index])]
            assert set(body) == {number % 256}
            assert batch.offsets[index] == (1 << 33) + number
            assert (batch.types[index], batch.server_ids[index]) == (30, 7)
            found.append(number)
    return found


@pytest.mark.parametrize("limit_bytes", [1 << 20, 300, 0])
def test_events_come_back_in_order_with_their_offsets(limit_bytes: int) -> None:
    memory = PendingMemory(limit_bytes)
    rows = PendingRows(memory)
    keep(rows, *range(300))
    assert memory.used_bytes <= limit_bytes
    assert read(rows) == list(range(300))
    rows.close()
    assert memory.used_bytes == 0


@pytest.mark.parametrize("limit_bytes", [1 << 20, 300])
def test_a_savepoint_is_rolled_back_to_and_rows_added_after_it(limit_bytes: int) -> None:
    memory = PendingMemory(limit_bytes)
    rows = PendingRows(memory)
    keep(rows, 1, 2)
    rows.savepoint("s")
    keep(rows, 3)
    rows.savepoint("t")
    keep(rows, 4, 5, 6)
    rows.roll_back_to("t")
    keep(rows, 7)
    assert read(rows) == [1, 2, 3, 7]
    rows.roll_back_to("s")
    keep(rows, 8)
    with pytest.raises(DecodeError, match="'t'"):
        rows.roll_back_to("t")
    assert read(rows) == [1, 2, 8]
    rows.savepoint("s")
    rows.roll_back_to("s")
    assert read(rows) == [1, 2, 8]
    rows.roll_back()
    assert read(rows) == []
    rows.close()
    assert memory.used_bytes == 0


def test_a_folder_without_room_is_a_clear_error_and_a_retry_may_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = PendingRows(PendingMemory(300))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # as on a disk that is full
    try:
        with pytest.raises(RetriableSourceError, match="TMPDIR"):
            keep(rows, *range(300), size=1_000)
        rows.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    with pytest.raises(RetriableSourceError, match="TMPDIR"):
        keep(PendingRows(PendingMemory(300)), *range(300))


def test_one_large_group_leaves_memory_to_the_others() -> None:
    memory = PendingMemory(1000)
    large, small = PendingRows(memory), PendingRows(memory)
    keep(small, 1)
    keep(large, *range(50))
    assert memory.used_bytes == 119
    keep(small, 2)
    assert (read(small), read(large)) == ([1, 2], list(range(50)))
    large.close()
    small.close()
    assert memory.used_bytes == 0


def test_reading_resumes_at_the_oldest_open_group() -> None:
    groups = PreparedGroups()
    places = {xid: ResumePoint("binlog.000001", pos, "") for xid, pos in (("a", 4), ("b", 90), ("c", 200))}
    for xid, place in places.items():
        groups.add(xid, PreparedGroup(PendingRows(PendingMemory()), place))
    assert groups.resume() == places["a"]
    groups.drop("b")
    assert groups.pop("a") is not None
    assert groups.pop("a") is None
    assert groups.resume() == places["c"]
    groups.drop("c")
    assert groups.resume() is None


def test_the_offset_remembers_where_reading_resumes() -> None:
    resume = ResumePoint("binlog.000001", 4, "u:1-2")
    offset = LogOffset(0, "binlog.000002", 900, "u:1-9", "server", resume)
    document = offset.document(1)
    assert document["v"] == 2
    assert LogOffset.parse(document) == offset
    assert offset.start == resume
    plain = LogOffset(0, "binlog.000002", 900, "u:1-9", "server")
    assert plain.document(1)["v"] == 1
    assert "resume" not in plain.document(1)
    assert LogOffset.parse(plain.document(1)) == plain
    assert plain.start == ResumePoint("binlog.000002", 900, "u:1-9")
    begun = Begun("binlog.000002", 900, "u:10", None, 77)
    in_part = replace(offset, last=begun._replace(pos=800), part=Part(begun, 5))
    document = in_part.document(1)
    assert document["v"] == 3
    assert LogOffset.parse(document) == in_part
    with pytest.raises(StateError, match="a newer Tidemark wrote it"):
        LogOffset.parse(document | {"v": 4})
