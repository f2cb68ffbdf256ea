"""Statements that may not have done what their text says: one that failed in part, or whose event is not understood.

What enters: the changes of the text, and the doubt. What leaves: changes that are safe in both cases. The table is read again,
and its columns are asked for, instead of being concluded from the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from producer.catalog.effects import DdlChange
from producer.catalog.statements.clauses import Unclear
from schemas.errors import UnknownEventError

_NO_SUCH_TABLE: Final = 1051  # of several tables those that exist were dropped


def doubt_of_error(code: int) -> str:
    """Return the doubt about a statement that failed with this error, "" where what it did is certain."""
    return "" if code in (0, _NO_SUCH_TABLE) else f"it failed with error {code}, and may have done a part of its work"


def doubted(
    changes: Iterable[DdlChange], why: str, matters: Callable[[str, str], bool], exists: Callable[[str, str], bool]
) -> Iterator[DdlChange]:
    """Yield safe changes instead of these. A table that is gone now was dropped, by this statement or a later one.

    Raises `UnknownEventError` for a name that cannot be read, if it may be of a table that `matters`.
    """
    for change in changes:
        if change.kind in ("other", "drop_database"):
            yield change
            continue
        for table in dict.fromkeys([(change.database, change.table), (change.new_database, change.new_table)]):
            if not table[1]:
                continue
            if "\\" in table[0] or ("\\" in table[1] and matters(*table)):
                reason = f"the log has a DDL statement about {'.'.join(table)}, whose name cannot be read: {why}"
                raise UnknownEventError(reason)
            if not matters(*table):
                yield DdlChange("alter", *table, clauses=(Unclear(why),))
            elif change.kind == "drop" and not exists(*table):
                yield change
            else:
                yield DdlChange("alter", *table, effect="snapshot", decided="snapshot", clauses=(Unclear(why),))


def ignored(change: DdlChange) -> DdlChange:
    """Return a change of nothing, in the place of one that is about a temporary table."""
    return replace(change, kind="other", table="", new_database="", new_table="", effect="none", decided="none", clauses=())
