"""Blocks of records into librdkafka by one call each, without a Python object, or Python's lock, for each record.

`Producer.produce` of confluent-kafka makes two Python objects a record, and takes Python's lock once more when it is acknowledged.
Without both, catching up needs a seventh less CPU (docs/performance.md). librdkafka has `rd_kafka_produce_batch`
(rdkafka.h): an array of addresses and lengths. confluent-kafka's own `produce_batch` makes that array from a dict for each record,
which costs as much as single calls.

So the array is filled here, from the offsets of `Texts`, and given to the client that confluent-kafka has made. Its address is
the first field of confluent-kafka's object (`Handle` in confluent_kafka.h), which is no promise of theirs: it is used only where
the memory there belongs to a librdkafka 2 that calls itself a producer of the configured name, and with no version of
confluent-kafka that is newer than those which were looked at. Anywhere else `block_producer` returns None, and records are
produced one by one.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, Producer

Texts = tuple[bytes, npt.NDArray[np.int64]]
"""Keys or values one behind the other, and the offset of the first byte of each, and behind the last one."""
WORTH: Final = 32
"""Records of a block from which on one call costs less: 0.51 µs a record instead of 0.62; with 16 it is 0.90 instead of 0.80."""
_AT_ONCE: Final = 8192
"""Records of one call: librdkafka locks the topic meanwhile."""
_COPY: Final = 2  # RD_KAFKA_MSG_F_COPY
_ANY_PARTITION: Final = -1  # RD_KAFKA_PARTITION_UA
_MAJOR: Final = 2
_NEWEST_KNOWN: Final = (2, 16)
"""The newest confluent-kafka whose `Handle` was looked at."""
_MESSAGE: Final = np.dtype(
    {
        "names": ["err", "rkt", "partition", "payload", "len", "key", "key_len", "offset", "_private"],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)  # rd_kafka_message_t where pointers have 64 bits


class BlockProducer:
    """Produces blocks with the client of a `Producer`; used by the thread of its owner, and never after its `close`."""

    def __init__(self, producer: Producer, client: int, library: ctypes.CDLL) -> None:
        self._producer = producer  # its client lives as long
        self._client = client
        self._library = library

    def produce(self, topic: str, values: Texts, keys: Texts | None, begin: int) -> tuple[int, Exception | None]:
        """Produce records from `begin` on, all with a value and without header; return how many were taken, and why not more.

        The client copies them. Of a block it takes the first ones: where its queue is full it takes no later record of the call.
        """
        count = min(len(values[1]) - 1 - begin, _AT_ONCE)
        block = np.zeros(count, _MESSAGE)
        _fill(block, "payload", "len", values[0], values[1][begin : begin + count + 1])
        if keys is not None:
            _fill(block, "key", "key_len", keys[0], keys[1][begin : begin + count + 1])
        library = self._library
        handle = library.rd_kafka_topic_new(self._client, topic.encode(), None)
        if not handle:
            return 0, KafkaException(KafkaError(KafkaError._INVALID_ARG))  # noqa: SLF001 - its public name
        try:
            taken = int(library.rd_kafka_produce_batch(handle, _ANY_PARTITION, _COPY, block.ctypes.data, count))
        finally:
            library.rd_kafka_topic_destroy(handle)
        if taken == count:
            return taken, None
        first = int(np.flatnonzero(block["err"])[0])
        code = int(block["err"][first])
        if code != KafkaError._QUEUE_FULL:  # noqa: SLF001 - its public name
            return first, KafkaException(KafkaError(code))
        if first != taken:  # later ones were taken: records of one key would change places
            return first, KafkaException(KafkaError(KafkaError._FAIL))  # noqa: SLF001 - its public name
        return first, BufferError()


def _fill(block: Any, address: str, length: str, data: bytes, offsets: npt.NDArray[np.int64]) -> None:
    block[address] = int(np.frombuffer(data, np.uint8).ctypes.data) + offsets[:-1]
    block[length] = np.diff(offsets)


def is_addressable(values: Texts, keys: Texts | None) -> bool:
    """Return whether keys and values have an address: without one, empty texts would be taken for null."""
    return bool(values[0]) and (keys is None or bool(keys[0]))


def block_producer(producer: Producer, name: str) -> BlockProducer | None:
    """Return the producer of blocks with the client of a producer of this `client.id`; None if that is not certain to work."""
    library = _library()
    if library is None or type(producer) is not Producer:
        return None
    client = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__).value
    if client is None or not _is_mapped(client):
        return None
    client_id = library.rd_kafka_name(client)
    if client_id is None or not client_id.decode(errors="replace").startswith(f"{name}#producer-"):
        return None
    return BlockProducer(producer, client, library)


@cache
def _library() -> ctypes.CDLL | None:
    """Return the librdkafka that confluent-kafka has loaded."""
    if ctypes.sizeof(ctypes.c_void_p) != np.dtype("u8").itemsize or not _is_known():
        return None
    paths = {line[5] for line in _maps() if len(line) > 5 and "librdkafka" in Path(line[5]).name}
    if len(paths) != 1:
        return None
    try:
        library = ctypes.CDLL(paths.pop())
    except OSError:  # it was removed since it was loaded, as by an upgrade
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    if library.rd_kafka_version() != confluent_kafka.libversion()[1] or library.rd_kafka_version() >> 24 != _MAJOR:
        return None
    library.rd_kafka_name.argtypes, library.rd_kafka_name.restype = [pointer], ctypes.c_char_p
    library.rd_kafka_topic_new.argtypes, library.rd_kafka_topic_new.restype = [pointer, ctypes.c_char_p, pointer], pointer
    library.rd_kafka_topic_destroy.argtypes, library.rd_kafka_topic_destroy.restype = [pointer], None
    library.rd_kafka_produce_batch.argtypes = [pointer, ctypes.c_int32, number, pointer, number]
    library.rd_kafka_produce_batch.restype = number
    return library


def _is_known() -> bool:
    """Return whether the layout of `Handle` is known for the installed confluent-kafka."""
    try:
        return tuple(map(int, metadata.version("confluent-kafka").split(".")[:2])) <= _NEWEST_KNOWN
    except (metadata.PackageNotFoundError, ValueError):
        return False


def _is_mapped(address: int) -> bool:
    """Return whether this process may read and write the memory at an address."""
    for bounds, rights, *_ in _maps():
        low, high = (int(part, 16) for part in bounds.split("-"))
        if low <= address < high:
            return rights.startswith("rw")
    return False


def _maps() -> list[list[str]]:
    """Return the fields of /proc/self/maps (proc(5)); an empty list without such a file."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.split(maxsplit=5) for line in lines]
    except OSError:
        return []
