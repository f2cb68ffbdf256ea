"""What the Kafka sink asks of Kafka: a fenced transactional writer, topics, and records that are committed.

Errors: `FencedError` once another job with the same transactional id has begun, `RetriableSinkError` where another attempt may
help, else `SinkError`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import structlog

from kafkaio.client import RETRY_S
from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.slices import EARLIEST
from kafkaio.topic_admin import TopicAdmin
from kafkaio.transactional_writer import TransactionalWriter
from schemas.errors import (
    FencedError,
    KafkaRefusalError,
    PublishError,
    RetriableSinkError,
    SinkError,
    StateError,
)
from schemas.settings import KafkaSettings

log = structlog.get_logger()

CALL_S: Final = 60.0
TRANSACTION_MS: Final = 900_000
"""How long a transaction may be open: the longest that a broker allows by default."""
_QUEUE_KBYTES: Final = 64 << 10


class KafkaClient:
    """The connection of one sink to a cluster. `fence` comes first. Transactions are for one thread at a time."""

    def __init__(self, kafka: KafkaSettings, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._kafka = kafka
        options = {"queue.buffering.max.kbytes": _QUEUE_KBYTES, "transaction.timeout.ms": TRANSACTION_MS}
        self._writer = TransactionalWriter(kafka, transactional_id, options, "kafka_sink.error")
        self._fenced_by_another: FencedError | None = None

    @cached_property
    def _admin(self) -> TopicAdmin:
        """The client of topics, opened when it is needed first: settings are checked without a connection."""
        return TopicAdmin(self._kafka)

    # ── transactions ────────────────────

    @property
    def is_fenced(self) -> bool:
        """Whether `fence` was called, and no transaction has ended in an unknown way since."""
        return self._writer.is_fenced

    def fence(self) -> None:
        """Be the only writer: what a former one has not committed by now never will be.

        `FencedError` if another job has fenced this client: two of them would take turns.
        """
        if self._fenced_by_another is not None:
            raise self._fenced_by_another
        self.close()
        with self._errors(0.0):
            self._writer.fence()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Have all records of the context become visible at its end, or none of them ever.

        After an error of which it is not known whether the transaction was committed, `is_fenced` is false: `fence` finds out.
        """
        if not self.is_fenced:
            raise SinkError(f"{self.transactional_id} writes before it is the only writer")
        with self._errors(time.monotonic()):
            try:
                self._writer.begin()
                yield Transaction(self._writer)
                self._writer.commit()
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        """Abort what may be open; whatever cannot be aborted is left to the next `fence`."""
        reason = self._writer.discard()
        if reason:
            log.warning("kafka_sink.not_aborted", transactional_id=self.transactional_id, reason=reason)

    def close(self) -> None:
        """Forget the connection. An open transaction is left to the next `fence`, or to its timeout."""
        self._writer.close()

    # ── topics ────────────────────

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic, which another one of the same name has not; None if there is none."""
        with self._errors():
            return self._admin.topic_id(topic)

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> str:
        """Create a topic, unless there is one already, and return its id."""
        with self._errors():
            self._admin.forget(topic)
            self._admin.ensure({topic: partitions}, config)
            deadline = time.monotonic() + CALL_S
            while (ident := self._admin.topic_id(topic)) is None and time.monotonic() < deadline:
                time.sleep(RETRY_S)  # the controller has answered, and a broker may be behind it
        if ident is None:
            raise RetriableSinkError(f"topic {topic} was created, but no broker has it")
        return ident

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone; one that does not exist is no error."""
        with self._errors():
            self._admin.delete(topic)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has that is there."""
        with self._errors():
            self._admin.forget(topic)
            return self._admin.partitions(topic)

    def is_empty(self, topic: str) -> bool:
        """Return whether a topic has never had a record, of an open or aborted transaction neither."""
        with self._errors():
            return not any(self._admin.end_offsets([topic])[topic].values())

    # ── records ────────────────────

    def committed_records(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield key and value of the committed records of a topic's only partition, up to its uncommitted end.

        After `fence` no transaction of this sink is open. `RetriableSinkError` if one of somebody else hides the end.
        """
        with self._errors():
            end = self._admin.end_offsets([topic])[topic][0]
            options = {**SOON, "auto.offset.reset": "error"}
            with CommittedReader(self._kafka, f"{self.transactional_id}-reader", options, CALL_S) as reader:
                if end:
                    reader.begin({(topic, 0): EARLIEST})
                    for record in reader.read_to({(topic, 0): end}, CALL_S):
                        yield record.key, record.value

    # ── errors ────────────────────

    @contextmanager
    def _errors(self, begun_s: float | None = None) -> Iterator[None]:
        """Translate the errors of a call, or of a transaction that was begun at this time (of the monotonic clock)."""
        try:
            yield
        except FencedError as error:
            open_s = 0.0 if not begun_s else time.monotonic() - begun_s
            raise (self._ended_by_time(open_s) if open_s * 1000 >= TRANSACTION_MS else self._fenced()) from error
        except KafkaRefusalError as error:
            raise SinkError(str(error)) from error
        except (PublishError, StateError) as error:
            raise RetriableSinkError(str(error)) from error

    def _ended_by_time(self, open_s: float) -> RetriableSinkError:
        """Return the error of a transaction that the broker has aborted: it fences its producer, as another job would."""
        message = (
            f"a transaction of {self.transactional_id} was open for {open_s:.0f} s, and Kafka aborts one after "
            f"{TRANSACTION_MS // 1000} s: nothing of it is visible, and the batch is run again. If this repeats, make batches "
            "smaller (spark.max_batch_records)"
        )
        return RetriableSinkError(message)

    def _fenced(self) -> FencedError:
        message = (
            f"another merge job writes to the sink of {self.transactional_id}: this one ends, and nothing of its batch is "
            "visible. Give each sink of a cluster its own name (sinks.name)"
        )
        self._fenced_by_another = FencedError(message)
        return self._fenced_by_another


class Transaction:
    """An open transaction: records enter. A record that Kafka does not take fails the commit: no callback has to look for it."""

    def __init__(self, writer: TransactionalWriter) -> None:
        self._writer = writer

    def produce(self, topic: str, key: str | bytes | None, value: str | bytes | None, partition: int = -1) -> None:
        """Add a record. Waits while too much is on its way."""
        self._writer.produce(topic, value, key, partition)

    def flush(self) -> None:
        """Wait until all records are acknowledged, as long as any is within a minute."""
        self._writer.flush()
