"""Events of large transactions that wait for their order: lists of events enter, collections that are read from disk leave.

A transaction waits until no earlier one may come of another source. Its events are in a file without a name meanwhile, in the
folder for temporary files (TMPDIR). The file goes with the last of its collections, and with the process.
"""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

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


class EventSpill:
    """A file of events. Use it in one thread. `OSError`, with the folder: it cannot be written."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tidemark-task-")  # noqa: SIM115 - closed with its last collection
        weakref.finalize(self, self._file.close)
        self._end = 0

    def spilled(self, events: Collection[T]) -> Collection[T]:
        """Return the events as a collection that has them on disk."""
        data = pickle.dumps(list(events), pickle.HIGHEST_PROTOCOL)
        begin = self._end
        try:
            self._file.seek(begin)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            message = f"rows of a large transaction cannot be kept in {tempfile.gettempdir()} (TMPDIR): {error.strerror}"
            raise OSError(error.errno, message) from error
        self._end += len(data)
        return _Spilled(self, begin, len(data), len(events))

    def read(self, begin: int, size: int) -> bytes:
        """Return bytes that were written."""
        self._file.seek(begin)
        return self._file.read(size)


class _Spilled(Collection[T], Generic[T]):
    """Events in a file, read again by each iteration."""

    __slots__ = ("_begin", "_count", "_size", "_spill")

    def __init__(self, spill: EventSpill, begin: int, size: int, count: int) -> None:
        self._spill = spill
        self._begin = begin
        self._size = size
        self._count = count

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def __iter__(self) -> Iterator[T]:
        return iter(pickle.loads(self._spill.read(self._begin, self._size)))  # noqa: S301 - bytes that this process wrote

    @override
    def __contains__(self, event: object) -> bool:
        return any(event == one for one in self)
