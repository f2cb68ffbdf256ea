"""Tests of fields of schemas, Connect's JSON or Avro: may Debezium's differ from ours so? No I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from conformance.difference import is_same

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


def _retyped(field: Any, old: str, new: Mapping[str, Any]) -> Any:
    """Return the field with another type: `new` are the properties it then has, Avro's under `avro`."""
    if "field" in field:
        return {**field, **new["json"]} if field["type"] == old else field
    members = field["type"] if isinstance(field["type"], list) else [field["type"]]
    changed = [_retyped_member(member, new) for member in members]
    return {**field, "type": changed if isinstance(field["type"], list) else changed[0]}


def _retyped_member(member: Any, new: Mapping[str, Any]) -> Any:
    if isinstance(member, dict) and member.get("type") == new["from"]:
        return {**member, **new["avro"]}  # with its default
    return new["avro"] if member == new["from"] else member


DEFAULT_NAMES: Final = frozenset({"default", "connect.default"})


def _with_defaults(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a schema whose defaults are changed."""
    if isinstance(node, list):
        return [_with_defaults(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: change(value) if name in DEFAULT_NAMES else _with_defaults(value, change) for name, value in node.items()
    }


def _defaults(node: Any) -> list[tuple[str, Any]]:
    """Return all defaults in a schema with the plain types they are of, in order."""
    if isinstance(node, list):
        return [found for item in node for found in _defaults(item)]
    if not isinstance(node, dict):
        return []
    own = [(_plain_type(node), node[name]) for name in sorted(DEFAULT_NAMES & node.keys())]
    return own + [found for name in sorted(node) if name not in DEFAULT_NAMES for found in _defaults(node[name])]


def _plain_type(node: Any) -> str:
    """Return what a node of a schema is written as: `string`, `bytes`, `int64`, Avro's `long`."""
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(kind, list):
        kind = next((member for member in kind if member != "null"), "null")
    return _plain_type(kind) if isinstance(kind, dict) else str(kind)


BOOLEAN_TYPE: Final = {
    "json": {"type": "int16"},
    "avro": {"type": "int", "connect.type": "int16"},
    "from": "boolean",
}
UNSIGNED_TYPE: Final = {
    "json": {
        "type": "bytes",
        "name": DECIMAL,
        "version": 1,
        "parameters": {"scale": "0", "connect.decimal.precision": "20"},
    },
    "avro": {
        "type": "bytes",
        "scale": 0,
        "precision": 20,
        "connect.version": 1,
        "connect.parameters": {"scale": "0", "connect.decimal.precision": "20"},
        "connect.name": DECIMAL,
        "logicalType": "decimal",
    },
    "from": "long",
}


def is_tinyint(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's boolean is our int16, default included."""
    small = _retyped(debezium, "boolean", BOOLEAN_TYPE)
    return small != debezium and is_same(_with_defaults(small, _number), ours)


def _number(default: Any) -> Any:
    return int(default) if isinstance(default, bool) else default


def is_exact_unsigned(debezium: Any, ours: Any) -> bool:
    """Return whether the right side is the int64 as a Decimal with the same default; Debezium has 2^63-1 for 2^64-1."""
    wide = _retyped(debezium, "int64", UNSIGNED_TYPE)
    text = in_base64 if "field" in debezium else _in_latin

    def exact(default: Any) -> Any:
        return text(default % 2**64) if isinstance(default, int) else default

    def longest(default: Any) -> Any:
        return text(2**64 - 1) if default == 2**63 - 1 else exact(default)

    return bool(wide != debezium) and any(is_same(_with_defaults(wide, change), ours) for change in (exact, longest))


def in_base64(number: int) -> str:
    """Return an unsigned number as the bytes of a Decimal, as JSON has them."""
    return base64.b64encode(_bytes_of(number)).decode()


def _in_latin(number: int) -> str:
    return _bytes_of(number).decode("latin-1")


def _bytes_of(number: int) -> bytes:
    """Return an unsigned number as the bytes of a Decimal."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def is_stored_default(debezium: Any, ours: Any) -> bool:
    """Return whether fields differ in defaults only, in those whose literal Debezium did not read right."""
    blank = _with_defaults(debezium, lambda _: None)
    theirs, own = _defaults(debezium), _defaults(ours)
    if not is_same(blank, _with_defaults(ours, lambda _: None)) or len(theirs) != len(own):
        return False
    return debezium != ours and all(
        is_same(value, stored) or _is_stored(kind, value, stored)
        for (kind, value), (_, stored) in zip(theirs, own, strict=True)
    )


_MOMENT_IN_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_QUARTER_S: Final = 900
_FARTHEST_S: Final = 14 * 3600


def is_in_other_zone(debezium: Any, ours: Any, zone: str | None = None) -> bool:
    """Return whether fields differ in the default of a TIMESTAMP only, by what a zone (`+02:00`), or any, is apart from UTC."""
    if not is_same(_with_defaults(debezium, lambda _: None), _with_defaults(ours, lambda _: None)):
        return False
    if not _is_called(ours, "io.debezium.time.ZonedTimestamp"):
        return False
    theirs, own = _defaults(debezium), _defaults(ours)
    if debezium == ours or len(theirs) != len(own):
        return False
    pairs = [(value, stored) for (_, value), (_, stored) in zip(theirs, own, strict=True)]
    return all(is_same(value, stored) or _is_zone_apart(value, stored, zone) for value, stored in pairs)


def is_year_zero(debezium: Any, ours: Any) -> bool:
    """Return whether fields differ in the default of a YEAR only, which Debezium reads as 2000 where it is 0."""
    if not is_same(_with_defaults(debezium, lambda _: None), _with_defaults(ours, lambda _: None)):
        return False
    if not _is_called(ours, "io.debezium.time.Year"):
        return False
    pairs = [(value, stored) for (_, value), (_, stored) in zip(_defaults(debezium), _defaults(ours), strict=True)]
    return debezium != ours and all(is_same(*pair) or is_same(pair, (2000, 0)) for pair in pairs)


def _is_called(node: Any, name: str) -> bool:
    """Return whether a field of a schema is of a semantic type."""
    if isinstance(node, list):
        return any(_is_called(member, name) for member in node)
    if not isinstance(node, dict):
        return False
    return name in (node.get("connect.name"), node.get("name")) or _is_called(node.get("type"), name)


def _is_zone_apart(debezium: str, ours: str, zone: str | None) -> bool:
    if not all(map(_MOMENT_IN_UTC.fullmatch, (debezium, ours))) or debezium[19:] != ours[19:]:
        return False
    apart = (datetime.fromisoformat(debezium[:19]) - datetime.fromisoformat(ours[:19])).total_seconds()
    if zone is not None:
        wanted = datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").utcoffset()
        return wanted is not None and apart == wanted.total_seconds()
    return 0 < abs(apart) <= _FARTHEST_S and apart % _QUARTER_S == 0


def _is_stored(kind: str, debezium: Any, ours: Any) -> bool:
    if kind in ("int64", "long"):
        return is_same((debezium, ours), (2**63 - 1, -1))  # of 2^64-1 as a wrapped int64
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    if kind == "string" and "''" in debezium and debezium.replace("''", "'") == ours:
        return True
    readings = _BINARY if kind == "string" else (_BINARY[0], _latin) if kind == "bytes" else ()
    return any(_is_literal_of(*pair) for read in readings if (pair := _both_read(read, debezium, ours)) is not None)


def _latin(text: str) -> bytes:
    return text.encode("latin-1")


def _canonical(decode: Callable[[str], bytes], encode: Callable[[bytes], str]) -> Callable[[str], bytes]:
    """Return bytes of a text that is written as `encode` writes them; `ValueError` for another text."""

    def read(text: str) -> bytes:
        data = decode(text)
        if encode(data) != text:
            raise ValueError(text)
        return data

    return read


# Base64 first: what JSON has bytes in. Then `binary.handling.mode`'s other forms.
_BINARY: Final = (
    _canonical(base64.b64decode, lambda data: base64.b64encode(data).decode()),
    _canonical(base64.urlsafe_b64decode, lambda data: base64.urlsafe_b64encode(data).decode()),
    _canonical(bytes.fromhex, bytes.hex),
)


def _both_read(read: Callable[[str], bytes], debezium: str, ours: str) -> tuple[bytes, bytes] | None:
    try:
        return read(debezium), read(ours)
    except ValueError:
        return None


def _is_literal_of(text: bytes, value: bytes) -> bool:
    """Return whether bytes are the text of a value's SQL literal: with its escapes, or hexadecimal and cut."""
    if text == value:
        return False
    escaped = text.replace(b"\\0", b"\0") == value
    is_truncated = len(value) <= len(text) and value.hex().upper().encode().startswith(text)
    return escaped or (is_truncated and text != b"")


_GEOMETRY: Final = "io.debezium.data.geometry."
_DOCS: Final = {f"{_GEOMETRY}Geometry": "Geometry", f"{_GEOMETRY}Point": "Geometry (POINT)"}


def with_docs(schema: Any) -> Any:
    """Return an Avro schema whose fields of Debezium's own types have the doc of their type; those of Connect's JSON have it.

    A field that has a doc keeps it.
    """
    if isinstance(schema, list):
        return [with_docs(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: with_docs(value) for name, value in schema.items()}
    is_field = "name" in schema and "type" in schema and not schema.keys() & {"field", "fields", "doc"}
    doc = _doc(schema["type"]) if is_field else None
    return inner if doc is None else {**inner, "doc": doc}


def _doc(kind: Any) -> str | None:
    """Return the doc of the fields of a type: a record, the name of one, or a union with one."""
    members = kind if isinstance(kind, list) else [kind]
    names = [member.get("connect.name") if isinstance(member, dict) else member for member in members]
    return next((_DOCS[name] for name in names if isinstance(name, str) and name in _DOCS), None)
