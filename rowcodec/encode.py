"""The kernel that turns a rows event, or a block of row packets, into finished keys and envelopes.

One run: expand the envelope's template with this event's numbers and strings into four segments, then per row
locate, write the key, write the record(s). Room is checked once per row against a bound, so the writers need
no checks of their own; when it does not suffice the run stops with GROW_... and is repeated with more.
"""

from __future__ import annotations

import numpy as np

from rowcodec.cells import ZERO_DATE, locate, put_cell
from rowcodec.codec_kernels import Bytes, Int, Ints, ShortInts, entry, inlined, kernel
from rowcodec.memory import BLOCK, copy_block, move
from rowcodec.ops import (
    ARG_A,
    AVRO,
    COLUMN,
    DELETE,
    E_PACKET,
    E_RANGE,
    E_TRAILING,
    E_TRUNCATED,
    GROW_KEYS,
    GROW_RECORDS,
    GROW_VALUES,
    GROWTH,
    H_COLUMNS,
    H_FACTOR,
    H_HIDDEN,
    H_HIDDEN_AT,
    H_IMAGE_AT,
    H_KEY_AT,
    H_KEY_BOUND,
    H_KEYS,
    H_LAYOUT,
    H_NULL_BIT,
    H_PIECES,
    H_PYTHON,
    H_RECORD_BOUND,
    H_ROW_AT,
    H_ROW_BOUND,
    H_SKIP_UNCHANGED,
    H_TEMPLATE_AT,
    H_TEMPLATE_SIZE,
    H_TOMBSTONES,
    H_TRANSACTION,
    H_UNWRAP,
    H_WRITTEN,
    LEAD_AT,
    LEAD_SIZE,
    NULL_AT,
    NULL_SIZE,
    NULLABLE,
    OK,
    OP,
    P_AFTER,
    P_CLOSE,
    P_DELETED,
    P_FRAME,
    P_KEY_CLOSE,
    P_KEY_FRAME,
    P_LIVE,
    P_NULL,
    P_OPEN,
    PROGRAM_WIDTH,
    R_CODE,
    R_COLUMN,
    R_KEY_BYTES,
    R_NEED_KEYS,
    R_NEED_VALUES,
    R_RECORDS,
    R_ROW,
    R_ROWS,
    R_VALUE_BYTES,
    R_ZEROS,
    READ,
    S_ORDINAL,
    S_ORDINAL_STEP,
    S_TABLE_ORDER,
    S_TOTAL_ORDER,
    SMALL,
    T_CONSTANT,
    T_MARK,
    T_NUMBER,
    T_OPTIONAL_NUMBER,
    T_OPTIONAL_STRING,
    T_RAW_STRING,
    TRUNCATE,
    UPDATE,
    V_PYTHON,
    X_CELLS,
    X_IMAGES,
    X_LIMBS,
    X_REPORT,
    X_SEGMENTS,
    X_SLOTS,
    ZERO_AT,
    ZERO_SIZE,
)
from rowcodec.primitives import (
    little_endian,
    put_fixed_digits,
    put_number,
    put_text,
)

_ORDINAL_DIGITS = 10
_LARGE_ROW = 1 << 16  # from here on a bound per column is worth its time
_C = 99
_U = 117
_D = 100
_R = 114
_T = 116


