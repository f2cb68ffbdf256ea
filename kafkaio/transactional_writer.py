"""The transactional writer: finished records into Kafka transactions.

One writer is one transactional id (the log reader has two: `alternating_publisher`). Its owner decides when a transaction ends::

    writer.fence()               # 1. init_transactions: nobody else with this id can write any more
    writer.produce(...)          # 2. opens a transaction when none is open
    writer.flush()               # 3. every record acknowledged: end offsets are final
    writer.produce(...)          # 4. markers and the offset record, last in the transaction
    writer.commit()              # 5. all or nothing

Guarantee: after `commit()` returned, everything since the last commit will be visible to `read_committed`
readers, and nothing of it was before. Non-guarantees: Kafka writes the markers that show it after its answer, partition
by partition, so a reader may come to an end before it for a moment, until the next transaction of this id begins at the latest;
after any error the transaction's fate is unknown until the next `fence()`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaio.client import client_config, failure, opened
from schemas.applied.kafka_security import client_options
from schemas.errors import FencedError, PublishError
from schemas.topics import RECORD_BYTES
from schemas.waiting import WAITS, waiting

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

log = structlog.get_logger(__name__)

# A Kafka transaction holds whole source transactions, large ones too; the broker's default limit is this.
TRANSACTION_TIMEOUT_MS: Final = 900_000
LONGEST_SHARE: Final = 0.15
"""Of the timeout: as long as that a transaction may be open before what is in it should be committed in parts."""
CALL_TIMEOUT_S: Final = 60.0
_TURN_S: Final = 1.0
_COORDINATORS: Final = "__transaction_state"
_CONNECT_S: Final = 1.0
_QUEUE_FULL_POLL_S: Final = 0.05
_POLL_EVERY: Final = 500
_ABORT_S: Final = 3.0
REFUSED_RECORD: Final = (BufferError, KafkaException)
"""What a client raises that does not take a record."""

_LOCAL_FENCED: Final = -144  # librdkafka's own RD_KAFKA_RESP_ERR__FENCED
_FENCED: Final = frozenset({_LOCAL_FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 - its public name
_NOT_TAKEN: Final = frozenset({KafkaError._FATAL, KafkaError._STATE})  # noqa: SLF001 - their public names

_DEFAULTS: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1 << 20,
    "batch.num.messages": 50_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    "message.max.bytes": RECORD_BYTES,
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
}


class TransactionalWriter:
    """A writer of records under one transactional id; not thread-safe, one owner thread.

    `options` are its owner's; `kafka.options` win.
    Errors: `FencedError` once another client with this id has begun, `KafkaRefusalError` if no retry helps, else `PublishError`.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        transactional_id: str,
        options: Mapping[str, Any] | None = None,
        error_event: str = "kafka.error",
    ) -> None:
        self._error_event = error_event
        own = {**_DEFAULTS, "compression.type": kafka.compression, **(options or {})}
        config = client_config(kafka.bootstrap_servers, {**own, **client_options(kafka)})
        self._config = {**config, "transactional.id": transactional_id, "error_cb": self._on_error}
        self._timeout_s = int(self._config["transaction.timeout.ms"]) / 1000  # text where `kafka.options` has it
        self.transactional_id = transactional_id
        self._servers = kafka.bootstrap_servers
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        self.in_transaction = False
        self.uncommitted = 0
        self.uncommitted_bytes = 0
        self._begun_s = 0.0
        self._gives_up = False

    @property
    def is_fenced(self) -> bool:
        """Whether `fence` was called, and no transaction has ended in an unknown way since."""
        return self._producer is not None

    @property
    def is_long_open(self) -> bool:
        """Whether so much of `transaction.timeout.ms` has passed that the open transaction should come to its end."""
        return self.in_transaction and time.monotonic() - self._begun_s > LONGEST_SHARE * self._timeout_s

    def fence(self) -> None:
        """Take the transactional id over: its holder's open transaction is aborted, it can write no more."""
        self.close()
        self._failed, self._gives_up = None, False
        producer = opened(Producer, self._config)
        _connect(producer)
        self._in_turns(producer.init_transactions, "init_transactions")
        self._producer = producer
        self.in_transaction = False

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Produce one record, to a given partition where one is named. `on_delivery` is called by `flush`, with its offset."""
        self.begin()
        arguments: dict[str, Any] = {"value": value, "key": key}
        if partition >= 0:
            arguments["partition"] = partition
        if headers:
            arguments["headers"] = headers
        if on_delivery is not None:
            arguments["on_delivery"] = on_delivery
        while True:
            try:
                self._live().produce(topic, **arguments)
                break
            except REFUSED_RECORD as error:
                self._make_room(error, topic)
        self.uncommitted += 1
        if self.uncommitted % _POLL_EVERY == 0:
            self._poll(0)
        self.uncommitted_bytes += len(value or b"") + len(key or b"")

    def flush(self) -> None:
        """Wait until every record produced so far is acknowledged, as long as any is within a minute.

        A client that gave a slow Kafka up in the middle would start over with the same records, for ever.
        """
        self._drain(self._live().flush, 0)

    def commit(self) -> None:
        """Commit the open transaction, if there is one."""
        if not self.in_transaction:
            return
        self.flush()
        self._in_turns(self._live().commit_transaction, "commit_transaction")
        self.in_transaction = False
        self.uncommitted = self.uncommitted_bytes = 0

    def abort(self) -> None:
        """Abort the open transaction, if there is one; errors are reported as `commit` reports them."""
        if not self.in_transaction or self._producer is None:
            return
        self.in_transaction = False
        self.uncommitted = self.uncommitted_bytes = 0
        self._in_turns(self._producer.abort_transaction, "abort_transaction")

    def discard(self) -> str:
        """Abort the open transaction; return why that failed, else "". After a failure the writer must be fenced again."""
        producer, self.in_transaction, self.uncommitted, self.uncommitted_bytes = self._producer, False, 0, 0
        if producer is not None:
            try:
                producer.purge()
                producer.abort_transaction(_ABORT_S)
            except KafkaException as error:
                self._producer = None
                return str(error.args[0].str())
        return ""

    def give_up(self) -> None:
        """Have a call that waits for Kafka in another thread end with its present turn. `close` follows."""
        self._gives_up = True

    def close(self) -> None:
        """Forget the connection. An open transaction is left to the next `fence()` or to its timeout."""
        producer, self._producer = self._producer, None
        self.in_transaction = False
        if producer is not None:
            producer.purge()
            with contextlib.suppress(KafkaException):
                producer.flush(1.0)

    def begin(self) -> None:
        """Open a transaction, if none is open; the first record does it, too."""
        if self.in_transaction:
            return
        try:
            self._live().begin_transaction()
        except KafkaException as error:
            raise self._translated(error, "begin_transaction") from error
        self.in_transaction = True
        self._begun_s = time.monotonic()

    def _make_room(self, error: Exception, topic: str) -> None:
        """Wait for room in the client's queue, if it took no record since that is full; raise any other error."""
        if isinstance(error, KafkaException):
            raise self._translated(error, f"produce to {topic}") from error
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Wait until the client's queue is shorter than it is."""
        producer = self._live()

        def poll(seconds: float) -> int:
            producer.poll(min(seconds, _QUEUE_FULL_POLL_S))
            return len(producer)

        self._drain(poll, len(producer) - 1)

    def _drain(self, remaining_after: Callable[[float], int], most: int) -> None:
        """Wait until at most so many records are not acknowledged, as long as any is within a minute."""
        before, moved_s = len(self._live()), time.monotonic()
        with waiting("kafka", self._servers, f"records of {self.transactional_id} to be acknowledged"):
            while True:
                try:
                    remaining = remaining_after(_TURN_S)
                except KafkaException as error:
                    raise self._translated(error, "flush") from error
                self._raise_if_failed()
                if remaining <= max(most, 0):
                    return
                if remaining < before:
                    before, moved_s = remaining, time.monotonic()
                elif WAITS.is_ending or time.monotonic() - moved_s > CALL_TIMEOUT_S:
                    seconds = time.monotonic() - moved_s
                    message = f"{remaining} records are not acknowledged, and none was within {seconds:.0f} s: is Kafka there?"
                    raise PublishError(message)

    def _in_turns(self, call: Callable[[float], object], name: str) -> None:
        """Make a call that continues where it was when it is repeated, until it is done or its time is over."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        with waiting("kafka", self._servers, f"{name} of {self.transactional_id}"):
            while True:
                try:
                    call(_TURN_S)
                except KafkaException as error:
                    cause, is_late = error.args[0], self._gives_up or WAITS.is_ending or time.monotonic() > deadline
                    if is_late or not (cause.code() == _TIMED_OUT or cause.retriable()):
                        raise self._translated(error, name) from error
                    time.sleep(_QUEUE_FULL_POLL_S)
                else:
                    return

    def _poll(self, seconds: float) -> None:
        try:
            self._live().poll(seconds)
        except KafkaException as error:  # the client reports so, once, that it takes nothing any more
            raise self._translated(error, "produce") from error

    def _live(self) -> Producer:
        if self._producer is None:
            message = f"writer {self.transactional_id} is used before fence()"
            raise PublishError(message)
        return self._producer

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._failed = error
        else:
            log.warning(
                self._error_event, transactional_id=self.transactional_id, error=error.str(), code=error.name()
            )

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise self._translated(KafkaException(self._failed), "produce") from None

    def _reason(self, cause: KafkaError) -> KafkaError:
        """Return the reason behind an answer that has none.

        If only the client refuses, it refuses another begin with the reason. A broker that gives the id to another client in this
        very moment may answer a commit with an internal error (Kafka 4.1); it answers an abort with the reason.
        """
        if not self.in_transaction:
            return cause
        producer = self._live()
        if cause.code() in _NOT_TAKEN:
            return _error_of(producer.begin_transaction) or cause
        deadline = time.monotonic() + _ABORT_S
        reason: KafkaError | None = cause
        while reason is not None and reason.code() == KafkaError.UNKNOWN and time.monotonic() < deadline:
            time.sleep(_QUEUE_FULL_POLL_S)
            reason = _error_of(lambda: producer.abort_transaction(_ABORT_S))
        return cause if reason is None or reason.code() not in _FENCED else reason

    def _translated(self, error: KafkaException, call: str) -> PublishError | FencedError:
        cause = self._reason(error.args[0])
        if cause.code() in _FENCED:
            message = (
                f"another producer has taken over {self.transactional_id}, or its transaction was open for more "
                f"than {self._timeout_s:g} s (transaction.timeout.ms in kafka.options, at "
                f"most the broker's transaction.max.timeout.ms): this one ends"
            )
            return FencedError(message)
        message = f"{call} of {self.transactional_id} failed: {cause.str()} ({cause.name()})"
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            largest = int(self._config["message.max.bytes"])  # text, if it is of kafka.options
            message += (
                f". A record may have {largest >> 20} MiB here (message.max.bytes in kafka.options), "
                f"compressed what its topic takes (max.message.bytes, of the topic or the broker) and the broker "
                f"(socket.request.max.bytes, 100 MiB by default)"
            )
        return failure(message, cause)


def _connect(producer: Producer) -> None:
    """Connect to a broker. Without a connection librdkafka looks for the coordinator half a second later, not when there is one.

    It asks for one topic: all of them may be thousands. What goes wrong is reported by the call that needs the connection.
    """
    with contextlib.suppress(KafkaException):
        producer.list_topics(_COORDINATORS, timeout=_CONNECT_S)


def _error_of(call: Callable[[], object]) -> KafkaError | None:
    """Return the error of a call; None if it is done."""
    try:
        call()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        return cause
    return None
