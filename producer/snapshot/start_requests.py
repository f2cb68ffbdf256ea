"""What a start of the producer asks for: the initial snapshot, and all tables again where a stretch of the log was lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from producer.snapshot.snapshot_state import State
from schemas.documents import Origin
from schemas.errors import SourceError

if TYPE_CHECKING:
    from producer.snapshot.shared_ledger import SharedLedger

INITIAL_REQUEST: Final = "initial"
_NO_WINDOWS: Final = (
    "the initial snapshot, and that after a lost stretch of the log, needs a signal table: set source.signal_table (for "
    "example shop.tidemark_signal) or source.read_only, or snapshot.consistency: one_transaction; "
    "snapshot.mode: no_data reads no tables at a first start"
)


class StartRequests:
    """Requests of a start. `in_one_view`: their tables are read in one view; else windows are needed (`has_windows`)."""

    def __init__(self, shared: SharedLedger, *, in_one_view: bool, has_windows: bool) -> None:
        self._shared = shared
        self._in_one_view = in_one_view
        self._has_windows = has_windows

    def request_initial(self, tables: Iterable[str], request: str = INITIAL_REQUEST) -> None:
        """Ask for the snapshot of a start, once; a restart continues it by itself.

        At every start (another `request` each time): nothing is asked for while an earlier one is unfinished.
        """
        self._require_means()
        shared = self._shared
        with shared.changed:
            requests = shared.ledger.requests
            running = any(r.origin is Origin.INITIAL and not r.state.final for r in requests.values())
            if request not in requests and not running:
                reason = "first start" if request == INITIAL_REQUEST else "start"
                self._submit(tables, request, reason)

    def start_over(self, tables: Iterable[str], request: str, reason: str) -> None:
        """Read all tables again: a stretch of the log is lost, so whatever was read is void."""
        self._require_means()
        with self._shared.changed:
            self._shared.ledger.abandon(reason)
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

    def _submit(self, tables: Iterable[str], request: str, reason: str) -> None:
        chosen = [(table, None) for table in tables]
        requests = self._shared.ledger.requests
        requests.submit(request, Origin.INITIAL, chosen, reason=reason, blocking=self._in_one_view)
        self._shared.changed.notify_all()

    def _require_means(self) -> None:
        if not (self._in_one_view or self._has_windows):
            raise SourceError(_NO_WINDOWS)
