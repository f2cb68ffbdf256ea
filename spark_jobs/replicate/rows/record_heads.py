"""The heads of change records: what says where and when a row changed; the values of the row stay bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from schemas.errors import UnsupportedTypeError
from spark_jobs.arrow.avro_program import AvroProgram, value_program
from spark_jobs.arrow.record_leaves import Ints, NotedLeaves, RecordBytes, leaves_of

FRAME: Final = 5
"""The bytes before the Avro record: 0, and the id of its schema."""
_SOURCE: Final = "source"
_PATHS: Final = (("op",), *((_SOURCE, name) for name in ("sequence", "db", "table", "file", "pos", "ts_us")))
_OP, _SEQUENCE, _DATABASE, _TABLE, _FILE, _POS, _US = range(1, len(_PATHS) + 1)
_TEXTS: Final = (_OP, _SEQUENCE, _DATABASE, _TABLE, _FILE)


class RecordHead(NamedTuple):
    """The head of a record: Debezium's letter, position of the row, its time, (database, table), file and position of the log."""

    schema_id: int
    op: str
    position: str
    us: int
    table: tuple[str, str]
    file: str
    pos: int


def head_of(schema_id: int, op: str, source: Mapping[str, Any]) -> RecordHead:
    """Return the head of a decoded envelope with this source block."""
    table = source["db"], source["table"]
    return RecordHead(schema_id, op, source["sequence"], source["ts_us"], table, source["file"], source["pos"])


class HeadReader:
    """Reads the heads of many records by kernels. `schema` returns the schema with an id.

    `decode` reads the head of any record: those that no program fits, and damaged ones, of which it raises an error.
    """

    def __init__(self, schema: Callable[[int], Any], decode: Callable[[bytes], RecordHead]) -> None:
        self._schema = schema
        self._decode = decode
        self._programs: dict[int, AvroProgram | None] = {}

    def heads(self, values: Sequence[bytes]) -> list[RecordHead]:
        """Return the head of each value. Errors as `decode`, and as `schema`."""
        source = RecordBytes.joined(values)
        if not values or source.sizes.min() <= FRAME:
            return [self._decode(value) for value in values]
        idents = np.zeros(len(values), np.int64)
        for byte in range(1, FRAME):
            idents = idents << 8 | source.data[source.starts + byte]
        heads: list[RecordHead | None] = [None] * len(values)
        for ident in np.unique(idents).tolist():
            chosen = np.flatnonzero(idents == ident).astype(np.int64)
            for index, head in zip(chosen.tolist(), self._alike(ident, source, chosen, values), strict=True):
                heads[index] = head
        return heads  # type: ignore[return-value]

    def _alike(self, ident: int, source: RecordBytes, chosen: Ints, values: Sequence[bytes]) -> list[RecordHead]:
        """Return the heads of the chosen records, which have one schema."""
        if ident not in self._programs:
            self._programs[ident] = _program(self._schema(ident))
        program = self._programs[ident]
        leaves = None if program is None else leaves_of(source, chosen, program)
        if leaves is None or leaves.damaged or leaves.sizes[1:].min() < 0:
            return [self._decode(values[index]) for index in chosen.tolist()]
        ops, positions, databases, tables, files = (_texts(source, leaves, slot) for slot in _TEXTS)
        moments, offsets = leaves.values[_US].tolist(), leaves.values[_POS].tolist()
        named = zip(databases, tables, strict=True)
        idents = [ident] * len(chosen)
        return list(map(RecordHead, idents, ops, positions, moments, named, files, offsets))


def _program(schema: Any) -> AvroProgram | None:
    try:
        return value_program(json.dumps(schema), {path: slot for slot, path in enumerate(_PATHS, 1)}, _PATHS)
    except UnsupportedTypeError:
        return None


def _texts(source: RecordBytes, leaves: NotedLeaves, slot: int) -> list[str]:
    """Return the texts of a leaf: most have one length, and many are all the same."""
    starts, sizes = leaves.values[slot], leaves.sizes[slot]
    count, size = len(sizes), int(sizes[0])
    if (sizes != size).any():
        ends = (starts + sizes).tolist()
        return [source.data[start:end].tobytes().decode() for start, end in zip(starts.tolist(), ends, strict=True)]
    letters = source.data[starts[:, None] + np.arange(size)]
    if (letters == letters[0]).all():
        return [letters[0].tobytes().decode()] * count
    if letters.max() >= 0x80:  # letters of several bytes
        return [letters[index].tobytes().decode() for index in range(count)]
    text = letters.tobytes().decode()
    return [text[start : start + size] for start in range(0, count * size, size)]