@kernel
def expand_template(program: Ints, pool: Bytes, scratch: Ints, strings: Bytes, tmp: Bytes) -> Int:
    """Write the envelope's segments to `tmp[SMALL:]` and their boundaries to the scratch; returns their end."""
    layout = program[0]
    at = program[H_TEMPLATE_AT]
    o = np.int64(SMALL)
    segment = np.int64(0)
    scratch[X_SEGMENTS] = o
    text = np.int64(0)
    for _ in range(program[H_TEMPLATE_SIZE]):
        kind = program[at]
        first = program[at + 1]
        second = program[at + 2]
        at += 3
        if kind == T_CONSTANT:
            o = move(tmp, o, pool, first, second)
        elif kind == T_MARK:
            segment += 1
            scratch[X_SEGMENTS + segment] = o
        elif kind == T_NUMBER:
            o = put_number(layout, tmp, o, scratch[X_SLOTS + first])
        elif kind == T_OPTIONAL_NUMBER:
            number = scratch[X_SLOTS + first]
            if number < 0:
                o = move(tmp, o, pool, program[H_PIECES + 2 * P_NULL], program[H_PIECES + 2 * P_NULL + 1])
            else:
                o = _put_present(layout, tmp, o)
                o = put_number(layout, tmp, o, number)
        else:
            size = scratch[X_SLOTS + first]
            if kind == T_RAW_STRING:
                o = move(tmp, o, strings, text, size)
            elif size < 0:
                o = move(tmp, o, pool, program[H_PIECES + 2 * P_NULL], program[H_PIECES + 2 * P_NULL + 1])
            else:
                if kind == T_OPTIONAL_STRING:
                    o = _put_present(layout, tmp, o)
                o = put_text(layout, tmp, o, strings, text, size)
            text += max(size, np.int64(0))
    return o


@kernel
def _put_present(layout: Int, out: Bytes, o: Int) -> Int:
    """Write the branch of ["null", T] that holds a value: 1 in Avro, nothing in JSON."""
    if layout == AVRO:
        out[o] = 2
        return o + 1
    return o


@kernel
def _put_piece(program: Ints, piece: Int, pool: Bytes, out: Bytes, o: Int) -> Int:
    return move(out, o, pool, program[H_PIECES + 2 * piece], program[H_PIECES + 2 * piece + 1])


@kernel
def _put_segment(scratch: Ints, segment: Int, tmp: Bytes, out: Bytes, o: Int) -> Int:
    start = scratch[X_SEGMENTS + segment]
    return move(out, o, tmp, start, scratch[X_SEGMENTS + segment + 1] - start)


@inlined
def _put_image(
    program: Ints,
    rows_at: Int,
    rows: Int,
    buf: Bytes,
    scratch: Ints,
    image: Int,
    out: Bytes,
    o: Int,
    pool: Bytes,
    side: Bytes,
    side_offsets: Ints,
    side_image: Int,
    tmp: Bytes,
    limbs: Ints,
) -> tuple[Int, Int]:
    """Write some columns of one image (0 or 1 of the cells) as a row. Returns (new end, -1), or (-E_..., column).

    Leaves in each cell where its value is in `out`, the lead not included: the key is put together from there.
    """
    o = _put_piece(program, P_OPEN, pool, out, o)
    row = rows_at - PROGRAM_WIDTH
    first = X_CELLS + 2 * image * program[H_COLUMNS]
    for _ in range(rows):
        row += PROGRAM_WIDTH
        cell = first + 2 * program[row + COLUMN]
        at = scratch[cell]
        size = scratch[cell + 1]
        if size < 0:
            o = move(out, o, pool, program[row + NULL_AT], program[row + NULL_SIZE])
            continue
        start = o
        lead = program[row + LEAD_SIZE]
        if lead <= BLOCK:
            o = copy_block(out, o, pool, program[row + LEAD_AT], lead)
        else:
            o = move(out, o, pool, program[row + LEAD_AT], lead)
        scratch[cell] = o
        if program[row + OP] == V_PYTHON:
            slot = (side_image + image) * program[H_PYTHON] + program[row + ARG_A]
            o = move(out, o, side, side_offsets[slot], side_offsets[slot + 1] - side_offsets[slot])
        else:
            o = put_cell(program, row, buf, at, size, out, o, pool, tmp, limbs)
        if o < 0:
            is_zero = o == ZERO_DATE
            if is_zero:
                scratch[X_REPORT + R_ZEROS] += 1
            if (is_zero or o == -E_RANGE) and program[row + NULLABLE]:
                o = move(out, start, pool, program[row + NULL_AT], program[row + NULL_SIZE])
                scratch[cell + 1] = -1
                continue
            if not is_zero:
                return np.int64(o), np.int64(program[row + COLUMN])
            o = move(out, scratch[cell], pool, program[row + ZERO_AT], program[row + ZERO_SIZE])
        scratch[cell + 1] = o - scratch[cell]
    return _put_piece(program, P_CLOSE, pool, out, o), np.int64(-1)


