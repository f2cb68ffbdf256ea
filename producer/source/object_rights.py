"""The rights without which our user does not see what leads from one table to another: triggers, foreign keys, stored functions.

Grants enter, the missing ones leave. A server lists only objects on which the user has a right, so what it does not list may exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from producer.source.coverage import privileges_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ALL: Final = "ALL PRIVILEGES"
_SHOW_ROUTINE_SINCE: Final = (8, 0, 20)
_NO_PROC_SINCE: Final = (8, 0, 0)

TRIGGERS: Final = "TRIGGER ON *.*"
"""With it the user sees all triggers, all foreign keys, and which tables are views."""
READS_ALL: Final = "SELECT ON *.*"
"""MySQL 8.0.0 to 8.0.19 has no smaller right that shows routines."""


def sees_triggers(grants: Mapping[str, frozenset[str]], databases: Iterable[str] | None = None) -> bool:
    """Return whether the user sees the triggers and foreign keys of all tables, or of all tables of these databases."""
    where = (privileges_on(grants, one, "") for one in databases) if databases else iter([grants.get("*.*", frozenset())])
    return all(one & {"TRIGGER", _ALL} for one in where)


def right_to_routines(flavour: str, version: tuple[int, int, int]) -> str:
    """Return the right with which a user sees the text of all stored functions."""
    if flavour == "mariadb" or version < _NO_PROC_SINCE:
        return "SELECT ON mysql.proc"
    return "SHOW_ROUTINE ON *.*" if version >= _SHOW_ROUTINE_SINCE else READS_ALL


def sees_routines(grants: Mapping[str, frozenset[str]], right: str) -> bool:
    """Return whether the user has that right to routines, or one that has it in it."""
    everywhere = grants.get("*.*", frozenset())
    if everywhere & {"SELECT", _ALL}:
        return True
    privilege, _, where = right.partition(" ON ")
    database, _, table = where.partition(".")
    return bool((everywhere if database == "*" else privileges_on(grants, database, table)) & {privilege, _ALL})
