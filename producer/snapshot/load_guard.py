"""The load guard: one thread that asks the source how loaded it is, and holds planning and reading while that is too much.

It asks once a second on a connection of its own, and only while there is something to read. From the first request on nothing is
read before the first answer. What the source does not say (no right to ask, no replica) is logged once and holds nobody. If it
cannot be asked at all, the last verdict holds for `PATIENCE_S`. `LoadJudge` is pure: it has a limit to stop at, and a lower one to
continue at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import structlog

from mysqlio.server_errors import described
from producer.snapshot.shared_ledger import SharedLedger
from producer.snapshot.table_access import EXPECTED
from producer.snapshot.workers import ConnectedWorker
from producer.source.server_load import Measured, replica_lag_s, threads_running
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.table_access import TableAccess
    from schemas.settings import PauseWhen

log = structlog.get_logger(__name__)

THREADS: Final = "Threads_running"
LAG: Final = "replica lag in seconds"
CALM_CHECKS: Final = 2
"""So many checks in a row must find every figure below its lower limit before reading continues."""
INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 30.0
NOT_ASKED: Final = "the load of the source is not known yet"
_ASK: Final[dict[str, Callable[[Connection], Measured]]] = {THREADS: threads_running, LAG: replica_lag_s}


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The limits by the name of the figure; without any of them the load does not matter."""

    limits: Mapping[str, int]

    @classmethod
    def of(cls, settings: PauseWhen) -> Self:
        """Return the limits of the settings."""
        limits = {THREADS: settings.threads_running, LAG: settings.replica_lag_s}
        return cls({name: limit for name, limit in limits.items() if limit})

    def __bool__(self) -> bool:
        return bool(self.limits)

    def lower(self, name: str) -> int:
        """Return the limit at which reading continues: four fifths. One thread always runs: the one that asks."""
        return max(1 if name == THREADS else 0, self.limits[name] * 4 // 5)


class LoadJudge:
    """A judge of figures that come one after the other: above a limit readers wait, until all were low for some time."""

    def __init__(self, limits: LoadLimits) -> None:
        self._limits = limits
        self._waits = False
        self._calm = 0

    def judge(self, figures: Mapping[str, int | None]) -> str:
        """Return why readers wait, "" when they need not. An unknown figure (None) does not count."""
        limits = self._limits
        known = {name: value for name in limits.limits if (value := figures.get(name)) is not None}
        above = [f"{name} {value} > {limits.limits[name]}" for name, value in known.items() if value > limits.limits[name]]
        if above:
            self._waits, self._calm = True, 0
            return ", ".join(above)
        if not self._waits:
            return ""
        not_low = [f"{name} {value}, until {limits.lower(name)}" for name, value in known.items() if value > limits.lower(name)]
        self._calm = 0 if not_low else self._calm + 1
        if self._calm >= CALM_CHECKS:
            self._waits = False
            return ""
        low = [f"{name} {value}, low for {self._calm} of {CALM_CHECKS} checks" for name, value in known.items()]
        return ", ".join(not_low or low) or "the load of the source is not known"


class LoadGuard(ConnectedWorker):
    """A worker that holds the ledger's readers and releases them; owned by one thread."""

    def __init__(self, shared: SharedLedger, access: TableAccess, settings: PauseWhen) -> None:
        super().__init__(shared, access)
        self._limits = LoadLimits.of(settings)
        self._judge = LoadJudge(self._limits)
        self._answered_at = shared.clock()
        self._reported: set[str] = set()
        with shared.changed:
            shared.ledger.hold(NOT_ASKED)

    @override
    def _work(self) -> None:
        shared = self._shared
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
        with shared.changing() as ledger:
            before = ledger.turns.waits_because
            if reason:
                ledger.hold(reason)
            else:
                ledger.release()
        if reason and before in ("", NOT_ASKED):
            log.info("snapshot.waits_for_source", reason=reason)
        elif before not in ("", NOT_ASKED) and not reason:
            log.info("snapshot.continues")

    def _figures(self) -> dict[str, int | None]:
        """Return the values of the figures that have a limit."""
        connection = self._connected()
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
