"""Options that every client has, its errors, and questions that wait for the leaders of partitions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, libversion
from confluent_kafka.admin import AdminClient

from schemas.errors import KafkaAccessError, KafkaRefusalError, PublishError

_Client = TypeVar("_Client")
_Answer = TypeVar("_Answer")

RETRY_S: Final = 0.1
TURN_S: Final = 3.0
_UNSETTLED: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - their public names
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
_FINAL: Final = frozenset(
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
_REFUSALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)


def client_config(bootstrap_servers: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a client's configuration that all clients share; `options` wins."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 2,  # lost connections are reported by errors and error_cb; librdkafka repeats them on stderr
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2000,
        **options,
    }


def opened(kind: Callable[[dict[str, Any]], _Client], config: dict[str, Any]) -> _Client:
    """Return a client of Kafka; `KafkaAccessError` where it refuses its configuration: files of TLS are read in its constructor."""
    try:
        return kind(config)
    except KafkaException as error:
        message = (
            f"no client of Kafka can be made: {error.args[0].str()}; check kafka.security_protocol, kafka.tls, kafka.sasl "
            "and kafka.options"
        )
        raise KafkaAccessError(message) from error


def client_version() -> str:
    """Return the version of librdkafka."""
    return str(libversion()[0])


def refused_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options that librdkafka refuses, each with the reason; nothing is connected to."""
    for name, value in options.items():
        try:
            AdminClient({"log_level": "0", name: value})
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            yield name, reason.replace(value, "...") if value else reason


def answers(client: Consumer | AdminClient, topic: str, within_s: float) -> bool:
    """Return whether a broker answers a client in time."""
    try:
        client.list_topics(topic, timeout=within_s)
    except KafkaException:
        return False
    return True


def failure(message: str, cause: KafkaError) -> PublishError:
    """Return the error of a call of a client: `KafkaRefusalError` if another attempt cannot help."""
    return KafkaRefusalError(message) if cause.code() in _FINAL else PublishError(message)


def is_refusal(error: KafkaError) -> bool:
    """Return whether brokers refuse our user, or we their certificate; a broker that is starting breaks handshakes off, too."""
    is_tls = error.code() == KafkaError._SSL  # noqa: SLF001 - its public name
    return error.code() in _REFUSALS or (is_tls and "certificate" in error.str())


def with_leaders(ask: Callable[[], _Answer], within_s: float, look: Callable[[], object] | None = None) -> _Answer:
    """Return the answer of `ask` once the partitions it asks for have leaders that know of it; `KafkaException` if not in time.

    A topic that was made just now, and one whose leader changes, has none for a moment: Kafka answers their creation first.
    `look` is called before `ask` is called again: it has the client ask the brokers for leaders (`leaders_of`).
    """
    deadline = time.monotonic() + within_s
    while True:
        asked = time.monotonic()  # an answer that took its time is an old one
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _UNSETTLED or asked > deadline:
                raise
        time.sleep(RETRY_S)
        if look is not None:
            look()


def leaders_of(consumer: Consumer, topics: Iterable[str]) -> Callable[[], None]:
    """Return a function that has a client ask the brokers for the leaders of topics; it does nothing where none answers.

    librdkafka (2.16) does not ask by itself for the leader of a partition that had none when it last asked: it calls the partition
    unknown, for up to five minutes (`topic.metadata.refresh.interval.ms`). A broker that was frozen for some seconds reports that.

    Where such a broker reports that there is no broker at all, the client forgets every one, the bootstrap servers too. Mostly it
    begins again with those; in chaos it has not, twice, and was not connected to any broker five minutes later. So whatever lives
    long makes another client once its questions fail (`rd_kafka_metadata_decommission_unavailable_brokers`).
    """

    def look() -> None:
        with contextlib.suppress(KafkaException):
            for topic in topics:
                consumer.list_topics(topic, timeout=TURN_S)

    return look


def watermarks(consumer: Consumer, topic_partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return a partition's first offset, and the one behind the last that `consumer` can read; `with_leaders`."""
    ask = partial(consumer.get_watermark_offsets, topic_partition, timeout=timeout_s)
    return with_leaders(ask, timeout_s, leaders_of(consumer, [topic_partition.topic]))


def offsets_for_times(consumer: Consumer, wanted: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """Return of each partition the offset of its first record from a time on (in milliseconds, as its offset); `with_leaders`."""

    def ask() -> list[TopicPartition]:
        answers = consumer.offsets_for_times(list(wanted), timeout=timeout_s)
        for part in answers:
            if part.error is not None:
                raise KafkaException(part.error)
        return list(answers)

    return with_leaders(ask, timeout_s, leaders_of(consumer, sorted({part.topic for part in wanted})))
