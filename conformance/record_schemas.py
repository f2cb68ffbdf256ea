"""The schemas of two records, compared field by field; and the columns that they describe, Connect's JSON or Avro. No I/O."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Final, get_args

from conformance.difference import Difference, is_same
from conformance.intended_differences import DOCS
from conformance.schema_differences import with_docs
from schemas.names import NameMode, adjusted_schema_name

# A prefix as names of schemas have it, by `schema.name.adjustment.mode`.
_FORMS: Final = tuple(partial(adjusted_schema_name, mode=mode) for mode in get_args(NameMode))

AVRO_FLOAT: Final = "float32"
"""The kind of a FLOAT in Avro, which has its bits; JSON has its digits, and the kind `float`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the schemas have it: the semantic type (or plain type) of ours, and the default of Debezium's."""

    kind: str = "?"
    default: Any = None
    is_optional: bool = False


class Types:
    """Column names to columns."""

    def __init__(self, ours: Any = None, debezium: Any = None) -> None:
        defaults = {_name(item): _default(item) for item in _columns(debezium)}
        self._columns = {
            _name(item): Column(_kind(item), defaults.get(_name(item)), _is_optional(item)) for item in _columns(ours)
        }

    def of(self, column: str) -> Column:
        """Return the column of that name."""
        return self._columns.get(column, _NO_COLUMN)


_NO_COLUMN: Final = Column()


@dataclass(slots=True)
class SchemaFindings:
    """What differs between two schemas: problems as sentences, what was excused; `types` are those of ours."""

    types: Types
    intended: Counter[Difference] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class SchemaPairs:
    """A memory of the pairs of schemas that records had: each pair is compared once.

    `prefixes` are those of the two sides, `differences` what may differ in `scenario`.
    """

    def __init__(
        self, scenario: str, prefixes: tuple[str, str], names: tuple[str, str], differences: Sequence[Difference]
    ) -> None:
        self._scenario, self._names, self._differences = scenario, names, differences
        left, right = prefixes
        self.renamed_names = {f'"{form(left)}.': f'"{form(right)}.' for form in _FORMS}
        self._found: dict[tuple[int, int], SchemaFindings] = {}
        self._alive: list[Any] = []

    def compare(self, left: Any, right: Any) -> SchemaFindings:
        """Return the differences of two schemas."""
        pair = (id(left), id(right))
        if pair not in self._found:
            self._alive += (left, right)  # so that their identities stay theirs
            findings = self._found[pair] = SchemaFindings(Types(right, left))
            renamed = self._renamed(left)
            documented = with_docs(renamed)  # a doc that ours lacks is a difference, too
            if documented != renamed:
                findings.intended[DOCS] += 1
            self._compare_nodes("", documented, right, findings)
        return self._found[pair]

    def _compare_nodes(self, where: str, left: Any, right: Any, findings: SchemaFindings) -> None:
        """Compare field by field where both sides have fields of the same names."""
        if is_same(left, right):
            return
        inner = [_struct(side) for side in (left, right)]
        names = [None if struct is None else [_name(item) for item in struct["fields"]] for struct in inner]
        if inner[0] and inner[1] and names[0] == names[1] and is_same(_shell(left), _shell(right)):
            for one, other in zip(inner[0]["fields"], inner[1]["fields"], strict=True):
                self._compare_nodes(f"{where}.{_name(one)}", one, other, findings)
            return
        for difference in self._differences if isinstance(left, dict) and isinstance(right, dict) else ():
            if difference.covers("schema", "k", self._scenario) and difference.excuses(left, right):
                findings.intended[difference] += 1
                return
        findings.problems.append(f"{where}: {self._names[0]} {left!r}, {self._names[1]} {right!r}")

    def _renamed(self, schema: Any) -> Any:
        """Return a schema of the left side, named as on the right side; names may be adjusted."""
        names = self.renamed_names
        left = "|".join(map(re.escape, names))  # at once: what is renamed may begin as before
        return json.loads(re.sub(left, lambda found: names[found[0]], json.dumps(schema)))


def _name(item: Mapping[str, Any]) -> str:
    """Of a field: Connect's JSON calls it `field`, Avro `name`."""
    return str(item.get("field", item.get("name")))


def _struct(node: Any) -> Any:
    """Return the first struct or record in a schema, None when there is none."""
    if isinstance(node, dict):
        return node if "fields" in node else next(filter(None, map(_struct, node.values())), None)
    if isinstance(node, list):
        return next(filter(None, map(_struct, node)), None)
    return None


def _columns(schema: Any) -> Sequence[Any]:
    """Return the fields of the rows of an envelope; those of any other struct."""
    fields: Sequence[Any] = (_struct(schema) or {"fields": ()})["fields"]
    rows = [_struct(item) for item in fields if _name(item) == "before"]
    return rows[0]["fields"] if rows and rows[0] else fields


def _shell(node: Any) -> Any:
    """Return a schema without the fields of its structs."""
    if isinstance(node, dict):
        return {name: None if name == "fields" else _shell(value) for name, value in node.items()}
    return [_shell(item) for item in node] if isinstance(node, list) else node


def _kind(item: Mapping[str, Any]) -> str:
    node = item if "field" in item else _avro_type(item)
    parameters = item.get("parameters", {}) if "field" in item else node.get("connect.parameters", {})
    if parameters.get("masked") == "true":
        return "masked"
    if "truncateLength" in parameters:
        return "truncated"
    if "field" in item:
        return str(item.get("name") or item["type"])
    kind = str(node.get("connect.name") or node.get("connect.type") or node["type"])
    return AVRO_FLOAT if kind == "float" else kind


def _is_optional(item: Mapping[str, Any]) -> bool:
    return bool(item.get("optional")) if "field" in item else "null" in item["type"]


def _avro_type(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the type of a field of an Avro record, without the union that makes it optional."""
    members = item["type"] if isinstance(item["type"], list) else [item["type"]]
    node = next((member for member in members if member != "null"), "null")
    return node if isinstance(node, dict) else {"type": node}


def _default(item: Mapping[str, Any]) -> Any:
    """Return the default of a field as a value that was read has it: bytes in Avro are text in the schema."""
    default = item.get("default")
    if "field" in item or not isinstance(default, str):
        return default
    node = _avro_type(item)
    if node["type"] != "bytes":
        return default
    data = default.encode("latin-1")
    if node.get("logicalType") != "decimal":
        return data
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-int(node["scale"]))
