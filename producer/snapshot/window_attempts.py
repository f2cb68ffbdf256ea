"""What workers with windows share: which window is next, within the rate, and what is to be read in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.snapshot.reader import AbandonedError, Assignment
from producer.snapshot.scope import scope_of
from producer.snapshot.shared_ledger import POLL_S, SharedLedger
from schemas import topics
from schemas.documents import Origin

if TYPE_CHECKING:
    from producer.snapshot.snapshot_state import Window


@dataclass(frozen=True, slots=True)
class TopicNames:
    """How the topics of tables are called: the prefix and the delimiter of the settings."""

    prefix: str
    delimiter: str = topics.DELIMITER

    def of(self, table: tuple[str, str], merge: str) -> str:
        """Return the topic of a table's snapshot rows: that of its changes where the producer merges them."""
        name = topics.change_topic if merge == "producer" else topics.snapshot_topic
        return name(self.prefix, *table, self.delimiter)


class WindowAttempts:
    """The attempts of one worker, one after the other. `start` starts a registered window for it; it is called under the lock."""

    def __init__(self, shared: SharedLedger, names: TopicNames, start: Callable[[], Window | None]) -> None:
        self._shared = shared
        self._names = names
        self._start = start
        self.reserved = 0

    def next_window(self) -> Window | None:
        """Return the next window, when there is one and the rate allows it; None when the process stops."""
        shared = self._shared
        with shared.changed:
            while not shared.stopping:
                delay_s = 0.0 if shared.rate is None else shared.rate.wait_s(shared.clock())
                window = None if shared.unfenced or delay_s else self._start()
                if window is not None:
                    self._reserve(window)
                    return window
                shared.changed.wait(min(POLL_S, delay_s or POLL_S))
        return None

    def _reserve(self, window: Window) -> None:
        """Take the rows of the window from the rate; the caller has the lock."""
        shared = self._shared
        if shared.rate is not None:
            self.reserved = shared.ledger.tasks.expected_rows(window)
            shared.rate.reserve(shared.clock(), self.reserved)

    def settle(self, rows: int) -> None:
        """Correct the rate by the rows that were read, whatever became of them."""
        shared = self._shared
        if shared.rate is not None:
            with shared.changed:
                shared.rate.settle(shared.clock(), self.reserved, rows)
                shared.changed.notify_all()

    def assignment(self, window: Window) -> Assignment:
        """Return what is to be read; `AbandonedError` when nobody needs the window any more."""
        shared = self._shared
        with shared.changed:
            task = shared.ledger.tasks.task_of(window)
            if task is None or window.chunk not in task.chunks:
                message = f"window {window.id} is not needed any more"
                raise AbandonedError(message)
            table = shared.table_id(window.table)
            request = shared.ledger.requests.get(window.request)
            initial = request is not None and request.origin is Origin.INITIAL
            return Assignment(
                window=window.id,
                request=window.request,
                table=table,
                topic=self._names.of(table, task.merge),
                chunk=window.chunk,
                bounds=task.chunks[window.chunk].range,
                scope=scope_of(task),
                bound=window.bound,
                key=task.plan.key,
                snapshot="true" if initial else "incremental",
                merge="producer" if task.merge == "producer" else "spark",
            )
