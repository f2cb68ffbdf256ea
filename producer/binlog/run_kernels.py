"""The kernels that find runs of small transactions in a batch of events, and the columns of their arrays.

All reads are inside the event that is read: one whose sizes do not fit ends the run.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from producer.binlog.log_kernels import Bytes, Int, Ints, Table, entry, kernel
from producer.binlog.rowcount import _walk
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
    NO_GTID,
)

MOST_TRANSACTIONS: Final = 1024
"""A run takes milliseconds: what waits for a transaction boundary waits for its end."""
MOST_BYTES: Final = 512 << 10
MOST_ITEMS: Final = 4096
MOST_TABLES: Final = 64
MOST_INTERVALS: Final = 64
_MOST_OF_ONE: Final = 16  # tables of one transaction
MOST_SLOW: Final = 256

# ── a table version in `tables`
T_ID: Final = 0
T_START: Final = 1  # fingerprint in the buffer: the TABLE_MAP behind id and flags
T_END: Final = 2
T_COLUMNS: Final = 3
T_OPS: Final = 4  # bits: 1 insert, 2 update, 4 delete
T_FIRST: Final = 5  # the first transaction of the run with such a TABLE_MAP
TABLE: Final = 6

# ── transactions whose numbers follow each other, in `intervals`
G_UUID: Final = 0
G_DOMAIN: Final = 1
G_ORIGIN: Final = 2
G_FIRST: Final = 3
G_LAST: Final = 4
INTERVAL: Final = 5

# ── a transaction in `transactions`: its first event and its first item; a row behind the last has the ends
X_EVENT: Final = 0
X_ITEM: Final = 1

# ── the transaction that is read, in the kernel's scratch, as the columns of `items` have it
_C_BEGAN, _C_TS_US, _C_THREAD, _C_UUID, _C_NUMBER, _C_DOMAIN, _C_ORIGIN = 0, 1, 2, 3, 4, 5, 6
_C_TABLES: Final = 7  # rows of `tables` of its TABLE_MAPs
CURRENT: Final = _C_TABLES + _MOST_OF_ONE

# ── the report
R_FIRST: Final = 0
R_END: Final = 1
R_TRANSACTIONS: Final = 2
R_ITEMS: Final = 3
R_TABLES: Final = 4
R_INTERVALS: Final = 5
R_LONGEST: Final = 6  # most items of one transaction
REPORT: Final = 7

_NO_TIME: Final = -1
_NOT_SIMPLE: Final = -1
_INCOMPLETE: Final = -2


@kernel
def _little(buf: Bytes, at: Int, size: Int) -> Int:
    value = np.int64(0)
    first = np.uint64(at)
    for index in range(size):
        value |= np.int64(buf[first + np.uint64(index)]) << np.int64(8 * index)
    return value


@kernel
def _same(buf: Bytes, one: Int, other: Int, size: Int) -> bool:
    differ = np.uint8(0)
    first, second = np.uint64(one), np.uint64(other)
    for index in range(size):
        differ |= buf[first + np.uint64(index)] ^ buf[second + np.uint64(index)]
    return bool(differ == 0)


@kernel
def _is_packed(buf: Bytes, at: Int, end: Int) -> bool:
    """Return whether a length-encoded number is whole, or nothing is there."""
    if at >= end or buf[at] < 251:
        return True
    if buf[at] == 252:
        size = 2
    elif buf[at] == 253:
        size = 3
    elif buf[at] == 254:
        size = 8
    else:
        return False
    return bool(at + 1 + size <= end)


@kernel
def _begins(buf: Bytes, start: Int, end: Int, kind: Int, origin: Int, current: Ints) -> bool:
    """Read a GTID event into `current`; False where the transaction is not one of rows alone."""
    at = start + 19
    current[_C_TS_US] = _NO_TIME
    current[_C_THREAD] = -1
    current[_C_DOMAIN] = 0
    current[_C_ORIGIN] = origin
    if kind == 162:
        if at + 13 > end or buf[at + 12] & 0x65 != 4:  # standalone, transactional, DDL, prepared XA
            return False
        current[_C_UUID] = DOMAIN_GTID
        current[_C_NUMBER] = _little(buf, at, 8)
        current[_C_DOMAIN] = _little(buf, at + 8, 4)
        return bool(current[_C_NUMBER] >= 0)
    if at + 42 > end or buf[at] & 1 or buf[at + 25] != 2:
        return False
    current[_C_UUID] = NO_GTID
    current[_C_NUMBER] = 0
    if kind == 33:
        current[_C_UUID] = at + 1
        current[_C_NUMBER] = _little(buf, at + 17, 8)
        if current[_C_NUMBER] <= 0:
            return False
    at += 42
    if at + 7 > end:
        return True
    original = _little(buf, at, 7)
    at += 7
    if original >> 55:
        if at + 7 > end:
            return False
        original = _little(buf, at, 7)
        at += 7
    if original != 0:
        current[_C_TS_US] = original
    return _is_packed(buf, at, end)


@kernel
def _thread_of_begin(buf: Bytes, start: Int, end: Int) -> Int:
    """Return the thread of a QUERY event that is `BEGIN`; _NOT_SIMPLE for another."""
    at = start + 19
    if at + 13 > end:
        return _NOT_SIMPLE
    sql = at + 13 + np.int64(buf[at + 8]) + _little(buf, at + 11, 2) + 1
    if end - sql != 5 or buf[sql] != 66 or buf[sql + 1] != 69 or buf[sql + 2] != 71:
        return _NOT_SIMPLE
    if buf[sql + 3] != 73 or buf[sql + 4] != 78:
        return _NOT_SIMPLE
    return _little(buf, at, 4)


@kernel
def _table(buf: Bytes, start: Int, end: Int, tables: Table, count: Int, transaction: Int) -> Int:
    """Return the row of `tables` of a TABLE_MAP event, which may be the next free one; _NOT_SIMPLE without room."""
    at = start + 27
    if at >= end:
        return _NOT_SIMPLE
    number = _little(buf, start + 19, 6)
    for index in range(count):
        if tables[index, T_ID] != number or tables[index, T_END] - tables[index, T_START] != end - at:
            continue
        if _same(buf, tables[index, T_START], at, end - at):
            return index
    if count == tables.shape[0]:
        return _NOT_SIMPLE
    tables[count, T_ID] = number
    tables[count, T_START] = at
    tables[count, T_END] = end
    tables[count, T_OPS] = 0
    tables[count, T_FIRST] = transaction
    for _ in range(2):  # database and name
        at += np.int64(buf[at]) + 2
        if at >= end:
            return _NOT_SIMPLE
    columns = np.int64(buf[at])
    if columns > 250:
        if columns != 252 or at + 3 > end:
            return _NOT_SIMPLE
        columns = _little(buf, at + 1, 2)
    tables[count, T_COLUMNS] = columns
    return count


@kernel
def _first_row(buf: Bytes, start: Int, end: Int, kind: Int, columns: Int) -> Int:
    """Return where the rows of a rows event begin, which has all columns of its table; _NOT_SIMPLE else."""
    at = start + 27
    if at + 2 > end:
        return _NOT_SIMPLE
    if kind >= 30:
        extra = _little(buf, at, 2)
        if extra < 2:
            return _NOT_SIMPLE
        at += extra
    if at >= end:
        return _NOT_SIMPLE
    count = np.int64(buf[at])
    at += 1
    if count > 250:
        if count != 252 or at + 2 > end:
            return _NOT_SIMPLE
        count = _little(buf, at, 2)
        at += 2
    if count != columns or not 0 < count <= 4096:
        return _NOT_SIMPLE
    size = (count + 7) >> 3
    images = 2 if kind in (24, 31) else 1
    if at + images * size > end:
        return _NOT_SIMPLE
    last = (1 << (((count - 1) & 7) + 1)) - 1
    for _ in range(images):
        for index in range(size - 1):
            if buf[at + index] != 255:
                return _NOT_SIMPLE
        if buf[at + size - 1] & last != last:
            return _NOT_SIMPLE
        at += size
    return at


@kernel
def _op_bit(kind: Int) -> Int:
    """Return the bit of an operation in `T_OPS`; 0 for another kind of event."""
    if kind in (23, 30):
        return 1
    if kind in (24, 31):
        return 2
    return 4 if kind in (25, 32) else 0


@kernel
def _continues(buf: Bytes, current: Ints, intervals: Table, count: Int) -> bool:
    """Return whether the transaction's GTID follows the last one of the intervals."""
    if count == 0:
        return False
    last = intervals[count - 1]
    if last[G_UUID] == DOMAIN_GTID or current[_C_UUID] == DOMAIN_GTID:
        is_same = last[G_UUID] == current[_C_UUID] and last[G_DOMAIN] == current[_C_DOMAIN]
        return bool(is_same and last[G_ORIGIN] == current[_C_ORIGIN] and current[_C_NUMBER] > last[G_LAST])
    return bool(current[_C_NUMBER] == last[G_LAST] + 1 and _same(buf, current[_C_UUID], last[G_UUID], 16))




