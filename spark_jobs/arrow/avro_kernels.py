"""Kernels over the bytes of Avro records: the integer program of a schema is run, and each leaf is noted where it is.

What is read, tolerated and refused is what Avro's BinaryDecoder 1.12 and Spark's deserializer do: bytes after the record are
tolerated, skipped texts of a negative length are empty, numbers longer than their type lose their high bits.
Every access is checked against the end of the record before it is made.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.arrow.worker_kernels import Bytes, Flags, Ints, IntsIn, Table, TableIn, entry, kernel

# Columns of a program.
OP: Final = 0
NULLS: Final = 1  # 0: no union; 1 or 2: a union of two, of which the first or the second is null
SLOT: Final = 2  # where the leaf is noted; 0 is noted and never read
NEXT: Final = 3  # the instruction behind this one, if its value is null or empty
A: Final = 4
B: Final = 5
C: Final = 6
WIDTH: Final = 8

END: Final = 0
INT: Final = 1
LONG: Final = 2
BLOB: Final = 3  # bytes or text that is read
SKIP: Final = 4  # bytes or text that is skipped
BOOLEAN: Final = 5
FIXED: Final = 6  # A bytes: float, double, fixed
DECIMAL: Final = 7  # A: whether it has at most 18 digits; B, C: high and low half of the smallest number it does not have
ENTER: Final = 8  # a record, array or map that may be null
UNION: Final = 9  # of A branches: that many JUMPs follow
JUMP: Final = 10  # to A
ITEMS: Final = 11  # a block of an array or map that is skipped; A is its depth
LOOP: Final = 12  # to the next item of ITEMS at A
FLOATS: Final = 13
NOTHING: Final = 14  # a null that is no union
ENUM: Final = 15  # an index below A
_DEPTHS: Final = 16

FITS: Final = 0
DAMAGED: Final = 1
LOOSE: Final = 2  # fits, but is not written as every encoder writes it: its bytes say nothing of equality

# Slots of the programs that judge.
ROW: Final = 1
OPERATION: Final = 2
SEQUENCE: Final = 3
FIRST_KEY: Final = 1
JUDGED_SLOTS: Final = 4

# Reasons; the first that applies. See `reasons`.
LEFT_OUT: Final = -1
GOOD: Final = 0
VALUE_UNFRAMED: Final = 1
VALUE_UNKNOWN: Final = 2
NO_KEY: Final = 3
KEY_UNFRAMED: Final = 4
KEY_UNKNOWN: Final = 5
VALUE_DAMAGED: Final = 6
KEY_DAMAGED: Final = 7
UNKNOWN_OP: Final = 9
NO_POSITION: Final = 10
NO_ROW: Final = 11
UNDECIDED: Final = 12

FRAME: Final = 5
POSITION_BYTES: Final = 39


@kernel
def _varint(data, pos, end, longest):
    """Return the number (before its sign is restored) and the position behind it; -1 if it is cut off or too long."""
    value = np.uint64(0)
    shift = np.uint64(0)
    last = min(end, pos + longest)
    while pos < last:
        byte = np.uint64(data[pos])
        pos += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, pos
        shift += np.uint64(7)
    return value, np.int64(-1)


@kernel
def _long(data, pos, end):
    if pos < end and data[pos] < 0x80:
        byte = np.int64(data[pos])
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value, pos = _varint(data, pos, end, np.int64(10))
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos


@kernel
def _int(data, pos, end):
    if pos < end and data[pos] < 0x80:
        byte = np.int64(data[pos])
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value, pos = _varint(data, pos, end, np.int64(5))
    value &= np.uint64(0xFFFFFFFF)
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos


@kernel
def _is_long_form(data, before, pos):
    """Return whether a number could be written in fewer bytes."""
    return pos - before > 1 and data[pos - 1] == 0


@kernel
def _exceeds(data, start, size, is_short, high, low):
    """Return whether the two's complement number has more digits than its type. Spark takes the last eight bytes of a short one."""
    if size == 0:
        return True
    if is_short:
        start += max(size - 8, 0)
        size = min(size, 8)
    fill = np.uint64(0xFF) if data[start] >= 0x80 else np.uint64(0)
    while size > 16:
        if np.uint64(data[start]) != fill or (data[start + 1] >= 0x80) != (fill != np.uint64(0)):
            return True
        start += 1
        size -= 1
    one = np.uint64(0)  # the high half of its absolute value less one if negative
    two = np.uint64(0)
    for index in range(size):
        byte = np.uint64(data[start + index]) ^ fill
        one = (one << np.uint64(8)) | (two >> np.uint64(56))
        two = (two << np.uint64(8)) | byte
    if fill != np.uint64(0):
        two += np.uint64(1)
        if two == np.uint64(0):
            one += np.uint64(1)
    limit_one, limit_two = np.uint64(high), np.uint64(low)
    return one > limit_one or (one == limit_one and two >= limit_two)


