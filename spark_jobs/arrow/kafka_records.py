"""The records of slices, read from Kafka by a worker itself: Arrow batches leave, made without a Python object for each record.

librdkafka fetches and unpacks on threads of its own. A slice is done when a record at its end or behind it has come, or when the
broker says that the partition ends there: ends of transactions take offsets as well, and are no records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafkaio.librdkafka import END, LASTING, NO_BROKER, PASSING, BlockConsumer, KafkaReadError
from kafkaio.slices import NUMBER, SNAPSHOT, Slice
from spark_jobs.arrow.message_kernels import (
    ERROR,
    FIELDS,
    KEY,
    KEY_SIZE,
    OFFSET,
    PARTITION,
    TOPIC,
    VALUE,
    VALUE_SIZE,
    copy_bytes,
    fields_of,
    give_back,
    is_ascending,
    runs_of,
)

if TYPE_CHECKING:
    import numpy.typing as npt

_MOST_MESSAGES: Final = 16_384
_FIRST_MESSAGES: Final = 1_024
_FEWEST_MESSAGES: Final = 16
_BLOCK_BYTES: Final = 32 << 20
"""So many bytes are taken over at once, about: as many messages as that is by the size of the last ones."""
_WAIT_MS: Final = 5
_SILENCE_S: Final = 15.0
_LARGEST_OFFSET: Final = 2**31 - 1


@dataclass(slots=True)
class _SliceProgress:
    """A slice that is read: up to which offset it was, the code of its topic, and whether it is done."""

    part: Slice
    topic_code: int
    next_offset: int
    is_done: bool = False


def record_batches(options: Mapping[str, str], slices: Sequence[Slice], codes: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """Return the committed records of the slices: `NUMBER`, `SNAPSHOT`, partition, key, value.

    The code of a topic is twice the number of its table, and one more for snapshot records. Records of a partition come in order.
    `KafkaReadError` where records are gone, a topic or a right is missing, or nothing has come for 15 s.
    """
    readings = {(one.topic, one.partition): _SliceProgress(one, codes[one.topic], one.start) for one in slices}
    consumer = BlockConsumer(options, slices)
    try:
        yield from _Blocks(consumer, readings).read()
    finally:
        consumer.close()


class _Blocks:
    """Messages of a consumer, block by block."""

    def __init__(self, consumer: BlockConsumer, readings: Mapping[tuple[str, int], _SliceProgress]) -> None:
        self._consumer = consumer
        self._readings = readings
        self._by_address: dict[tuple[int, int], _SliceProgress | None] = {}
        self._messages = np.zeros(_MOST_MESSAGES, np.int64)
        self._fields = np.zeros((_MOST_MESSAGES, FIELDS), np.int64)
        self._starts = np.zeros(_MOST_MESSAGES, np.int64)
        self._most = _FIRST_MESSAGES
        self._error = ""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the batches until all slices are done."""
        function, moved_s = self._consumer.give_back, time.monotonic()
        while waiting := [one for one in self._readings.values() if not one.is_done]:
            count = self._consumer.consume(self._messages.ctypes.data, self._most, _WAIT_MS)
            try:
                found = self._batch(count)
            finally:
                give_back(function, self._messages, count)
            self._note_errors_of_client()
            if found is not None:
                yield found
                moved_s = time.monotonic()  # not before: decoding it takes time, too
            elif time.monotonic() - moved_s > _SILENCE_S:
                topics = ", ".join(sorted({one.part.topic for one in waiting}))
                message = f"Kafka has sent no record of {topics} for {_SILENCE_S:g} s{self._error and f': {self._error}'}"
                raise KafkaReadError(message)

    def _batch(self, count: int) -> pa.RecordBatch | None:
        """Return the records of some messages that belong to slices; None if there are none."""
        fields_of(self._messages, count, self._fields)
        runs = int(runs_of(self._fields, count, self._starts))
        bounds = [*self._starts[:runs].tolist(), count]
        kept: list[tuple[int, int, _SliceProgress]] = []
        done: list[Slice] = []
        for first, last in pairwise(bounds):
            reading = self._reading_of(first)
            until = self._read_until(first, last, reading)
            if until > first and reading is not None:
                kept.append((first, until, reading))
            if reading is not None and reading.is_done and reading.part not in done:
                done.append(reading.part)
        if done and any(not one.is_done for one in self._readings.values()):
            self._consumer.leave(done)
        return self._rows(kept) if kept else None

    def _reading_of(self, row: int) -> _SliceProgress | None:
        """Return the slice that a message is of; None where it names no partition, or one that is not read."""
        topic, partition = int(self._fields[row, TOPIC]), int(self._fields[row, PARTITION])
        if not topic:
            return None
        if (topic, partition) not in self._by_address:
            self._by_address[topic, partition] = self._readings.get((self._consumer.topic_of(topic), partition))
        return self._by_address[topic, partition]

    def _read_until(self, first: int, last: int, reading: _SliceProgress | None) -> int:
        """Return the message behind the last one of a run that belongs to its slice, and note how far the slice is read."""
        error = int(self._fields[first, ERROR])
        if error and error != END:
            self._note_error(error, reading)
            return first
        if reading is None or reading.is_done:
            return first
        part, offsets = reading.part, self._fields[first:last, OFFSET]
        if error:
            reading.is_done = int(offsets[0]) >= part.end
            return first
        if offsets[0] < reading.next_offset or not is_ascending(self._fields, first, last):
            message = (
                f"topic {part.topic} partition {part.partition}: a record at {int(offsets[0])} came where {reading.next_offset} or "
                "a later one was next"
            )
            raise KafkaReadError(message)
        until = first + int(np.searchsorted(offsets, part.end))
        reading.next_offset = int(offsets[-1]) + 1
        reading.is_done = reading.next_offset >= part.end
        return until

    def _note_error(self, code: int, reading: _SliceProgress | None) -> None:
        """Remember an error that may pass, and one of a slice that is done; `KafkaReadError` for any other."""
        self._error = self._consumer.name_of(code)
        if code in PASSING or reading is None or reading.is_done:
            return
        part = reading.part
        message = f"topic {part.topic} partition {part.partition} cannot be read from {reading.next_offset} on: {self._error}"
        raise KafkaReadError(message)

    def _note_errors_of_client(self) -> None:
        """Remember the last reason of the client; `KafkaReadError` for one that does not pass."""
        while self._consumer.errors:
            code, reason = self._consumer.errors.pop(0)
            if code != NO_BROKER or not self._error:
                self._error = f"{reason} ({self._consumer.name_of(code)})"
            if code in LASTING:
                message = f"Kafka cannot be read: {self._error}"
                raise KafkaReadError(message)

    def _rows(self, kept: Sequence[tuple[int, int, _SliceProgress]]) -> pa.RecordBatch:
        rows = np.concatenate([np.arange(first, last) for first, last, _ in kept])
        counts = [last - first for first, last, _ in kept]
        codes = np.repeat([reading.topic_code for *_, reading in kept], counts)
        keys = _column(self._fields, rows, KEY, KEY_SIZE)
        values = _column(self._fields, rows, VALUE, VALUE_SIZE)
        size = max(1, (keys.nbytes + values.nbytes) // rows.size)
        self._most = min(_MOST_MESSAGES, max(_FEWEST_MESSAGES, _BLOCK_BYTES // size))
        return pa.RecordBatch.from_arrays(
            [
                pa.array((codes >> 1).astype(np.int32)),
                pa.array((codes & 1).astype(bool)),
                pa.array(self._fields[rows, PARTITION].astype(np.int32)),
                keys,
                values,
            ],
            [NUMBER, SNAPSHOT, "partition", "key", "value"],
        )


def _column(fields: Any, rows: npt.NDArray[np.int64], address: int, size: int) -> pa.Array:
    """Return the bytes at these columns of some messages as an array; an address of 0 is null."""
    nulls = fields[rows, address] == 0
    total = int(fields[rows, size][~nulls].sum())
    data, offsets = np.empty(total, np.uint8), np.empty(rows.size + 1, np.int64)
    copy_bytes(fields, rows, address, size, data, offsets)
    is_large = total > _LARGEST_OFFSET
    kind = pa.large_binary() if is_large else pa.binary()
    ends = offsets if is_large else offsets.astype(np.int32)
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    return pa.Array.from_buffers(kind, rows.size, [valid, pa.py_buffer(ends), pa.py_buffer(data)])
