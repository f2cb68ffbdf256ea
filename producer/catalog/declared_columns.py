"""Column definitions that the log's DDL text gives: a projection of the clauses, and what it adds to an announced column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mysqlio.definitions.column_definition import ColumnDefinition
from mysqlio.definitions.column_types import default_text, is_exact, to_column
from producer.catalog.reduce import keeps_dropped_default
from producer.catalog.statements.clauses import AddColumn, RenameColumn
from producer.catalog.table_map import same_type, with_float_digits
from schemas.columns import Column
from schemas.types.column_facts import Semantic, semantic_of
from schemas.types.semantic_types import column_default

if TYPE_CHECKING:
    from producer.catalog.effects import DdlChange


def declared_after(change: DdlChange, before: Mapping[str, ColumnDefinition]) -> dict[str, ColumnDefinition]:
    """Return the definitions after a statement; its clauses name the columns as they were before it."""
    declared = dict(before)
    for given in change.defaults:
        declared[given.name.lower()] = _with_given_default(declared.get(given.name.lower()), given)
    kept = dict(declared)
    made: dict[str, ColumnDefinition] = {}
    for name in change.dropped:
        kept.pop(name.lower(), None)
    for rename in (clause for clause in change.clauses if isinstance(clause, RenameColumn)):
        renamed = kept.pop(rename.name.lower(), None)
        if renamed is not None:
            made[rename.new_name.lower()] = replace(renamed, name=rename.new_name)
    for changed in change.changed:
        is_renamed = changed.name.lower() != changed.definition.name.lower()
        if kept.pop(changed.name.lower(), None) is None and changed.conditional and is_renamed:
            continue  # there may be no such column, and another one of the new name
        made[changed.definition.name.lower()] = changed.definition
    for added in (clause for clause in change.clauses if isinstance(clause, AddColumn)):
        if not (change.conditional or added.conditional):
            made[added.definition.name.lower()] = added.definition
    return kept | made


def completed_column(
    column: Column,
    server: Column | None,
    followed: Column | None,
    declared: ColumnDefinition | None,
    *,
    is_certain: bool,
    flavour: str,
) -> Column:
    """Return the column with what the log leaves out.

    The followed state is that of this position in the log; the server is asked for a default of which the state is not
    certain, and for all the rest where the state does not have the column. DDL text goes before the server for defaults.
    """
    is_same = server is not None and same_type(column, server)
    if followed is not None and same_type(column, followed):
        if server is not None and is_same and (not is_certain or _shows_same_default(server, followed)):
            followed = with_default_of(followed, server)
        column = replace(followed, nullable=column.nullable)
        return column if is_certain or declared is None else _with_declared_default(column, declared, flavour)
    if server is not None and is_same:
        column = replace(server, nullable=column.nullable)
    elif server is not None and server.type is column.type and server.unsigned == column.unsigned:
        completed = replace(
            with_float_digits(column, server),
            comment=server.comment,
            display=server.display,
            zerofill=server.zerofill,
            filled_by=server.filled_by,
        )
        column = with_default_of(completed, server)
    return column if declared is None else _with_declared_default(column, declared, flavour)


def _with_declared_default(column: Column, declared: ColumnDefinition, flavour: str) -> Column:
    """Return the column with the default of a DDL in the log, unless the server has the same value, or knows it better.

    TIMESTAMPs are left to the server: a literal is in the time zone of the session that ran the DDL, and
    some get a default without saying so.
    """
    if declared.generated or declared.auto_increment or semantic_of(column) is Semantic.TIMESTAMP:
        return column
    is_implicit = declared.compressed and not declared.has_default
    if is_implicit or (declared.default_dropped and keeps_dropped_default(column, flavour)):
        return column
    made = to_column(declared, column.charset, flavour) if declared.type_name else None
    if made is None:
        made = replace(with_default_of(column, declared), default=default_text(declared, column))
    typed = with_default_of(column, made)
    certain = is_exact(declared, typed, flavour) if typed.has_default else True
    if same_default(typed, column) or (column.has_default and not certain):
        return column
    return typed


def _with_given_default(declared: ColumnDefinition | None, given: ColumnDefinition) -> ColumnDefinition:
    """Return a definition with the default of another: SET DEFAULT and DROP DEFAULT."""
    return replace(
        given if declared is None else declared,
        default=given.default,
        has_default=given.has_default,
        default_is_expression=given.default_is_expression,
        default_is_string=given.default_is_string,
        default_has_escapes=given.default_has_escapes,
        default_dropped=not given.has_default,
    )


def with_default_of(column: Column, other: Column | ColumnDefinition) -> Column:
    """Return the column with the default of another column or definition."""
    return replace(
        column,
        default=other.default,
        has_default=other.has_default,
        default_is_expression=other.default_is_expression,
    )


def same_default(one: Column, other: Column) -> bool:
    """Return whether two columns have the same default, however it is spelled."""
    return (one.has_default, one.default_is_expression) == (
        other.has_default,
        other.default_is_expression,
    ) and column_default(one) == column_default(other)


def _shows_same_default(one: Column, other: Column) -> bool:
    """Return whether two defaults are the same in records; one of NULL is none there, whether the text has it or not."""
    has = [column.has_default and (column.default is not None or column.default_is_expression) for column in (one, other)]
    return same_default(one, other) or not any(has)
