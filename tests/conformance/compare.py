"""Two streams of records of the same changes, compared record by record; every difference is named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.position import Position
from tests.conformance.differences import BOOLEAN, CONTEXT, DIFFERENCES, Difference
from tests.support.topics import Record

# Of their own clock or connection: present and of one JSON type on both sides.
VOLATILE: Final = frozenset({"ts_ms", "ts_us", "ts_ns", "server_id", "thread"})


@dataclass
class Comparison:
    """What was compared so far; `problems` are differences that nobody meant."""

    left_prefix: str
    right_prefix: str
    records: int = 0
    intended: Counter[Difference] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def topic(self, name: str, left: Sequence[Record], right: Sequence[Record]) -> None:
        """Compare the records of one topic, in their order; the left is Debezium's."""
        if len(left) != len(right):
            self.problems.append(f"{name}: {len(left)} records of Debezium, {len(right)} of ours")
        for one, other in zip(left, right, strict=False):
            self.records += 1
            self._record(f"{name} [{one.offset}]", one, other)

    def _record(self, where: str, left: Record, right: Record) -> None:
        self._part(f"{where} key", left.key, right.key, Types())
        self._headers(f"{where} headers", left.headers, right.headers)
        if left.value is None or right.value is None:
            self._same(f"{where} tombstone", left.value is None, right.value is None)
            return
        self._part(f"{where} value", left.value, right.value, Types())

    def _headers(self, where: str, left: Mapping[str, str], right: Mapping[str, str]) -> None:
        kept = {name: text for name, text in left.items() if not name.startswith("__debezium.context.")}
        if len(kept) < len(left):
            self.intended[CONTEXT] += 1
        self._same(where, list(kept.items()), list(right.items()))

    def _part(self, where: str, left: Any, right: Any, types: Types) -> None:
        if left is None or right is None:
            self._same(where, left, right)
            return
        self._schema(f"{where} schema", self._renamed(left["schema"]), right["schema"])
        types.learn(right["schema"])
        self._payload(where, left["payload"], right["payload"], types)

    def _schema(self, where: str, left: Any, right: Any) -> None:
        """Schemas, field by field where both have fields of the same names."""
        if left == right:
            return
        names = [[item.get("field") for item in side.get("fields", ())] for side in (left, right)]
        if names[0] and names[0] == names[1]:
            self._same(where, {**left, "fields": None}, {**right, "fields": None})
            for one, other in zip(left["fields"], right["fields"], strict=True):
                self._schema(f"{where}.{one.get('field')}", one, other)
        elif BOOLEAN.accepts(left, right):
            self.intended[BOOLEAN] += 1
        else:
            self._same(where, left, right)

    def _payload(self, where: str, left: Any, right: Any, types: Types) -> None:
        if isinstance(left, dict) and isinstance(right, dict):
            self._same(f"{where} fields", list(left), list(right))
            op = left.get("op")
            for name in left.keys() & right.keys():
                place = f"{where}.{name}"
                if name == "source" and op is not None:
                    self._source(place, left[name], right[name])
                elif name in ("before", "after") and op is not None:
                    self._row(place, op, left[name], right[name], types)
                elif name in VOLATILE and op is not None:
                    self._same(f"{place} type", type(left[name]), type(right[name]))
                elif op is None:
                    self._value(place, "k", types.of(name), left[name], right[name])
                else:
                    self._same(place, left[name], right[name])
        else:
            self._same(where, left, right)

    def _row(self, where: str, op: str, left: Any, right: Any, types: Types) -> None:
        if left is None or right is None:
            self._same(where, left, right)
            return
        self._same(f"{where} columns", list(left), list(right))
        for name in left.keys() & right.keys():
            self._value(f"{where}.{name}", op, types.of(name), left[name], right[name])

    def _source(self, where: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
        self._same(f"{where} fields", list(left), list(right))
        for name in left.keys() & right.keys():
            place = f"{where}.{name}"
            if name == "name":
                self._same(place, (left[name], right[name]), (self.left_prefix, self.right_prefix))
            elif name == "sequence":  # Debezium has none here; ours is the version of the row
                Position.parse(right[name])
                self._same(place, left[name], None)
            elif name in VOLATILE:
                self._same(f"{place} type", type(left[name]), type(right[name]))
            else:
                self._same(place, left[name], right[name])

    def _value(self, where: str, op: str, kind: str, left: Any, right: Any) -> None:
        if left == right and type(left) is type(right):
            return
        for difference in DIFFERENCES:
            if difference.covers(kind, op) and difference.accepts(left, right):
                self.intended[difference] += 1
                return
        self.problems.append(f"{where} ({kind}): Debezium {left!r}, ours {right!r}")

    def _same(self, where: str, left: Any, right: Any) -> None:
        if left != right:
            self.problems.append(f"{where}: Debezium {left!r}, ours {right!r}")

    def _renamed(self, schema: Any) -> Any:
        text = json.dumps(schema)
        return json.loads(text.replace(f'"{self.left_prefix}.', f'"{self.right_prefix}.'))


class Types:
    """Column names to the semantic type (or plain type) that the schema gives them."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def learn(self, schema: Mapping[str, Any]) -> None:
        """Take the columns of a key schema, or of the rows of a value schema."""
        fields = schema["fields"]
        rows = [item for item in fields if item.get("field") == "after"]
        for item in rows[0]["fields"] if rows else fields:
            self._kinds[item["field"]] = item.get("name") or item["type"]

    def of(self, column: str) -> str:
        """The type of a column."""
        return self._kinds.get(column, "?")