@kernel
def _put_key(program: Ints, scratch: Ints, image: Int, out: Bytes, keys: Bytes, k: Int, pool: Bytes) -> Int:
    """Write the record key, from the values of an image as `_put_image` left them."""
    k = _put_piece(program, P_KEY_FRAME, pool, keys, k)
    first = X_CELLS + 2 * image * program[H_COLUMNS]
    for index in range(program[H_KEYS]):
        row = program[H_KEY_AT] + index * PROGRAM_WIDTH
        cell = first + 2 * program[row + COLUMN]
        if scratch[cell + 1] < 0:
            k = move(keys, k, pool, program[row + NULL_AT], program[row + NULL_SIZE])
            continue
        k = move(keys, k, pool, program[row + LEAD_AT], program[row + LEAD_SIZE])
        k = move(keys, k, out, scratch[cell], scratch[cell + 1])
    return _put_piece(program, P_KEY_CLOSE, pool, keys, k)


@inlined
def _put_record(
    program: Ints,
    scratch: Ints,
    before: Int,
    after: Int,
    op: Int,
    row: Int,
    out: Bytes,
    o: Int,
    pool: Bytes,
    tmp: Bytes,
) -> Int:
    """Write one envelope or flat row; `before` and `after` are images that stand in `out` already, -1 for null."""
    if program[H_UNWRAP]:
        image = after if after >= 0 else before
        o = _put_piece(program, P_FRAME, pool, out, o)
        start = scratch[X_IMAGES + image]
        o = move(out, o, out, start, scratch[X_IMAGES + image + 1] - start)
        o = _put_segment(scratch, 0, tmp, out, o)
        o = _put_piece(program, P_LIVE if after >= 0 else P_DELETED, pool, out, o)
        o = _put_segment(scratch, 1, tmp, out, o)
        out[o] = np.uint8(op)
        return _put_segment(scratch, 2, tmp, out, o + 1)
    for side in range(2):
        o = _put_piece(program, P_FRAME if side == 0 else P_AFTER, pool, out, o)
        image = before if side == 0 else after
        if image < 0:
            o = _put_piece(program, P_NULL, pool, out, o)
        else:
            start = scratch[X_IMAGES + image]
            o = move(out, o, out, start, scratch[X_IMAGES + image + 1] - start)
    step = scratch[X_SLOTS + S_ORDINAL_STEP]
    o = _put_segment(scratch, 0, tmp, out, o)
    o = put_fixed_digits(out, o, scratch[X_SLOTS + S_ORDINAL] + row * step, _ORDINAL_DIGITS)
    o = _put_segment(scratch, 1, tmp, out, o)
    o = put_number(program[H_LAYOUT], out, o, row * step)
    o = _put_segment(scratch, 2, tmp, out, o)
    last = 3
    if program[H_TRANSACTION]:
        total = scratch[X_SLOTS + S_TOTAL_ORDER]
        scratch[X_SLOTS + S_TOTAL_ORDER] = total + 1
        of_table = scratch[X_SLOTS + S_TABLE_ORDER]
        scratch[X_SLOTS + S_TABLE_ORDER] = of_table + 1
        o = put_number(program[H_LAYOUT], out, o, total)
        o = _put_segment(scratch, 3, tmp, out, o)
        o = put_number(program[H_LAYOUT], out, o, of_table)
        o = _put_segment(scratch, 4, tmp, out, o)
        last = 5
    out[o] = np.uint8(op)
    return _put_segment(scratch, last, tmp, out, o + 1)


