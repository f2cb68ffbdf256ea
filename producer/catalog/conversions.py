"""What a new definition of a column does to the values stored in it: nothing, or perhaps something.

Only changes that provably keep every value, as both the log and a SELECT would show it, count as "none".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mysqlio.definitions.column_types import to_column
from schemas.columns import Column
from schemas.types.column_defaults import decimal_digits
from schemas.types.column_facts import (
    FACTS,
    FRACTION_TYPES,
    INTEGER_TYPES,
    LARGE_BINARIES,
    LARGE_TEXTS,
    MEMBER_TYPES,
    TEXT_TYPES,
    Semantic,
    semantic_of,
    types_of,
)

if TYPE_CHECKING:
    from producer.catalog.effects import DdlChange
    from schemas.columns import TableSchema

_WIDTHS: Final = (INTEGER_TYPES, LARGE_TEXTS, LARGE_BINARIES)
_SAME_LENGTH_OR_LONGER: Final = (
    *(kind for kind, facts in FACTS.items() if facts.length in ("most", "stripped")),
    *types_of(Semantic.VECTOR),
)
_WITHIN_UTF8MB4: Final = frozenset({"ascii", "latin1", "utf8mb3", "utf8mb4"})


def keeps_values(old: Column, new: Column) -> bool:
    """Return whether every value of `old` stays the same when the column becomes `new`."""
    if old.nullable and not new.nullable:
        return False
    if old.type is not new.type:
        return _is_wider_type(old, new)
    if old.unsigned != new.unsigned:
        return False
    if semantic_of(old) is Semantic.DECIMAL:
        return _holds_decimals(old, new)
    if old.type in MEMBER_TYPES:
        return new.members[: len(old.members)] == old.members and keeps_text(old.charset, new.charset)
    if old.type in FRACTION_TYPES:
        return (old.precision or 0) <= (new.precision or 0)
    if old.type in _SAME_LENGTH_OR_LONGER:
        return _is_known_longer(old, new) and keeps_text(old.charset, new.charset)
    return (old.length, old.scale) == (new.length, new.scale) and keeps_text(old.charset, new.charset)


def looks_the_same(old: Column, new: Column) -> bool:
    """Return whether an expression sees the same in a value, after a change that keeps it: the same bytes and digits."""
    if old.type in FRACTION_TYPES and (old.precision or 0) != (new.precision or 0):
        return False
    return (old.charset, old.scale, old.zerofill) == (new.charset, new.scale, new.zerofill)


def keeps_text(old: str | None, new: str | None) -> bool:
    """Return whether converting a character set loses no character; None counts as unknown, unless on both sides."""
    return (
        old == new or (old in _WITHIN_UTF8MB4 and new == "utf8mb4") or (old == "ascii" and new == "utf8mb3")
    )


def _is_wider_type(old: Column, new: Column) -> bool:
    for family in _WIDTHS:
        if old.type in family and new.type in family:
            wider = family.index(new.type) > family.index(old.type)
            return wider and old.unsigned == new.unsigned and _same_text(old, new)
    return False


def _same_text(old: Column, new: Column) -> bool:
    return old.type not in TEXT_TYPES or keeps_text(old.charset, new.charset)


def _holds_decimals(old: Column, new: Column) -> bool:
    old_precision, old_scale = decimal_digits(old)
    new_precision, new_scale = decimal_digits(new)
    return old_scale <= new_scale and old_precision - old_scale <= new_precision - new_scale


def _is_known_longer(old: Column, new: Column) -> bool:
    return old.length is not None and new.length is not None and old.length <= new.length


def keeps_values_of_table(change: DdlChange, schema: TableSchema, charset: str, flavour: str) -> bool:
    """Return whether every value of a table stays the same; `charset` is that of columns that name none, "" where not known."""
    columns = {column.name.lower(): column for column in schema.columns}
    keys = {name.lower() for name in schema.record_key}
    if any(name.lower() in keys for name in change.dropped):
        return False
    if change.charset is not None and not all(
        keeps_text(column.charset, change.charset) for column in schema.columns if column.charset
    ):
        return False
    has_expressions = any(column.filled_by == "expression" for column in schema.columns)
    # Expressions may be of bytes. MariaDB's members keep their bytes, and rows that have one of them lose it.
    loses_members = flavour == "mariadb" and any(map(_has_wide_members, schema.columns))
    if change.charset is not None and (has_expressions or loses_members):
        return False
    for changed in change.changed:
        old = columns.get(changed.name.lower())
        if old is None:
            return False
        is_json = changed.definition.type_name == "JSON"
        new = to_column(changed.definition, "utf8mb4" if is_json else charset or None, flavour)
        if old.name in schema.primary_key and new is not None:
            new = replace(new, nullable=False)
        if new is None or not keeps_values(old, new) or _is_numbered(old, new):
            return False
        if has_expressions and not looks_the_same(old, new):
            return False
    return True


def _is_numbered(old: Column, new: Column) -> bool:
    """Return whether a row that has 0 there is given a number: the column becomes AUTO_INCREMENT."""
    return new.filled_by == "counter" and old.filled_by != "counter"


def _has_wide_members(column: Column) -> bool:
    return not all(member.isascii() for member in column.members)