@kernel
def _walk(data, pos, end, code, values, sizes, counts):
    """Read one record; return whether it fits.

    `values` and `sizes` by slot: number or position, and its bytes (-1 for null). `counts` is room for the blocks of arrays.
    """
    pc = np.int64(0)
    loose = False
    for slot in range(sizes.shape[0]):
        sizes[slot] = -1
    while True:
        op = code[pc, OP]
        nulls = code[pc, NULLS]
        before = pos
        if nulls != 0:
            index, pos = _int(data, pos, end)
            if pos < 0:
                return DAMAGED
            loose |= _is_long_form(data, before, pos)
            if index == nulls - 1:
                pc = code[pc, NEXT]
                continue
            if index != 2 - nulls:
                return DAMAGED
            before = pos
        slot = code[pc, SLOT]
        if op == BLOB or op == DECIMAL:
            size, pos = _long(data, pos, end)
            if pos < 0 or size < 0 or size > end - pos:
                return DAMAGED
            loose |= _is_long_form(data, before, pos)
            if op == DECIMAL:
                if _exceeds(data, pos, size, code[pc, A] != 0, code[pc, B], code[pc, C]):
                    return DAMAGED
                loose |= size > 8 and code[pc, A] != 0
                if size > 1:
                    loose |= (data[pos] == 0 and data[pos + 1] < 0x80) or (data[pos] == 0xFF and data[pos + 1] >= 0x80)
            values[slot] = pos
            sizes[slot] = size
            pos += size
        elif op == INT:
            value, pos = _int(data, pos, end)
            if pos < 0:
                return DAMAGED
            loose |= _is_long_form(data, before, pos) or (pos - before == 5 and data[pos - 1] > 0x0F)
            values[slot] = value
            sizes[slot] = 0
        elif op == LONG:
            value, pos = _long(data, pos, end)
            if pos < 0:
                return DAMAGED
            loose |= _is_long_form(data, before, pos) or (pos - before == 10 and data[pos - 1] > 0x01)
            values[slot] = value
            sizes[slot] = 0
        elif op == SKIP:
            size, pos = _long(data, pos, end)
            if pos < 0 or size > end - pos:
                return DAMAGED
            pos += max(size, np.int64(0))
        elif op == FIXED:
            size = code[pc, A]
            if size > end - pos:
                return DAMAGED
            values[slot] = pos
            sizes[slot] = size
            pos += size
        elif op == BOOLEAN:
            if pos >= end:
                return DAMAGED
            values[slot] = np.int64(data[pos] == 1)
            sizes[slot] = 0
            loose |= data[pos] > 1
            pos += 1
        elif op == ENTER:
            values[slot] = 0
            sizes[slot] = 0
        elif op == END:
            return LOOSE if loose or pos != end else FITS
        elif op == UNION:
            index, pos = _int(data, pos, end)
            if pos < 0 or index < 0 or index >= code[pc, A]:
                return DAMAGED
            pc += index
        elif op == JUMP:
            pc = code[pc, A]
            continue
        elif op == ITEMS:
            depth = code[pc, A]
            count, pos = _long(data, pos, end)
            while pos >= 0 and count < 0:
                size, pos = _long(data, pos, end)
                if pos < 0 or size > end - pos:
                    return DAMAGED
                pos += max(size, np.int64(0))
                count, pos = _long(data, pos, end)
            if pos < 0 or count > end - pos:  # an item has at least one byte
                return DAMAGED
            if count == 0:
                pc = code[pc, NEXT]
                continue
            counts[depth] = count
        elif op == LOOP:
            depth = code[pc, A]
            items = code[pc, B]
            counts[depth] -= 1
            pc = items + 1 if counts[depth] > 0 else items
            continue
        elif op == FLOATS:
            total = np.int64(0)
            while True:
                count, pos = _long(data, pos, end)
                if pos >= 0 and count < 0:
                    count = -count
                    size, pos = _long(data, pos, end)
                if pos < 0 or count < 0 or count > (end - pos) // 4:
                    return DAMAGED
                if count == 0:
                    break
                total += count
                pos += 4 * count
            values[slot] = before
            sizes[slot] = total
        elif op == ENUM:
            value, pos = _int(data, pos, end)
            if pos < 0:
                return DAMAGED
        pc += 1


@kernel
def _number_of(data, start, ids):
    """Return the number of the writer whose id the frame has; -1 if there is none."""
    ident = np.int64(0)
    for index in range(1, FRAME):
        ident = (ident << 8) | np.int64(data[start + index])
    for number in range(ids.shape[0]):
        if ids[number] == ident:
            return np.int64(number)
    return np.int64(-1)


@kernel
def _frame_problem(data, start, size, number, unframed, unknown):
    if size <= FRAME or data[start] != 0:
        return unframed
    return unknown if number < 0 else np.int64(GOOD)


@kernel
def _has(data, start, size, text):
    if size != text.shape[0]:
        return False
    for index in range(size):
        if data[start + index] != text[index]:
            return False
    return True


@kernel
def _is_ascii(data, start, size):
    for index in range(size):
        if data[start + index] >= 0x80:
            return False
    return True


