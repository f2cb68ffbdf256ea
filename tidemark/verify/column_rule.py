"""How one column of both sides becomes comparable, as a value; the modules of rules make them. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from schemas.columns import Column
from tidemark.verify.text_rows import Cells

_SHOWN_CHARACTERS: Final = 200

Value = Any
Parts = dict[str, Any]


NO_KEY: Final = "it has no primary key and no unique key of NOT NULL columns: add a primary key"


class IncomparableError(Exception):
    """Source and sink column have no common type; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """How one column of both sides becomes comparable.

    `expression` is what is selected from the source. `from_source` takes the cells of that expression,
    `from_sink` an array of the sink column; both give arrays of the common type. `same` compares two common
    values that are not equal bits. `literal` writes a common value as SQL, for key columns.
    `sink_name` is None for a column the sink does not have: all NULL there.
    """

    name: str
    sink_name: str | None
    common: pa.DataType
    expression: str
    from_source: Callable[[Cells], pa.Array]
    from_sink: Callable[[pa.Array], pa.Array]
    literal: Callable[[Value], str]
    show: Callable[[Value], str]
    same: Callable[[Value, Value], bool] = lambda _left, _right: False
    ordered: bool = False  # an int64 that the server orders as numbers do

    def equal(self, left: Value, right: Value) -> bool:
        """Return whether two common values (None is NULL) are the same value."""
        if left is None or right is None:
            return left is right
        return bool(left == right) or self.same(left, right)

    def shown(self, value: Value) -> str:
        """Return a value for people; long ones are cut."""
        if value is None:
            return "NULL"
        text = self.show(value)
        return (
            text
            if len(text) <= _SHOWN_CHARACTERS
            else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
        )


def refuse(column: Column, sink_type: pa.DataType, wanted: str) -> IncomparableError:
    """Return the error of a sink column whose type cannot have the source's values."""
    ours = f"column {column.name}: {column.type.upper()} of the source"
    return IncomparableError(f"{ours} needs {wanted} in the sink, which has {sink_type}")


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is one of bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
