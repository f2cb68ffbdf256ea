"""How often Spark looks for new records: `spark.trigger_s` apart under load, and twice a second after a quiet time.

Spark has one interval for two things: how long after the begin of a batch the next one may begin, and how often it looks for
records while there are none (`ProcessingTimeExecutor`, Spark 4.1). With that alone a change after a quiet time waits for the next
multiple of the interval, for nothing. Spark reads the interval from a field before each look, so the field is changed while the
query runs. Another Spark may have no such field: its queries have `spark.trigger_s` for both.
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
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger()

LOOK_MS: Final = 500
"""From one look for records to the next, after a quiet time."""
MOST_BATCHES: Final = 8
"""Of so many intervals there may be so many batches that begin at once."""
_LOOK_TAKES_S: Final = 0.5
_SHARE: Final = 25
"""A look that takes long (many topics, a broker that is far) is made less often: at most a 25th of the time is for looks."""
_PACKAGE: Final = "org.apache.spark.sql.execution.streaming.runtime"
_OF_QUERY: Final = "triggerExecutor"
_OF_EXECUTOR: Final = "intervalMs"


class Interval(Protocol):
    """The interval of a trigger that runs."""

    def set_ms(self, interval_ms: int) -> None:
        """Have the trigger use this interval from its next look on. Raises `Py4JError` where the JVM has ended."""

    def look_ms(self) -> int:
        """Return the milliseconds that the last look took of which Spark has told; 0 where it has told of none."""


class TriggerPace:
    """Chooses the interval of one query, from the batches that began. Its methods may be called from any thread."""

    def __init__(
        self, trigger_s: int, interval_of: Callable[[StreamingQuery], Interval | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trigger_ms = trigger_s * 1_000
        self._interval_of = interval_of
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: deque[float] = deque(maxlen=MOST_BATCHES)
        self._ended: float | None = None
        self._interval: Interval | None = None
        self._is_slow: bool | None = None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Note a batch, from its begin to its end."""
        with self._lock:
            self._begun.append(self._clock())
            self._ended = None
            self._choose()
        try:
            yield
        finally:
            self._ended = self._clock()

    def look(self, query: StreamingQuery) -> None:
        """Choose for this query from now on, and again: the load may have become less."""
        with self._lock:
            self._interval = self._interval or self._interval_of(query)
            self._choose()

    def _choose(self) -> None:
        is_slow = not self._is_quiet() if self._is_slow else self._is_busy()
        if self._interval is None or is_slow == self._is_slow:
            return
        quick_ms = min(max(LOOK_MS, _SHARE * self._interval.look_ms()), self._trigger_ms) if not is_slow else 0
        self._interval.set_ms(self._trigger_ms if is_slow else quick_ms)
        self._is_slow = is_slow

    def _is_busy(self) -> bool:
        """Return whether batches come more often than they may in the long run."""
        window_s = MOST_BATCHES * self._trigger_ms / 1_000
        return len(self._begun) == MOST_BATCHES and self._clock() - self._begun[0] < window_s

    def _is_quiet(self) -> bool:
        """Return whether a look at its time found nothing: a short pause between batches under load is none."""
        return self._ended is not None and self._clock() - self._ended > self._trigger_ms / 1_000 + _LOOK_TAKES_S


def pace_of(spark: SparkSession, trigger_s: int) -> tuple[str, TriggerPace | None]:
    """Return the interval to start a query with, and what changes it then; None where it cannot be changed, or need not."""
    if trigger_s * 1_000 <= LOOK_MS or not _can_change(spark):
        return f"{trigger_s} seconds", None
    return f"{LOOK_MS} milliseconds", TriggerPace(trigger_s, _interval_of)


def _interval_of(query: StreamingQuery) -> Interval | None:
    """Return the interval of a query that runs; None where its trigger is not there yet."""
    execution: Any = query._jsq.streamingQuery()  # noqa: SLF001 - PySpark has no other way to the query
    executor = _field(execution.getClass(), _OF_QUERY).get(execution)
    return None if executor is None else _JavaInterval(query, executor, _field(executor.getClass(), _OF_EXECUTOR))


class _JavaInterval:
    def __init__(self, query: StreamingQuery, executor: Any, field: Any) -> None:
        self._query = query
        self._executor = executor
        self._field = field

    def set_ms(self, interval_ms: int) -> None:
        self._field.setLong(self._executor, interval_ms)

    def look_ms(self) -> int:
        try:
            progress: Any = self._query.lastProgress
        except PySparkException:
            return 0
        return int((progress or {}).get("durationMs", {}).get("latestOffset", 0))


def _can_change(spark: SparkSession) -> bool:
    """Return whether this Spark has the fields, so that a query may begin with a short interval."""
    java: Any = spark._jvm  # noqa: SLF001 - there is no other way to a class of Java
    try:
        _field(java.Class.forName(f"{_PACKAGE}.MicroBatchExecution"), _OF_QUERY)
        _field(java.Class.forName(f"{_PACKAGE}.ProcessingTimeExecutor"), _OF_EXECUTOR)
    except (Py4JError, AttributeError, TypeError) as error:
        log.debug("merge.trigger_unknown", reason=str(error).partition("\n")[0])
        return False
    return True


def _field(kind: Any, name: str) -> Any:
    """Return a field of a Java class that may be read and written. Raises `Py4JError` where there is none."""
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field
