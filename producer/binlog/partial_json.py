"""Partial JSON updates (`binlog_row_value_options=PARTIAL_JSON`): such an event in, a plain update event out.

Before each after image stand value options (packed; bit 0 = JSON values may be diffs) and, with that bit, a bitmap
with one bit per JSON column of the table. The value of a marked column is its length 4, then diffs: operation 1,
path (packed length, text), and unless it is REMOVE a document (packed length, binary JSON). They are applied, in
order, to the column's value in the before image.
Source: MySQL 8.0 `Rows_log_event::unpack_current_row`, `Json_diff_vector::read_binary`, `apply_json_diffs`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from producer.binlog.byte_reader import Reader, view_of
from producer.binlog.framing import EventBatch, frame_events
from producer.binlog.json_document import Node, Scalar, parse_document, write_document
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.binlog.byte_reader import Buffer

_UPDATE_ROWS_V2: Final = 31
_PARTIAL: Final = 1
_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_LEG: Final = re.compile(
    r'\.\s*(?:("(?:[^"\\]|\\.)*")|([^\s.\["]+))\s*|\[\s*(?:(\d+)|last(?:\s*-\s*(\d+))?)\s*\]\s*', re.DOTALL
)

Leg = bytes | int


def whole_update(
    buf: Buffer, start: int, rows_start: int, end: int, sizes: Sequence[int], json_columns: Sequence[int]
) -> EventBatch:
    """Return the plain UPDATE_ROWS event that says the same, alone in a batch of its own memory, without checksum.

    `rows_start` is its first row byte; `sizes` as `cell_sizes` gives them, of all columns; `json_columns` are the
    indices of those of type JSON. Raises `DecodeError` for damaged bytes and for diffs that do not fit.
    """
    view = view_of(buf)
    plain = bytearray(view[start:rows_start])
    reader = Reader(view, rows_start, end)
    order = {column: index for index, column in enumerate(json_columns)}
    while reader.left:
        image, documents = _image(reader, sizes, order, 0, {})
        plain += image
        options = reader.packed()
        if options & ~_PARTIAL:
            reason = f"an update with the unknown value options {options:#x}"
            raise DecodeError(reason)
        partial = reader.uint((len(order) + 7) // 8) if options & _PARTIAL else 0
        image, _ = _image(reader, sizes, order, partial, documents)
        plain += image
    plain[4] = _UPDATE_ROWS_V2
    plain[9:13] = len(plain).to_bytes(4, "little")
    return frame_events(np.frombuffer(plain, np.uint8), 0, len(plain))[0]


def _image(
    reader: Reader, sizes: Sequence[int], order: dict[int, int], partial: int, before: dict[int, bytes]
) -> tuple[bytes, dict[int, bytes]]:
    """Return one row image with whole values, and its JSON values by column."""
    nulls = reader.read_bytes((len(sizes) + 7) // 8)
    image = bytearray(nulls)
    documents: dict[int, bytes] = {}
    for column, size in enumerate(sizes):
        if nulls[column >> 3] >> (column & 7) & 1:
            continue
        if size >= 0:
            image += reader.read_bytes(size)
            continue
        if size < -4:
            reason = "a partial update of a table with a column type that cannot be measured"
            raise DecodeError(reason)
        value = reader.read_bytes(reader.uint(-size))
        if column in order:
            if partial >> order[column] & 1:
                value = apply_diffs(before.get(column), value)
            documents[column] = value
        image += len(value).to_bytes(-size, "little") + value
    return bytes(image), documents


def apply_diffs(before: bytes | None, diffs: bytes) -> bytes:
    """Return the document (binary JSON) after the diffs."""
    if before is None:
        raise _misfit("a NULL")
    if not diffs:
        return before
    root = parse_document(before)
    reader = Reader(diffs)
    while reader.left:
        operation = reader.uint(1)
        path = reader.read_bytes(reader.packed())
        value = None if operation == _REMOVE else parse_document(reader.read_bytes(reader.packed()))
        root = _apply(root, operation, path, value)
    return write_document(root)


def parse_path(path: bytes) -> tuple[Leg, ...]:
    """Parse the legs of a path without wildcards: keys and array indices; `[last-2]` is -3. Raises `DecodeError`."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = ""
    legs: list[Leg] = []
    at = 1
    while text[:1] == "$" and at < len(text):
        match = _LEG.match(text, at)
        if match is None:
            break
        quoted, bare, index, from_end = match.groups()
        if index is not None:
            legs.append(int(index))
        elif quoted is None and bare is None:
            legs.append(-1 - int(from_end or 0))
        else:
            key: str = bare if quoted is None else json.loads(quoted, strict=False)
            legs.append(key.encode())
        at = match.end()
    if text[:1] != "$" or at < len(text):
        reason = f"a partial JSON update with the path {path[:80]!r}, which is not understood"
        raise DecodeError(reason)
    return tuple(legs)


def _apply(root: Node, operation: int, path: bytes, value: Node | None) -> Node:
    legs = parse_path(path)
    if not legs:
        if operation != _REPLACE or value is None:
            raise _misfit(path)
        return value
    parent = root
    for leg in legs[:-1]:
        parent = _child(parent, leg, path)
    last = legs[-1]
    if operation == _INSERT and value is not None:
        _insert(parent, last, value, path)
        return root
    _child(parent, last, path)
    if operation == _REPLACE and value is not None:
        parent[last] = value  # type: ignore[index]
    elif operation == _REMOVE:
        del parent[last]  # type: ignore[arg-type,union-attr]
    else:
        raise _misfit(path)
    return root


def _insert(parent: Node, leg: Leg, value: Node, path: bytes) -> None:
    if isinstance(parent, list) and isinstance(leg, int):
        parent.insert(leg if leg >= 0 else max(len(parent) + leg, 0), value)
    elif isinstance(parent, dict) and isinstance(leg, bytes) and leg not in parent:
        parent[leg] = value
    else:
        raise _misfit(path)


def _child(parent: Node, leg: Leg, path: bytes) -> Node:
    if isinstance(parent, dict) and isinstance(leg, bytes) and leg in parent:
        return parent[leg]
    if (
        not isinstance(parent, Scalar)
        and isinstance(parent, list)
        and isinstance(leg, int)
        and -len(parent) <= leg < len(parent)
    ):
        return parent[leg]
    raise _misfit(path)


def _misfit(what: object) -> DecodeError:
    return DecodeError(f"a partial JSON update that does not fit the value before it ({what})")
