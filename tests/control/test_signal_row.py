"""Signal rows from raw row images."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.control.signal_row import SignalRow, decode_signal_row
from rowcodec import BinlogLayout
from schemas.errors import DecodeError

OURS = BinlogLayout((15, 15, 15), (168, 128, 8192))
DEBEZIUM_LATIN1 = BinlogLayout((15, 15, 15), (42, 32, 2048))


def image(layout: BinlogLayout, *cells: bytes | None) -> bytes:
    nulls = sum(1 << index for index, cell in enumerate(cells) if cell is None)
    body = nulls.to_bytes((len(cells) + 7) // 8, "little")
    for meta, code, cell in zip(layout.metas, layout.types, cells, strict=True):
        if cell is not None:
            prefix = {15: 2 if meta > 255 else 1, 252: meta, 3: 0}[code]
            body += (len(cell).to_bytes(prefix, "little") if prefix else b"") + cell
    return body


def decode(layout: BinlogLayout, data: bytes, op: str = "c") -> list[SignalRow]:
    framed = np.frombuffer(b"\xee" * 7 + data + b"\xee" * 9, np.uint8)
    return list(decode_signal_row(framed, 7, 7 + len(data), layout, op))


def test_one_event_may_hold_many_signals() -> None:
    data = image(OURS, b"a", b"log", b"{}") + image(OURS, b"b", b"pause-snapshot", None)
    assert decode(OURS, data) == [SignalRow("a", "log", "{}"), SignalRow("b", "pause-snapshot", None)]


def test_an_update_gives_the_new_row() -> None:
    data = image(OURS, b"a", b"log", b"old") + image(OURS, b"a", b"log", b"new")
    assert decode(OURS, data, "u") == [SignalRow("a", "log", "new")]


def test_short_columns_have_one_length_byte_and_latin1_text_is_read() -> None:
    data = image(DEBEZIUM_LATIN1, b"a", b"log", "Grüße".encode("latin-1"))
    assert decode(DEBEZIUM_LATIN1, data) == [SignalRow("a", "log", "Grüße")]


def test_text_columns_and_further_columns_are_understood() -> None:
    layout = BinlogLayout((15, 15, 252, 3), (42, 32, 2, 0))
    row = image(layout, b"a", b"log", b"x" * 300, b"\x01\x02\x03\x04")
    assert decode(layout, row + row) == [SignalRow("a", "log", "x" * 300)] * 2


def test_a_table_that_cannot_hold_signals_gives_none() -> None:
    assert decode(BinlogLayout((3, 15, 15), (0, 32, 2048)), b"\x00" + b"\x01" * 30) == []
    assert decode(BinlogLayout((15, 15), (42, 32)), b"\x00" * 30) == []


def test_rows_without_id_or_type_are_answered_as_if_they_were_empty() -> None:
    data = image(OURS, None, b"log", b"{}") + image(OURS, b"a", None, b"{}")
    assert decode(OURS, data) == [SignalRow("", "log", "{}"), SignalRow("a", "", "{}")]


def test_truncated_rows_are_decode_errors() -> None:
    data = image(OURS, b"id", b"log", b"data")
    for length in range(1, len(data)):
        with pytest.raises(DecodeError):
            decode(OURS, data[:length])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=60))
def test_random_bytes_give_rows_or_a_decode_error(data: bytes) -> None:
    with suppress(DecodeError):
        decode(OURS, data)
