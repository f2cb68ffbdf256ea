"""Avro schemas as integer programs: the text of a writer schema enters, the instructions that `avro_kernels` runs leave.

Every record of the schema is read field by field, in the schema's order. A leaf that is wanted is noted under the slot of its path;
all others are read or skipped as the JVM reads or skips them, so that the same records are damaged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas.errors import UnsupportedTypeError
from spark_jobs.arrow import avro_kernels as k

Path = tuple[str, ...]
Node = Any
Ints = npt.NDArray[np.int64]

_MAX_PRECISION: Final = 38
_SHORT_PRECISION: Final = 18
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_FIXED_BYTES: Final = {"float": 4, "double": 8}
_NUMBERS: Final = {"int": k.INT, "long": k.LONG, "boolean": k.BOOLEAN, "null": k.NOTHING}
_MAX_DEPTH: Final = 16
_MAX_INSTRUCTIONS: Final = 50_000
_SINK: Final[Sequence[Path]] = (("after",), ("op",), ("source", "sequence"))
"""The parts that a sink reads."""


@dataclass(frozen=True, slots=True)
class AvroProgram:
    """The instructions of a schema, a row each, and how many slots they note."""

    code: Ints
    slots: int


def value_program(text: str, slots: Mapping[Path, int], read: Sequence[Path] = _SINK) -> AvroProgram:
    """Return the program of an envelope, of which the parts `read` are read, and the rest is skipped.

    `slots` are by path, as `("after", "id")`. Raises `UnsupportedTypeError` for a schema that has no program.
    """
    return _compiled(text, slots, read)


def key_program(text: str, slots: Mapping[Path, int]) -> AvroProgram:
    """Return the program of a key record: all of it is read. Raises `UnsupportedTypeError` for a schema that has no program."""
    return _compiled(text, slots, [()])


def _compiled(text: str, slots: Mapping[Path, int], read: Sequence[Path]) -> AvroProgram:
    compiler = _Compiler(slots, read)
    compiler.node(json.loads(text), (), "", ())
    compiler.emit(k.END)
    missing = slots.keys() - compiler.noted
    if missing:
        message = f"the schema has no {'.'.join(min(missing))}"
        raise UnsupportedTypeError(message)
    code = np.zeros((len(compiler.rows), k.WIDTH), np.int64)
    for number, row in enumerate(compiler.rows):
        code[number] = row
    return AvroProgram(code, max(slots.values(), default=0) + 1)


def null_union(node: Node) -> tuple[int, Node] | None:
    """Return which branch of a union of two is null (1 or 2; 0 for no union) and the other; None for any other union."""
    if not isinstance(node, list):
        return 0, node
    nulls = [number for number, branch in enumerate(node, 1) if branch == "null"]
    if len(node) != 2 or len(nulls) != 1:
        return None
    return nulls[0], node[2 - nulls[0]]


@dataclass(slots=True)
class _Compiler:
    """The instructions so far, and the names that the schema has defined."""

    slots: Mapping[Path, int]
    read: Sequence[Path]
    rows: list[list[int]] = field(default_factory=list)
    named: dict[str, tuple[Node, str]] = field(default_factory=dict)
    noted: set[Path] = field(default_factory=set)

    def emit(self, op: int, nulls: int = 0, slot: int = 0, operands: Sequence[int] = ()) -> int:
        """Append an instruction, which continues with the next one if its value is null; return its number."""
        number = len(self.rows)
        if number > _MAX_INSTRUCTIONS:
            raise UnsupportedTypeError("the schema is too large")
        row = [op, nulls, slot, number + 1, *operands]
        self.rows.append(row + [0] * (k.WIDTH - len(row)))
        return number

    def node(self, node: Node, path: Path, namespace: str, inside: tuple[str, ...], depth: int = 0) -> None:
        """Append what reads a node; `inside` are the records around it."""
        union = null_union(node)
        if union is None:
            self.union(node, path, namespace, inside, depth)
            return
        nulls, node = union
        node, namespace = self.resolved(node, namespace)
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            raise UnsupportedTypeError(f"a schema inside a schema: {node!r}")
        if kind == "record":
            self.record(node, path, namespace, (nulls, depth), inside)
        elif kind == "map" or (kind == "array" and not self.is_read_array(node, path)):
            self.container(node, path, namespace, (nulls, depth), inside)
        else:
            self.leaf(node, kind, path, nulls)

    def resolved(self, node: Node, namespace: str) -> tuple[Mapping[str, Any], str]:
        """Return a node as a mapping, a name's by its definition, and the namespace inside it."""
        if isinstance(node, str):
            if node in _PRIMITIVES:
                return {"type": node}, namespace
            found = self.named.get(node if "." in node or not namespace else f"{namespace}.{node}") or self.named.get(node)
            if found is None:
                raise UnsupportedTypeError(f"the schema does not define {node}")
            return found
        if node["type"] in ("record", "enum", "fixed"):
            name = node["name"]
            own = name.rpartition(".")[0] if "." in name else node.get("namespace", namespace)
            full = f"{own}.{name.rpartition('.')[2]}" if own else name
            self.named.setdefault(full, (node, own))
            return self.named[full]
        return node, namespace

    def record(
        self, node: Mapping[str, Any], path: Path, namespace: str, where: tuple[int, int], inside: tuple[str, ...]
    ) -> None:
        """Append what reads a record, which may be null."""
        nulls, depth = where
        name = f"{namespace}.{node['name']}"
        if name in inside:
            raise UnsupportedTypeError(f"the record {name} contains itself")
        start = self.emit(k.ENTER, nulls, self.slot(path))
        for member in node["fields"]:
            self.node(member["type"], (*path, member["name"]), namespace, (*inside, name), depth)
        self.rows[start][k.NEXT] = len(self.rows)

    def container(
        self, node: Mapping[str, Any], path: Path, namespace: str, where: tuple[int, int], inside: tuple[str, ...]
    ) -> None:
        """Append what skips an array or a map, which may be null."""
        nulls, depth = where
        if self.is_read((*path, "*")) or depth + 1 >= _MAX_DEPTH:
            raise UnsupportedTypeError(f"the field {'.'.join(path)} is an array or a map")
        start = self.emit(k.ENTER, nulls, self.slot(path)) if nulls else None
        items = self.emit(k.ITEMS, operands=(depth,))
        if node["type"] == "map":
            self.emit(k.SKIP)
        inner = node["values"] if node["type"] == "map" else node["items"]
        before = len(self.rows)
        self.node(inner, (*path, "*"), namespace, inside, depth + 1)
        if node["type"] == "array" and not any(_has_bytes(row) for row in self.rows[before:]):
            raise UnsupportedTypeError(f"items of {'.'.join(path)} have no bytes")
        self.emit(k.LOOP, operands=(depth, items))
        self.rows[items][k.NEXT] = len(self.rows)
        if start is not None:
            self.rows[start][k.NEXT] = len(self.rows)

    def union(self, branches: Sequence[Node], path: Path, namespace: str, inside: tuple[str, ...], depth: int) -> None:
        """Append what reads a union that is not one of null and something."""
        if self.is_read(path):
            raise UnsupportedTypeError(f"the field {'.'.join(path)} is a union of {len(branches)}")
        self.emit(k.UNION, operands=(len(branches),))
        table = [self.emit(k.JUMP) for _ in branches]
        ends = []
        for jump, branch in zip(table, branches, strict=True):
            self.rows[jump][k.A] = len(self.rows)
            if isinstance(branch, list):
                raise UnsupportedTypeError("a union inside a union")
            self.node(branch, path, namespace, inside, depth)
            ends.append(self.emit(k.JUMP))
        for end in ends:
            self.rows[end][k.A] = len(self.rows)

    def leaf(self, node: Mapping[str, Any], kind: str, path: Path, nulls: int) -> None:
        """Append what reads or skips a value without parts."""
        slot = self.slot(path)
        if kind == "array":
            self.emit(k.FLOATS, nulls, slot)
        elif kind in ("bytes", "string"):
            self.bytes_or_text(node, path, nulls, slot)
        elif kind in _FIXED_BYTES or kind == "fixed":
            size = _FIXED_BYTES.get(kind) or int(node["size"])
            self.emit(k.FIXED, nulls, slot, (size,))
        elif kind == "enum":
            if self.is_read(path):
                raise UnsupportedTypeError(f"the field {'.'.join(path)} is an enum")
            self.emit(k.ENUM, nulls, slot)
        elif kind in _NUMBERS:
            self.emit(_NUMBERS[kind], nulls, slot)
        else:
            raise UnsupportedTypeError(f"the field {'.'.join(path)} has the unknown type {kind!r}")

    def bytes_or_text(self, node: Mapping[str, Any], path: Path, nulls: int, slot: int) -> None:
        """Append what reads or skips bytes or a text; a decimal that is read has no more digits than its type."""
        precision = int(node.get("precision", 0))
        if not self.is_read(path):
            self.emit(k.SKIP, nulls)
        elif node.get("logicalType") == "decimal" and precision <= _MAX_PRECISION:
            high, low = divmod(10**precision, 1 << 64)
            signed = low - (1 << 64) if low >= 1 << 63 else low
            self.emit(k.DECIMAL, nulls, slot, (int(precision <= _SHORT_PRECISION), high, signed))
        else:
            self.emit(k.BLOB, nulls, slot)

    def is_read(self, path: Path) -> bool:
        """Return whether the JVM reads the value at a path, or a part of it: it skips all others."""
        return any(path[: len(root)] == root or root[: len(path)] == path for root in self.read)

    def is_read_array(self, node: Mapping[str, Any], path: Path) -> bool:
        """Return whether the node is an array of floats that is read."""
        return self.is_read(path) and node["items"] == "float"

    def slot(self, path: Path) -> int:
        """Return the slot that a path is noted under, 0 if it is not wanted."""
        if path in self.slots:
            self.noted.add(path)
        return self.slots.get(path, 0)


def _has_bytes(row: Sequence[int]) -> bool:
    """Return whether an instruction reads at least one byte, whatever the value is."""
    return row[k.NULLS] != 0 or (
        row[k.OP] in (k.INT, k.LONG, k.BLOB, k.SKIP, k.BOOLEAN, k.DECIMAL, k.UNION, k.ITEMS, k.FLOATS, k.ENUM)
        or (row[k.OP] == k.FIXED and row[k.A] > 0)
    )
