"""librdkafka, as confluent-kafka brings it, by its C interface (rdkafka.h, version 2): a consumer without Python objects.

confluent-kafka's own consumer makes an object of each record: 2.1 µs a record, beside 0.7 for what is here (docs/performance.md).
Only what rdkafka.h promises is used: a client is made, reads partitions between offsets, and hands out addresses of
`rd_kafka_message_t`, which `spark_jobs.arrow.message_kernels` reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from kafkaio.slices import Slice
from schemas.errors import SinkError

_MAJOR: Final = 2
_CONSUMER: Final = 1  # RD_KAFKA_CONSUMER
_SET: Final = 0  # RD_KAFKA_CONF_OK
_TEXT_BYTES: Final = 512
_POINTER_BYTES: Final = 8
_SUFFIXES: Final = (".so", ".dylib")

# Errors of librdkafka (rd_kafka_resp_err_t).
END: Final = -191  # _PARTITION_EOF
NO_BROKER: Final = -187
"""No broker is left (_ALL_BROKERS_DOWN): it comes after the error of the last broker, which is the reason."""
PASSING: Final = frozenset({-195, -193, NO_BROKER, -185})
"""A lost connection, an unknown name, no broker, a time that is over."""
LASTING: Final = frozenset({-190, -188, -150, 3, 29})
"""A topic or partition that is not there, or not for this user; a client that has given up. A refused user is none: brokers that
start refuse users, too."""


class KafkaReadError(SinkError):
    """Records that a worker could not read from Kafka."""


_ErrorCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Partition(ctypes.Structure):
    """The first fields of `rd_kafka_topic_partition_t`."""

    _fields_ = (("topic", ctypes.c_char_p), ("partition", ctypes.c_int32), ("offset", ctypes.c_int64))


def is_there() -> bool:
    """Return whether this machine has a librdkafka that workers can use; it is not loaded yet."""
    return ctypes.sizeof(ctypes.c_void_p) == _POINTER_BYTES and _file() is not None


@cache
def library() -> ctypes.CDLL:
    """Return librdkafka; `KafkaReadError` where it is not there, or is another version."""
    path = _file()
    if path is None:
        message = "confluent-kafka is not installed, or has no librdkafka of its own: pip install 'confluent-kafka>=2.12,<3'"
        raise KafkaReadError(message)
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        message = f"librdkafka cannot be loaded: {error}"
        raise KafkaReadError(message) from None
    if found.rd_kafka_version() >> 24 != _MAJOR:
        message = f"librdkafka has version {found.rd_kafka_version():#x}; only {_MAJOR} is known"
        raise KafkaReadError(message)
    pointer, number, text, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
    partitions = ctypes.POINTER(_Partition)
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, ()),
        ("rd_kafka_conf_set", number, (pointer, text, text, text, size)),
        ("rd_kafka_conf_set_error_cb", None, (pointer, _ErrorCallback)),
        ("rd_kafka_conf_destroy", None, (pointer,)),
        ("rd_kafka_new", pointer, (number, pointer, text, size)),
        ("rd_kafka_poll_set_consumer", number, (pointer,)),
        ("rd_kafka_topic_partition_list_new", pointer, (number,)),
        ("rd_kafka_topic_partition_list_add", partitions, (pointer, text, ctypes.c_int32)),
        ("rd_kafka_topic_partition_list_destroy", None, (pointer,)),
        ("rd_kafka_assign", number, (pointer, pointer)),
        ("rd_kafka_incremental_unassign", pointer, (pointer, pointer)),
        ("rd_kafka_error_destroy", None, (pointer,)),
        ("rd_kafka_queue_get_consumer", pointer, (pointer,)),
        ("rd_kafka_consume_batch_queue", ctypes.c_ssize_t, (pointer, number, pointer, size)),
        ("rd_kafka_queue_destroy", None, (pointer,)),
        ("rd_kafka_topic_name", text, (pointer,)),
        ("rd_kafka_err2name", text, (number,)),
        ("rd_kafka_message_destroy", None, (pointer,)),
        ("rd_kafka_consumer_close", number, (pointer,)),
        ("rd_kafka_destroy", None, (pointer,)),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


@cache
def _file() -> Path | None:
    """Return the librdkafka that confluent-kafka brings."""
    try:
        files = metadata.files("confluent-kafka") or []
    except metadata.PackageNotFoundError:
        return None
    named = [one for one in files if one.name.startswith("librdkafka") and any(end in one.name for end in _SUFFIXES)]
    paths = [Path(str(one.locate())) for one in named]
    return paths[0] if len(paths) == 1 and paths[0].exists() else None


class BlockConsumer:
    """A consumer of the records between offsets: addresses of them leave. For one thread, and closed by `close`.

    `errors` are those of the whole client, code and reason, oldest first: they come while messages are taken.
    """

    def __init__(self, options: Mapping[str, str], slices: Iterable[Slice]) -> None:
        self._library = library()
        self.errors: list[tuple[int, str]] = []

        def note(_client: int, code: int, reason: bytes | None, _opaque: int) -> None:
            self.errors.append((code, (reason or b"").decode(errors="replace")))

        self._on_error = _ErrorCallback(note)  # to be there as long as the client
        self._client = self._opened(options)
        self._library.rd_kafka_poll_set_consumer(self._client)
        self._queue = self._library.rd_kafka_queue_get_consumer(self._client)
        try:
            self._assign(list(slices))
        except KafkaReadError:
            self.close()
            raise

    def _opened(self, options: Mapping[str, str]) -> int:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = self._library.rd_kafka_conf_new()
        for name, value in options.items():
            if self._library.rd_kafka_conf_set(conf, name.encode(), value.encode(), text, _TEXT_BYTES) != _SET:
                self._library.rd_kafka_conf_destroy(conf)
                message = f"Kafka's client does not take the option {name}: {_said(text)}"
                raise KafkaReadError(message)
        self._library.rd_kafka_conf_set_error_cb(conf, self._on_error)
        client: int | None = self._library.rd_kafka_new(_CONSUMER, conf, text, _TEXT_BYTES)
        if not client:
            self._library.rd_kafka_conf_destroy(conf)
            message = f"no client of Kafka can be made: {_said(text)}"
            raise KafkaReadError(message)
        return client

    def _assign(self, slices: list[Slice]) -> None:
        listed = self._listed(slices)
        failed = self._library.rd_kafka_assign(self._client, listed)
        self._library.rd_kafka_topic_partition_list_destroy(listed)
        if failed:
            message = f"Kafka's client does not read {', '.join(sorted({one.topic for one in slices}))}: {self.name_of(failed)}"
            raise KafkaReadError(message)

    def _listed(self, slices: list[Slice]) -> int:
        listed: int = self._library.rd_kafka_topic_partition_list_new(len(slices))
        for one in slices:
            added = self._library.rd_kafka_topic_partition_list_add(listed, one.topic.encode(), one.partition)
            added.contents.offset = one.start
        return listed

    def leave(self, slices: list[Slice]) -> None:
        """Read no more of these partitions."""
        listed = self._listed(slices)
        error = self._library.rd_kafka_incremental_unassign(self._client, listed)
        self._library.rd_kafka_topic_partition_list_destroy(listed)
        if error:  # what comes of them is passed over
            self._library.rd_kafka_error_destroy(error)

    def consume(self, addresses: int, most: int, wait_ms: int) -> int:
        """Write the addresses of messages to memory, at most so many, until so much time is over; return how many.

        Errors and ends of partitions are messages, too. Each is to be given back by the function at `give_back`.
        """
        return max(0, int(self._library.rd_kafka_consume_batch_queue(self._queue, wait_ms, addresses, most)))

    @property
    def give_back(self) -> int:
        """The address of the function that messages are given back by."""
        return ctypes.cast(self._library.rd_kafka_message_destroy, ctypes.c_void_p).value or 0

    def topic_of(self, topic: int) -> str:
        """Return the name of the topic of a message."""
        return str(self._library.rd_kafka_topic_name(topic).decode())

    def name_of(self, code: int) -> str:
        """Return the name of an error."""
        return str(self._library.rd_kafka_err2name(code).decode())

    def close(self) -> None:
        """End the client; every message must have been given back."""
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_consumer_close(self._client)
        self._library.rd_kafka_destroy(self._client)


def _said(text: ctypes.Array[ctypes.c_char]) -> str:
    return text.value.decode(errors="replace")