@kernel
def _grown(program: Ints, scratch: Ints, images: Int, part_at: Int, part_size: Int) -> Int:
    """Bound of what the variable parts of a large row's columns (or key columns) become, column by column."""
    total = np.int64(0)
    for image in range(images):
        first = X_CELLS + 2 * image * program[H_COLUMNS]
        for index in range(program[part_size]):
            row = program[part_at] + index * PROGRAM_WIDTH
            size = scratch[first + 2 * program[row + COLUMN] + 1]
            total += program[row + GROWTH] * max(size, np.int64(0))
    return total


@kernel
def _is_same(keys: Bytes, first: Int, second: Int, end: Int) -> bool:
    """Return whether keys[first:second] equals keys[second:end]."""
    if second - first != end - second:
        return False
    for index in range(second - first):
        if keys[first + index] != keys[second + index]:
            return False
    return True


@kernel
def _fail(scratch: Ints, code: Int, column: Int, row: Int) -> Int:
    scratch[X_REPORT + R_CODE] = code
    scratch[X_REPORT + R_COLUMN] = column
    scratch[X_REPORT + R_ROW] = row
    return np.int64(code)


@kernel
def next_row(buf: Bytes, p: Int, end: Int) -> tuple[Int, Int]:
    """(first byte of the null bitmap, end) of the row packet at `p`; (-E_..., 0) when there is none.

    A size of 0xFFFFFF is a row of 16 MiB or more, its packets joined: it goes to the block's end.
    """
    if p + 4 > end:
        return np.int64(-E_TRUNCATED), np.int64(0)
    size = little_endian(buf, p, 3)
    start = np.int64(p + 4)
    stop = np.int64(end) if size == 0xFFFFFF else start + size
    if stop > end:
        return np.int64(-E_TRUNCATED), np.int64(0)
    if stop <= start or buf[start] != 0:
        return np.int64(-E_PACKET), np.int64(0)
    return start + 1, stop


@kernel
def _locate_row(
    program: Ints, mode: Int, buf: Bytes, p: Int, end: Int, scratch: Ints
) -> tuple[Int, Int, Int]:
    """Find the cells of one row's images. Returns (end of the row, its bytes, -1), or (-E_..., 0, column)."""
    stop = np.int64(end)
    if mode == READ:
        p, stop = next_row(buf, p, end)
        if p < 0:
            return np.int64(p), np.int64(0), np.int64(-1)
    start = np.int64(p)
    columns = program[H_COLUMNS]
    images = 2 if mode == UPDATE else 1
    for image in range(images):
        p, column = locate(
            buf,
            p,
            stop,
            program,
            program[H_ROW_AT],
            columns,
            program[H_NULL_BIT],
            scratch,
            X_CELLS + 2 * image * columns,
        )
        if p < 0:
            return np.int64(p), np.int64(0), column
    if mode == READ and p != stop:
        return np.int64(-E_TRAILING), np.int64(0), np.int64(-1)
    return np.int64(p), p - start, np.int64(-1)


@kernel
def _enter(
    n: Int,
    o: Int,
    k: Int,
    op: Int,
    tombstone: Int,
    related: Int,
    offsets: Ints,
    marks: Bytes,
    relations: ShortInts,
) -> Int:
    """Note record `n`, whose value and key end at `o` and `k`."""
    capacity = relations.size
    offsets[n + 1] = o
    offsets[capacity + 1 + n + 1] = k
    marks[n] = np.uint8(tombstone)
    marks[capacity + n] = np.uint8(op)
    relations[n] = related
    return n + 1


