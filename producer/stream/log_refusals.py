"""The error texts of the transaction assembler: why reading a log cannot continue, and what helps (pure)."""

from __future__ import annotations

from typing import Final

from mysqlio.definitions.tokens import without_values
from producer.binlog.event_types import LEFT_BEHIND

UNANNOUNCED_ROLLBACK: Final = (
    "the log has a ROLLBACK in a transaction that did not announce that it may: rows could be published "
    f"that never were. {LEFT_BEHIND}"
)


def statement_dml(sql: str, why: str) -> str:
    """Return the error of a data change that was logged as a statement, and that concerns a captured table."""
    return (
        f"a data change was logged as a statement ({without_values(sql)!r}), and {why}: some session runs with "
        f"binlog_format=STATEMENT or MIXED, its rows are not in the log. Set binlog_format=ROW in every "
        f"session (SET GLOBAL binlog_format='ROW'; then reconnect the clients); then {LEFT_BEHIND}"
    )


def unknown_xid(xid: str) -> str:
    """Return the error of an XA COMMIT whose PREPARE was not read."""
    return (
        f"the log has the XA COMMIT of {xid}, whose XA PREPARE is before the position where this producer first "
        f"read the log: its rows cannot be published. {LEFT_BEHIND}"
    )
