"""Rows of parents, while rows of the target may be missing: which of them change children by foreign keys of the target.

A server before MySQL 9.6, or a MariaDB, logs no rows that CASCADE, SET NULL and SET DEFAULT change, so the target changes them. It
does so if it has the parent. While a table is loaded the parent may be missing: then its old row is written first, as the log has
it, and changed or deleted behind that. The source had this row there, so it collides with no other row.

Rows further down are reached through the children. If a table between is loaded, they may stay: that is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from mysqlio.foreign_key_facts import SILENT_RULES, list_foreign_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mysqlio.foreign_key_facts import ForeignKey
    from spark_jobs.replicate.apply.apply_target import ApplyTarget
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_statements import TableStatements

log = structlog.get_logger()
Table = tuple[str, str]


class MovedRow(NamedTuple):
    """Whether a row moves its children, and its old values as a tuple of SQL."""

    moves: bool
    old_row: bytes


STAYS = MovedRow(moves=False, old_row=b"")


class MovedChildren:
    """The foreign keys of a target that change children. Errors as `ApplyTarget.rows`, and as `TableStatements.literals`."""

    def __init__(self, target: ApplyTarget) -> None:
        self._target = target
        self._keys: dict[Table, list[ForeignKey]] | None = None
        self._warned: set[tuple[Table, tuple[str, ...]]] = set()

    def forget(self) -> None:
        """Ask the target again: a statement has run."""
        self._keys = None

    def of(self, events: Sequence[RowEvent], statements: TableStatements, loading: Collection[str]) -> list[MovedRow]:
        """Return for each event of one table if it moves children. The old row is given if the table is `loading`."""
        table = _lower(events[0].table)
        keys = self._referring(table)
        rows = [STAYS] * len(events)
        small = {name.lower() for name in loading}
        may_lack = ".".join(table) in small and statements.has_key
        for indices in _alike(events) if keys else ():
            some = [events[index] for index in indices]
            moves = _moves(some, statements, keys)
            old_rows = _old_rows(some, statements) if may_lack and any(moves) else [b""] * len(some)
            for index, is_moved, old_row in zip(indices, moves, old_rows, strict=True):
                rows[index] = MovedRow(moves=True, old_row=old_row) if is_moved else STAYS
        if small and any(row.moves for row in rows):
            self._warn(table, small, lacks=not statements.has_key)
        return rows

    def _referring(self, table: Table) -> list[ForeignKey]:
        if self._keys is None:
            self._keys = {}
            for key in sorted(list_foreign_keys(self._target.connection), key=lambda one: (one.child, one.name)):
                if key.is_silent:
                    self._keys.setdefault(_lower(key.parent), []).append(key)
        return self._keys.get(table, [])

    def _warn(self, parent: Table, loading: Collection[str], *, lacks: bool) -> None:
        """Log tables whose rows may stay, once: a table between them and the parent may lack a row."""
        uncertain, seen, waiting = set[str](), set[tuple[Table, bool]](), [(parent, lacks)]
        while waiting:
            table, may_lack = waiting.pop()
            for key in self._referring(table):
                child = _lower(key.child)
                uncertain |= {".".join(child)} if may_lack else set()
                step = child, may_lack or ".".join(child) in loading
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        children = sorted(uncertain)
        if children and (parent, tuple(children)) not in self._warned:
            self._warned.add((parent, tuple(children)))
            log.warning("task.children_uncertain", parent=".".join(parent), children=children)


def _alike(events: Sequence[RowEvent]) -> Iterable[list[int]]:
    """Return the indices of the deletes and updates that foreign keys follow, by the schema of their records."""
    alike: dict[int, list[int]] = {}
    for index, event in enumerate(events):
        if event.op in "du" and event.checks_keys:
            alike.setdefault(event.schema_id, []).append(index)
    return alike.values()


def _moves(events: Sequence[RowEvent], statements: TableStatements, keys: Sequence[ForeignKey]) -> list[bool]:
    """Return whether each delete or update changes children. If the records lack a column that children follow, all updates do."""
    deletes = any(key.on_delete in SILENT_RULES for key in keys)
    followed = {name.lower() for key in keys if key.on_update in SILENT_RULES for name in key.referenced}
    names = {name.lower(): name for name in statements.column_names(events[0].schema_id)}
    is_known = followed <= names.keys()
    literals = statements.literals(tuple(names[name] for name in sorted(followed)), events) if followed and is_known else []
    return [
        deletes if event.op == "d" else not is_known or any(one.old[index] != one.new[index] for one in literals)
        for index, event in enumerate(events)
    ]


def _old_rows(events: Sequence[RowEvent], statements: TableStatements) -> list[bytes]:
    columns = statements.literals(statements.column_names(events[0].schema_id), events)
    return [b"(%b)" % b",".join(literals) for literals in zip(*(one.old for one in columns), strict=True)]


def _lower(table: Table) -> Table:
    return table[0].lower(), table[1].lower()
