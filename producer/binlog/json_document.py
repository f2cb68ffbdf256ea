"""MySQL's binary JSON as a tree that can be changed, and back. Used for partial updates only; not a hot path.

A node is a dict of keys (bytes, UTF-8) to nodes, a list of nodes, or a `Scalar`. Scalars keep their bytes: whatever
number, text or opaque value they hold comes out as it went in. Containers are always written in the large form,
which says the same as the small one. Source: MySQL `sql-common/json_binary.h`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas.errors import DecodeError

_OBJECTS: Final = (0, 1)
_LARGE_OBJECT: Final = 1
_LARGE_ARRAY: Final = 3
_CONTAINERS: Final = (0, 1, 2, 3)
_STRING: Final = 12
_OPAQUE: Final = 15
_FIXED: Final = {4: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}
_INLINE_SMALL: Final = frozenset({4, 5, 6})
_INLINE_LARGE: Final = frozenset({4, 5, 6, 7, 8})
_DEPTH: Final = 100


class Scalar(NamedTuple):
    """A value that holds no others: its binary type and its bytes."""

    type: int
    data: bytes


Node = dict[bytes, "Node"] | list["Node"] | Scalar


def parse_document(data: bytes) -> Node:
    """Parse the tree of a document. Raises `DecodeError`."""
    if not data:
        raise _damaged()
    return _Parser(data).value(data[0], 1, 0)


def write_document(node: Node) -> bytes:
    """Write the document of a tree."""
    kind, body = _encode(node)
    return bytes((kind,)) + body


def _damaged() -> DecodeError:
    return DecodeError("a JSON document that is damaged")


class _Parser:
    """Reads one document; offsets may point anywhere, so its nodes are counted against its bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data)

    def _slice(self, at: int, size: int) -> bytes:
        if at < 0 or size < 0 or at + size > len(self._data):
            raise _damaged()
        return self._data[at : at + size]

    def _uint(self, at: int, size: int) -> int:
        return int.from_bytes(self._slice(at, size), "little")

    def value(self, kind: int, at: int, depth: int) -> Node:
        self._left -= 1
        if self._left < 0 or depth > _DEPTH:
            raise _damaged()
        if kind in _CONTAINERS:
            return self._container(kind, at, depth)
        if kind in _FIXED:
            return Scalar(kind, self._slice(at, _FIXED[kind]))
        if kind not in (_STRING, _OPAQUE):
            raise _damaged()
        head = 1 if kind == _OPAQUE else 0
        size, length_bytes = self._variable(at + head)
        return Scalar(kind, self._slice(at, head + length_bytes + size))

    def _variable(self, at: int) -> tuple[int, int]:
        """(length, bytes it takes): seven bits each, the top bit says that more follow."""
        length = 0
        for index in range(5):
            byte = self._uint(at + index, 1)
            length |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return length, index + 1
        raise _damaged()

    def _container(self, kind: int, start: int, depth: int) -> Node:
        width = 4 if kind & 1 else 2
        count = self._uint(start, width)
        keys_at = start + 2 * width
        key_size = width + 2 if kind in _OBJECTS else 0
        values_at = keys_at + count * key_size
        if values_at + count * (1 + width) > len(self._data):
            raise _damaged()
        values = [self._entry(start, values_at + index * (1 + width), width, depth) for index in range(count)]
        if not key_size:
            return values
        entries = [keys_at + index * key_size for index in range(count)]
        keys = [
            self._slice(start + self._uint(at, width), self._uint(at + width, 2)) for at in entries
        ]  # fmt: skip
        return dict(zip(keys, values, strict=True))

    def _entry(self, start: int, at: int, width: int, depth: int) -> Node:
        kind = self._uint(at, 1)
        inline = kind in (_INLINE_LARGE if width == 4 else _INLINE_SMALL)
        return self.value(kind, at + 1 if inline else start + self._uint(at + 1, width), depth + 1)


def _encode(node: Node) -> tuple[int, bytes]:
    if isinstance(node, Scalar):
        return node.type, node.data
    if isinstance(node, list):
        return _LARGE_ARRAY, _container((), node)
    keys = sorted(node, key=lambda key: (len(key), key))
    return _LARGE_OBJECT, _container(tuple(keys), [node[key] for key in keys])


def _container(keys: tuple[bytes, ...], values: list[Node]) -> bytes:
    key_entries, value_entries, rest = bytearray(), bytearray(), bytearray()
    at = 8 + 6 * len(keys) + 5 * len(values)
    for key in keys:
        key_entries += (at + len(rest)).to_bytes(4, "little") + len(key).to_bytes(2, "little")
        rest += key
    for value in values:
        kind, body = _encode(value)
        value_entries.append(kind)
        if kind in _INLINE_LARGE:
            value_entries += body.ljust(4, b"\0")
        else:
            value_entries += (at + len(rest)).to_bytes(4, "little")
            rest += body
    head = len(values).to_bytes(4, "little") + (at + len(rest)).to_bytes(4, "little")
    return bytes(head + key_entries + value_entries + rest)
