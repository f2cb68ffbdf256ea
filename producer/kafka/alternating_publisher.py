"""The log reader's publisher: two transactional ids in turns, so that the log is read while Kafka ends a transaction.

`commit_later` begins to commit the open transaction (A) and returns; the next record opens a transaction (B) of the other
id::

    A   records … offset ─ flush ─ EndTxn ──── answer
    B                              records … offset ─ flush ─ (A's answer) ─ EndTxn ─
    A                                                                        records …

What keeps this exact:

* B produces nothing before all records of A are acknowledged: in every partition they are in the order of the log. The last records
  of a sealed transaction (`commit_flushed`) are in topics into which B produces only behind A's commit.
* B is not committed before A's commit has returned. After an error of A's commit this object commits nothing more, until the
  next `fence`: what B has is never visible.
* `fence` takes over both ids, before anyone reads where to continue: an earlier process then commits neither.

An id is also used again only some time after its commit was answered. Kafka writes the markers of a commit after its answer, and
refuses the next transaction of the same id until then; librdkafka waits 20 ms before it asks again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from producer.kafka.publisher import TransactionalPublisher

if TYPE_CHECKING:
    from producer.kafka.key_headers import KeyText
    from rowcodec import Records
    from schemas.settings import KafkaSettings

_TOGETHER_S: Final = 2.0
"""Ids that were taken over within this time were taken over together: another process needs longer to start."""
_PASSES: Final = 3
"""Of brokers that always take longer, this is how often they are asked."""


class AlternatingPublisher:
    """A writer of records into Kafka transactions, of which one may be on its way while the next is written.

    Not thread-safe, one owner thread. Only one of the two clients has records in its queue at any time.
    """

    def __init__(self, kafka: KafkaSettings, transactional_id: str, options: Mapping[str, Any] | None = None) -> None:
        ids = (transactional_id, f"{transactional_id}-2")
        self._current, self._other = (TransactionalPublisher(kafka, one, options) for one in ids)
        self._commits: ThreadPoolExecutor | None = None
        self._answer: Future[None] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, besides one that is being committed."""
        return self._current.in_transaction

    @property
    def uncommitted(self) -> int:
        """How many records the open transaction has."""
        return self._current.uncommitted

    @property
    def uncommitted_bytes(self) -> int:
        """How many bytes its keys and values have."""
        return self._current.uncommitted_bytes

    @property
    def is_long_open(self) -> bool:
        """Whether the open transaction should come to its end."""
        return self._current.is_long_open

    def fence(self) -> None:
        """Take over both ids: open transactions of their holder are aborted, it can write and commit no more.

        Where that took long, both are taken over once more. In the middle of it another process may have taken over the first id
        while this one was frozen, or waited for the brokers: each would have one id, and both would end.
        """
        self.close()
        for _ in range(_PASSES):
            began = time.monotonic()
            for publisher in self._both():
                publisher.fence()
            if time.monotonic() - began < _TOGETHER_S:
                return

    def write(self, topic: str, records: Records, key_text: KeyText | None = None) -> None:
        """Produce every record of one event to the topic, in order."""
        self._current.write(topic, records, key_text)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Produce one record, to a given partition where one is named."""
        self._current.produce(topic, value, key, partition, headers)

    def flush(self) -> None:
        """Wait until every record produced so far is acknowledged."""
        self._current.flush()

    # ---- the end of a transaction

    def commit(self) -> None:
        """Commit the open transaction, if there is one; the one before it first."""
        self.settle()
        if self._current.in_transaction:
            self._current.commit()
            self._current, self._other = self._other, self._current

    def commit_later(self) -> None:
        """Wait until all records of the open transaction are acknowledged, then commit it in the background.

        The one before is settled first. Records that follow are in a transaction of their own.
        """
        self.settle()
        if self._current.in_transaction:
            self._current.flush()
            self.commit_flushed()

    def commit_flushed(self) -> None:
        """Commit the open transaction in the background, when its last records are acknowledged: those since the last `flush`.

        Nothing else may be written into the topics of these records before `settle`.
        """
        self.settle()
        publisher = self._current
        if not publisher.in_transaction:
            return
        if self._commits is None:
            self._commits = ThreadPoolExecutor(1, "kafka-commit")
        self._answer = self._commits.submit(publisher.commit)
        self._current, self._other = self._other, publisher

    @property
    def is_answered(self) -> bool:
        """Whether `settle` would not wait: no commit is on its way."""
        return self._answer is None or self._answer.done()

    def settle(self) -> None:
        """Wait until the commit that was begun is done, if there is one; raise its error, each time until the next `fence`."""
        if self._answer is not None:
            self._answer.result()
            self._answer = None

    def abort(self) -> None:
        """Settle the commit that was begun, and abort the open transaction."""
        self.settle()
        self._current.abort()

    def close(self) -> None:
        """Forget the connections. An open transaction is left to the next `fence()` or to its timeout."""
        for publisher in self._both():
            publisher.give_up()
        if self._commits is not None:
            self._commits.shutdown()
            self._commits = None
        self._answer = None
        for publisher in self._both():
            publisher.close()

    def _both(self) -> tuple[TransactionalPublisher, TransactionalPublisher]:
        return self._current, self._other