@kernel
def encode_rows(
    program: Ints,
    pool: Bytes,
    mode: Int,
    buf: Bytes,
    start: Int,
    end: Int,
    strings: Bytes,
    side: Bytes,
    side_offsets: Ints,
    side_bound: Int,
    scratch: Ints,
    tmp: Bytes,
    out: Bytes,
    keys: Bytes,
    offsets: Ints,
    marks: Bytes,
    relations: ShortInts,
) -> Int:
    """Encode all rows between `start` and `end`, behind what the scratch's report says is written; it says how it went.

    `offsets` has two regions of relations.size + 1 (values, keys), `marks` two of relations.size (tombstone, op).
    """
    end_of_head = expand_template(program, pool, scratch, strings, tmp)
    record_bound = program[H_RECORD_BOUND] + end_of_head
    row_bound = program[H_ROW_BOUND] + side_bound
    key_bound = program[H_KEY_BOUND] + side_bound
    factor = program[H_FACTOR]
    limbs = scratch[X_LIMBS:X_CELLS]
    capacity = relations.size
    p = np.int64(start)
    o = scratch[X_REPORT + R_VALUE_BYTES]
    k = scratch[X_REPORT + R_KEY_BYTES]
    n = scratch[X_REPORT + R_RECORDS]
    row = np.int64(0)
    side_image = np.int64(0)
    has_key = program[H_KEYS] > 0
    images = 2 if mode == UPDATE else 1
    parts = 2 * images if program[H_HIDDEN] > 0 else images
    if mode == TRUNCATE:
        if 2 * record_bound > out.size:
            scratch[X_REPORT + R_NEED_VALUES] = 2 * record_bound
            return _fail(scratch, GROW_VALUES, -1, row)
        o = _put_record(program, scratch, -1, -1, _T, row, out, o, pool, tmp)
        n = _enter(n, o, k, _T, 0, -1, offsets, marks, relations)
    while p < end:
        p, size, column = _locate_row(program, mode, buf, p, end, scratch)
        if p < 0:
            return _fail(scratch, -p, column, row)
        if n + 3 > capacity:
            return _fail(scratch, GROW_RECORDS, -1, row)
        # The row's images are written once, to the end of `out`; keys and records are put together from there.
        grown = factor * size if size < _LARGE_ROW else _grown(program, scratch, images, H_ROW_AT, H_COLUMNS)
        image_bytes = images * row_bound + grown
        need = o + 2 * record_bound + 2 * image_bytes
        if need > out.size:
            scratch[X_REPORT + R_NEED_VALUES] = need
            return _fail(scratch, GROW_VALUES, -1, row)
        if size >= _LARGE_ROW:
            grown = _grown(program, scratch, images, H_KEY_AT, H_KEYS)
        need = k + 3 * key_bound + 2 * grown
        if need > keys.size:
            scratch[X_REPORT + R_NEED_KEYS] = need
            return _fail(scratch, GROW_KEYS, -1, row)
        at = out.size - image_bytes
        for part in range(parts):
            image = part if part < images else part - images
            if part < images:
                rows_at, rows = program[H_IMAGE_AT], program[H_WRITTEN]
                scratch[X_IMAGES + image] = at
            else:
                rows_at, rows = program[H_HIDDEN_AT], program[H_HIDDEN]
            at, column = _put_image(
                program,
                rows_at,
                rows,
                buf,
                scratch,
                image,
                out,
                at,
                pool,
                side,
                side_offsets,
                side_image,
                tmp,
                limbs,
            )
            if at < 0:
                return _fail(scratch, -at, column, row)
            if part < images:
                scratch[X_IMAGES + image + 1] = at
        old_end = k
        new_end = k
        changed = False
        if has_key:
            old_end = _put_key(program, scratch, 0, out, keys, k, pool)
            if images == 2:
                new_end = _put_key(program, scratch, 1, out, keys, old_end, pool)
                changed = not _is_same(keys, k, old_end, new_end)
        if mode != DELETE and not changed:
            if (
                images == 2
                and program[H_SKIP_UNCHANGED]
                and _is_same(out, scratch[X_IMAGES], scratch[X_IMAGES + 1], scratch[X_IMAGES + 2])
            ):
                side_image += images
                row += 1
                continue
            op = _U if mode == UPDATE else (_R if mode == READ else _C)
            o = _put_record(program, scratch, images - 2, images - 1, op, row, out, o, pool, tmp)
            n = _enter(n, o, old_end, op, 0, -1, offsets, marks, relations)
            k = old_end
        elif not program[H_TOMBSTONES]:
            o = _put_record(program, scratch, 0, -1, _D, row, out, o, pool, tmp)
            n = _enter(n, o, old_end, _D, 0, n + 1 if changed else -1, offsets, marks, relations)
            k = old_end
            if changed:
                o = _put_record(program, scratch, -1, 1, _C, row, out, o, pool, tmp)
                k = new_end
                n = _enter(n, o, k, _C, 0, n - 1, offsets, marks, relations)
        else:
            # d and a tombstone, which has the old key in bytes of its own so that all offsets ascend; a changed
            # key continues with c.
            size = old_end - k
            if changed:
                move(keys, old_end + size, keys, old_end, new_end - old_end)
            move(keys, old_end, keys, k, size)
            o = _put_record(program, scratch, 0, -1, _D, row, out, o, pool, tmp)
            n = _enter(n, o, old_end, _D, 0, n + 2 if changed else -1, offsets, marks, relations)
            n = _enter(n, o, old_end + size, 0, 1, n + 1 if changed else -1, offsets, marks, relations)
            k = old_end + size
            if changed:
                o = _put_record(program, scratch, -1, 1, _C, row, out, o, pool, tmp)
                k = new_end + size
                n = _enter(n, o, k, _C, 0, n - 2, offsets, marks, relations)
        side_image += images
        row += 1
    scratch[X_REPORT + R_RECORDS] = n
    scratch[X_REPORT + R_ROWS] += row
    scratch[X_REPORT + R_VALUE_BYTES] = o
    scratch[X_REPORT + R_KEY_BYTES] = k
    scratch[X_REPORT + R_CODE] = OK
    return np.int64(OK)


