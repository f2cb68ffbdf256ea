"""Heartbeats: a record in `__debezium-heartbeat.<prefix>` every so often, and a statement run on the source with each.

The record is in the Kafka transaction of a checkpoint, so it says that the log was read and published up to there. The
statement runs on a connection and thread of its own: a slow or blocked one never delays the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_errors import ServerError, server_code, source_error
from producer.stream.ports import CheckpointParticipant, CheckpointWork, OutgoingRecord
from schemas.errors import RetriableSourceError, SecretError, SourceError
from schemas.heartbeats import heartbeat_key, heartbeat_value
from schemas.lasting import logged_errors
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.kafka.connect_records import RecordEncoder
    from schemas.position import Position

log = structlog.get_logger(__name__)

_JOIN_S: Final = 5.0
_FAILED: Final = "heartbeat.action_failed"
# SQLSTATE 42000 and 3D000, where Debezium stops as well: no right, no database, not SQL.
_HOPELESS: Final = frozenset({1044, 1046, 1049, 1064, 1142, 1143, 1149, 1227, 1370})


class SourceHeartbeat(CheckpointParticipant):
    """A participant that writes a record with the first checkpoint after each interval. Times in seconds."""

    def __init__(
        self,
        prefix: str,
        interval_s: float,
        encoder: RecordEncoder,
        action: HeartbeatAction | None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._prefix = prefix
        self._interval_s = interval_s
        self._encoder = encoder
        self._action = action
        self._now_ms = now_ms
        self._written_at: float | None = None

    def is_due(self, _boundary: Callable[[], Position] | None, now_s: float) -> bool:
        """Return whether the interval is over; the first begins with the first call."""
        if self._written_at is None:
            self._written_at = now_s
        return now_s - self._written_at >= self._interval_s

    @override
    def prepare(self, _boundary: Position, now_s: float) -> CheckpointWork:
        if not self.is_due(None, now_s):
            return CheckpointWork()
        self._written_at = now_s
        key, value = self._encoder.encode(heartbeat_key(self._prefix), heartbeat_value(self._now_ms()))
        if self._action is not None:
            self._action.request()
        return CheckpointWork(records=(OutgoingRecord(self._encoder.topic, value, key),))


class HeartbeatAction:
    """A thread that runs one statement on the source at each request; requests during a run become one more run."""

    def __init__(self, source: Callable[[], Connection], query: str) -> None:
        self._source = source
        self._query = query
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._failure: SourceError | SecretError | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat-action", daemon=True)

    def start(self) -> None:
        """Start the thread, which waits for requests."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait a few seconds for a statement that is running."""
        self._ended.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def request(self) -> None:
        """Request a run; raise the error of an earlier one that no retry can repair, or of a password that cannot be read."""
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
            is_done = False
            with logged_errors(log.exception, _FAILED):
                try:
                    connection = connection or self._source()
                    with connection.cursor() as cursor:
                        cursor.execute(self._query)
                    is_done = True
                except ServerError as error:
                    self._judge(error)
                except (RetriableSourceError, OSError) as error:
                    log.warning(_FAILED, error=str(error))
                except (SourceError, SecretError) as error:
                    self._failure = error
            if not is_done:
                connection = _close(connection)
        _close(connection)

    def _judge(self, error: ServerError) -> None:
        translated = source_error(error, "records.heartbeat_action_query")
        if server_code(error) in _HOPELESS:
            self._failure = translated
        log.warning(_FAILED, error=str(translated))


def _close(connection: Connection | None) -> Connection | None:
    """Close the connection, if there is one; return None."""
    if connection is not None and connection.open:
        connection.close()
    return None
