"""How often Spark looks for new records: `spark.trigger_s` apart under load, and twice a second after a quiet time.

Spark has one interval for two things: how long after the begin of a batch the next one may begin, and how often it looks for
records while there are none (`ProcessingTimeExecutor`, Spark 4.1). With that alone a change after a quiet time waits for the next
multiple of the interval, for nothing. Spark reads the interval from a field before each look, so the field is changed while the
query runs. A query starts with `spark.trigger_s`, and keeps it where the field cannot be changed (another Spark).

Spark computes the time of its next look as `now / interval * interval + interval`, and reads the field each time. So the field is
made larger only while a batch runs, when Spark's thread waits for it: between the two readings it would give a time that is years
ahead. Made smaller there, it gives a time in the past, which is a look at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger()

LOOK_MS: Final = 500
"""From one look for records to the next, after a quiet time."""
MOST_BATCHES: Final = 8
"""About as many batches may begin at once within as many intervals."""
_LATE_S: Final = 0.5
"""A batch may begin that much after its time, and there was no quiet time."""
_LOOKS_SHARE: Final = 10
"""A look that takes long (many topics, a broker that is far) is made less often: a tenth of the time is for looks."""


class Interval(Protocol):
    """The interval of a trigger that runs."""

    def set_ms(self, interval_ms: int) -> None:
        """Have the trigger use this interval. The time of the next look is fixed already: the one after it is the first."""

    def look_ms(self) -> int | None:
        """Return how many milliseconds a look takes, by the last progress that Spark reported; None where it has reported none."""


class TriggerPace:
    """Chooses the interval of one query, from the batches that began. Its methods may be called from any thread.

    An error of Spark's is logged once; the interval stays as it is then.
    """

    def __init__(
        self, trigger_s: int, interval_of: Callable[[StreamingQuery], Interval | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trigger_ms = self._interval_ms = trigger_s * 1_000
        self._interval_of = interval_of
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: deque[float] = deque(maxlen=MOST_BATCHES)
        self._ended: float | None = None
        self._runs = self._is_busy = False
        self._interval: Interval | None = None
        self._is_closed = trigger_s * 1_000 <= LOOK_MS

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Note a batch, from its begin to its end. Spark's thread waits meanwhile, so the interval may become larger."""
        with self._lock:
            self._begun.append(self._clock())
            self._runs = True
            window_s = MOST_BATCHES * self._trigger_ms / 1_000
            self._is_busy |= len(self._begun) == MOST_BATCHES and self._clock() - self._begun[0] < window_s
            self._choose(lambda wanted_ms: wanted_ms > self._interval_ms)
        try:
            yield
        finally:
            with self._lock:
                self._runs, self._ended = False, self._clock()

    def look(self, query: StreamingQuery) -> None:
        """Have this query look more often where a look at its time has found nothing."""
        with self._lock:
            if not self._runs and (self._ended is None or self._clock() - self._ended > self._trigger_ms / 1_000 + _LATE_S):
                self._is_busy = False
            self._choose(lambda wanted_ms: wanted_ms < self._interval_ms, query)

    def close(self) -> None:
        """Leave the query alone from now on, and do not keep it in memory."""
        with self._lock:
            self._is_closed, self._interval = True, None

    def _choose(self, may_set: Callable[[int], bool], query: StreamingQuery | None = None) -> None:
        if self._is_closed:
            return
        try:
            if self._interval is None and query is not None:
                self._interval = self._interval_of(query)
            if self._interval is None:
                return
            wanted_ms = self._trigger_ms if self._is_busy else self._quick_ms(self._interval.look_ms())
            if may_set(wanted_ms):
                self._interval.set_ms(wanted_ms)
                self._interval_ms = wanted_ms
        except (Py4JError, PySparkException, AttributeError) as error:
            self._is_closed, self._interval = True, None
            log.info("merge.trigger_kept", interval_ms=self._interval_ms, reason=str(error).partition("\n")[0])

    def _quick_ms(self, look_ms: int | None) -> int:
        """Return the interval after a quiet time; that of now where it is not known how long a look takes."""
        return self._interval_ms if look_ms is None else min(max(LOOK_MS, _LOOKS_SHARE * look_ms), self._trigger_ms)


def interval_of(query: StreamingQuery) -> Interval | None:
    """Return the interval of a query that runs; None where its trigger is not there yet. Raises `Py4JError` where it has none."""
    execution: Any = query._jsq.streamingQuery()  # noqa: SLF001 - PySpark has no other way to the query
    executor = _field(execution, "triggerExecutor").get(execution)
    return None if executor is None else _JavaInterval(execution, executor, _field(executor, "intervalMs"))


class _JavaInterval:
    def __init__(self, execution: Any, executor: Any, field: Any) -> None:
        self._execution = execution
        self._executor = executor
        self._field = field

    def set_ms(self, interval_ms: int) -> None:
        self._field.setLong(self._executor, interval_ms)

    def look_ms(self) -> int | None:
        progress = self._execution.lastProgress()
        return None if progress is None else progress.durationMs().get("latestOffset")


def _field(owner: Any, name: str) -> Any:
    """Return a field of an object of Java that may be read and written. Raises `Py4JError` where there is none."""
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field
