"""A difference that is meant, as a value: what it is about, what it excuses, and why; and when two values are the same. No I/O."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import TidemarkError


@dataclass(frozen=True, slots=True)
class Difference:
    """What may differ in the way `accepts` tests, and why.

    `types` is a pattern of the semantic type of a value. What has no such type has a name in its place: `schema` (a field
    of a schema), `header`, `source.<field>`, `default` (a null whose column has a default), `left out` (a column
    of a key that the row of a snapshot does not have), `transaction` (the block of a row), `record` (a record of Debezium
    alone), `boundary` (a BEGIN or END that the other side lacks), `boundary.<field>`, `model.<field>` (of a table or column in
    a schema-change record). `ops` are the operations concerned, `k` for a key, `x` for what is
    reported of an XA transaction, `s` for a schema change; `scenarios` a pattern of the names of scenarios of the
    conformance suite, which begin with `mariadb` on MariaDB, or of the connector. `given` tests the two structs that the
    values are fields of: the sources of two records, the models of two columns. `proof` tests the same value as Debezium
    published it in a mode that loses nothing; only the conformance suite has such records. `declared` tests the text of a
    DDL statement, with Debezium's struct and our value: one of the statements seen so far has to pass.
    """

    name: str
    types: str
    accepts: Callable[[Any, Any], bool]
    reason: str
    ops: str = "rcudtk"
    scenarios: str = r".*"
    given: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None
    proof: Callable[[Any], bool] | None = None
    declared: Callable[[str, Mapping[str, Any], Any], bool] | None = None

    def covers(self, kind: str, op: str, scenario: str) -> bool:
        """Return whether it speaks of this type in this operation and scenario."""
        return (
            op in self.ops
            and re.fullmatch(self.types, kind) is not None
            and re.fullmatch(self.scenarios, scenario) is not None
        )

    def excuses(self, debezium: Any, ours: Any) -> bool:
        """Return whether two values, or fields of schemas, may differ so; those of a type it does not speak of may not."""
        return _holds(self.accepts, debezium, ours)

    def excuses_in(self, debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
        """Return whether two values may differ in these structs."""
        return self.given is None or _holds(self.given, debezium, ours)

    def is_declared(self, debezium: Mapping[str, Any], ours: Any, statements: Iterable[str]) -> bool:
        """Return whether a statement explains our value; Debezium's struct is the one it is a field of."""
        return self.declared is None or any(self.declared(text, debezium, ours) for text in statements)


def _holds(test: Callable[[Any, Any], bool], debezium: Any, ours: Any) -> bool:
    try:
        return test(debezium, ours)
    except (TidemarkError, TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error):
        return False


def is_same(one: Any, other: Any) -> bool:
    """Return whether two documents are equal, types included: 1 is neither true nor 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return _is_equal(one, other)


def is_same_value(one: Any, other: Any) -> bool:
    """Return whether two values of records are equal, types and the order of the fields of structs included.

    Properties of schemas have no order: `is_same` compares these.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return [*one] == [*other] and all(is_same_value(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    return _is_equal(one, other)


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values of one type are equal; 0.0 is not -0.0."""
    if type(one) is not type(other) or one != other:
        return False
    return not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other)
