"""The load guard: one thread that asks the source how loaded it is, and holds planning and reading while that is too much.

It asks once a second on a connection of its own, and only while there is something to read. From the first request on nothing is
read before the first answer. What the source does not say (no right to ask, no replica) is logged once and holds nobody. If it
cannot be asked at all, the last verdict holds for `PATIENCE_S`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.connection import close_quietly
from producer.snapshot.failures import EXPECTED, described
from producer.snapshot.load_limits import LAG, THREADS, LoadJudge, LoadLimits
from producer.snapshot.shared_ledger import SharedLedger
from producer.source.server_load import Measured, replica_lag_s, threads_running

if TYPE_CHECKING:
    from collections.abc import Callable

    from mysqlio.connection import Connection
    from producer.snapshot.table_access import TableAccess
    from schemas.settings import PauseWhen

__all__ = ["LoadGuard", "LoadLimits"]

log = structlog.get_logger(__name__)

INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 30.0
NOT_ASKED: Final = "the load of the source is not known yet"
_ASK: Final[dict[str, Callable[[Connection], Measured]]] = {THREADS: threads_running, LAG: replica_lag_s}


class LoadGuard:
    """A worker that holds the ledger's readers and releases them; owned by one thread."""

    def __init__(self, shared: SharedLedger, access: TableAccess, settings: PauseWhen) -> None:
        self._shared = shared
        self._access = access
        self._limits = LoadLimits.of(settings)
        self._judge = LoadJudge(self._limits)
        self._connection: Connection | None = None
        self._answered_at = shared.clock()
        self._reported: set[str] = set()
        with shared.changed:
            shared.ledger.hold(NOT_ASKED)

    def run(self) -> None:
        """Ask until the process stops."""
        shared = self._shared
        try:
            while not shared.stopping:
                with shared.changed:
                    has_work = shared.ledger.turns.has_work()
                    if not has_work:
                        shared.ledger.hold(NOT_ASKED)
                        shared.changed.wait_for(lambda: shared.stopping or shared.ledger.turns.has_work(), INTERVAL_S)
                if has_work:
                    self._check()
                    shared.sleep(INTERVAL_S)
                else:
                    self._judge, self._answered_at = LoadJudge(self._limits), shared.clock()
        finally:
            self.break_off()

    def break_off(self) -> None:
        """Close the connection, also under a statement that waits for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    def _check(self) -> None:
        """Ask once, and hold or release the readers."""
        shared = self._shared
        try:
            reason = self._judge.judge(self._figures())
            self._answered_at = shared.clock()
        except EXPECTED as error:
            self.break_off()
            if shared.clock() - self._answered_at < PATIENCE_S:
                return
            self._report("load", described(error))
            reason = ""
        with shared.changed:
            before = shared.ledger.turns.waits_because
            if reason:
                shared.ledger.hold(reason)
            else:
                shared.ledger.release()
            shared.changed.notify_all()
        if reason and before in ("", NOT_ASKED):
            log.info("snapshot.waits_for_source", reason=reason)
        elif before not in ("", NOT_ASKED) and not reason:
            log.info("snapshot.continues")

    def _figures(self) -> dict[str, int | None]:
        """Return what the source says of the figures that have a limit."""
        connection = self._connection = self._connection or self._access.connect()
        figures: dict[str, int | None] = {}
        for name in self._limits.limits:
            measured = _ASK[name](connection)
            figures[name] = measured.value
            if measured.unknown:
                self._report(name, measured.unknown)
        return figures

    def _report(self, figure: str, reason: str) -> None:
        """Log once that a figure is not known: readers are not held by it."""
        if figure not in self._reported:
            self._reported.add(figure)
            log.warning("snapshot.load_unknown", figure=figure, reason=reason)
