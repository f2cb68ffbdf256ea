"""`TableCodec`: raw rows of one table version in, finished Kafka records out.

Thread safe: every run borrows its scratch memory from a pool, and kernels run without the GIL.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

import numpy as np

from rowcodec import ops
from rowcodec.codec_kernels import GROUP, Bytes, Ints
from rowcodec.encode import encode, find_cells
from rowcodec.encode_run import GTID_AT, GTID_BOUND, encode_run
from rowcodec.exact_dates import exact_text
from rowcodec.program import Program, compile_binlog, compile_result
from rowcodec.scratch import Scratch, borrow, give_back
from rowcodec.types import (
    BinlogLayout,
    ChunkContext,
    EventContext,
    RecordOptions,
    Records,
    RowsOfRun,
    SourceConstants,
    WireSchemas,
)
from schemas.avro import avro_field_name
from schemas.columns import TableSchema
from schemas.errors import DecodeError, TidemarkError
from schemas.exact_values import ExactValues
from schemas.names import adjusted_field_name

_MODES: Final = {"c": ops.INSERT, "u": ops.UPDATE, "d": ops.DELETE}
_SLOTS: Final = struct.Struct(f"<{ops.SLOTS}q")
_DELETED: Final = ord("d")
_OLD: Final = (_DELETED, ord("u"))
_TEMPORAL: Final = (ops.V_DATE_PACKED, ops.V_TIMESTAMP_STRUCT)
_PREFIX_WIDTH: Final = 28
_ROOM: Final = 16
_DEFAULT_OPTIONS: Final = RecordOptions()
_NO_BYTES: Final = np.zeros(1, np.uint8)
_NO_SIDE: Final = np.zeros(1, np.uint8)
_NO_SIDE_OFFSETS: Final = np.zeros(1, np.int64)


class TableCodec:
    """Encodes the rows of one table version in one wire format.

    `layout` is needed for `encode_rows` only. Raises `UnsupportedTypeError` when a column cannot be captured.
    """

    def __init__(
        self,
        table: TableSchema,
        layout: BinlogLayout | None,
        wire: WireSchemas,
        constants: SourceConstants,
        options: RecordOptions = _DEFAULT_OPTIONS,
    ) -> None:
        GROUP.load()
        self.table = table
        self._result_program = compile_result(table, wire, constants, options)
        self._binlog_program = (
            None if layout is None else compile_binlog(table, layout, wire, constants, options)
        )
        self._has_key = bool(table.record_key)
        self.exact = options.exact
        names = (adjusted_field_name(column.name, constants.modes.field_names) for column in table.columns)
        self._fields = [avro_field_name(name) for name in names]

    def encode_rows(self, buf: Bytes, start: int, end: int, ctx: EventContext) -> Records:
        """Encode the rows of one rows event: `start` is its first row byte, `end` its end without checksum.

        All columns must be present (binlog_row_image=FULL). Raises `DecodeError` with `file:pos`.
        """
        if self._binlog_program is None:
            message = f"{self.table.full_name}: this codec was built without a binlog layout"
            raise TidemarkError(message)
        numbers, strings = _event_slots(ctx)
        where = f"{ctx.file}:{ctx.pos}"
        checks = ctx.checks_foreign_keys
        return self._run(self._binlog_program, _MODES[ctx.op], buf, start, end, numbers, strings, where, checks=checks)

    @property
    def encodes_runs(self) -> bool:
        """Whether `encode_run` may be called: no column goes the Python path."""
        return self._binlog_program is not None and not self._binlog_program.python_cells

    def encode_run(self, run: RowsOfRun) -> Records:
        """Encode the rows of many rows events, as `encode_rows` does those of each, but without `Records.exact`.

        Raises `DecodeError` without a position.
        """
        program = self._binlog_program
        assert program is not None
        file = np.frombuffer(bytearray(run.file.encode()), np.uint8)
        head = b"false" + run.position_prefix.encode()
        text = np.frombuffer(bytearray(head.ljust(GTID_AT + GTID_BOUND + file.size + _ROOM, b"0")), np.uint8)
        scratch = borrow(len(self.table.columns), program.head_bound + 6 * text.size)
        try:
            while True:
                code = encode_run(
                    program.numbers,
                    program.pool,
                    run.buf,
                    run.items,
                    run.count,
                    run.groups,
                    run.group,
                    run.now_ns,
                    file,
                    text,
                    _NO_SIDE,
                    _NO_SIDE_OFFSETS,
                    scratch.numbers,
                    scratch.head,
                    scratch.values,
                    scratch.keys,
                    scratch.offsets,
                    scratch.marks,
                    scratch.relations,
                )
                if code == ops.OK:
                    return scratch.records(self._has_key)
                if not scratch.grow(code):
                    raise self._error(scratch.numbers, "")
        finally:
            give_back(scratch)

    def encode_resultset(self, buf: Bytes, start: int, end: int, ctx: ChunkContext) -> Records:
        """Encode whole row packets of a prepared statement's result set, four-byte headers included.

        A row of 16 MiB or more is alone, its packets joined behind one header that says 0xFFFFFF.
        The statement selects all columns in table order. Raises `DecodeError`.
        """
        numbers, strings = _chunk_slots(ctx)
        where = f"a chunk of {self.table.full_name} at {ctx.position}"
        return self._run(self._result_program, ops.READ, buf, start, end, numbers, strings, where)

    def encode_truncate(self, ctx: EventContext) -> Records:
        """Encode the one record (op t, no key, no transaction block) that says the table was emptied."""
        numbers, strings = _event_slots(ctx)
        where = f"{ctx.file}:{ctx.pos}"
        records = self._run(self._result_program, ops.TRUNCATE, _NO_BYTES, 0, 0, numbers, strings, where)
        return replace(records, has_key=False)

    def _run(
        self,
        program: Program,
        mode: int,
        buf: Bytes,
        start: int,
        end: int,
        numbers: tuple[int, ...],
        strings: bytes,
        where: str,
        *,
        checks: bool = True,
    ) -> Records:
        if not 0 <= start <= end <= buf.size:
            message = f"{self.table.full_name}: the rows lie outside the buffer"
            raise DecodeError(message, where)
        scratch = borrow(len(self.table.columns), program.head_bound + 6 * len(strings))
        try:
            side, side_offsets, side_bound = _NO_SIDE, _NO_SIDE_OFFSETS, 0
            if program.python_cells:
                found = self._locate(program, mode, buf, start, end, (ops.V_PYTHON, ops.V_PYTHON), scratch)
                code = int(scratch.numbers[ops.R_CODE])
                if code != ops.OK:
                    raise self._error(scratch.numbers, where)
                side, side_offsets, side_bound = self._convert(program, mode, buf, found, where)
            text = np.frombuffer(bytearray(strings), np.uint8)  # writable: kernels know one kind of array
            while True:
                _SLOTS.pack_into(scratch.slots, 0, *numbers)
                code = encode(
                    program.numbers,
                    program.pool,
                    mode,
                    buf,
                    start,
                    end,
                    text,
                    side,
                    side_offsets,
                    side_bound,
                    scratch.numbers,
                    scratch.head,
                    scratch.values,
                    scratch.keys,
                    scratch.offsets,
                    scratch.marks,
                    scratch.relations,
                )
                if code == ops.OK:
                    records = scratch.records(self._has_key)
                    if self.exact and (records.zeros or not checks):
                        texts = self._exact_texts(program, mode, buf, start, end, records.rows, scratch)
                        records.exact = _exact_values(mode, records, texts, checks=checks)
                    return records
                if not scratch.grow(code):
                    raise self._error(scratch.numbers, where)
        finally:
            give_back(scratch)

    def _error(self, report: Ints, where: str) -> DecodeError:
        code, column = int(report[ops.R_CODE]), int(report[ops.R_COLUMN])
        name = self.table.full_name
        if 0 <= column < len(self.table.columns):
            found = self.table.columns[column]
            name = f"{name}.{found.name} ({found.type.value})"
        return DecodeError(f"{name}: {ops.REASONS[code]}, row {int(report[ops.R_ROW])}", where)

    def _exact_texts(
        self, program: Program, mode: int, buf: Bytes, start: int, end: int, count: int, scratch: Scratch
    ) -> list[dict[str, str]]:
        """Return the zero and impossible dates of each image of `count` rows, by the names of their fields."""
        rows = program.numbers[ops.HEAD_SIZE :][: len(self._fields) * ops.PROGRAM_WIDTH].reshape(-1, ops.PROGRAM_WIDTH)
        columns = [
            (name, op, digits)
            for name, op, digits in zip(self._fields, rows[:, ops.OP].tolist(), rows[:, ops.ARG_A].tolist(), strict=True)
            if _TEMPORAL[0] <= op <= _TEMPORAL[1]
        ]
        pairs = self._locate(program, mode, buf, start, end, _TEMPORAL, scratch).reshape(-1, 2).tolist()
        texts: list[dict[str, str]] = [{} for _ in range(count * (2 if mode == ops.UPDATE else 1))]
        for index, (at, size) in enumerate(pairs):
            name, op, digits = columns[index % len(columns)]
            text = exact_text(op, digits, buf[at : at + size].tobytes()) if size >= 0 else None
            if text is not None:
                texts[index // len(columns)][name] = text
        return texts

    # ── the Python column path ────────────────────

    def _locate(
        self, program: Program, mode: int, buf: Bytes, start: int, end: int, cells: tuple[int, int], scratch: Scratch
    ) -> Ints:
        """(offset, size) pairs of cells with these operations; the scratch's report says whether all rows were found."""
        found = np.empty(2048, np.int64)
        while True:
            count = find_cells(program.numbers, mode, buf, start, end, *cells, scratch.numbers, found)
            if 2 * count <= found.size:
                return found[: 2 * count]
            found = np.empty(2 * count, np.int64)

    def _convert(
        self, program: Program, mode: int, buf: Bytes, found: Ints, where: str
    ) -> tuple[Bytes, Ints, int]:
        """Return all Python cells encoded, their offsets, and the most bytes they take in one row."""
        encoders = program.python_cells
        pieces: list[bytes] = []
        offsets = np.zeros(found.size // 2 + 1, np.int64)
        total = 0
        for index, (at, size) in enumerate(found.reshape(-1, 2).tolist()):
            if size >= 0:
                try:
                    piece = encoders[index % len(encoders)](buf[at : at + size].tobytes())
                except DecodeError as error:
                    row = index // len(encoders) // (2 if mode == ops.UPDATE else 1)
                    reason = f"{self.table.full_name}: {error.reason}, row {row}"
                    raise DecodeError(reason, where) from error
                pieces.append(piece)
                total += len(piece)
            offsets[index + 1] = total
        per_row = len(encoders) * (2 if mode == ops.UPDATE else 1)
        block_ends = offsets[::per_row]
        bound = int(np.diff(block_ends).max()) if block_ends.size > 1 else 0
        return np.frombuffer(bytearray(b"".join(pieces) or b"\x00"), np.uint8), offsets, bound


def _exact_values(
    mode: int, records: Records, texts: list[dict[str, str]], *, checks: bool
) -> dict[int, ExactValues]:
    """Return what the envelopes of records do not say. `texts` are dates by the names of fields, of each image of the rows."""
    exact: dict[int, ExactValues] = {}
    images, image = 2 if mode == ops.UPDATE else 1, 0
    for index, op in enumerate(records.ops.tolist()):
        if not op:  # a tombstone
            continue
        before = texts[image] if op in _OLD else {}
        after = texts[image + images - 1] if op != _DELETED else {}
        if before or after or not checks:
            exact[index] = ExactValues(before, after, int(checks))
        if mode == ops.DELETE or op != _DELETED:  # the new row of an update with another key follows as c
            image += images
    return exact


def _event_slots(ctx: EventContext) -> tuple[tuple[int, ...], bytes]:
    position, file = _fixed_width(ctx.position_prefix), ctx.file.encode()
    gtid = b"" if ctx.gtid is None else ctx.gtid.encode()
    query = b"" if ctx.query is None else ctx.query.encode(errors="replace")
    transaction = ctx.transaction.encode()
    ts_us, now_ns = ctx.ts_us, ctx.now_ns
    numbers = (
        ts_us // 1000,
        ts_us,
        ts_us * 1000,
        ctx.server_id,
        ctx.pos,
        -1 if ctx.thread is None else ctx.thread,
        now_ns // 1_000_000,
        now_ns // 1000,
        now_ns,
        ctx.first_ordinal,
        1,
        5,
        len(position),
        len(file),
        -1 if ctx.gtid is None else len(gtid),
        -1 if ctx.query is None else len(query),
        len(transaction),
        ctx.total_order,
        ctx.table_order,
    )
    return numbers, b"false" + position + gtid + file + query + transaction


def _fixed_width(prefix: str) -> bytes:
    """Return the position without its ordinal; its width is part of the envelope's template."""
    if len(prefix) != _PREFIX_WIDTH:
        message = f"not the first {_PREFIX_WIDTH} characters of a position: {prefix!r}"
        raise ValueError(message)
    return prefix.encode()


def _chunk_slots(ctx: ChunkContext) -> tuple[tuple[int, ...], bytes]:
    prefix, _, ordinal = ctx.position.rpartition(".")
    position, file, snapshot = _fixed_width(prefix), ctx.file.encode(), ctx.snapshot.encode()
    gtid = b"" if ctx.gtid is None else ctx.gtid.encode()
    ts_us, now_ns = ctx.ts_us, ctx.now_ns
    numbers = (
        ts_us // 1000,
        ts_us,
        ts_us * 1000,
        ctx.server_id,
        ctx.pos,
        -1 if ctx.thread is None else ctx.thread,
        now_ns // 1_000_000,
        now_ns // 1000,
        now_ns,
        int(ordinal),
        0,
        len(snapshot),
        len(position),
        len(file),
        -1 if ctx.gtid is None else len(gtid),
        -1,
        0,
        0,
        0,
    )
    return numbers, snapshot + position + gtid + file
