"""The producer's liveness record, and how long changes take to Kafka: documents of the state topic, by a client of their own.

It says what the producer does, or waits for, even while no log is read: the log reader's Kafka transactions are idle while the
source is, and do not exist while the producer waits for a server. A start does not resume from it, nor from the delays.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import structlog

from kafkaio.record_writer import RecordWriter
from producer.group.joined_source import waits_in_group
from producer.standstill import Standstill
from schemas import topics
from schemas.delay_histogram import RecentDelays
from schemas.errors import FencedError, PublishError, SecretError
from schemas.lasting import logged_errors
from schemas.liveness import EVERY_S, SIGN_KEY, Sign, machine
from schemas.state import partition_of, value_of

if TYPE_CHECKING:
    from producer.app import Producer
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

STILL_S: Final = 15.0
"""How long the log reader may read nothing before the sign says that it waits."""
_DELAYS_EVERY_S: Final = 5.0
_BROKER_S: Final = 5.0
_LAST_S: Final = 2.0
_NOT_WRITTEN: Final = "producer.liveness_not_written"
_STARTING: Final = "it connects to the source, Kafka and the registry"


class LivenessWriter:
    """A thread that writes the sign while it is entered, and at the end why the producer ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = topics.state_topic(settings.name, settings.kafka.topic_delimiter)
        self._ended = threading.Event()
        self._client: RecordWriter | None = None
        self._producer: Producer | None = None
        self._standstill = Standstill()
        self._said: tuple[str, str] = ("", "")
        self._since_ms = 0
        self._in_kafka_known_ms = 0
        self._delays_written: dict[str, int] = {}
        self._delays_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(_LAST_S)
        if self._client is not None and kind is not FencedError:  # the producer that took over writes the signs now
            with logged_errors(log.exception, _NOT_WRITTEN):  # such an error is not why the producer ended
                try:
                    self._write("ended", "" if error is None else (str(error).splitlines() or [type(error).__name__])[0])
                    self._delays_at = float("-inf")
                    self._write_delays()
                    self._client.flush(_LAST_S)
                except PublishError as failure:
                    log.debug(_NOT_WRITTEN, reason=str(failure))

    def watch(self, producer: Producer) -> None:
        """Report from now on what this producer does."""
        self._producer = producer

    def waits(self, reason: str) -> None:
        """Report from now on that the producer waits for its next attempt, and why."""
        self._standstill.note(reason, self._producer)

    def state(self) -> tuple[str, str]:
        """Return what the producer does at the moment, and the reason."""
        if reason := self._standstill.reason(self._producer):
            return "waiting", reason
        if reason := waits_in_group():
            return "waiting", reason
        if self._producer is None or self._producer.reader is None:
            return "starting", _STARTING
        still_s = time.monotonic() - self._producer.reader.progress.alive_s
        if still_s > STILL_S:
            return "waiting", "the log reader reads nothing: it waits for Kafka, the registry or the source"
        return "reading", ""

    def snapshot_waits(self) -> str:
        """Return why chunk readers wait at the moment, "" where they do not."""
        producer = self._producer
        if producer is None or producer.coordinator is None or self._standstill.reason(producer):
            return ""
        return producer.coordinator.waits_because

    def _run(self) -> None:
        while not self._ended.is_set():
            with logged_errors(log.exception, _NOT_WRITTEN):  # without its records a producer that runs would count as dead
                try:
                    if self._client is None:
                        self._client = self._opened()
                    else:
                        self._write(*self.state())
                        self._write_delays()
                        self._client.poll()
                except (PublishError, SecretError) as error:
                    log.debug(_NOT_WRITTEN, reason=str(error))
            self._ended.wait(EVERY_S if self._client is not None and self._said[0] else 1.0)

    def _opened(self) -> RecordWriter | None:
        """Return a client, once the topic exists: the sign must not create it."""
        options = {"allow.auto.create.topics": False, "message.timeout.ms": int(EVERY_S * 1000)}
        client = RecordWriter(self._settings.kafka, options)
        return client if client.has_topic(self._topic, _BROKER_S) else None

    def _write(self, state: str, reason: str) -> None:
        now_ms = time.time_ns() // 1_000_000
        if state != self._said[0]:  # another reason is no other standstill
            self._since_ms = self._standstill.since_ms or now_ms
        self._said = (state, reason)
        sign = Sign(
            at_ms=now_ms,
            state=state,
            reason=reason,
            since_ms=self._since_ms,
            machine=machine(),
            snapshot_waits="" if state == "ended" else self.snapshot_waits(),
            in_kafka_ms=self._in_kafka_ms(),
            clock_skew_us=None if state == "ended" else self._clock_skew_us(),
        )
        assert self._client is not None
        self._client.produce(self._topic, value_of(sign), SIGN_KEY, partition_of(SIGN_KEY))

    def _in_kafka_ms(self) -> int | None:
        """Return up to when everything that the source committed is in Kafka; what an earlier start knew stays known."""
        if self._producer is not None and self._producer.reader is not None:
            self._in_kafka_known_ms = max(self._in_kafka_known_ms, self._producer.reader.progress.times.in_kafka_ms)
        return self._in_kafka_known_ms or None

    def _clock_skew_us(self) -> int | None:
        commits = None if self._producer is None else self._producer.commits
        return None if commits is None else commits.skew_us

    def _write_delays(self) -> None:
        """Write the delays of tables that have new ones, now and then."""
        producer, client, now_s = self._producer, self._client, time.monotonic()
        if producer is None or producer.reader is None or now_s - self._delays_at < _DELAYS_EVERY_S:
            return
        assert client is not None
        self._delays_at = now_s
        for table, counter in producer.reader.progress.delays.tables.items():
            recent, key = counter.recent, f"{RecentDelays.PREFIX}{'.'.join(table)}"
            if self._delays_written.get(key) != recent.newest_ms:
                client.produce(self._topic, value_of(recent), key, partition_of(key))
                self._delays_written[key] = recent.newest_ms
