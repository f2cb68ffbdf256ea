"""Columns of the sink out of the leaves of Avro records: the Arrow twin of `spark_types` (the table of DESIGN §6).

A field enters as the Avro node that AvroData wrote; a `Reading` leaves: which leaves it needs, and how they become an Arrow array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import UnsupportedTypeError
from spark_jobs.arrow import column_kernels
from spark_jobs.arrow.arrow_types import UnsupportedBatchError
from spark_jobs.arrow.avro_program import Node, Path, null_union

Ints = npt.NDArray[np.int64]

_MAX_PRECISION: Final = 38
_SHORT_PRECISION: Final = 18
_LONGEST_DECIMAL_BYTES: Final = 29  # the JVM's text has room for 72 digits
_LOGICAL: Final = {"decimal", "date", "time-millis", "timestamp-millis"}
_MOST_MICROSECONDS: Final = 10**17 * 9  # the years -26000 to 30000: what the JVM converts without loss
_OFFSET_LIMIT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Leaves:
    """A leaf of many records: the bytes they are in, and of each the number or position and the size (-1 for null)."""

    data: npt.NDArray[np.uint8]
    values: Ints
    sizes: Ints

    @property
    def nulls(self) -> npt.NDArray[np.bool_]:
        """Which of them are null."""
        return self.sizes < 0

    def validity(self) -> pa.Buffer | None:
        """Return the bitmap of those that are not null; None if none is."""
        nulls = self.nulls
        return pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None


Read = Callable[[list[Leaves]], pa.Array]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a field is read: the leaves it needs, as paths from the field, and what makes an array of them.

    `is_unique` says whether different bytes are different values.
    """

    read: Read
    parts: tuple[Path, ...] = ((),)
    is_unique: bool = True


def reading_of(node: Node, named: Mapping[str, Node]) -> Reading:
    """Return how a field of this node is read; `UnsupportedTypeError` if only the JVM reads it. `named`: records by name."""
    union = null_union(node)
    if union is None:
        raise UnsupportedTypeError(f"a union of {len(node)} types")
    inner = union[1]
    if isinstance(inner, str):
        inner = named.get(inner, {"type": inner})
    logical = inner.get("logicalType")
    if logical is not None and logical not in _LOGICAL:
        raise UnsupportedTypeError(f"the logical type {logical}")
    name, base = inner.get("connect.name"), inner["type"]
    if isinstance(name, str) and name in _SEMANTIC:
        expected, make = _SEMANTIC[name]
        if base != expected:
            raise UnsupportedTypeError(f"{name} as {base}")
        return make(inner)
    if logical is not None:
        raise UnsupportedTypeError(f"the logical type {logical} without its name")
    if base == "int" and inner.get("connect.type") in ("int8", "int16"):
        return Reading(_integers(np.int16, pa.int16()))
    if not isinstance(base, str) or base not in _BASE:
        raise UnsupportedTypeError(f"the Avro type {base}")
    return _BASE[base]


# ── numbers ────────────────────


def _integers(dtype: type[np.signedinteger[Any]], kind: pa.DataType) -> Read:
    limits = np.iinfo(dtype)

    def read(leaves: list[Leaves]) -> pa.Array:
        (leaf,) = leaves
        numbers = np.where(leaf.nulls, 0, leaf.values) if leaf.nulls.any() else leaf.values
        if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
            raise UnsupportedBatchError(f"a number is none of {kind}")
        return _array(kind, leaf, numbers.astype(dtype))

    return read


def _array(kind: pa.DataType, leaf: Leaves, numbers: npt.NDArray[Any]) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(leaf.sizes), [leaf.validity(), buffer])