@kernel
def _transaction(
    buf: Bytes,
    types: Bytes,
    starts: Ints,
    ends: Ints,
    timestamps: Ints,
    server_ids: Ints,
    offsets: Ints,
    begin: Int,
    skips_sql: Int,
    left_out: Int,
    slow: Ints,
    current: Ints,
    items: Table,
    tables: Table,
    report: Ints,
) -> Int:
    """Read one transaction; the index behind its last event, _NOT_SIMPLE, or _INCOMPLETE where the batch ends in it."""
    kind = types[begin]
    if not _begins(buf, starts[begin], ends[begin], kind, server_ids[begin], current):
        return _NOT_SIMPLE
    current[_C_BEGAN] = offsets[begin]
    index = begin + 1
    if kind != 162:
        if index == types.size:
            return _INCOMPLETE
        if types[index] != 2:
            return _NOT_SIMPLE
        current[_C_THREAD] = _thread_of_begin(buf, starts[index], ends[index])
        if current[_C_THREAD] < 0:
            return _NOT_SIMPLE
        index += 1
    own = current[7:]
    count = 0
    item = report[R_ITEMS]
    while index < types.size:
        kind = types[index]
        start, end = starts[index], ends[index]
        bit = _op_bit(kind)
        if kind == 19:
            table = _table(buf, start, end, tables, report[R_TABLES], report[R_TRANSACTIONS])
            if table < 0:
                return _NOT_SIMPLE
            number = tables[table, T_ID]
            for one in slow:
                if one == number:
                    return _NOT_SIMPLE
            report[R_TABLES] = max(report[R_TABLES], table + 1)
            is_known = False
            for entry in range(count):
                if own[entry] == table:
                    is_known = True
                elif tables[own[entry], T_ID] == number:
                    return _NOT_SIMPLE
            if not is_known:
                if count == own.size:
                    return _NOT_SIMPLE
                own[count] = table
                count += 1
        elif bit != 0:
            if start + 29 > end or item == items.shape[0] or _little(buf, start + 25, 2) & left_out != 0:
                return _NOT_SIMPLE
            number = _little(buf, start + 19, 6)
            table = np.int64(-1)
            for entry in range(count):
                if tables[own[entry], T_ID] == number:
                    table = own[entry]
            if table < 0:
                return _NOT_SIMPLE
            first = _first_row(buf, start, end, kind, tables[table, T_COLUMNS])
            if first < 0:
                return _NOT_SIMPLE
            row = items[item]
            row[I_TABLE] = table
            row[I_KIND] = kind
            row[I_START] = first
            row[I_END] = end
            row[I_BEGAN] = current[_C_BEGAN]
            row[I_POS] = offsets[index]
            row[I_TS_US] = current[_C_TS_US] if current[_C_TS_US] != _NO_TIME else timestamps[index] * 1_000_000
            row[I_SERVER_ID] = server_ids[index]
            row[I_THREAD] = current[_C_THREAD]
            row[I_UUID] = current[_C_UUID]
            row[I_NUMBER] = current[_C_NUMBER]
            row[I_DOMAIN] = current[_C_DOMAIN]
            row[I_ORIGIN] = current[_C_ORIGIN]
            row[I_ORDINAL] = 1 if item == report[R_ITEMS] else 0
            tables[table, T_OPS] |= bit
            item += 1
        elif kind == 16:
            report[R_ITEMS] = item
            return index + 1
        elif not (skips_sql != 0 and kind in (29, 160)):
            return _NOT_SIMPLE
        index += 1
    return _INCOMPLETE