@kernel
def begin_records(scratch: Ints, offsets: Ints, relations: ShortInts) -> None:
    """Note that nothing is written yet."""
    scratch[X_REPORT + R_RECORDS] = 0
    scratch[X_REPORT + R_ROWS] = 0
    scratch[X_REPORT + R_VALUE_BYTES] = 0
    scratch[X_REPORT + R_KEY_BYTES] = 0
    scratch[X_REPORT + R_ZEROS] = 0
    offsets[0] = 0
    offsets[relations.size + 1] = 0


@entry
def encode(
    program: Ints,
    pool: Bytes,
    mode: Int,
    buf: Bytes,
    start: Int,
    end: Int,
    strings: Bytes,
    side: Bytes,
    side_offsets: Ints,
    side_bound: Int,
    scratch: Ints,
    tmp: Bytes,
    out: Bytes,
    keys: Bytes,
    offsets: Ints,
    marks: Bytes,
    relations: ShortInts,
) -> Int:
    """Encode all rows between `start` and `end`; the scratch's report says how it went and how much it gave."""
    begin_records(scratch, offsets, relations)
    return encode_rows(
        program,
        pool,
        mode,
        buf,
        start,
        end,
        strings,
        side,
        side_offsets,
        side_bound,
        scratch,
        tmp,
        out,
        keys,
        offsets,
        marks,
        relations,
    )


@entry
def find_cells(
    program: Ints, mode: Int, buf: Bytes, start: Int, end: Int, first_op: Int, last_op: Int, scratch: Ints, found: Ints
) -> Int:
    """Locate the cells with one of these operations in all images, as (offset, size) pairs in image order.

    Returns how many pairs there are, also when `found` is too small for them; the report holds the code.
    """
    p = np.int64(start)
    row = np.int64(0)
    count = np.int64(0)
    images = 2 if mode == UPDATE else 1
    columns = program[H_COLUMNS]
    scratch[X_REPORT + R_CODE] = OK
    while p < end:
        p, _, column = _locate_row(program, mode, buf, p, end, scratch)
        if p < 0:
            _fail(scratch, -p, column, row)
            return count
        for image in range(images):
            for index in range(columns):
                op = program[program[H_ROW_AT] + index * PROGRAM_WIDTH + OP]
                if op < first_op or op > last_op:
                    continue
                if 2 * count + 1 < found.size:
                    cell = X_CELLS + 2 * (image * columns + index)
                    found[2 * count] = scratch[cell]
                    found[2 * count + 1] = scratch[cell + 1]
                count += 1
        row += 1
    return count