@kernel
def _reason(data, found, sizes, is_key_damaged, lacks_key):
    """Return the reason of a record that has an operation, from the leaves of its value."""
    operation = np.int64(data[found[OPERATION]]) if sizes[OPERATION] == 1 else np.int64(0)
    if is_key_damaged:
        return np.int64(KEY_DAMAGED)
    is_delete = operation == 100
    if lacks_key and is_delete:
        return np.int64(UNDECIDED)  # the row that is deleted may have the key: the JVM looks there
    if not (is_delete or operation == 99 or operation == 117 or operation == 114):
        return np.int64(UNKNOWN_OP)
    size = sizes[SEQUENCE]
    if size < POSITION_BYTES:
        return np.int64(NO_POSITION)
    if not _is_ascii(data, found[SEQUENCE], size):
        return np.int64(UNDECIDED)  # the JVM counts characters
    if size > POSITION_BYTES:
        return np.int64(NO_POSITION)
    if sizes[ROW] < 0 and not is_delete:
        return np.int64(NO_ROW)
    return np.int64(GOOD)


@entry
def judge_records(
    key_data: Bytes,
    key_starts: IntsIn,
    key_sizes: IntsIn,
    key_ids: IntsIn,
    key_code: TableIn,
    key_programs: IntsIn,
    key_lacks: IntsIn,
    value_data: Bytes,
    value_starts: IntsIn,
    value_sizes: IntsIn,
    value_ids: IntsIn,
    value_code: TableIn,
    value_programs: IntsIn,
    snapshot: Flags,
    marker: Bytes,
    scratch: Table,
    reasons: Ints,
    deleted: Flags,
    key_numbers: Ints,
    value_numbers: Ints,
    positions: Ints,
) -> int:
    """Judge each record; return how many good ones have a key whose bytes say nothing of equality.

    `key_programs` and `value_programs` are the first instruction and the one behind the last, of each writer and of the next.
    """
    loose_keys = np.int64(0)
    values, sizes, counts = scratch[0], scratch[1], scratch[2]
    for record in range(value_starts.shape[0]):
        reasons[record] = LEFT_OUT
        deleted[record] = False
        key_numbers[record] = -1
        value_numbers[record] = -1
        positions[record] = -1
        start, size = value_starts[record], value_sizes[record]
        key_start, key_size = key_starts[record], key_sizes[record]
        if size < 0 or (snapshot[record] and _has(key_data, key_start, key_size, marker)):
            continue
        number = key_number = np.int64(-1)
        if size > FRAME:
            number = _number_of(value_data, start, value_ids)
        if key_size > FRAME:
            key_number = _number_of(key_data, key_start, key_ids)
        key_numbers[record] = key_number
        value_numbers[record] = number
        reason = _frame_problem(value_data, start, size, number, np.int64(VALUE_UNFRAMED), np.int64(VALUE_UNKNOWN))
        key_problem = np.int64(NO_KEY)
        if key_size >= 0:
            key_problem = _frame_problem(
                key_data, key_start, key_size, key_number, np.int64(KEY_UNFRAMED), np.int64(KEY_UNKNOWN)
            )
        is_keyless = key_size < 0
        if reason == GOOD and (key_problem == GOOD or is_keyless):
            first, last = value_programs[number], value_programs[number + 1]
            fits = _walk(value_data, start + FRAME, start + size, value_code[first:last], values, sizes, counts)
            if fits == DAMAGED:
                sizes[OPERATION] = -1
            if is_keyless:
                is_truncate = sizes[OPERATION] == 1 and value_data[values[OPERATION]] == 116
                reasons[record] = LEFT_OUT if is_truncate else NO_KEY
                continue
            if sizes[OPERATION] < 0:
                reasons[record] = VALUE_DAMAGED
                continue
            first, last = key_programs[key_number], key_programs[key_number + 1]
            key_end = key_start + key_size
            key_fits = _walk(key_data, key_start + FRAME, key_end, key_code[first:last], scratch[3], scratch[4], counts)
            is_key_damaged = key_fits == DAMAGED or scratch[4, FIRST_KEY] < 0
            reason = _reason(value_data, values, sizes, is_key_damaged, key_lacks[key_number] != 0)
            if reason == GOOD:
                deleted[record] = value_data[values[OPERATION]] == 100
                positions[record] = values[SEQUENCE]
                loose_keys += np.int64(key_fits == LOOSE)
        elif reason == GOOD:
            reason = key_problem
        reasons[record] = reason
    return loose_keys


@entry
def read_leaves(
    data: Bytes, starts: IntsIn, sizes: IntsIn, chosen: IntsIn, code: TableIn, scratch: Table, found: Table, found_sizes: Table
) -> int:
    """Note the leaves of the chosen records, `found[slot, n]` of the nth; return how many do not fit (none, once judged)."""
    damaged = np.int64(0)
    for index in range(chosen.shape[0]):
        record = chosen[index]
        start = starts[record]
        fits = _walk(data, start + FRAME, start + sizes[record], code, scratch[0], scratch[1], scratch[2])
        damaged += np.int64(fits == DAMAGED)
        for slot in range(found.shape[0]):
            found[slot, index] = scratch[0, slot]
            found_sizes[slot, index] = scratch[1, slot]
    return damaged
