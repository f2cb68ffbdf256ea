"""The parts of statements that a row gives: events of one table enter, texts of SQL leave (pure but for decoding).

Kernels write them for many rows at once. Rows with the header `tidemark.exact`, tables without a key, and types that no kernel
writes go through Python, row by row; both write the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mysqlio.quoting import quoted
from schemas.errors import DecodeError, UnsupportedTypeError
from schemas.types.column_facts import TEXT_TYPES, Semantic, semantic_of
from spark_jobs.arrow import literal_kernels as kernels
from spark_jobs.arrow.avro_program import AvroProgram, value_program
from spark_jobs.arrow.record_leaves import Ints, NotedLeaves, RecordBytes, leaves_of
from spark_jobs.replicate.rows.record_heads import FRAME
from spark_jobs.replicate.rows.row_values import floating_literal, is_refused_if_strict

if TYPE_CHECKING:
    from schemas.columns import Column, TableSchema
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_values import LiteralForm, Row, RowColumn, RowDecoder

_BEFORE, _AFTER = "before", "after"
_IMAGES: Final = ((_BEFORE,), (_AFTER,))
_OLD, _NEW = 1, 2
"""The slots of the images."""
_BYTES_OF_A_LITERAL: Final = 16
_LEAST_ROOM: Final = 1 << 12
_LARGE: Final = 1 << 16
"""Mean bytes of texts of which no second copy is made."""


class RowTexts(NamedTuple):
    """The texts of an event, each b"" if the event or the table has no such thing.

    `values` and the keys are tuples in parentheses. Without a key `old_key` is the condition that finds the row. `changes` are
    assignments of the columns that an update changed, of the first column if no column changed: `is_changed` says so. `is_strict`
    is False for the error value of an ENUM: its statement needs a sql_mode that is not strict.
    """

    values: bytes
    old_key: bytes
    new_key: bytes
    changes: bytes
    is_changed: bool
    is_strict: bool


class Literals(NamedTuple):
    """The literals of a column: of the old row of each event, and of the new one, b"" if an event has no such row."""

    old: list[bytes]
    new: list[bytes]


class TableTexts:
    """Makes the texts of events of one table of the target.

    Columns that the target fills itself get no values. Errors as `RowDecoder.columns` and `RowDecoder.decode`.
    """

    def __init__(self, table: TableSchema, decoder: RowDecoder) -> None:
        self._table = table
        self._decoder = decoder
        self._filled = frozenset(column.name for column in table.columns if column.filled_by == "expression")
        self._kinds = {column.name: column for column in table.columns}
        self.key = table.primary_key or table.unique_key
        """The columns that find a row; none without a key."""
        self.columns = cache(self._columns)
        """Returns the columns that get values of the records with a schema id."""
        self.key_columns = cache(self._columns_of_key)
        """Returns the columns of the key of the records with a schema id."""
        self._kernels = cache(self._kernel_texts)
        self._literal_kernels = cache(self._kernel_literals)

    def of(self, events: Sequence[RowEvent]) -> list[RowTexts]:
        """Return the texts of each event."""
        texts: list[RowTexts | None] = [None] * len(events)
        for schema_id, indices in _of_kernels(events).items():
            written = self._kernels(schema_id)
            made = None if written is None else written([events[index] for index in indices])
            for index, text in zip(indices, made or (), strict=made is not None):
                texts[index] = text
        return [self._by_python(event) if text is None else text for event, text in zip(events, texts, strict=True)]

    def literals(self, names: tuple[str, ...], events: Sequence[RowEvent]) -> list[Literals]:
        """Return the literals of some columns."""
        literals = [Literals([b""] * len(events), [b""] * len(events)) for _ in names]
        left = set(range(len(events)))
        for schema_id, indices in _of_kernels(events).items():
            written = self._literal_kernels(schema_id, names)
            made = None if written is None else written([events[index] for index in indices])
            if made is None:
                continue
            if len(indices) == len(events):
                return made
            left.difference_update(indices)
            for whole, part in zip(literals, made, strict=True):
                for index, old, new in zip(indices, part.old, part.new, strict=True):
                    whole.old[index], whole.new[index] = old, new
        for index in left:
            old_row, new_row = self._rows(events[index])
            for whole, column in zip(literals, self.named(events[index].schema_id, names), strict=True):
                whole.old[index] = b"" if old_row is None else column.literal(old_row)
                whole.new[index] = b"" if new_row is None else column.literal(new_row)
        return literals

    def names(self, schema_id: int) -> tuple[str, ...]:
        """Return the names of the columns that get values of the records with a schema id."""
        return tuple(column.name for column in self.columns(schema_id))

    def named(self, schema_id: int, names: Iterable[str]) -> list[RowColumn]:
        """Return some columns of the records with a schema id."""
        by_name = {column.name: column for column in self.columns(schema_id)}
        return [by_name[name] for name in names]

    def _columns(self, schema_id: int) -> Sequence[RowColumn]:
        return self._decoder.columns(schema_id, self._table, self._filled)

    def _columns_of_key(self, schema_id: int) -> Sequence[RowColumn]:
        by_name = {column.name: column for column in self._decoder.columns(schema_id, self._table)} if self.key else {}
        return [by_name[name] for name in self.key]

    def _kernel_texts(self, schema_id: int) -> Callable[[Sequence[RowEvent]], list[RowTexts] | None] | None:
        columns, key = self.columns(schema_id), self.key_columns(schema_id)
        if not key or any(one.form is None for one in (*columns, *key)) or any(one.form and one.form.floating for one in key):
            return None
        try:
            return KernelTexts(self._decoder.schema(schema_id), columns, key).of
        except UnsupportedTypeError:
            return None

    def _kernel_literals(
        self, schema_id: int, names: tuple[str, ...]
    ) -> Callable[[Sequence[RowEvent]], list[Literals] | None] | None:
        columns = self.named(schema_id, names)
        if any(one.form is None or one.form.floating for one in columns):
            return None
        try:
            return KernelTexts(self._decoder.schema(schema_id), columns, columns[:1]).literals
        except UnsupportedTypeError:
            return None

    # ---- row by row

    def _rows(self, event: RowEvent) -> tuple[Row | None, Row | None]:
        """Return the old row of an event, and the new one."""
        old = None if event.before is None else self._row(event, self._decoder.old_row(event.before), _BEFORE)
        new = None if event.after is None else self._row(event, self._decoder.new_row(event.after), _AFTER)
        return old, new

    def _by_python(self, event: RowEvent) -> RowTexts:
        old, new = self._rows(event)
        columns = self.columns(event.schema_id)
        changed = [one for one in columns if old is not None and new is not None and old[one.field] != new[one.field]]
        return RowTexts(
            b"" if new is None else b"(%b)" % b",".join([one.literal(new) for one in columns]),
            b"" if old is None else self._found(event, old),
            b"" if new is None else self._key_text(event, new),
            b"" if old is None or new is None else _assignments(changed or columns[:1], new),
            bool(changed),
            new is None or not is_refused_if_strict(columns, new),
        )

    def _row(self, event: RowEvent, row: Row | None, image: str) -> Row:
        if row is None:
            raise _lacking(event, image)
        return row

    def _key_text(self, event: RowEvent, row: Row) -> bytes:
        return b"(%b)" % b",".join([one.literal(row) for one in self.key_columns(event.schema_id)]) if self.key else b""

    def _found(self, event: RowEvent, row: Row) -> bytes:
        if self.key:
            return self._key_text(event, row)
        return b" AND ".join(_same(self._kinds[one.name], one.literal(row)) for one in self.columns(event.schema_id))


def _of_kernels(events: Sequence[RowEvent]) -> dict[int, list[int]]:
    """Return the indices of the events that kernels may write, by schema id."""
    alike: dict[int, list[int]] = {}
    for index, event in enumerate(events):
        if (event.after is None or not event.after.exact) and (event.before is None or not event.before.exact):
            alike.setdefault(event.schema_id, []).append(index)
    return alike


def _lacking(event: RowEvent, image: str) -> DecodeError:
    return DecodeError(f"{event.position}: a record of {'.'.join(event.table)} with op {event.op} has no {image}")


def _assignments(columns: Sequence[RowColumn], row: Row) -> bytes:
    return b",".join([b"%b=%b" % (quoted(one.name).encode(), one.literal(row)) for one in columns])


def _same(column: Column, literal: bytes) -> bytes:
    """Return the condition that a column has exactly a value: no collation, and of JSON the document."""
    name = quoted(column.name).encode()
    if literal == b"NULL":
        return name + b" IS NULL"
    if semantic_of(column) is Semantic.JSON:
        return b"%b=CAST(%b AS JSON)" % (name, literal)
    if column.type in TEXT_TYPES:
        return b"BINARY CONVERT(%b USING utf8mb4)=BINARY %b" % (name, literal)
    return b"%b=%b" % (name, literal)


# ---- by kernels


@dataclass(frozen=True, slots=True)
class _Text:
    """The literals that make a text, the constants between them, and the marks of a row in those."""

    literals: Ints
    constants: npt.NDArray[np.uint8]
    marks: Ints


@dataclass(frozen=True, slots=True)
class _Images:
    """The records of some events; of each event the number of the record that has its old and its new row, -1 without one."""

    data: npt.NDArray[np.uint8]
    leaves: NotedLeaves
    old: Ints
    new: Ints


class _UnusualValueError(Exception):
    """Raised for a value that Python has to write."""


class KernelTexts:
    """Writes the texts of events whose records have one schema. `UnsupportedTypeError`: no program reads the schema."""

    def __init__(self, schema: Any, columns: Sequence[RowColumn], key: Sequence[RowColumn]) -> None:
        slots: dict[tuple[str, ...], int] = {(_BEFORE,): _OLD, (_AFTER,): _NEW}
        for column in (*columns, *key):
            for image in (_BEFORE, _AFTER):
                for path in _paths(column):
                    slots.setdefault((image, *path), len(slots) + 1)
        program = value_program(json.dumps(schema), slots, _IMAGES)
        self._columns = columns
        self._slots = slots
        self._floats = [(column.field, _form(column).floating) for column in columns if _form(column).floating]
        self._texts_of_floats = {field: program.slots + number for number, (field, _) in enumerate(self._floats)}
        self._program = AvroProgram(program.code, program.slots + len(self._floats))
        self._enums = [slots[_AFTER, column.field] for column in columns if column.lacks_empty]
        self._values = _text([self._literal(one, _AFTER) for one in columns], _TUPLE)
        self._old_key = _text([self._literal(one, _BEFORE) for one in key], _TUPLE)
        self._new_key = _text([self._literal(one, _AFTER) for one in key], _TUPLE)
        compared = [self._literal(one, _AFTER, slots[_BEFORE, one.field]) for one in columns]
        self._changes = _text(compared, _LIST, columns)
        self._first = _text([self._literal(columns[0], _AFTER)], _LIST, columns[:1])

    def of(self, events: Sequence[RowEvent]) -> list[RowTexts] | None:
        """Return the texts of each event, None if Python has to write them."""
        images = self._images(events)
        if images is None:
            return None
        count = len(events)
        with_old, with_new = np.flatnonzero(images.old >= 0), np.flatnonzero(images.new >= 0)
        with_both = np.flatnonzero((images.old >= 0) & (images.new >= 0))
        try:
            values, _ = _written(images, self._values, with_new, images.new)
            old_keys, _ = _written(images, self._old_key, with_old, images.old)
            new_keys, _ = _written(images, self._new_key, with_new, images.new)
            changes, changed = _written(images, self._changes, with_both, images.new)
            same = with_both[changed == 0]
            firsts, _ = _written(images, self._first, same, images.new)
        except _UnusualValueError:
            return None
        all_changes = _spread(changes, with_both, count)
        for index, text in zip(same.tolist(), firsts, strict=True):
            all_changes[index] = text
        is_changed = np.zeros(count, np.bool_)
        is_changed[with_both] = changed > 0
        return list(
            map(
                RowTexts,
                _spread(values, with_new, count),
                _spread(old_keys, with_old, count),
                _spread(new_keys, with_new, count),
                all_changes,
                is_changed.tolist(),
                self._are_strict(images, with_new, count),
            )
        )

    def literals(self, events: Sequence[RowEvent]) -> list[Literals] | None:
        """Return the literals of each column, None if Python has to write them. No column may be a floating point number."""
        images = self._images(events)
        if images is None:
            return None
        made = []
        try:
            for column in self._columns:
                sides = []
                for image, records in ((_BEFORE, images.old), (_AFTER, images.new)):
                    chosen = np.flatnonzero(records >= 0)
                    written, _ = _written(images, _text([self._literal(column, image)], _LIST), chosen, records)
                    sides.append(_spread(written, chosen, len(events)))
                made.append(Literals(*sides))
        except _UnusualValueError:
            return None
        return made

    def _literal(self, column: RowColumn, image: str, old: int = -1) -> list[int]:
        form, slot = _form(column), self._slots[image, column.field]
        written = self._texts_of_floats[column.field] if form.floating and image == _AFTER else slot
        return [form.kind, written, slot, old, 0, 0, form.scale]

    def _images(self, events: Sequence[RowEvent]) -> _Images | None:
        """Return the records of events with their leaves, None if one does not fit, lacks a row, or has two schemas."""
        values, old, new = list[bytes](), list[int](), list[int]()
        for event in events:
            before, after = event.before, event.after
            old.append(-1 if before is None else len(values))
            if before is not None:
                values.append(before.value)
                if after is not None and after.value[:FRAME] != before.value[:FRAME]:
                    return None
            new.append(-1 if after is None else len(values) - (after is before))
            if after is not None and after is not before:
                values.append(after.value)
        source = RecordBytes.joined(values)
        leaves = leaves_of(source, np.arange(len(values)), self._program)
        olds, news = np.array(old, np.int64), np.array(new, np.int64)
        lacks = (leaves.sizes[_OLD, olds[olds >= 0]] < 0).any() or (leaves.sizes[_NEW, news[news >= 0]] < 0).any()
        if leaves.damaged or lacks:
            return None
        return _Images(self._with_floats(source, leaves), leaves, olds, news)

    def _with_floats(self, source: RecordBytes, leaves: NotedLeaves) -> npt.NDArray[np.uint8]:
        """Return the bytes of the records, and behind them the texts of floating point numbers, which become leaves, too."""
        parts, end = [source.data], len(source.data)
        for field, width in self._floats:
            raw, slot = self._slots[_AFTER, field], self._texts_of_floats[field]
            rows = np.flatnonzero(leaves.sizes[raw] >= 0)
            numbers = source.data[leaves.values[raw, rows][:, None] + np.arange(width)].view(f"<f{width}")
            texts = [floating_literal(number) for number in numbers.ravel().tolist()]
            sizes = np.fromiter(map(len, texts), np.int64, len(texts))
            leaves.sizes[slot] = -1
            leaves.sizes[slot, rows], leaves.values[slot, rows] = sizes, end + np.cumsum(sizes) - sizes
            if texts:
                parts.append(np.frombuffer(b"".join(texts), np.uint8))
                end += len(parts[-1])
        return np.concatenate(parts) if len(parts) > 1 else source.data

    def _are_strict(self, images: _Images, with_new: Ints, count: int) -> list[bool]:
        are_strict = np.ones(count, np.bool_)
        for slot in self._enums:
            are_strict[with_new] &= images.leaves.sizes[slot, images.new[with_new]] != 0
        listed: list[bool] = are_strict.tolist()
        return listed


_TUPLE: Final = (b"(", b",", b")")
_LIST: Final = (b"", b",", b"")


def _form(column: RowColumn) -> LiteralForm:
    assert column.form is not None
    return column.form


def _paths(column: RowColumn) -> Sequence[tuple[str, ...]]:
    field = column.field
    is_geometry = _form(column).kind == kernels.GEOMETRY
    return [(field,), (field, "srid"), (field, "wkb")] if is_geometry else [(field,)]


def _text(literals: list[list[int]], marks: tuple[bytes, bytes, bytes], named: Sequence[RowColumn] = ()) -> _Text:
    """Return a text of literals, each behind the name of its column if columns are given."""
    constants, bounds = b"", list[int]()
    for mark in marks:
        bounds += [len(constants), len(constants) + len(mark)]
        constants += mark
    for literal, column in zip(literals, named, strict=False):
        name = b"%b=" % quoted(column.name).encode()
        literal[kernels.NAME : kernels.NAME_END + 1] = [len(constants), len(constants) + len(name)]
        constants += name
    return _Text(np.array(literals, np.int64), np.frombuffer(constants, np.uint8), np.array(bounds, np.int64))


def _written(images: _Images, text: _Text, chosen: Ints, records: Ints) -> tuple[list[bytes], Ints]:
    """Return a text for each chosen event, and how many literals it has; `_UnusualValueError` if Python has to write one."""
    count, leaves = len(chosen), images.leaves
    rows, old_rows = records[chosen], images.old[chosen]
    ends, counts = np.empty(count, np.int64), np.empty(count, np.int64)
    room = len(images.data) + count * (len(text.constants) + len(text.literals) * _BYTES_OF_A_LITERAL) + _LEAST_ROOM
    scratch = np.zeros(kernels.SCRATCH, np.int64)
    while True:
        out = np.empty(room, np.uint8)
        result = kernels.write_literals(
            images.data, leaves.values, leaves.sizes, rows, old_rows, text.literals, text.constants, text.marks, scratch, out, ends,
            counts,
        )  # fmt: skip
        if result == kernels.UNUSUAL:
            raise _UnusualValueError
        if result != kernels.TOO_SHORT:
            break
        room *= 2
    bounds = [0, *ends.tolist()]
    if bounds[-1] > count * _LARGE:
        return [out[start:end].tobytes() for start, end in pairwise(bounds)], counts
    whole = out[: bounds[-1]].tobytes()  # its slices are made sooner
    return [whole[start:end] for start, end in pairwise(bounds)], counts


def _spread(texts: list[bytes], chosen: Ints, count: int) -> list[bytes]:
    """Return the texts at the places of their events, and b"" elsewhere."""
    if len(texts) == count:
        return texts
    spread = [b""] * count
    for index, text in zip(chosen.tolist(), texts, strict=True):
        spread[index] = text
    return spread
