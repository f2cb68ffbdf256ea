"""The one client of librdkafka in the merge job: a fenced transactional producer, topics, and records that are committed.

Errors: `FencedError` once another job with the same transactional id has begun, `RetriableSinkError` where another attempt may
help, else `SinkError`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from schemas.applied.kafka_security import client_options
from schemas.errors import FencedError, RetriableSinkError, SinkError
from schemas.settings import KafkaSettings
from schemas.topics import RECORD_BYTES

log = structlog.get_logger()

CALL_S: Final = 60.0
TURN_S: Final = 3.0
TRANSACTION_MS: Final = 900_000
"""How long a transaction may be open: the longest that a broker allows by default."""
_QUEUE_KBYTES: Final = 64 << 10
_POLL_EVERY: Final = 500
_RETRY_S: Final = 0.1
_FETCH_WAIT_MS: Final = 10
_NOT_TAKEN: Final = frozenset({KafkaError._FATAL, KafkaError._STATE})  # noqa: SLF001 - their public names
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})  # noqa: SLF001
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 - its public name
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
_UNKNOWN: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001
_REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
    }
)


class KafkaClient:
    """The connection of one sink to a cluster. `fence` comes first. Transactions are for one thread at a time."""

    def __init__(self, kafka: KafkaSettings, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._compression = kafka.compression
        self._config: dict[str, Any] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "log_level": 2,  # what brokers report is logged by `_note`
            "error_cb": self._note,
            **client_options(kafka),
        }
        self._producer: Producer | None = None
        self._fenced_by_another: FencedError | None = None
        self._open_since_s: float | None = None
        self._admin: AdminClient | None = None

    # ── transactions ────────────────────

    @property
    def is_fenced(self) -> bool:
        """Whether `fence` was called, and no transaction has ended in an unknown way since."""
        return self._producer is not None

    def fence(self) -> None:
        """Be the only writer: what a former one has not committed by now never will be.

        `FencedError` where another job has fenced this client: two of them would take turns.
        """
        if self._fenced_by_another is not None:
            raise self._fenced_by_another
        self.close()
        producer = Producer(
            {
                "compression.type": self._compression,
                "linger.ms": 20,
                "message.max.bytes": RECORD_BYTES,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
                "partitioner": "murmur2_random",  # as Java's producer distributes keys
                "transaction.timeout.ms": TRANSACTION_MS,
                **self._config,
                "transactional.id": self.transactional_id,
                "enable.idempotence": True,
            }
        )
        self._in_turns(producer.init_transactions, "init_transactions")
        self._producer = producer

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Have all records of the context become visible at its end, or none of them ever.

        After an error of which it is not known whether the transaction was committed, `is_fenced` is false: `fence` finds out.
        """
        producer = self._producer
        if producer is None:
            raise SinkError(f"{self.transactional_id} writes before it is the only writer")
        self._open_since_s = time.monotonic()
        try:
            producer.begin_transaction()
            transaction = Transaction(producer, self.transactional_id)
            yield transaction
            transaction.flush()
            self._in_turns(producer.commit_transaction, "commit_transaction")
        except KafkaException as error:
            translated = self._translated(_behind(error, producer), "a transaction")
            self._end(producer)
            raise translated from error
        except BaseException:
            self._end(producer)
            raise
        finally:
            self._open_since_s = None

    def _end(self, producer: Producer) -> None:
        """Abort what may be open; whatever cannot be aborted is left to the next `fence`."""
        try:
            producer.purge()
            producer.abort_transaction(TURN_S)
        except KafkaException as error:
            log.warning("kafka_sink.not_aborted", transactional_id=self.transactional_id, reason=error.args[0].str())
            self._producer = None

    def close(self) -> None:
        """Forget the connection. An open transaction is left to the next `fence`, or to its timeout."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with contextlib.suppress(KafkaException):
                producer.flush(1.0)

    # ── topics ────────────────────

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic, which another one of the same name has not; None if there is none."""
        future = self._admin_client().describe_topics(TopicCollection([topic]), request_timeout=CALL_S)[topic]
        try:
            return str(future.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN:
                return None
            raise self._translated(error, f"what there is of topic {topic}") from error

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> str:
        """Create a topic, unless there is one already, and return its id."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                self._admin_client().create_topics([new], request_timeout=CALL_S)[topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._translated(error, f"the creation of topic {topic}") from error
            found = self.topic_id(topic)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise RetriableSinkError(f"topic {topic} was created, but no broker has it after {CALL_S:g} s")
            time.sleep(_RETRY_S)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone; one that there is none of is no error."""
        try:
            self._admin_client().delete_topics([topic], request_timeout=CALL_S)[topic].result()
        except KafkaException as error:
            if error.args[0].code() not in _UNKNOWN:
                raise self._translated(error, f"the deletion of topic {topic}") from error
        deadline = time.monotonic() + CALL_S
        while self.topic_id(topic) is not None:
            if time.monotonic() > deadline:
                raise RetriableSinkError(f"topic {topic} was deleted, and is still there after {CALL_S:g} s")
            time.sleep(_RETRY_S)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has that is there."""
        return len(self._admin_client().list_topics(topic, timeout=CALL_S).topics[topic].partitions)

    def is_empty(self, topic: str) -> bool:
        """Return whether a topic has never had a record, of an open or aborted transaction neither."""
        return all(self._end_of(topic, partition) == 0 for partition in range(self.partitions(topic)))

    # ── records ────────────────────

    def committed_records(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield key and value of the committed records of a topic's only partition, up to its uncommitted end.

        After `fence` no transaction of this sink is open. `RetriableSinkError` where one of somebody else hides the end.
        """
        end = self._end_of(topic, 0)
        if end == 0:
            return
        consumer = Consumer(
            {
                **self._config,
                "group.id": f"{self.transactional_id}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": _FETCH_WAIT_MS,
                "auto.offset.reset": "error",
            }
        )
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + CALL_S
            while time.monotonic() < deadline:
                message = consumer.poll(TURN_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    yield message.key(), message.value()
                    deadline = time.monotonic() + CALL_S
                elif error.code() != _END:
                    raise self._translated(KafkaException(error), f"reading {topic}")
                elif (message.offset() or 0) >= end:
                    return
            raise RetriableSinkError(f"topic {topic} could not be read to its end {end}: an open transaction hides it")
        finally:
            consumer.close()

    def _end_of(self, topic: str, partition: int) -> int:
        """Return the end of a partition, records of open transactions included."""
        where, latest = TopicPartition(topic, partition), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                asked = self._admin_client().list_offsets(
                    {where: latest}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=CALL_S
                )
                return int(asked[where].result().offset)
            except KafkaException as error:
                if time.monotonic() > deadline or error.args[0].code() in _REFUSED:
                    raise self._translated(error, f"the end of {topic}") from error
                time.sleep(_RETRY_S)  # a topic that was made just now has no leader for a moment

    # ── errors ────────────────────

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._config)
        return self._admin

    def _in_turns(self, call: Callable[[float], object], name: str) -> None:
        """Make a call that continues where it was when it is repeated, until it is done or its time is over."""
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                call(TURN_S)
            except KafkaException as error:
                cause = error.args[0]
                if time.monotonic() > deadline or not (cause.code() == _TIMED_OUT or cause.retriable()):
                    raise self._translated(error, name) from error
                time.sleep(_RETRY_S)
            else:
                return

    def _note(self, error: KafkaError) -> None:
        log.warning("kafka_sink.error", transactional_id=self.transactional_id, error=error.str(), code=error.name())

    def _ended_by_time(self, open_s: float) -> RetriableSinkError:
        """Return the error of a transaction that the broker has aborted: it fences its producer, as another job would."""
        message = (
            f"a transaction of {self.transactional_id} was open for {open_s:.0f} s, and Kafka aborts one after "
            f"{TRANSACTION_MS // 1000} s: nothing of it is visible, and the batch is run again. If this repeats, make batches "
            "smaller (spark.max_batch_records)"
        )
        return RetriableSinkError(message)

    def _translated(self, error: KafkaException, what: str) -> FencedError | SinkError:
        cause = error.args[0]
        open_s = 0.0 if self._open_since_s is None else time.monotonic() - self._open_since_s
        if cause.code() in _FENCED and open_s * 1000 >= TRANSACTION_MS:
            return self._ended_by_time(open_s)
        if cause.code() in _FENCED:
            message = (
                f"another merge job writes to the sink of {self.transactional_id}: this one ends, and nothing of its batch is "
                "visible. Give each sink of a cluster its own name (sinks.name)"
            )
            self._fenced_by_another = FencedError(message)
            return self._fenced_by_another
        message = f"{what} of {self.transactional_id} failed: {cause.str()} ({cause.name()})"
        return SinkError(message) if cause.code() in _REFUSED else RetriableSinkError(message)


def _behind(error: KafkaException, producer: Producer) -> KafkaException:
    """Return what is behind an answer that only says that no record is taken any more: another begin is refused with it."""
    if error.args[0].code() in _NOT_TAKEN:
        try:
            producer.begin_transaction()
        except KafkaException as reason:
            return reason
    return error


class Transaction:
    """An open transaction: records enter. A record that Kafka does not take fails the commit: no callback has to look for it."""

    def __init__(self, producer: Producer, transactional_id: str) -> None:
        self._producer = producer
        self._id = transactional_id
        self._since_poll = 0

    def produce(self, topic: str, key: str | bytes | None, value: str | bytes | None, partition: int = -1) -> None:
        """Add a record. Waits while too much is on its way."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition)
                break
            except BufferError:
                self._producer.poll(_RETRY_S)
        self._since_poll += 1
        if self._since_poll >= _POLL_EVERY:
            self._producer.poll(0)
            self._since_poll = 0

    def flush(self) -> None:
        """Wait until all records are acknowledged, as long as any is within a minute."""
        before, moved_s = len(self._producer), time.monotonic()
        while (left := self._producer.flush(TURN_S)) > 0:
            if left < before:
                before, moved_s = left, time.monotonic()
            elif time.monotonic() - moved_s > CALL_S:
                raise RetriableSinkError(f"{left} records of {self._id} are not acknowledged, and none was for {CALL_S:g} s")
