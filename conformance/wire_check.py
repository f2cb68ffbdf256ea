"""What the bytes of two records show that decoded records do not: nulls, names that are there twice, bytes of keys. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conformance.difference import is_same_value
from tidemark.api.record_decoding import PAYLOAD, Record

_AVRO_FRAME: Final = 5
_M: Final = 0x5BD1E995
_32_BITS: Final = 0xFFFFFFFF
# The order in which Connect's converter writes the properties of a schema.
_PROPERTIES: Final = (
    "type", "fields", "items", "keys", "values", "optional", "name", "version", "doc", "parameters", "default", "field"
)  # fmt: skip
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+|\s+')


class WireCheck:
    """A check of the bytes of pairs of records; `renamed` are the bytes that name the left prefix and those of the right."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed = {one.encode(): other.encode() for one, other in renamed.items()}
        self._pattern = re.compile(b"|".join(map(re.escape, self._renamed)))
        self._heads: dict[bytes, bytes] = {}
        self._sound: set[bytes] = set()

    def problems(self, left: Record, right: Record, names: tuple[str, str], partitions: int = 0) -> Iterator[str]:
        """Yield the differences of two records whose bytes are known; `names` are those of the sides.

        `partitions` is the number of the partitions of the right topic; 0 if it is unknown.
        """
        if left.wire is None or right.wire is None:
            return
        expected = None if right.wire.key is None or partitions < 2 else partition_of(right.wire.key, partitions)
        if expected not in (None, right.partition):
            yield (
                f" key: {names[1]} has it in partition {right.partition}, by its bytes it belongs to partition {expected} of "
                f"{partitions} (or partitions were added later)"
            )
        headers = [name for name, _ in right.wire.headers]
        for name in sorted({name for name in headers if headers.count(name) > 1}):
            yield f" headers: {names[1]} has {name} {headers.count(name)} times"
        for part in ("key", "value"):
            one: bytes | None = getattr(left.wire, part)
            other: bytes | None = getattr(right.wire, part)
            if (one is None) != (other is None):
                yield f" {part}: {names[0]} {one!r:.200}, {names[1]} {other!r:.200}"
            elif other is not None and (twice := self._name_twice(other)) is not None:
                yield f" {part}: {names[1]} has the field {twice} twice in one JSON object"
        one, other = left.wire.key, right.wire.key
        if one is not None and other is not None and not self._is_same_key(left, right, one, other):
            yield f" key: other bytes of one key: {names[0]} {one!r:.1000}, {names[1]} {other!r:.1000}"

    def _is_same_key(self, left: Record, right: Record, one: bytes, other: bytes) -> bool:
        """Return whether the bytes of two keys differ only as the decoded keys do: they decide on partition and compaction."""
        if one[:1] == b"\0" or other[:1] == b"\0":
            is_equal = one[:1] == other[:1] and left.key["schema"] == right.key["schema"] and is_same_value(left.key, right.key)
            return not is_equal or one[_AVRO_FRAME:] == other[_AVRO_FRAME:]
        if self._as_right(one) == other:
            return True
        texts = [data.decode("utf-8", "backslashreplace") for data in (self._as_right(one), other)]
        try:
            documents = [json.loads(text) for text in texts]
        except ValueError:
            return True  # keys of text, which are compared as they are
        return documents[0] != documents[1] and (_is_plain(texts[1]) or not _is_plain(texts[0])) and _is_in_order(documents[1])

    def _as_right(self, key: bytes) -> bytes:
        """Return the bytes of a key of the left side with the names of the right side in its schema."""
        head, separator, tail = key.partition(PAYLOAD)
        if not separator:
            return key
        if head not in self._heads:
            self._heads[head] = self._pattern.sub(lambda found: self._renamed[found[0]], head)
        return self._heads[head] + separator + tail

    def _name_twice(self, data: bytes) -> str | None:
        """Return a name that an object of a JSON text has twice; None for bytes that are no JSON."""
        if data[:1] not in (b"{", b"["):
            return None
        head, separator, tail = data.partition(PAYLOAD)
        if separator and head in self._sound:
            return _first_twice(b'{"payload":' + tail)
        found = _first_twice(data)
        if found is None and separator and _is_json(head + b"}"):
            self._sound.add(head)
        return found


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's own producers distribute keys: by murmur2."""
    mixed = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _32_BITS
        word = (word ^ word >> 24) * _M & _32_BITS
        mixed = (mixed * _M & _32_BITS) ^ word
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _M & _32_BITS
    mixed = (mixed ^ mixed >> 13) * _M & _32_BITS
    return ((mixed ^ mixed >> 15) & 0x7FFFFFFF) % partitions


class _TwiceError(Exception):
    """The name that an object has twice."""


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _TwiceError(name)
        seen.add(name)


def _first_twice(text: bytes) -> str | None:
    try:
        json.loads(text, object_pairs_hook=_once)
    except _TwiceError as found:
        return str(found)
    except ValueError:
        return None
    return None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_plain(text: str) -> bool:
    """Return whether a JSON text has neither spaces nor escapes that it does not need."""
    tokens = _TOKEN.findall(text)
    return not any(token.isspace() for token in tokens) and all(
        token == json.dumps(json.loads(token), ensure_ascii=False) for token in tokens if token[0] == '"'
    )


def _is_in_order(document: Any) -> bool:
    """Return whether the properties of Connect's schema are in the order in which its converter writes them."""
    schema = document.get("schema") if isinstance(document, dict) and document.keys() == {"schema", "payload"} else None
    return _is_node_in_order(schema)


def _is_node_in_order(node: Any) -> bool:
    if isinstance(node, list):
        return all(map(_is_node_in_order, node))
    if not isinstance(node, dict):
        return True
    ranks = [_PROPERTIES.index(name) if name in _PROPERTIES else -1 for name in node]
    inner = [node[name] for name in ("fields", "items", "keys", "values") if name in node]
    return -1 not in ranks and ranks == sorted(ranks) and all(map(_is_node_in_order, inner))