@entry
def find_run(
    buf: Bytes,
    types: Bytes,
    starts: Ints,
    ends: Ints,
    timestamps: Ints,
    server_ids: Ints,
    offsets: Ints,
    begin: Int,
    skips_sql: Int,
    left_out: Int,
    most: Int,
    most_bytes: Int,
    slow: Ints,
    current: Ints,
    items: Table,
    tables: Table,
    intervals: Table,
    transactions: Table,
    report: Ints,
) -> None:
    """Find the first run of two rows events or more at or behind event `begin`; without one R_TRANSACTIONS is 0.

    Rows events of tables whose id is in `slow`, and those with a flag of `left_out`, are in no run.
    """
    report[:] = 0
    index = np.int64(begin)
    while index < types.size:
        kind = types[index]
        if kind not in (33, 34, 162):
            if report[R_TRANSACTIONS] > 0:
                if report[R_ITEMS] > 1:
                    break
                report[:] = 0
            index += 1
            continue
        count = report[R_TRANSACTIONS]
        known, written = report[R_TABLES], report[R_ITEMS]
        behind = _transaction(
            buf, types, starts, ends, timestamps, server_ids, offsets, index, skips_sql, left_out, slow,
            current, items, tables, report,
        )  # fmt: skip
        is_fitting = behind > 0
        if is_fitting and current[_C_UUID] != NO_GTID:
            groups = report[R_INTERVALS]
            if _continues(buf, current, intervals, groups):
                intervals[groups - 1, G_LAST] = current[_C_NUMBER]
            elif groups == intervals.shape[0]:
                is_fitting = False
            else:
                intervals[groups, G_UUID] = current[_C_UUID]
                intervals[groups, G_DOMAIN] = current[_C_DOMAIN]
                intervals[groups, G_ORIGIN] = current[_C_ORIGIN]
                intervals[groups, G_FIRST] = current[_C_NUMBER]
                intervals[groups, G_LAST] = current[_C_NUMBER]
                report[R_INTERVALS] = groups + 1
        if not is_fitting:
            report[R_TABLES], report[R_ITEMS] = known, written
            if written > 1:
                break
            report[:] = 0
            if behind == _INCOMPLETE:
                break
            index += 1
            continue
        if count == 0:
            report[R_FIRST] = index
        transactions[count, X_EVENT] = index
        transactions[count, X_ITEM] = written
        report[R_TRANSACTIONS] = count + 1
        report[R_LONGEST] = max(report[R_LONGEST], report[R_ITEMS] - written)
        report[R_END] = behind
        index = behind
        if count + 1 == most or offsets[behind - 1] - offsets[report[R_FIRST]] >= most_bytes:
            break
    if report[R_ITEMS] < 2:
        report[:] = 0
        return
    count = report[R_TRANSACTIONS]
    transactions[count, X_EVENT] = report[R_END]
    transactions[count, X_ITEM] = report[R_ITEMS]


@entry
def number_rows(
    buf: Bytes, items: Table, transactions: Table, count: Int, sizes: Ints, sizes_at: Ints, encoded: Ints
) -> Int:
    """Write the ordinals of the first `count` transactions; 0, or -1 where rows cannot be measured.

    Table t has the size rules sizes[sizes_at[t]:sizes_at[t + 1]]. Rows of tables that are `encoded` are measured only where
    rows of the same transaction follow: their codec checks them.
    """
    for number in range(count):
        ordinal = np.int64(1)
        last = transactions[number + 1, X_ITEM] - 1
        for index in range(transactions[number, X_ITEM], last + 1):
            row = items[index]
            row[I_ORDINAL] = ordinal
            table = row[I_TABLE]
            if index == last and encoded[table]:
                break
            images = 2 if _op_bit(row[I_KIND]) == 2 else 1
            rules = sizes[sizes_at[table] : sizes_at[table + 1]]
            rows, _ = _walk(buf, row[I_START], row[I_END], rules, images, row[I_END])
            if rows < 0:
                return -1
            ordinal += rows
    return 0
