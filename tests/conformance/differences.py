"""The whole list of what is meant to differ from Debezium, each with its reason; nothing else may."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Difference:
    """Values of a semantic type (a pattern) that may differ in the way `accepts` tests, and why.

    `ops` are the operations concerned, `k` for a key.
    """

    name: str
    types: str
    accepts: Callable[[Any, Any], bool]
    reason: str
    ops: str = "cudrk"

    def covers(self, kind: str, op: str) -> bool:
        """Whether it speaks of values of this type in this operation."""
        return op in self.ops and re.fullmatch(self.types, kind) is not None


def _unescaped(debezium: Any, ours: Any) -> bool:
    return isinstance(debezium, str) and debezium != ours and re.sub(r"\\(.)", r"\1", debezium) == ours


CONTEXT: Final = Difference(
    "no headers that name a Connect task",
    r"header",
    lambda _debezium, ours: ours is None,
    "`__debezium.context.*` tell connector, task and run of Kafka Connect, of which there is none here",
)
BOOLEAN: Final = Difference(
    "BOOLEAN is TINYINT(1)",
    r"schema",
    lambda debezium, ours: {**debezium, "type": "int16"} == ours and debezium["type"] == "boolean",
    "Debezium makes a boolean of a column whose DDL it read as BOOLEAN in the log, and an int16 of the same "
    "column when it reads the table from the server; ours is what the server stores",
)
DIFFERENCES: Final = (
    CONTEXT,
    BOOLEAN,
    Difference(
        "BOOLEAN values are 0 and 1",
        r"int16",
        lambda debezium, ours: isinstance(debezium, bool) and int(debezium) == ours,
        "as their schema, above",
    ),
    Difference(
        "YEAR 0000 is 0",
        r"io\.debezium\.time\.Year",
        lambda debezium, ours: (debezium, ours) == (1900, 0),
        "the server stores and prints 0000; Debezium's log events say 1900, its snapshot 2000",
    ),
    Difference(
        "ENUM labels are not escaped",
        r"io\.debezium\.data\.Enum",
        _unescaped,
        "Debezium's log events give the label `x,y` as `x\\,y`, its snapshot as it is; ours is the label in both",
    ),
)
