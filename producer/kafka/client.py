"""librdkafka settings shared by every client of the producer, and admin calls on topics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from schemas.errors import KafkaAccessError, PublishError, StateError
from schemas.waiting import WAITS, waiting

_Client = TypeVar("_Client")
_Answer = TypeVar("_Answer")

ADMIN_TIMEOUT_S: Final = 30.0
_PARTITIONS_AT_ONCE: Final = 1_000  # a controller of KRaft takes 10,000 records in a request
_ASKED_AT_ONCE: Final = 1_000  # librdkafka gives all of a request up while one leader is unknown
_RETRY_S: Final = 0.1
_TURN_S: Final = 3.0
_FINAL: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)
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


def is_refusal(error: KafkaError) -> bool:
    """Return whether brokers refuse our user, or we their certificate; a broker that is starting breaks handshakes off, too."""
    is_tls = error.code() == KafkaError._SSL  # noqa: SLF001 - its public name
    return error.code() in _REFUSALS or (is_tls and "certificate" in error.str())


def with_leaders(ask: Callable[[], _Answer], within_s: float, look: Callable[[], object] | None = None) -> _Answer:
    """Return what `ask` answers once the partitions it asks for have leaders that know of it; `KafkaException` if not in time.

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
        time.sleep(_RETRY_S)
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
                consumer.list_topics(topic, timeout=_TURN_S)

    return look


