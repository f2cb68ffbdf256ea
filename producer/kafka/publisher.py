"""The transactional publisher: records of the codec into Kafka transactions, in blocks as far as possible."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import structlog

from kafkaio.block_producer import WORTH, BlockProducer, block_producer, is_addressable
from kafkaio.transactional_writer import REFUSED_RECORD, TransactionalWriter
from schemas.exact_values import EXACT_HEADER
from schemas.overriding import override

if TYPE_CHECKING:
    from kafkaio.block_producer import Texts
    from producer.kafka.key_headers import KeyText
    from rowcodec import Records

log = structlog.get_logger(__name__)

_LARGE_BYTES: Final = 32 << 20
_NEW_KEY: Final = "__debezium.newkey"
_NONE_RELATED: Final = b"\xff"  # each of the bytes of -1
_OLD_KEY: Final = "__debezium.oldkey"
_OP_CREATE: Final = ord("c")


class TransactionalPublisher(TransactionalWriter):
    """A writer of records of the codec under one transactional id; not thread-safe, one owner thread."""

    _blocks: BlockProducer | None = None

    @override
    def fence(self) -> None:
        super().fence()
        self._blocks = block_producer(self._live(), str(self._config.get("client.id", "rdkafka")))
        if self._blocks is None:
            version = metadata.version("confluent-kafka")
            log.info("kafka.single_records", transactional_id=self.transactional_id, confluent_kafka=version)

    @override
    def close(self) -> None:
        self._blocks = None
        super().close()

    def write(self, topic: str, records: Records, key_text: KeyText | None = None) -> None:
        """Produce every record of one event or chunk block to the topic, in order.

        `key_text` words the other key of a primary-key update for the record's header; rows of a table whose
        key can change need it.
        """
        self.begin()
        # Bytes are searched in a tenth of the time that NumPy takes to begin: most events have one row.
        if records.exact or 1 in records.is_tombstone.tobytes() or records.related.tobytes().strip(_NONE_RELATED):
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
            if error is not None:
                self._make_room(error, topic)

    def _write_plain(self, topic: str, records: Records) -> None:
        """Produce records that all have a value and no header."""
        produce, has_key = self._live().produce, records.has_key
        values, value_ends = records.values, records.value_offsets[1:].tolist()
        keys, key_ends = records.keys, records.key_offsets[1:].tolist()
        at = key_at = 0
        for end, key_end in zip(value_ends, key_ends, strict=True):
            try:
                produce(topic, values[at:end], keys[key_at:key_end] if has_key else None)
            except REFUSED_RECORD as error:
                self._produce_later(error, topic, values[at:end], keys[key_at:key_end] if has_key else None, None)
            at, key_at = end, key_end

    def _write_any(self, topic: str, records: Records, key_text: KeyText | None) -> None:
        """Produce records among which are tombstones, or such as have headers."""
        produce, has_key, related = self._live().produce, records.has_key, records.related.tolist()
        exact = records.exact or {}
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
            if index in exact:
                headers = [*(headers or ()), (EXACT_HEADER, exact[index].header)]
            try:
                if headers is None:
                    produce(topic, value, key)
                else:
                    produce(topic, value, key, headers=headers)
            except REFUSED_RECORD as error:
                self._produce_later(error, topic, value, key, headers)

    def _produce_later(
        self,
        error: Exception,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, str | bytes | None]] | None,
    ) -> None:
        """Produce a record that the client refused because its queue is full, once there is room; raise another error."""
        named: dict[str, Any] = {} if headers is None else {"headers": headers}
        while True:
            self._make_room(error, topic)
            try:
                self._live().produce(topic, value, key, **named)
            except REFUSED_RECORD as again:
                error = again
            else:
                return


def _texts(records: Records) -> tuple[Texts, Texts | None]:
    """Return the values and the keys of records."""
    keys = (records.keys, records.key_offsets) if records.has_key else None
    return (records.values, records.value_offsets), keys
