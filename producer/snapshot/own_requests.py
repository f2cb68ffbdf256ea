"""What the producer itself asks for: the snapshots of a start, and tables whose changes the log does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.snapshot_state import State
from schemas.documents import Origin
from schemas.errors import SourceError

if TYPE_CHECKING:
    from producer.snapshot.shared_ledger import SharedLedger

log = structlog.get_logger(__name__)

WAITS_FOR_WINDOWS: Final = "it waits for a signal table: set source.signal_table"
INITIAL_REQUEST: Final = "initial"
_NO_WINDOWS: Final = (
    "the initial snapshot, and that after a lost stretch of the log, needs a signal table: set source.signal_table (for "
    "example shop.tidemark_signal) or source.read_only, or snapshot.consistency: one_transaction; "
    "snapshot.mode: no_data reads no tables at a first start"
)


class OwnRequests:
    """Requests of the producer. `in_one_view`: tables of a start are read in one view; all others need windows (`has_windows`)."""

    def __init__(self, shared: SharedLedger, *, in_one_view: bool, has_windows: bool) -> None:
        self._shared = shared
        self._in_one_view = in_one_view
        self._has_windows = has_windows

    def request_initial(self, tables: Iterable[str], request: str = INITIAL_REQUEST) -> None:
        """Ask for the snapshot of a start, once; a restart continues it by itself.

        At every start (another `request` each time): nothing is asked for while an earlier one is unfinished.
        """
        self._require_means()
        with self._shared.changing() as ledger:
            running = any(r.origin is Origin.INITIAL and not r.state.final for r in ledger.requests.values())
            if request not in ledger.requests and not running:
                reason = "first start" if request == INITIAL_REQUEST else "start"
                self._submit(tables, request, reason)

    def start_over(self, tables: Iterable[str], request: str, reason: str) -> None:
        """Read all tables again: a stretch of the log is lost, so whatever was read is void."""
        self._require_means()
        with self._shared.changing() as ledger:
            ledger.abandon(reason)
            self._submit(tables, request, reason)

    def restart_unfinished(self) -> None:
        """Read unfinished tables from their first chunk: the log continues at another server."""
        with self._shared.changed:
            self._shared.ledger.restart_unfinished()

    def initial_ended(self) -> bool:
        """Return whether the snapshot of the first start has ended, and its end is written."""
        with self._shared.changed:
            request = self._shared.ledger.requests.get(INITIAL_REQUEST)
            return request is not None and request.state.final and not self._shared.ledger.outbox.has_news

    def require_initial(self) -> None:
        """Raise `SourceError` when a table of the first start's snapshot could not be read."""
        with self._shared.changed:
            request = self._shared.ledger.requests.get(INITIAL_REQUEST)
        if request is not None and request.state.final and request.state is not State.DONE:
            message = (
                f"the snapshot is {request.state}: {request.error or 'stopped by a signal'}. Read the tables with "
                f"a signal (snapshot.mode: no_data), or start under another name"
            )
            raise SourceError(message)

    def request_table(self, table: str, reason: str) -> None:
        """Ask for a whole-table snapshot because the log does not have all of its changes; asked twice is once.

        Where windows cannot be opened it waits for a start that has a signal table: the sink is wrong until then.
        """
        waits_for = "" if self._has_windows else WAITS_FOR_WINDOWS
        if waits_for:
            log.error("snapshot.impossible", table=table, reason=reason, fix="set source.signal_table")
        with self._shared.changing() as ledger:
            ledger.requests.submit_automatic(table, reason, waits_for=waits_for)

    def cancel_others(self, holds_data: Callable[[str, str], bool]) -> None:
        """Read no more of tables that the settings do not name any longer: nobody would follow their changes."""
        with self._shared.changed:
            self._shared.ledger.cancel_others(lambda table: holds_data(*self._shared.table_id(table)))

    def wait_for_windows(self) -> None:
        """Note that unfinished tables cannot be read without a signal table."""
        with self._shared.changed:
            waiting = self._shared.ledger.requests.wait_for(WAITS_FOR_WINDOWS)
        if waiting:
            log.error("snapshot.impossible", tables=waiting, reason="it was begun", fix="set source.signal_table")

    def _submit(self, tables: Iterable[str], request: str, reason: str) -> None:
        chosen = [(table, None) for table in tables]
        requests = self._shared.ledger.requests
        requests.submit(request, Origin.INITIAL, chosen, reason=reason, blocking=self._in_one_view)

    def _require_means(self) -> None:
        if not (self._in_one_view or self._has_windows):
            raise SourceError(_NO_WINDOWS)
