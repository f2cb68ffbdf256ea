"""Which ended requests are still remembered (pure).

Ended requests are remembered for a while, to answer a repeated id and for lists. Those that say of a table that it had to
be read again, and was not, are remembered until it has been: the status calls the table inexact because of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from producer.snapshot.scope import scope_of
from producer.snapshot.snapshot_state import Request, State
from schemas.documents import Origin
from schemas.notifications import TableStatus

if TYPE_CHECKING:
    from producer.snapshot.snapshot_state import TableTask

KEPT_REQUESTS: Final = 100
RESTART_PREFIX: Final = "anew-"
"""The prefix of the ids of requests for all tables where a stretch of the log was lost."""


def forgettable(requests: Mapping[str, Request], tasks: Iterable[TableTask]) -> list[Request]:
    """Return the ended requests that need not be remembered; `tasks` in order of their requests."""
    ended = [request for request in requests.values() if request.state.final]
    old = ended[: max(0, len(ended) - KEPT_REQUESTS)]
    if not old:
        return []
    kept = _inexact(requests, tasks)
    return [request for request in old if request.id not in kept]


def _inexact(requests: Mapping[str, Request], tasks: Iterable[TableTask]) -> set[str]:
    """Return requests because of which tables are inexact, and those that say of others in them that they were read since."""
    unread: dict[str, str] = {}
    read: dict[str, str] = {}
    for task in tasks:
        is_read = task.state is State.DONE and scope_of(task).is_whole_table
        if is_read or task.status == TableStatus.UNKNOWN_SCHEMA:
            unread.pop(task.table, None)
            read[task.table] = task.request
        elif requests[task.request].origin is Origin.AUTOMATIC or task.request.startswith(RESTART_PREFIX):
            unread[task.table] = task.request
    inexact = set(unread.values())
    tables = {table for request in inexact for table in requests[request].tables}
    return inexact | {read[table] for table in tables & read.keys()}
