"""The kernel that turns the rows events of many small transactions into finished keys and envelopes, in one call."""

from __future__ import annotations

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, Ints, ShortInts, entry, kernel
from rowcodec.encode import begin_records, encode_rows
from rowcodec.memory import move
from rowcodec.ops import (
    DELETE,
    INSERT,
    OK,
    S_FILE,
    S_GTID,
    S_NOW_MS,
    S_NOW_NS,
    S_NOW_US,
    S_ORDINAL,
    S_ORDINAL_STEP,
    S_POS,
    S_POSITION,
    S_QUERY,
    S_SERVER_ID,
    S_SNAPSHOT,
    S_TABLE_ORDER,
    S_THREAD,
    S_TOTAL_ORDER,
    S_TRANSACTION,
    S_TS_MS,
    S_TS_NS,
    S_TS_US,
    UPDATE,
    X_SLOTS,
)
from rowcodec.primitives import put_digits, put_fixed_digits
from rowcodec.run_items import (
    DOMAIN_GTID,
    I_BEGAN,
    I_DOMAIN,
    I_END,
    I_KIND,
    I_NUMBER,
    I_ORDINAL,
    I_ORIGIN,
    I_POS,
    I_SERVER_ID,
    I_START,
    I_TABLE,
    I_THREAD,
    I_TS_US,
    I_UUID,
    ITEM,
    NO_GTID,
)

SNAPSHOT = 5  # the size of "false", with which the strings begin
PREFIX = 28
_OFFSET_DIGITS = 12
GTID_AT = SNAPSHOT + PREFIX
GTID_BOUND = 64  # UUID, colon and number; or domain, server id and number


@kernel
def _put_hex(out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    for index in range(size):
        value = np.int64(buf[at + index])
        high = value >> 4
        low = value & 15
        out[o] = np.uint8(high + (48 if high < 10 else 87))
        out[o + 1] = np.uint8(low + (48 if low < 10 else 87))
        o += 2
    return o


@kernel
def _put_uuid(out: Bytes, o: Int, buf: Bytes, at: Int) -> Int:
    """Write 16 bytes as the text of a UUID."""
    o = _put_hex(out, o, buf, at, 4)
    for piece in range(4):
        out[o] = 45
        size = 6 if piece == 3 else 2
        o = _put_hex(out, o + 1, buf, at + 4 + 2 * piece, size)
    return o


@kernel
def _put_strings(items: Ints, at: Int, buf: Bytes, file: Bytes, text: Bytes, scratch: Ints) -> Int:
    """Write position, GTID and file of an event behind what `text` begins with, and their sizes to the slots."""
    put_fixed_digits(text, np.int64(GTID_AT - _OFFSET_DIGITS), items[at + I_BEGAN], np.int64(_OFFSET_DIGITS))
    o = np.int64(GTID_AT)
    uuid = items[at + I_UUID]
    if uuid == DOMAIN_GTID:
        o = put_digits(text, o, items[at + I_DOMAIN])
        text[o] = 45
        o = put_digits(text, o + 1, items[at + I_ORIGIN])
        text[o] = 45
        o = put_digits(text, o + 1, items[at + I_NUMBER])
    elif uuid != NO_GTID:
        o = _put_uuid(text, o, buf, uuid)
        text[o] = 58
        o = put_digits(text, o + 1, items[at + I_NUMBER])
    scratch[X_SLOTS + S_GTID] = np.int64(-1) if uuid == NO_GTID else o - GTID_AT
    return move(text, o, file, np.int64(0), np.int64(file.size))


@kernel
def _fill_slots(items: Ints, at: Int, scratch: Ints) -> None:
    """Write the numbers of an event to the slots; those of all events stay."""
    ts_us = items[at + I_TS_US]
    scratch[X_SLOTS + S_TS_MS] = ts_us // 1000
    scratch[X_SLOTS + S_TS_US] = ts_us
    scratch[X_SLOTS + S_TS_NS] = ts_us * 1000
    scratch[X_SLOTS + S_SERVER_ID] = items[at + I_SERVER_ID]
    scratch[X_SLOTS + S_POS] = items[at + I_POS]
    scratch[X_SLOTS + S_THREAD] = items[at + I_THREAD]
    scratch[X_SLOTS + S_ORDINAL] = items[at + I_ORDINAL]
    scratch[X_SLOTS + S_TOTAL_ORDER] = 1
    scratch[X_SLOTS + S_TABLE_ORDER] = 1


@kernel
def _fill_common(scratch: Ints, now_ns: Int, file_size: Int) -> None:
    scratch[X_SLOTS + S_NOW_MS] = now_ns // 1_000_000
    scratch[X_SLOTS + S_NOW_US] = now_ns // 1000
    scratch[X_SLOTS + S_NOW_NS] = now_ns
    scratch[X_SLOTS + S_ORDINAL_STEP] = 1
    scratch[X_SLOTS + S_SNAPSHOT] = SNAPSHOT
    scratch[X_SLOTS + S_POSITION] = PREFIX
    scratch[X_SLOTS + S_FILE] = file_size
    scratch[X_SLOTS + S_QUERY] = -1
    scratch[X_SLOTS + S_TRANSACTION] = 0


@entry
def encode_run(
    program: Ints,
    pool: Bytes,
    buf: Bytes,
    items: Ints,
    count: Int,
    groups: Ints,
    group: Int,
    now_ns: Int,
    file: Bytes,
    text: Bytes,
    side: Bytes,
    side_offsets: Ints,
    scratch: Ints,
    tmp: Bytes,
    out: Bytes,
    keys: Bytes,
    offsets: Ints,
    marks: Bytes,
    relations: ShortInts,
) -> Int:
    """Encode the rows of the first `count` of `items` whose table is in the group; the report is that of all of them.

    `text` begins with what all events share, and has room for the other strings. The program has no cells of the Python path.
    """
    begin_records(scratch, offsets, relations)
    _fill_common(scratch, now_ns, np.int64(file.size))
    for index in range(count):
        at = np.int64(index * ITEM)
        if groups[items[at + I_TABLE]] != group:
            continue
        kind = items[at + I_KIND]
        mode = np.int64(INSERT)
        if kind == 24 or kind == 31:  # noqa: PLR1714  no tuple membership here
            mode = np.int64(UPDATE)
        elif kind == 25 or kind == 32:  # noqa: PLR1714
            mode = np.int64(DELETE)
        _put_strings(items, at, buf, file, text, scratch)
        _fill_slots(items, at, scratch)
        code = encode_rows(
            program,
            pool,
            mode,
            buf,
            items[at + I_START],
            items[at + I_END],
            text,
            side,
            side_offsets,
            np.int64(0),
            scratch,
            tmp,
            out,
            keys,
            offsets,
            marks,
            relations,
        )
        if code != OK:
            return np.int64(code)
    return np.int64(OK)
