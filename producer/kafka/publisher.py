"""The transactional publisher: finished records into Kafka transactions.

One publisher is one transactional id (the log reader has two: `alternating_publisher`). A transaction is cut by its owner::

    publisher.fence()            # 1. init_transactions: nobody else with this id can write any more
    publisher.write(...)         # 2. opens a transaction when none is open
    publisher.flush()            # 3. every record acknowledged: end offsets are final
    publisher.produce(...)       # 4. markers and the offset record, last in the transaction
    publisher.commit()           # 5. all or nothing

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

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from kafkaio.block_producer import WORTH, BlockProducer, block_producer, is_addressable
from kafkaio.client import client_config, opened
from schemas.errors import FencedError, PublishError
from schemas.topics import RECORD_BYTES
from schemas.waiting import WAITS, waiting

if TYPE_CHECKING:
    from kafkaio.block_producer import Texts
    from producer.kafka.key_headers import KeyText
    from rowcodec import Records

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
_LARGE_BYTES: Final = 32 << 20
_NEW_KEY: Final = "__debezium.newkey"
_NONE_RELATED: Final = b"\xff"  # each of the bytes of -1
_OLD_KEY: Final = "__debezium.oldkey"
_OP_CREATE: Final = ord("c")

_LOCAL_FENCED: Final = -144  # librdkafka's own RD_KAFKA_RESP_ERR__FENCED
_FENCED: Final = frozenset({_LOCAL_FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 - its public name
_NOT_TAKEN: Final = frozenset({KafkaError._FATAL, KafkaError._STATE})  # noqa: SLF001 - their public names

_DEFAULTS: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1 << 20,
    "batch.num.messages": 50_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    "message.max.bytes": RECORD_BYTES,
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
}


class TransactionalPublisher:
    """Writes records under one transactional id; not thread-safe, one owner thread."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, options: Mapping[str, Any]) -> None:
        config = client_config(bootstrap_servers, {**_DEFAULTS, **options})
        self._config = {**config, "transactional.id": transactional_id, "error_cb": self._on_error}
        self._timeout_s = int(self._config["transaction.timeout.ms"]) / 1000  # text where `kafka.options` has it
        self.transactional_id = transactional_id
        self._servers = bootstrap_servers
        self._producer: Producer | None = None
        self._blocks: BlockProducer | None = None
        self._failed: KafkaError | None = None
        self.in_transaction = False
        self.uncommitted = 0
        self.uncommitted_bytes = 0
        self._begun_s = 0.0
        self._gives_up = False

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
        self._blocks = block_producer(producer, str(self._config.get("client.id", "rdkafka")))
        self.in_transaction = False
        if self._blocks is None:
            log.info("kafka.single_records", transactional_id=self.transactional_id, confluent_kafka=confluent_kafka.__version__)

    def write(self, topic: str, records: Records, key_text: KeyText | None = None) -> None:
        """Produce every record of one event or chunk block to the topic, in order.

        `key_text` words the other key of a primary-key update for the record's header; rows of a table whose
        key can change need it.
        """
        self._begin_if_needed()
        # Bytes are searched in a tenth of the time that NumPy takes to begin: most events have one row.
        if 1 in records.is_tombstone.tobytes() or records.related.tobytes().strip(_NONE_RELATED):
            self._write_any(topic, records, key_text)
        elif self._blocks is not None and records.count >= WORTH and is_addressable(*_texts(records)):
            self._write_block(self._blocks, topic, records)
        else:
            self._write_plain(topic, records)
        self.uncommitted += records.count
        self.uncommitted_bytes += len(records.values) + len(records.keys)
        if len(records.values) > _LARGE_BYTES:
            self.flush()  # else the client's copy is beside the next one
        else:
            self._poll(0)

    def _write_block(self, blocks: BlockProducer, topic: str, records: Records) -> None:
        """Produce the same by few calls."""
        values, keys = _texts(records)
        done = 0
        while done < records.count:
            taken, error = blocks.produce(topic, values, keys, done)
            done += taken
            if error is not None and error.code() == KafkaError._QUEUE_FULL:  # noqa: SLF001 - its public name
                self._wait_for_room()
            elif error is not None:
                raise self._translated(KafkaException(error), f"produce to {topic}")

    def _write_plain(self, topic: str, records: Records) -> None:
        """Produce records that all have a value and no header."""
        produce, has_key = self._live().produce, records.has_key
        values, value_ends = records.values, records.value_offsets[1:].tolist()
        keys, key_ends = records.keys, records.key_offsets[1:].tolist()
        at = key_at = 0
        for end, key_end in zip(value_ends, key_ends, strict=True):
            try:
                produce(topic, values[at:end], keys[key_at:key_end] if has_key else None)
            except (BufferError, KafkaException) as error:
                self._produce_later(error, topic, values[at:end], keys[key_at:key_end] if has_key else None, None)
            at, key_at = end, key_end

    def _write_any(self, topic: str, records: Records, key_text: KeyText | None) -> None:
        """Produce records among which are tombstones, or such as name another key."""
        produce, has_key, related = self._live().produce, records.has_key, records.related.tolist()
        values, value_offsets = records.values, records.value_offsets.tolist()
        keys, key_offsets = records.keys, records.key_offsets.tolist()
        for index, is_tombstone in enumerate(records.is_tombstone.tolist()):
            value = None if is_tombstone else values[value_offsets[index] : value_offsets[index + 1]]
            key = keys[key_offsets[index] : key_offsets[index + 1]] if has_key else None
            headers: list[tuple[str, str | bytes | None]] | None = None
            other = related[index]
            if other >= 0:
                name = _OLD_KEY if records.ops[index] == _OP_CREATE else _NEW_KEY
                other_key = keys[key_offsets[other] : key_offsets[other + 1]]
                headers = [(name, other_key if key_text is None else key_text(other_key))]
            try:
                if headers is None:
                    produce(topic, value, key)
                else:
                    produce(topic, value, key, headers=headers)
            except (BufferError, KafkaException) as error:
                self._produce_later(error, topic, value, key, headers)

    def _produce_later(
        self,
        error: BufferError | KafkaException,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, str | bytes | None]] | None,
    ) -> None:
        """Produce a record that the client refused because its queue is full, once there is room; raise another error."""
        named: dict[str, Any] = {} if headers is None else {"headers": headers}
        while True:
            if isinstance(error, KafkaException):
                raise self._translated(error, f"produce to {topic}") from error
            self._wait_for_room()
            try:
                self._live().produce(topic, value, key, **named)
            except (BufferError, KafkaException) as again:
                error = again
            else:
                return

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Produce one record, to a given partition where one is named."""
        self._begin_if_needed()
        arguments: dict[str, Any] = {"value": value, "key": key}
        if partition >= 0:
            arguments["partition"] = partition
        if headers:
            arguments["headers"] = headers
        while True:
            try:
                self._live().produce(topic, **arguments)
                break
            except BufferError:
                self._wait_for_room()
            except KafkaException as error:
                raise self._translated(error, f"produce to {topic}") from error
        self.uncommitted += 1
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

    def give_up(self) -> None:
        """Have a call that waits for Kafka in another thread end with its present turn. `close` follows."""
        self._gives_up = True

    def close(self) -> None:
        """Forget the connection. An open transaction is left to the next `fence()` or to its timeout."""
        producer, self._producer, self._blocks = self._producer, None, None
        self.in_transaction = False
        if producer is not None:
            producer.purge()
            with contextlib.suppress(KafkaException):
                producer.flush(1.0)

    def _begin_if_needed(self) -> None:
        if self.in_transaction:
            return
        try:
            self._live().begin_transaction()
        except KafkaException as error:
            raise self._translated(error, "begin_transaction") from error
        self.in_transaction = True
        self._begun_s = time.monotonic()

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
            message = f"publisher {self.transactional_id} is used before fence()"
            raise PublishError(message)
        return self._producer

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._failed = error
        else:
            log.warning(
                "kafka.error", transactional_id=self.transactional_id, error=error.str(), code=error.name()
            )

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise self._translated(KafkaException(self._failed), "produce") from None

    def _reason(self, cause: KafkaError) -> KafkaError:
        """Return what is behind an answer that only says that no record is taken any more: another begin is refused with it."""
        if cause.code() in _NOT_TAKEN and self.in_transaction:
            try:
                self._live().begin_transaction()
            except KafkaException as error:
                cause = error.args[0]
        return cause

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
            message += (
                f". A record may have {self._config['message.max.bytes'] >> 20} MiB here (message.max.bytes in kafka.options), "
                f"compressed what its topic takes (max.message.bytes, of the topic or the broker) and the broker "
                f"(socket.request.max.bytes, 100 MiB by default)"
            )
        return PublishError(message)


def _texts(records: Records) -> tuple[Texts, Texts | None]:
    """Return the values and the keys of records."""
    keys = (records.keys, records.key_offsets) if records.has_key else None
    return (records.values, records.value_offsets), keys


def _connect(producer: Producer) -> None:
    """Connect to a broker. Without a connection librdkafka looks for the coordinator half a second later, not when there is one.

    It asks for one topic: all of them may be thousands. What goes wrong is reported by the call that needs the connection.
    """
    with contextlib.suppress(KafkaException):
        producer.list_topics(_COORDINATORS, timeout=_CONNECT_S)