def _scaled(numerator: int, denominator: int, kind: pa.DataType) -> Read:
    """Numbers times or divided by one thousand; a division truncates, as `div` of SQL does."""

    def read(leaves: list[Leaves]) -> pa.Array:
        (leaf,) = leaves
        numbers = np.where(leaf.nulls, 0, leaf.values)
        if denominator != 1:
            numbers = np.where(numbers < 0, -(-numbers // denominator), numbers // denominator)
        limit = _MOST_MICROSECONDS // numerator
        is_limited = numbers.size and (pa.types.is_timestamp(kind) or numerator != 1)
        if is_limited and (numbers.min() < -limit or numbers.max() > limit):
            raise UnsupportedBatchError("a date or time is too far away")
        return _array(kind, leaf, numbers * numerator)

    return read


def _booleans(leaves: list[Leaves]) -> pa.Array:
    (leaf,) = leaves
    return pa.array(leaf.values == 1, pa.bool_(), mask=leaf.nulls)


def _floats(size: int, kind: pa.DataType) -> Read:
    def read(leaves: list[Leaves]) -> pa.Array:
        (leaf,) = leaves
        count = len(leaf.sizes)
        out = np.zeros(count * size, np.uint8)
        column_kernels.gather(leaf.data, leaf.values, leaf.sizes, np.arange(count, dtype=np.int64) * size, out)
        return pa.Array.from_buffers(kind, count, [leaf.validity(), pa.py_buffer(out)])

    return read


def _decimal(node: Mapping[str, Any]) -> Reading:
    precision, scale = int(node["precision"]), int(node["scale"])
    if node.get("logicalType") != "decimal" or scale < 0 or (precision <= _MAX_PRECISION and scale > precision):
        raise UnsupportedTypeError(f"a decimal of {precision} digits with {scale} of them behind the point")
    if precision > _MAX_PRECISION:
        return Reading(_wide_decimals(scale), is_unique=False)
    is_short = int(precision <= _SHORT_PRECISION)

    def read(leaves: list[Leaves]) -> pa.Array:
        (leaf,) = leaves
        out = np.empty((len(leaf.sizes), 2), np.int64)
        column_kernels.decimals(leaf.data, leaf.values, leaf.sizes, is_short, out)
        return _array(pa.decimal128(precision, scale), leaf, out)

    return Reading(read)


def _wide_decimals(scale: int) -> Read:
    def text(number: bytes | None) -> str | None:
        if number is None:
            return None
        if not 0 < len(number) <= _LONGEST_DECIMAL_BYTES:
            raise UnsupportedBatchError(f"a decimal of {len(number)} bytes")
        value = int.from_bytes(number, "big", signed=True)
        digits = f"{abs(value):0{scale + 1}d}"
        sign = "-" if value < 0 else ""
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"

    return lambda leaves: pa.array([text(value) for value in _binaries(leaves).to_pylist()], pa.string())


# ── texts ────────────────────


def _binaries(leaves: list[Leaves]) -> pa.Array:
    (leaf,) = leaves
    sizes = np.maximum(leaf.sizes, 0)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] >= _OFFSET_LIMIT:
        raise UnsupportedBatchError("a column has two gigabytes")
    out = np.empty(max(int(offsets[-1]), 1), np.uint8)
    column_kernels.gather(leaf.data, leaf.values, sizes, offsets, out)
    buffers = [leaf.validity(), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def texts(leaves: list[Leaves]) -> pa.Array:
    """Return leaves as texts; `UnsupportedBatchError` if one is no UTF-8, which the JVM writes as it is."""
    try:
        return pc.cast(_binaries(leaves), pa.string())
    except pa.ArrowInvalid as error:
        raise UnsupportedBatchError(f"a text is not UTF-8: {error}") from error


def _times(form: int, kind: pa.DataType) -> Read:
    def read(leaves: list[Leaves]) -> pa.Array:
        (leaf,) = leaves
        out = np.empty(len(leaf.sizes), np.int64)
        others = column_kernels.times(leaf.data, leaf.values, leaf.sizes, form, out)
        if others:
            raise UnsupportedBatchError(f"{others} texts of dates or times are not written as Debezium writes them")
        return _array(kind, leaf, out.astype(np.int32) if kind == pa.date32() else out)

    return read


# ── what has parts ────────────────────


def _vectors(leaves: list[Leaves]) -> pa.Array:
    (leaf,) = leaves
    counts = np.maximum(leaf.sizes, 0)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] >= _OFFSET_LIMIT:
        raise UnsupportedBatchError("a column has too many numbers")
    out = np.empty(max(int(offsets[-1]) * 4, 4), np.uint8)
    column_kernels.gather_floats(leaf.data, leaf.values, counts, offsets, out)
    items = pa.Array.from_buffers(pa.float32(), int(offsets[-1]), [None, pa.py_buffer(out)])
    buffers = [leaf.validity(), pa.py_buffer(offsets.astype(np.int32))]
    kind = pa.list_(pa.field("element", pa.float32()))
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[items])


