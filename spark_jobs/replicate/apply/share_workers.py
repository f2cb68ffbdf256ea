"""The workers of a plan: each applies its share in transactions of its own, which also commit how many of its rows are applied.

A worker runs in a thread of the task (`ShareThreads`), or in another process (`shipped_shares`). A second attempt of a worker
continues behind the first one, also while that one still runs: each transaction locks the row of the worker, and begins behind
`done`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from schemas.errors import FencedError, RetriableSourceError, SinkError
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.row_writer import RefusedRowError, RowWriter

if TYPE_CHECKING:
    from mysqlio.server_access import ServerAccess
    from schemas.settings.task_section import ApplySettings
    from spark_jobs.replicate.rows.row_statements import TextedRow
    from spark_jobs.replicate.rows.row_values import RowDecoder

log = structlog.get_logger()

_ATTEMPTS: Final = 5
"""In a row that may fail: other workers may hold locks, and connections break."""
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What the workers of a task have in common: the target, the task in one epoch, and settings.

    `tables` is another number behind each statement that has run.
    """

    access: ServerAccess
    task: str
    channel: str | None
    epoch: int
    settings: ApplySettings
    tables: int = 0

    @classmethod
    def of(cls, target: ApplyTarget, settings: ApplySettings) -> WorkerSetup:
        """Return the setup of workers that apply to a target, which the task has taken over."""
        return cls(target.access, target.task, target.channel, target.epoch, settings)


class ShareWorker:
    """A worker of the plans of a task in one epoch: a session of its own, for many plans. Use it in one thread."""

    def __init__(self, setup: WorkerSetup, decoder: RowDecoder) -> None:
        self._target = ApplyTarget(setup.access, setup.task, setup.channel, setup.epoch)
        self._writer = RowWriter(self._target, decoder, setup.settings)
        self._most_rows = setup.settings.txn_rows

    def close(self) -> None:
        """Give the connection up."""
        self._target.close()

    def forget_tables(self) -> None:
        """Ask the target for its tables again: a statement has run."""
        self._writer.forget_tables()

    def apply(self, plan: int, worker: int, rows: Sequence[TextedRow], is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Apply the rows of a share that are not applied, in their order, until all are or `is_stopped`.

        After a lost connection or a deadlock it continues behind `done`, as the target has it. `FencedError`: another process has
        the task, or the plan. `SinkError`: the target does not take a row. `RetriableSourceError`: it fails again and again.
        """
        done, failures = 0, 0
        while done < len(rows) and not is_stopped():
            try:
                done, failures = self._apply_some(plan, worker, rows), 0
            except RetriableSourceError as error:
                failures += 1
                if failures >= _ATTEMPTS:
                    raise
                log.info("apply.worker_retried", worker=worker, reason=str(error))
                time.sleep(_PAUSE_S * 2**failures)

    def _apply_some(self, plan: int, worker: int, rows: Sequence[TextedRow]) -> int:
        """Apply the next rows in one transaction; return how many are applied."""
        with self._target.share_transaction(plan, worker) as done:
            some = rows[done : done + self._most_rows]
            if some:
                self._writer.write_texted(some)
                self._target.put_done(worker, done + len(some))
        return done + len(some)


class ShareThreads:
    """The workers of a task as threads. Use it in one thread, and close it."""

    def __init__(self, target: ApplyTarget, decoder: RowDecoder, settings: ApplySettings) -> None:
        self._target = target
        self._decoder = decoder
        self._settings = settings
        self._workers: list[ShareWorker] = []

    def close(self) -> None:
        """Give the connections up."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def forget_tables(self) -> None:
        """Ask the target for its tables again: a statement has run."""
        for worker in self._workers:
            worker.forget_tables()

    def apply(self, plan: int, shares: Sequence[Sequence[TextedRow]]) -> None:
        """Apply all shares. Errors as `ShareWorker.apply`: of several the one whose row is first in its source.

        After an error the other workers end behind the transactions that they are in.
        """
        while len(self._workers) < len(shares):
            self._workers.append(ShareWorker(WorkerSetup.of(self._target, self._settings), self._decoder))
        stop = threading.Event()
        errors: list[BaseException] = []

        def run(number: int) -> None:
            try:
                self._workers[number].apply(plan, number, shares[number], stop.is_set)
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the task
                errors.append(error)
                stop.set()

        threads = [threading.Thread(target=run, args=(number,)) for number, share in enumerate(shares) if share]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise min(errors, key=rank)


def rank(error: BaseException) -> tuple[int, str]:
    """Return the order of errors: one that another attempt may pass comes last."""
    if isinstance(error, FencedError):
        return 0, ""
    if isinstance(error, SinkError):
        return 1, error.first.position if isinstance(error, RefusedRowError) else ""
    return (3, "") if isinstance(error, RetriableSourceError) else (2, "")
