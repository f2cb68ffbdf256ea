"""The ledger: everything the snapshot side knows, and how each event changes it (pure).

Events come from three sides: the log (signals, window rows, DDL, checkpoints), the planner and the chunk readers. Nothing
here blocks, sleeps or does I/O. The ledger is composed of parts; each owns its state, and is called by itself::

    outbox           what leaves with the next checkpoint: changed documents, markers, notifications
    windows          the window register, and the horizon
    requests         who asked for what, and the tasks of its tables
    followed         tasks of key rows, whose parents changed
    tasks            the life of a task and its chunks: planned, read, retried, complete, failed
    loads            tasks whose rows the merge job reads itself
    turns            which chunks are planned, registered and read next

The ledger itself has the calls that concern several parts, and the documents they survive a restart as.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from producer.snapshot.asked_loads import AskedLoads, LoadRule
from producer.snapshot.followed_rows import FollowedRows
from producer.snapshot.outbox import CheckpointOutbox, MarkerDraft, SnapshotWork
from producer.snapshot.requests import NOT_CAPTURED, SnapshotRequests
from producer.snapshot.snapshot_state import ReadTask, Request, State, Window
from producer.snapshot.tasks import TableTasks
from producer.snapshot.turns import Turns
from producer.snapshot.window_register import WindowRegister, void
from schemas.errors import is_of_one_table
from schemas.json_codec import encode
from schemas.notifications import ScanStatus
from schemas.position import Position
from schemas.state import parse

if TYPE_CHECKING:
    from producer.snapshot.pace import ChunkSizes

__all__ = ["LedgerOptions", "MarkerDraft", "SnapshotLedger", "SnapshotWork"]


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """What the settings say about requests and tables.

    `merge` is who merges the rows of requests that do not say it; `field_name` returns the name of a column in records.
    `sets_aside`: a table that cannot be published is set aside; else it stops the producer. `sizes` is the rule for the sizes
    of chunks, None if they stay as planned. `loads` says which tables the merge job reads itself, `load_workers` how many
    chunks it is asked for at a time.
    """

    merge: str = "spark"
    field_name: Callable[[str], str] = str
    sets_aside: bool = False
    sizes: ChunkSizes | None = None
    loads: LoadRule = field(default_factory=LoadRule)
    load_workers: int = 0


class SnapshotLedger:
    """The parts of the ledger, composed. `name` is the connector's; `readers` is how many chunks are read at a time."""

    def __init__(
        self,
        name: str,
        readers: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        options: LedgerOptions | None = None,
    ) -> None:
        options = options or LedgerOptions()
        self.outbox = CheckpointOutbox()
        self.windows = WindowRegister(self.outbox, readers, new_id)
        self.requests = SnapshotRequests(name, self.outbox, self.windows, now_ms, new_id, options.merge)
        self.followed = FollowedRows(self.requests, self.windows, self.outbox, now_ms, new_id)
        self.tasks = TableTasks(
            self.requests, self.followed, self.windows, self.outbox, options.field_name, options.sizes
        )
        self.loads = AskedLoads(options.loads, self.tasks, self.windows, self.outbox)
        self.turns = Turns(self.tasks, self.requests, self.followed, self.windows, readers, options.load_workers)
        self._sets_aside = options.sets_aside
        self._unpublishable: dict[str, str] = {}

    # ---- checkpoints

    def restore(self, documents: Mapping[str, Any]) -> int:
        """Adopt an earlier process's documents; return how many slots it may have had."""
        requests, tasks = [], []
        for key, document in documents.items():
            if key.startswith(Request.PREFIX):
                requests.append(parse(Request, key, document))
            elif key.startswith(ReadTask.PREFIX):
                tasks.append(parse(ReadTask, key, document))
            elif key.startswith(ReadTask.CHILDREN):
                self.followed.restore(parse(ReadTask, key, document))
            elif key.startswith(Window.PREFIX):
                self.windows.restore(parse(Window, key, document))
        self.requests.restore(requests, tasks)
        self.loads.check(self.requests.unfinished())
        return max((window.readers for window in self.windows.values()), default=0)

    def prepare(self, boundary: Position, now_s: float) -> SnapshotWork:
        """Return the contribution to the log reader's Kafka transaction; `boundary` is the position it commits."""
        for window in self.windows.closable(boundary):
            if window.buffered is None:  # else its rows are not written yet
                self.windows.opened(window, boundary)
                self.tasks.close(window, boundary)
        self.turns.register(boundary, now_s)
        self.requests.report_pauses()
        self.windows.forget_ended()
        self.requests.forget_old()
        kept: list[Window | Request | ReadTask] = [*self.windows.values(), *self.requests.values(), *self.tasks.all()]
        documents = {one.key: one for one in kept}
        return self.outbox.drain(lambda key: _form(documents.get(key)), self.windows.horizon(boundary), now_s)

    def wants_checkpoint(self, now_s: float, boundary: Position | None = None) -> bool:
        """Return whether somebody waits for what only a checkpoint gives; `boundary` is the position it would commit."""
        if boundary is not None and self.windows.closable(boundary):
            return True
        if self._unpublishable or (self.requests.aside and self.asked_for_aside()):
            return True
        return self.outbox.wants_checkpoint(now_s) or self.turns.needs_windows(now_s)

    # ---- the log

    def table_changed(self, table: str, position: Position) -> None:
        """Void the windows that are open across a DDL statement of the table at `position`."""
        self.tasks.table_changed(table, position)
        self.windows.table_changed(table, position)

    def abandon(self, reason: str) -> None:
        """Cancel everything unfinished: the log does not continue at its former position."""
        for task in self.requests.unfinished():
            self.requests.cancel(task, reason)
        for task in list(self.followed.values()):
            self.followed.forget(task)

    def cancel_others(self, is_captured: Callable[[str], bool]) -> None:
        """Cancel the unfinished tasks of tables that are not captured any more."""
        for task in self.requests.unfinished():
            if not is_captured(task.table):
                self.requests.cancel(task, NOT_CAPTURED)
        for task in list(self.followed.values()):
            if not is_captured(task.table):
                self.followed.forget(task)

    def restart_unfinished(self) -> None:
        """Read every unfinished table from its first chunk.

        The log continues at another server, which may lack the last commits of the former one: chunks that were read and
        not closed may have rows that never were. Only a whole snapshot in the new epoch sweeps them (DESIGN §4).
        """
        for task in self.requests.unfinished():
            self.tasks.replan(task)
        self.followed.restart()

    # ---- the load of the source

    def hold(self, reason: str) -> None:
        """Start no more chunks for that reason, until `release`. Running windows end by themselves, the others are withdrawn."""
        if not self.turns.waits_because:
            for task in self.tasks.all():
                self.windows.withdraw(task)
        self.turns.waits_because = reason

    def release(self) -> None:
        """Continue to start chunks."""
        self.turns.waits_because = ""

    # ---- tables that are set aside

    def set_aside(self, table: str, reason: str) -> None:
        """Read nothing of a table until it is taken up: its changes are not published meanwhile, and it is read whole then."""
        self.requests.aside[table] = reason
        self.refuse_aside(table)

    def refuse_aside(self, table: str) -> None:
        """End the tasks of a table that still cannot be published."""
        reason = f"{table} is set aside: {self.requests.aside[table]}"
        for task in [task for task in self.requests.unfinished() if task.table == table]:
            void(task)
            self.requests.finish(task, State.FAILED, ScanStatus.SKIPPED, reason)
        for task in [task for task in self.followed.values() if task.table == table]:
            self.followed.forget(task)

    def asked_for_aside(self) -> set[str]:
        """Return the tables set aside that somebody wants to have read: whether they can be has to be found out."""
        return {task.table for task in self.requests.unfinished() if task.table in self.requests.aside}

    def cannot_publish(self, task: ReadTask, error: BaseException, words: str) -> bool:
        """Return whether the error is one for which a table is set aside; if so, end the task and have the log reader do it."""
        if not (self._sets_aside and is_of_one_table(error)):
            return False
        self._unpublishable[task.table] = words
        if not task.state.final:
            self.tasks.owner(task).finish(task, State.FAILED, ScanStatus.SKIPPED, words)
        return True

    def drain_unpublishable(self) -> dict[str, str]:
        """Return the tables that readers found to be unfit to be published, and why; each once."""
        tables, self._unpublishable = self._unpublishable, {}
        return tables


def _form(document: Window | Request | ReadTask | None) -> Mapping[str, Any] | None:
    """Return the JSON form of a document as it is now."""
    if isinstance(document, ReadTask):
        document.note_outstanding()
    form: Mapping[str, Any] | None = None if document is None else encode(document)
    return form
