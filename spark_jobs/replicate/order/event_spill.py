"""Events of large transactions that wait for their order: lists of events enter, collections that are read from disk leave.

A transaction waits until no earlier one may come of another source. Its events are in a file without a name meanwhile, in the
folder for temporary files (TMPDIR). The file goes with the last of its collections, and with the process.
"""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from schemas.overriding import override

if TYPE_CHECKING:
    from spark_jobs.replicate.order.frontier import LoggedEvents
    from spark_jobs.replicate.order.log_order import Event, LogOrder
    from spark_jobs.replicate.order.stream_reader import KafkaTransaction

T = TypeVar("T")


class SourceSpill:
    """The events of the Kafka transactions of one source: of large ones, and of parts of one, they are on disk."""

    def __init__(self, order: LogOrder) -> None:
        self._order = order
        self._spill: EventSpill | None = None

    def logged(self, transaction: KafkaTransaction) -> Iterator[LoggedEvents[Event]]:
        """Yield the events of a Kafka transaction, or of a slice. Errors as `LogOrder.logged`, and `EventSpill`."""
        logged, spill = self._order.logged(transaction), self._spill
        if transaction.open or transaction.commit.open is not None:
            spill = self._spill = spill or EventSpill()
        else:
            self._spill = None
        for one in logged:
            yield one if spill is None else one._replace(events=spill.spilled(one.events))
        if spill is not None:
            transaction.records.clear()  # the caller has the transaction until its events are applied


class EventSpill:
    """A file of events. Use it in one thread. `OSError`, with the folder: it cannot be written."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tidemark-task-")  # noqa: SIM115 - closed with its last collection
        weakref.finalize(self, self._file.close)
        self._end = 0

    def spilled(self, events: Collection[T]) -> Collection[T]:
        """Return the events as a collection that has them on disk."""
        begin = self._end
        try:
            self._file.seek(begin)
            pickle.dump(list(events), self._file, pickle.HIGHEST_PROTOCOL)  # large values are not copied
            self._file.flush()
        except OSError as error:
            message = f"rows of a large transaction cannot be kept in {tempfile.gettempdir()} (TMPDIR): {error.strerror}"
            raise OSError(error.errno, message) from error
        self._end = self._file.tell()
        return _Spilled(self, begin, len(events))

    def read(self, begin: int) -> Iterator[Any]:
        """Return the events that were written there."""
        self._file.seek(begin)
        return iter(pickle.load(self._file))  # noqa: S301 - bytes that this process wrote


class _Spilled(Collection[T], Generic[T]):
    """Events in a file, read again by each iteration."""

    __slots__ = ("_begin", "_count", "_spill")

    def __init__(self, spill: EventSpill, begin: int, count: int) -> None:
        self._spill = spill
        self._begin = begin
        self._count = count

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def __iter__(self) -> Iterator[T]:
        return self._spill.read(self._begin)

    @override
    def __contains__(self, event: object) -> bool:
        return any(event == one for one in self)