def _vector(node: Mapping[str, Any]) -> Reading:
    if node["items"] != "float":
        raise UnsupportedTypeError(f"a vector of {node['items']}")
    return Reading(_vectors)


def _geometry(node: Mapping[str, Any]) -> Reading:
    """Geometry and Point alike: x and y of a Point are in its WKB."""
    members = {member["name"]: null_union(member["type"]) for member in node["fields"]}
    for name, base in (("srid", "int"), ("wkb", "bytes")):
        union = members.get(name)
        if union is None or union[1] != base:
            raise UnsupportedTypeError(f"a geometry whose {name} is no {base}")
    numbers = _integers(np.int32, pa.int32())

    def read(leaves: list[Leaves]) -> pa.Array:
        whole, srid, wkb = leaves
        fields = [pa.field("srid", pa.int32()), pa.field("wkb", pa.binary())]
        parts = [numbers([srid]), _binaries([wkb])]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(whole.nulls))

    return Reading(read, ((), ("srid",), ("wkb",)))


_BASE: Final[Mapping[str, Reading]] = {
    "int": Reading(_integers(np.int32, pa.int32())),
    "long": Reading(_integers(np.int64, pa.int64())),
    "float": Reading(_floats(4, pa.float32()), is_unique=False),
    "double": Reading(_floats(8, pa.float64()), is_unique=False),
    "boolean": Reading(_booleans),
    "string": Reading(texts),
    "bytes": Reading(_binaries),
}

_MOMENT: Final = pa.timestamp("us")
_INSTANT: Final = pa.timestamp("us", "UTC")
_Make = Callable[[Mapping[str, Any]], Reading]


def _always(reading: Reading) -> _Make:
    return lambda _node: reading


_DAYS: Final = _always(Reading(_integers(np.int32, pa.date32())))
_MILLISECONDS: Final = _always(Reading(_scaled(1000, 1, _MOMENT)))

_SEMANTIC: Final[Mapping[str, tuple[str, _Make]]] = {
    "org.apache.kafka.connect.data.Decimal": ("bytes", _decimal),
    "io.debezium.time.Date": ("int", _DAYS),
    "io.debezium.time.Timestamp": ("long", _MILLISECONDS),
    "io.debezium.time.MicroTimestamp": ("long", _always(Reading(_scaled(1, 1, _MOMENT)))),
    "io.debezium.time.ZonedTimestamp": (
        "string",
        _always(Reading(_times(column_kernels.INSTANT, _INSTANT), is_unique=False)),
    ),
    "io.debezium.time.NanoTime": ("long", _always(Reading(_scaled(1, 1000, pa.int64()), is_unique=False))),
    "io.debezium.time.NanoTimestamp": ("long", _always(Reading(_scaled(1, 1000, _MOMENT), is_unique=False))),
    "io.debezium.time.IsoDate": (
        "string",
        _always(Reading(_times(column_kernels.DATE, pa.date32()), is_unique=False)),
    ),
    "io.debezium.time.IsoTime": ("string", _always(Reading(_times(column_kernels.TIME, pa.int64()), is_unique=False))),
    "io.debezium.time.IsoTimestamp": (
        "string",
        _always(Reading(_times(column_kernels.MOMENT, _MOMENT), is_unique=False)),
    ),
    "org.apache.kafka.connect.data.Date": ("int", _DAYS),
    "org.apache.kafka.connect.data.Time": ("int", _always(Reading(_scaled(1000, 1, pa.int64())))),
    "org.apache.kafka.connect.data.Timestamp": ("long", _MILLISECONDS),
    "io.debezium.data.Enum": ("string", _always(_BASE["string"])),
    "io.debezium.data.geometry.Geometry": ("record", _geometry),
    "io.debezium.data.geometry.Point": ("record", _geometry),
    "io.debezium.data.FloatVector": ("array", _vector),
}