def watermarks(consumer: Consumer, topic_partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return a partition's first offset, and the one behind the last that `consumer` can read; `with_leaders`."""
    ask = partial(consumer.get_watermark_offsets, topic_partition, timeout=timeout_s)
    return with_leaders(ask, timeout_s, leaders_of(consumer, [topic_partition.topic]))


def offsets_for_times(consumer: Consumer, wanted: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """Return of each partition the offset of its first record from a time on (in milliseconds, as its offset); `with_leaders`."""

    def ask() -> list[TopicPartition]:
        found = consumer.offsets_for_times(list(wanted), timeout=timeout_s)
        for part in found:
            if part.error is not None:
                raise KafkaException(part.error)
        return list(found)

    return with_leaders(ask, timeout_s, leaders_of(consumer, sorted({part.topic for part in wanted})))


class TopicAdmin:
    """Creates topics, reports their partition counts and end offsets."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, Any]) -> None:
        self._refusal: str | None = None
        self._servers = bootstrap_servers
        self._config: dict[str, Any] = {**client_config(bootstrap_servers, options), "error_cb": self._on_error}
        self._admin = opened(AdminClient, self._config)
        self._partitions: dict[str, int] = {}

    def partitions(self, topic: str) -> int:
        """Return number of partitions of an existing topic; `StateError` when it does not exist."""
        count = self._partitions.get(topic)
        if count is None:
            count = self._fetch_partitions([topic]).get(topic)
            if count is None:
                message = f"topic {topic} does not exist"
                raise StateError(message)
            self._partitions[topic] = count
        return count

    def forget(self, topic: str) -> None:
        """Ask again for its partition count the next time."""
        self._partitions.pop(topic, None)

    def partitions_now(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition counts of those that exist, asked again."""
        return self._fetch_partitions(topics)

    def ensure(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create the topics that do not exist, with that many partitions each (broker's default replicas).

        An existing topic keeps what it has; a partition count that differs from the recorded one is the
        caller's to detect (`partitions`).
        """
        missing = [topic for topic in topics if topic not in self._partitions]
        if not missing:
            return
        existing = self._fetch_partitions(missing)
        self._partitions.update(existing)
        new = [topic for topic in missing if topic not in existing]
        most = max(1, _PARTITIONS_AT_ONCE // max((topics[topic] for topic in new), default=1))
        for first in range(0, len(new), most):
            self._create({topic: topics[topic] for topic in new[first : first + most]}, config or {})
        self._wait_for([topic for topic in new if topic not in self._partitions])

    def _wait_for(self, topics: Iterable[str]) -> None:
        """Topics that are there, although the brokers did not report of them: somebody, or our predecessor, has just made them."""
        missing = set(topics)
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while missing:
            found = self._fetch_partitions(missing)
            self._partitions.update(found)
            missing -= found.keys()
            if missing and time.monotonic() > deadline:
                message = (
                    f"{len(missing)} topics exist, but after {ADMIN_TIMEOUT_S:g} s no broker reports their partitions, those of "
                    f"{min(missing)} for example: do the brokers follow their controller?"
                )
                raise PublishError(message)
            if missing:
                time.sleep(_RETRY_S)

    def _create(self, topics: Mapping[str, int], config: Mapping[str, str]) -> None:
        """Those that exist already are left to `_wait_for`."""
        new = [
            NewTopic(topic, num_partitions=count, replication_factor=-1, config=dict(config))
            for topic, count in topics.items()
        ]
        for topic, future in self._admin.create_topics(new, request_timeout=ADMIN_TIMEOUT_S).items():
            try:
                with waiting("kafka", self._servers, f"topic {topic} to be created"):
                    future.result()  # comes within the time of the request
                self._partitions[topic] = topics[topic]
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    message = f"topic {topic} cannot be created: {error.args[0].str()}"
                    raise PublishError(message) from error

    def end_offsets(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offset (exclusive, records of open transactions included) of every partition of the topics."""
        wanted = [TopicPartition(topic, partition) for topic in topics for partition in range(self.partitions(topic))]
        return self._ends(wanted, IsolationLevel.READ_UNCOMMITTED)

    def readable_ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offset (exclusive, of committed transactions only) of every partition of those topics that exist now."""
        counts = self._fetch_partitions(topics)
        wanted = [TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)]
        return self._ends(wanted, IsolationLevel.READ_COMMITTED)

    def _ends(self, wanted: list[TopicPartition], isolation: IsolationLevel) -> dict[str, dict[int, int]]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends: dict[str, dict[int, int]] = {}
        for begin in range(0, len(wanted), _ASKED_AT_ONCE):
            request: dict[TopicPartition, Any] = dict.fromkeys(wanted[begin : begin + _ASKED_AT_ONCE], latest)
            deadline = time.monotonic() + ADMIN_TIMEOUT_S
            while request:
                request = self._list_offsets(request, ends, isolation, retry=time.monotonic() < deadline)
                if request:  # reported of a topic before its leader, librdkafka asks for that leader until all of this is reported
                    time.sleep(_RETRY_S)
                    self._metadata()
        return ends

    def _list_offsets(
        self, request: dict[TopicPartition, Any], ends: dict[str, dict[int, int]], isolation: IsolationLevel, *, retry: bool
    ) -> dict[TopicPartition, Any]:
        """Fill in `ends`; what has to be asked again (a new topic's leader is not known at once)."""
        again = {}
        futures = self._admin.list_offsets(
            request, isolation_level=isolation, request_timeout=ADMIN_TIMEOUT_S
        )
        for where, future in futures.items():
            try:
                with waiting("kafka", self._servers, f"the end of {where.topic}[{where.partition}]"):
                    found = future.result()  # comes within the time of the request
                ends.setdefault(where.topic, {})[where.partition] = found.offset
            except KafkaException as error:
                if retry and error.args[0].code() not in _FINAL:
                    again[where] = request[where]
                    continue
                message = (
                    f"end offset of {where.topic}[{where.partition}] cannot be read: {error.args[0].str()}"
                )
                raise PublishError(message) from error
        return again

    def _metadata(self) -> Any:
        """Return what the brokers report of all topics; ask in short turns, since a refusal is seen only between them."""
        self._refusal = None
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        with waiting("kafka", self._servers, "the list of topics"):
            while True:
                try:
                    return self._admin.list_topics(timeout=_TURN_S)
                except KafkaException as error:
                    self._admin.poll(0)
                    refusal = self._refused_by()
                    if refusal:
                        message = f"Kafka refuses us: {refusal}; check kafka.security_protocol, kafka.sasl and kafka.tls"
                        raise KafkaAccessError(message) from error
                    if WAITS.is_ending or time.monotonic() > deadline:
                        with contextlib.suppress(KafkaAccessError):  # a file that is missing for a moment
                            self._admin = opened(AdminClient, self._config)  # see `leaders_of`
                        message = f"Kafka cannot be reached: {error.args[0].str()}; check kafka.bootstrap_servers"
                        raise PublishError(message) from error

    def _refused_by(self) -> str:
        return self._refusal or ""

    def _on_error(self, error: KafkaError) -> None:
        """Log what the brokers report of users and certificates; a call of the client reports only that it timed out."""
        if is_refusal(error):
            self._refusal = error.str()

    def _fetch_partitions(self, topics: Iterable[str]) -> dict[str, int]:
        wanted = set(topics)
        metadata = self._metadata()
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if name in wanted and topic.error is None
        }
