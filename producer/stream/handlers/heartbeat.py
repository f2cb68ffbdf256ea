"""Heartbeats: a record in `__debezium-heartbeat.<prefix>` every so often, and a statement run on the source with each.

The record stands in the Kafka transaction of a cut, so it says that the log was read and published up to
there. The statement runs on a connection and thread of its own: a slow or blocked one never holds the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pymysql
import structlog

from producer.source.connection import source_error
from schemas.errors import RetriableSourceError, SecretError, SourceError
from schemas.heartbeats import heartbeat_key, heartbeat_value

if TYPE_CHECKING:
    from producer.kafka.connect_records import RecordEncoder
    from producer.source.connection import Connection

log = structlog.get_logger(__name__)

_JOIN_S: Final = 5.0
# SQLSTATE 42000 and 3D000, where Debezium stops as well: no right, no database, not SQL.
_HOPELESS: Final = frozenset({1044, 1046, 1049, 1064, 1142, 1143, 1149, 1227, 1370})


class Heartbeat:
    """Decides when a heartbeat is due and writes it. Owned by the log reader's thread; times in seconds."""

    def __init__(
        self,
        prefix: str,
        interval_s: float,
        encoder: RecordEncoder,
        produce: Callable[[str, bytes, bytes], None],
        action: HeartbeatAction | None,
    ) -> None:
        self._prefix = prefix
        self._interval_s = interval_s
        self._encoder = encoder
        self._produce = produce
        self._action = action
        self._written_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether the interval is over; the first begins with the first question."""
        if self._written_at is None:
            self._written_at = now
        return now - self._written_at >= self._interval_s

    def write(self, now: float, now_ms: int) -> None:
        """Write the record if it is due, and ask for the statement; raises what made the statement hopeless."""
        if not self.is_due(now):
            return
        self._written_at = now
        key, value = self._encoder.encode(heartbeat_key(self._prefix), heartbeat_value(now_ms))
        self._produce(self._encoder.topic, value, key)
        if self._action is not None:
            self._action.request()


class HeartbeatAction:
    """Runs one statement on the source whenever it is asked to; requests during a run become one more run."""

    def __init__(self, source: Callable[[], Connection], query: str) -> None:
        self._source = source
        self._query = query
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._failure: SourceError | SecretError | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat-action", daemon=True)

    def start(self) -> None:
        """Begin to wait for requests."""
        self._thread.start()

    def stop(self) -> None:
        """Run nothing any more; a statement that is running is waited for a few seconds."""
        self._ended.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def request(self) -> None:
        """Ask for a run; raises what an earlier one failed of for good, and a password that could not be read."""
        if self._failure is not None:
            raise self._failure
        self._wanted.set()

    def _run(self) -> None:
        connection: Connection | None = None
        while not self._ended.is_set() and self._failure is None:
            self._wanted.wait()
            self._wanted.clear()
            if self._ended.is_set():
                break
            try:
                connection = connection or self._source()
                with connection.cursor() as cursor:
                    cursor.execute(self._query)
            except pymysql.MySQLError as error:
                self._judge(error)
                connection = _close(connection)
            except (RetriableSourceError, OSError) as error:
                log.warning("heartbeat.action_failed", error=str(error))
                connection = _close(connection)
            except (SourceError, SecretError) as error:
                self._failure = error
        _close(connection)

    def _judge(self, error: pymysql.MySQLError) -> None:
        told = source_error(error, "records.heartbeat_action_query")
        if error.args and error.args[0] in _HOPELESS:
            self._failure = told
        log.warning("heartbeat.action_failed", error=str(told))


def _close(connection: Connection | None) -> Connection | None:
    """Close a connection that is there; what is left is none."""
    if connection is not None and connection.open:
        connection.close()
    return None
