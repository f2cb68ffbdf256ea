"""Event type codes of the binlog, and the policy for types that are not decoded.

Source: MySQL 9 `libs/mysql/binlog/event/binlog_event.h`, MariaDB 11 `sql/log_event.h`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

QUERY_EVENT: Final = 2
STOP_EVENT: Final = 3
ROTATE_EVENT: Final = 4
INTVAR_EVENT: Final = 5
APPEND_BLOCK_EVENT: Final = 9
DELETE_FILE_EVENT: Final = 11
RAND_EVENT: Final = 13
USER_VAR_EVENT: Final = 14
FORMAT_DESCRIPTION_EVENT: Final = 15
XID_EVENT: Final = 16
BEGIN_LOAD_EVENT: Final = 17
EXECUTE_LOAD_EVENT: Final = 18
TABLE_MAP_EVENT: Final = 19
INCIDENT_EVENT: Final = 26
HEARTBEAT_EVENT: Final = 27
IGNORABLE_EVENT: Final = 28
ROWS_QUERY_EVENT: Final = 29
GTID_EVENT: Final = 33
ANONYMOUS_GTID_EVENT: Final = 34
PREVIOUS_GTIDS_EVENT: Final = 35
TRANSACTION_CONTEXT_EVENT: Final = 36
VIEW_CHANGE_EVENT: Final = 37
XA_PREPARE_EVENT: Final = 38
PARTIAL_UPDATE_ROWS_EVENT: Final = 39
TRANSACTION_PAYLOAD_EVENT: Final = 40
HEARTBEAT_V2_EVENT: Final = 41
GTID_TAGGED_EVENT: Final = 42
MARIADB_ANNOTATE_EVENT: Final = 160
MARIADB_BINLOG_CHECKPOINT_EVENT: Final = 161
MARIADB_GTID_EVENT: Final = 162
MARIADB_GTID_LIST_EVENT: Final = 163
MARIADB_START_ENCRYPTION_EVENT: Final = 164

GTID_EVENTS: Final = frozenset({GTID_EVENT, ANONYMOUS_GTID_EVENT, GTID_TAGGED_EVENT})
HEARTBEAT_EVENTS: Final = frozenset({HEARTBEAT_EVENT, HEARTBEAT_V2_EVENT})
ROWS_V1_EVENTS: Final = frozenset({23, 24, 25})
ROWS_V2_EVENTS: Final = frozenset({30, 31, 32})
ROWS_EVENTS: Final = ROWS_V1_EVENTS | ROWS_V2_EVENTS
UPDATE_ROWS_EVENTS: Final = frozenset({24, 31})
MARIADB_COMPRESSED_EVENTS: Final = frozenset(range(165, 172))

FLAG_ARTIFICIAL: Final = 0x20
FLAG_IGNORABLE: Final = 0x80

_DECODED: Final = (
    ROWS_EVENTS
    | GTID_EVENTS
    | {QUERY_EVENT, ROTATE_EVENT, XID_EVENT, XA_PREPARE_EVENT, TABLE_MAP_EVENT, TRANSACTION_PAYLOAD_EVENT}
    | {PARTIAL_UPDATE_ROWS_EVENT, MARIADB_GTID_EVENT, EXECUTE_LOAD_EVENT}
    | MARIADB_COMPRESSED_EVENTS
)
_STATEMENT_PARTS: Final = frozenset(
    {INTVAR_EVENT, RAND_EVENT, USER_VAR_EVENT, BEGIN_LOAD_EVENT, APPEND_BLOCK_EVENT, DELETE_FILE_EVENT}
)
"""What a statement that is logged as text needs: the statement follows, and says which tables it changes."""
_HARMLESS: Final = HEARTBEAT_EVENTS | _STATEMENT_PARTS | {
    STOP_EVENT,
    FORMAT_DESCRIPTION_EVENT,
    IGNORABLE_EVENT,
    ROWS_QUERY_EVENT,
    PREVIOUS_GTIDS_EVENT,
    TRANSACTION_CONTEXT_EVENT,
    VIEW_CHANGE_EVENT,
    MARIADB_ANNOTATE_EVENT,
    MARIADB_BINLOG_CHECKPOINT_EVENT,
    MARIADB_GTID_LIST_EVENT,
}

LEFT_BEHIND: Final = "`tidemark repair --anew` leaves it behind, and has all captured tables read again"
"""What helps where the log itself cannot be read further."""
_REFUSALS: Final = {
    INCIDENT_EVENT: (
        "an INCIDENT event: the server itself says that changes are missing from its log here. "
        f"{LEFT_BEHIND}"
    ),
    MARIADB_START_ENCRYPTION_EVENT: (
        "an encrypted part that the server did not decrypt: read it from a server that has the keys"
    ),
}


class Verdict(Enum):
    """What a reader does with an event type."""

    DECODED = "decoded"
    HARMLESS = "harmless"
    REFUSED = "refused"


def classify(kind: int, flags: int, flavour: str) -> Verdict:
    """Return the policy for one event: decode it, pass over it, or stop.

    `flags` are the header's; `flavour` is "mysql" or "mariadb". A type nobody knows is passed over only when
    its writer says so (`LOG_EVENT_IGNORABLE_F`), as the servers themselves do; anything else may carry data.
    """
    if kind >= MARIADB_ANNOTATE_EVENT and flavour != "mariadb":
        return Verdict.REFUSED
    if kind in _DECODED:
        return Verdict.DECODED
    if kind in _HARMLESS:
        return Verdict.HARMLESS
    if kind in _REFUSALS:
        return Verdict.REFUSED
    return Verdict.HARMLESS if flags & FLAG_IGNORABLE else Verdict.REFUSED


def refusal(kind: int, flavour: str) -> str:
    """Return why an event that `classify` refuses stops the reader, and what to do about it."""
    if kind in _REFUSALS:
        return f"the log holds {_REFUSALS[kind]}"
    return (
        f"the log of this {flavour} server holds an event of unknown type {kind}, which may carry data: "
        f"reading on could lose rows. A newer version of Tidemark may know it"
    )
