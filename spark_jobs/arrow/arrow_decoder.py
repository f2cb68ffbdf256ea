"""Records of one table as Arrow: keys and values enter, what each is judged enters beside them, the sink's columns leave.

It does what `decode.avro_records` has the JVM do, record for record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the usual name

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import UnsupportedTypeError
from schemas.markers import MARKER_KEY
from spark_jobs.arrow import avro_kernels as kernels
from spark_jobs.arrow.arrow_types import UnsupportedBatchError, arrow_type, constant, widening
from spark_jobs.arrow.avro_program import AvroProgram, Path, key_program, value_program
from spark_jobs.arrow.column_readings import Leaves, Reading, reading_of, texts
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.arrow.record_leaves import DEPTHS, Ints, RecordBytes, leaves_of
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.decode.spark_types import holds
from spark_jobs.decode.table_layout import fill_value
from spark_jobs.decode.writer_schemas import WriterSchema, key_writer, named_records, record_in, value_writer

Flags = npt.NDArray[np.bool_]

CHUNK_RECORDS: Final = 1 << 16
_FLOATS: Final = (T.FloatType, T.DoubleType)
_VALUE_SLOTS: Final = {("after",): kernels.ROW, ("op",): kernels.OPERATION, ("source", "sequence"): kernels.SEQUENCE}
_MARKER: Final = np.frombuffer(MARKER_KEY, np.uint8)

REASONS: Final = {
    kernels.VALUE_UNFRAMED: "value is not in Confluent wire format",
    kernels.VALUE_UNKNOWN: "value has a schema id unknown to its subject: ",
    kernels.NO_KEY: "no key",
    kernels.KEY_UNFRAMED: "key is not in Confluent wire format",
    kernels.KEY_UNKNOWN: "key has a schema id unknown to its subject: ",
    kernels.VALUE_DAMAGED: "value does not fit its schema",
    kernels.KEY_DAMAGED: "key does not fit its schema",
    kernels.UNKNOWN_OP: "unknown op ",
    kernels.NO_POSITION: "no position",
    kernels.NO_ROW: "no row after the change",
}
"""What the JVM says of a record of each code; an id or an operation follows where the text ends with a space."""


def bytes_of(array: pa.Array) -> RecordBytes:
    """Return the bytes of a binary array, not copied."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    _, offsets_buffer, data_buffer = array.buffers()
    count = len(array)
    if not count or data_buffer is None or offsets_buffer is None:
        data = np.zeros(1, np.uint8)
        offsets = np.zeros(count + 1, np.int64)
    else:
        data = np.frombuffer(data_buffer, np.uint8)
        offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + count + 1].astype(np.int64)
    sizes = np.diff(offsets)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return RecordBytes(data, offsets[:-1], sizes)


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of each record: `reasons` as in `avro_kernels` (-1 left out, 0 good), numbers of its writers, its position.

    `positions` are where the text starts in the value's bytes, -1 for a record that is not good. `has_loose_keys`: some key is not
    written as every encoder writes it, so equal keys may have different bytes.
    """

    keys: RecordBytes
    values: RecordBytes
    snapshot: Flags
    partitions: npt.NDArray[np.integer[Any]]
    reasons: Ints
    deleted: Flags
    key_numbers: Ints
    value_numbers: Ints
    positions: Ints
    has_loose_keys: bool

    @property
    def bad(self) -> Flags:
        """Which records cannot be merged."""
        found: Flags = self.reasons > kernels.GOOD
        return found

    @property
    def good(self) -> Flags:
        """Which records can be merged."""
        found: Flags = self.reasons == kernels.GOOD
        return found

    def position(self, record: int) -> str:
        """Return the position of a good record."""
        start = int(self.positions[record])
        return self.values.data[start : start + kernels.POSITION_BYTES].tobytes().decode("ascii")


class ArrowDecoder:
    """A decoder of one table's records. Raises `UnsupportedTypeError` if the JVM must decode them."""

    def __init__(self, plan: DecoderPlan) -> None:
        self.plan = plan
        writers = {one: _value_writer(*one) for one in (*plan.versions, *plan.value_writers)}
        self._versions = [writers[one] for one in plan.versions]
        self._values = [writers[one] for one in plan.value_writers]
        self._keys = [_key_writer(*one) for one in plan.key_writers]
        self.columns_of_sink = [(name, T._parse_datatype_json_string(kind)) for name, kind in plan.columns]  # noqa: SLF001
        types = dict(self.columns_of_sink)
        self.key_types = {name: types[name] for name in plan.keys}
        self.schema = pa.schema(
            [pa.field(name, arrow_type(kind)) for name, kind in self.columns_of_sink]
            + [pa.field(POSITION, pa.string()), pa.field(DELETED, pa.bool_())]
        )
        self._require_supported()
        self._value_programs = _joined([_judging_value(one.text) for one in self._values])
        self._key_programs = _joined([_judging_key(one.text, one.fields[0].name) for one in self._keys])
        self._value_ids, self._key_ids = (np.array([one.id for one in part], np.int64) for part in (self._values, self._keys))
        lacks = [any(name.lower() not in one.by_name for name in plan.keys) for one in self._keys]
        self._key_lacks = np.array(lacks, np.int64)
        self.has_alike_keys = not any(lacks) and len({_without_names(one.text) for one in self._keys}) == 1
        self._pairs: dict[tuple[int, int], _Pair] = {}
        for key in range(len(self._keys)):
            for value in range(len(self._values)):
                self._pair(key, value)  # what is not supported is noticed now

    def _require_supported(self) -> None:
        if not self._keys or not self._values:
            raise UnsupportedTypeError("there is no schema")
        for writers in (self._keys, self._values):
            if len({one.id for one in writers}) < len(writers):
                raise UnsupportedTypeError("two schemas have one id")
        if any(isinstance(kind, _FLOATS) for kind in self.key_types.values()):
            raise UnsupportedTypeError("a key column is a floating point number")
        if any(isinstance(kind, (T.StructType, T.ArrayType)) for kind in self.key_types.values()):
            raise UnsupportedTypeError("a key column has parts")

    @property
    def writer_ids(self) -> Ints:
        """The ids of the value schemas by number."""
        return self._value_ids

    @property
    def has_unique_key_bytes(self) -> bool:
        """Whether keys with different bytes (behind the frame) are different, and equal bytes equal keys."""
        return self.has_alike_keys and all(
            reading_of(member["type"], {}).is_unique for member in json.loads(self._keys[0].text)["fields"]
        )

    def judge(
        self, keys: pa.Array, values: pa.Array, is_snapshot: npt.ArrayLike, partitions: npt.ArrayLike
    ) -> Judged:
        """Return what each record is.

        `keys` and `values` are binary arrays of the same length; `is_snapshot` and `partitions` are of each record, or of all.
        Raises `UnsupportedBatchError` for a batch with a record that only the JVM judges as the JVM does.
        """
        key, value = bytes_of(keys), bytes_of(values)
        count = len(value.sizes)
        snapshot = np.array(np.broadcast_to(np.asarray(is_snapshot, np.bool_), count))
        reasons, numbers, key_numbers, positions = (np.empty(count, np.int64) for _ in range(4))
        deleted = np.empty(count, np.bool_)
        scratch = np.zeros((5, max(kernels.JUDGED_SLOTS, DEPTHS)), np.int64)
        loose = kernels.judge_records(
            key.data, key.starts, key.sizes, self._key_ids, *self._key_programs, self._key_lacks,
            value.data, value.starts, value.sizes, self._value_ids, *self._value_programs,
            snapshot, _MARKER, scratch, reasons, deleted, key_numbers, numbers, positions,
        )  # fmt: skip
        if (reasons == kernels.UNDECIDED).any():
            raise UnsupportedBatchError("a position is no ASCII, or a delete has a key that the table no longer has")
        partition = np.broadcast_to(np.asarray(partitions), count)
        return Judged(
            key, value, snapshot, partition, reasons, deleted, key_numbers, numbers, positions, bool(loose)
        )

    def columns(self, judged: Judged, chosen: Ints, names: Sequence[str] | None = None) -> pa.Table:
        """Return the sink's columns, position and whether it is a delete, of the chosen good records in their order.

        `names` narrows the columns. Raises `UnsupportedBatchError` for a value that only the JVM reads as the JVM does.
        """
        chosen = np.ascontiguousarray(chosen, np.int64)
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        parts, order = [], []
        for (key, value), indices in self._grouped(judged, chosen):
            pair = self._pair(key, value)
            for first in range(0, len(indices), CHUNK_RECORDS):
                rows = indices[first : first + CHUNK_RECORDS]
                parts.append(pa.RecordBatch.from_arrays(pair.arrays(judged, chosen[rows], schema.names), schema=schema))
            order.append(indices)
        table = pa.Table.from_batches(parts, schema)
        if len(order) < 2:
            return table
        indices = np.concatenate(order)
        inverse = np.empty_like(indices)
        inverse[indices] = np.arange(len(indices))
        return table.take(pa.array(inverse))

    def _grouped(self, judged: Judged, chosen: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
        """Return the indices in `chosen` of the records of each pair of schemas."""
        codes = judged.key_numbers[chosen] * len(self._values) + judged.value_numbers[chosen]
        for code in np.unique(codes):
            yield divmod(int(code), len(self._values)), np.flatnonzero(codes == code)

    def _pair(self, key: int, value: int) -> _Pair:
        found = self._pairs.get((key, value))
        if found is None:
            found = self._pairs[key, value] = _Pair(self, self._keys[key], self._values[value])
        return found

    @property
    def versions(self) -> Sequence[WriterSchema]:
        """All value schemas, oldest first."""
        return self._versions


class _Pair:
    """How records of one key schema and one value schema become columns."""

    def __init__(self, decoder: ArrowDecoder, key: WriterSchema, value: WriterSchema) -> None:
        self._key = _Part(key, json.loads(key.text)["fields"], ())
        envelope = json.loads(value.text)
        after = next(member["type"] for member in envelope["fields"] if member["name"] == "after")
        self._value = _Part(value, record_in(after, named_records(envelope))["fields"], ("after",))
        self._constants: dict[str, tuple[Any, T.DataType]] = {}
        for name, kind in decoder.columns_of_sink:
            part = self._key if name in decoder.key_types and name.lower() in key.by_name else self._value
            if name.lower() in part.writer.by_name:
                if holds(kind, part.writer.by_name[name.lower()].type):
                    part.add(name, kind)
                else:  # a retired writer's: no record of it is admitted
                    self._constants[name] = (None, kind)
            else:
                fill = fill_value(decoder.versions, value, name, kind)
                constant(fill, kind, 0)
                self._constants[name] = (fill, kind)
        self._key.compile(key_program)
        self._value.compile(value_program)

    def arrays(self, judged: Judged, chosen: Ints, names: Sequence[str]) -> list[pa.Array]:
        """Return the named columns of the chosen records."""
        found = self._key.arrays(judged.keys, chosen, names) | self._value.arrays(judged.values, chosen, names)
        if POSITION in names:
            size = np.full(len(chosen), kernels.POSITION_BYTES, np.int64)
            found[POSITION] = texts([Leaves(judged.values.data, judged.positions[chosen], size)])
        if DELETED in names:
            found[DELETED] = pa.array(judged.deleted[chosen])
        for name in names:
            if name in self._constants:
                found[name] = constant(*self._constants[name], len(chosen))
        return [found[name] for name in names]


class _Part:
    """The columns that are read out of keys, or out of values."""

    def __init__(self, writer: WriterSchema, members: Sequence[Any], root: Path) -> None:
        self.writer = writer
        self._root = root
        self._members = {member["name"].lower(): member for member in members}
        self._named = named_records(json.loads(writer.text))
        self._columns: dict[str, tuple[Reading, list[int], Any]] = {}
        self._slots: dict[Path, int] = {}
        self._program: AvroProgram

    def add(self, name: str, kind: T.DataType) -> None:
        """Read a column of the sink."""
        member, item = self._members[name.lower()], self.writer.by_name[name.lower()]
        reading = reading_of(member["type"], self._named)
        paths = [(*self._root, member["name"], *path) for path in reading.parts]
        slots = [self._slots.setdefault(path, len(self._slots) + 1) for path in paths]
        self._columns[name] = (reading, slots, widening(item.type, kind))

    def compile(self, program: Any) -> None:
        """Compile the program that notes all leaves."""
        self._program = program(self.writer.text, self._slots)

    def arrays(self, source: RecordBytes, chosen: Ints, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return those of the named columns that this part has."""
        wanted = [name for name in names if name in self._columns]
        if not wanted:
            return {}
        leaves = leaves_of(source, chosen, self._program)
        found = {}
        for name in wanted:
            reading, numbers, widen = self._columns[name]
            array = reading.read([Leaves(source.data, leaves.values[slot], leaves.sizes[slot]) for slot in numbers])
            found[name] = array if widen is None else widen(array)
        return found


def _joined(programs: Sequence[AvroProgram]) -> tuple[Ints, Ints]:
    """Return programs one behind the other, and where each begins and the last ends."""
    ends = np.cumsum([0, *[len(one.code) for one in programs]]).astype(np.int64)
    return np.concatenate([one.code for one in programs]), ends


def _without_names(text: str) -> str:
    return json.dumps([(member["name"].lower(), member["type"]) for member in json.loads(text)["fields"]], sort_keys=True)


def _require_text(document: Any) -> None:
    """Raise `UnsupportedTypeError` for an envelope whose operation or position is no plain text."""
    members = {member["name"]: member["type"] for member in document["fields"]}
    source = record_in(members["source"], named_records(document))
    sequence = next(member["type"] for member in source["fields"] if member["name"] == "sequence")
    for node in (members["op"], sequence):
        inner = node if not isinstance(node, list) else next((one for one in node if one != "null"), node)
        base = inner["type"] if isinstance(inner, dict) else inner
        if base != "string":
            raise UnsupportedTypeError(f"op or source.sequence is {base}")


@lru_cache(1024)
def _value_writer(ident: int, text: str) -> WriterSchema:
    return value_writer(RegisteredSchema(ident, text))


@lru_cache(1024)
def _key_writer(ident: int, text: str) -> WriterSchema:
    return key_writer(RegisteredSchema(ident, text))


@lru_cache(1024)
def _judging_value(text: str) -> AvroProgram:
    _require_text(json.loads(text))
    return value_program(text, _VALUE_SLOTS)


@lru_cache(1024)
def _judging_key(text: str, first: str) -> AvroProgram:
    return key_program(text, {(first,): kernels.FIRST_KEY})
