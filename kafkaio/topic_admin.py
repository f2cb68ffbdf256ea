"""Topics: which there are, with how many partitions and which ends; and those that are missing are created."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from kafkaio.client import RETRY_S, TURN_S, answers, client_config, failure, is_refusal, opened
from schemas.applied.kafka_security import client_options
from schemas.errors import KafkaAccessError, PublishError, StateError
from schemas.waiting import WAITS, waiting

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

ADMIN_TIMEOUT_S: Final = 30.0
_SETTLES_S: Final = 5.0
_PARTITIONS_AT_ONCE: Final = 1_000  # a controller of KRaft takes 10,000 records in a request
_ASKED_AT_ONCE: Final = 1_000  # librdkafka gives all of a request up while one leader is unknown
_UNKNOWN: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - its public name
_READ_ALL: Final = IsolationLevel.READ_UNCOMMITTED
_FINAL: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)


class TopicAdmin:
    """Creates topics, reports their partition counts and end offsets. Brokers have `answer_s` for each answer.

    `refusal` is the reason why brokers refuse our user, "" while they do not.
    """

    def __init__(self, kafka: KafkaSettings, answer_s: float = ADMIN_TIMEOUT_S) -> None:
        self.refusal = ""
        self._answer_s = answer_s
        self._servers = kafka.bootstrap_servers
        note = partial(_note_refusal, weakref.ref(self))  # a bound method would keep the client until a collection of garbage
        options = {**client_options(kafka), "allow.auto.create.topics": False, "error_cb": note}
        self._config = client_config(self._servers, options)
        self._admin = opened(AdminClient, self._config)
        self._partitions: dict[str, int] = {}

    def answers(self, topic: str, within_s: float) -> bool:
        """Return whether a broker answers in time."""
        return answers(self._admin, topic, within_s)

    def partitions(self, topic: str) -> int:
        """Return number of partitions of an existing topic; `StateError` when it does not exist."""
        count = self._partitions.get(topic)
        if count is None:
            count = self.partitions_now([topic]).get(topic)
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
        wanted = set(topics)
        metadata = self._metadata(min(wanted) if len(wanted) == 1 else None)
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if name in wanted and topic.error is None
        }

    def ensure(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create the topics that do not exist, with that many partitions each (broker's default replicas).

        An existing topic keeps what it has; a partition count that differs from the recorded one is the
        caller's to detect (`partitions`).

        Each partition of a new topic is served by its leader when this returns. Kafka answers a creation earlier, and records
        that are sent then may be lost without an error, even in a transaction (Kafka 4.1, librdkafka 2): the broker refuses
        the first request, takes the second one, and calls the repeat of the first one a duplicate. Topics that exist may have
        been made a moment ago by a process that died: their leaders are waited for as well, but not long.
        """
        missing = [topic for topic in topics if topic not in self._partitions]
        if not missing:
            return
        existing = self.partitions_now(missing)
        self._partitions.update(existing)
        new = [topic for topic in missing if topic not in existing]
        most = max(1, _PARTITIONS_AT_ONCE // max((topics[topic] for topic in new), default=1))
        with contextlib.suppress(PublishError):  # a partition may have been without a leader for long
            self._ends(self._all_partitions(existing), _READ_ALL, _SETTLES_S)
        try:
            for first in range(0, len(new), most):
                self._create({topic: topics[topic] for topic in new[first : first + most]}, config or {})
            self._wait_for([topic for topic in new if topic not in self._partitions])
            self._ends(self._all_partitions(new), _READ_ALL)
        except PublishError:
            for topic in new:
                self.forget(topic)
            raise

    def ensure_single(self, topic: str, config: Mapping[str, str]) -> None:
        """Create a topic with one partition if it does not exist; `StateError` if it has more."""
        self.ensure({topic: 1}, config)
        count = self.partitions(topic)
        if count != 1:
            message = f"topic {topic} has {count} partitions, and its records are in order in one only: delete the topic"
            raise StateError(message)

    def _all_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic in topics for partition in range(self.partitions(topic))]

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic, which another one of the same name does not have; None if it does not exist."""
        try:
            with waiting("kafka", self._servers, f"the id of topic {topic}"):
                asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._answer_s)
                return str(asked[topic].result().topic_id)
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN:
                return None
            raise failure(f"topic {topic} cannot be described: {error.args[0].str()}", error.args[0]) from error

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics by name."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        try:
            with waiting("kafka", self._servers, "the settings of topics"):
                answers = self._admin.describe_configs(resources, request_timeout=self._answer_s)
                settings = {resource.name: answer.result() for resource, answer in answers.items()}
        except KafkaException as error:
            raise failure(f"settings of topics cannot be read: {error.args[0].str()}", error.args[0]) from error
        return {topic: {name: entry.value for name, entry in entries.items()} for topic, entries in settings.items()}

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone; one that does not exist is no error."""
        self.forget(topic)
        try:
            with waiting("kafka", self._servers, f"topic {topic} to be deleted"):
                self._admin.delete_topics([topic], request_timeout=self._answer_s)[topic].result()
        except KafkaException as error:
            if error.args[0].code() not in _UNKNOWN:
                raise failure(f"topic {topic} cannot be deleted: {error.args[0].str()}", error.args[0]) from error
        deadline = time.monotonic() + self._answer_s
        while self.topic_id(topic) is not None:
            if time.monotonic() > deadline:
                raise PublishError(f"topic {topic} was deleted, and is still there after {self._answer_s:g} s")
            time.sleep(RETRY_S)

    def _wait_for(self, topics: Iterable[str]) -> None:
        """Topics that are there, although the brokers did not report of them: somebody, or our predecessor, has just made them."""
        missing = set(topics)
        deadline = time.monotonic() + self._answer_s
        while missing:
            counts = self.partitions_now(missing)
            self._partitions.update(counts)
            missing -= counts.keys()
            if missing and time.monotonic() > deadline:
                message = (
                    f"{len(missing)} topics exist, but after {self._answer_s:g} s no broker reports their partitions, those of "
                    f"{min(missing)} for example: do the brokers follow their controller?"
                )
                raise PublishError(message)
            if missing:
                time.sleep(RETRY_S)

    def _create(self, topics: Mapping[str, int], config: Mapping[str, str]) -> None:
        """Those that exist already are left to `_wait_for`."""
        new = [
            NewTopic(topic, num_partitions=count, replication_factor=-1, config=dict(config))
            for topic, count in topics.items()
        ]
        for topic, future in self._admin.create_topics(new, request_timeout=self._answer_s).items():
            try:
                with waiting("kafka", self._servers, f"topic {topic} to be created"):
                    future.result()  # comes within the time of the request
                self._partitions[topic] = topics[topic]
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    message = f"topic {topic} cannot be created: {error.args[0].str()}"
                    raise failure(message, error.args[0]) from error

    def end_offsets(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offset (exclusive, records of open transactions included) of every partition of the topics."""
        return self._ends(self._all_partitions(topics), _READ_ALL)

    def readable_ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offset (exclusive, of committed transactions only) of every partition of those topics that exist now."""
        counts = self.partitions_now(topics)
        wanted = [TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)]
        return self._ends(wanted, IsolationLevel.READ_COMMITTED)

    def newest_ms(self, topics: Iterable[str]) -> dict[str, int]:
        """Return by topic when the last transaction with records of it ended (Unix, ms), as brokers from 3.0 on know it.

        It is the broker's time, or the producer's for records that were written without a transaction; the end of an aborted
        transaction counts, too. Topics without a record are left out, and those of which one partition does not answer.
        """
        counts = self.partitions_now(topics)
        wanted = [TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)]
        newest: dict[str, int] = {}
        unknown = set[str]()
        with waiting("kafka", self._servers, "the times of the newest records"):
            for begin in range(0, len(wanted), _ASKED_AT_ONCE):
                largest: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
                request: dict[TopicPartition, Any] = dict.fromkeys(wanted[begin : begin + _ASKED_AT_ONCE], largest)
                for where, future in self._admin.list_offsets(request, request_timeout=self._answer_s).items():
                    try:
                        newest[where.topic] = max(_answer(future).timestamp, newest.get(where.topic, 0))
                    except KafkaException:
                        unknown.add(where.topic)
        return {topic: at for topic, at in newest.items() if at > 0 and topic not in unknown}

    def _ends(
        self, wanted: list[TopicPartition], isolation: IsolationLevel, within_s: float | None = None
    ) -> dict[str, dict[int, int]]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends: dict[str, dict[int, int]] = {}
        for begin in range(0, len(wanted), _ASKED_AT_ONCE):
            request: dict[TopicPartition, Any] = dict.fromkeys(wanted[begin : begin + _ASKED_AT_ONCE], latest)
            asked_s = within_s or self._answer_s
            deadline = time.monotonic() + asked_s
            while request:
                is_in_time = time.monotonic() < deadline and not WAITS.is_ending
                request = self._list_offsets(request, ends, isolation, asked_s, retry=is_in_time)
                if request:  # reported of a topic before its leader, librdkafka asks for that leader until all of this is reported
                    time.sleep(RETRY_S)
                    self._metadata()
        return ends

    def _list_offsets(
        self,
        request: dict[TopicPartition, Any],
        ends: dict[str, dict[int, int]],
        isolation: IsolationLevel,
        asked_s: float,
        *,
        retry: bool,
    ) -> dict[TopicPartition, Any]:
        """Fill in `ends`; what has to be asked again (a new topic's leader is not known at once)."""
        again = {}
        futures = self._admin.list_offsets(
            request, isolation_level=isolation, request_timeout=asked_s
        )
        for where, future in futures.items():
            try:
                with waiting("kafka", self._servers, f"the end of {where.topic}[{where.partition}]"):
                    found = _answer(future)  # comes within the time of the request
                ends.setdefault(where.topic, {})[where.partition] = found.offset
            except KafkaException as error:
                if retry and error.args[0].code() not in _FINAL:
                    again[where] = request[where]
                    continue
                message = (
                    f"end offset of {where.topic}[{where.partition}] cannot be read: {error.args[0].str()}"
                )
                raise failure(message, error.args[0]) from error
        return again

    def _metadata(self, topic: str | None = None) -> Any:
        """Return the metadata of one topic, or of all; ask in short turns, since a refusal is seen only between them."""
        self.refusal = ""
        deadline = time.monotonic() + self._answer_s
        with waiting("kafka", self._servers, "the list of topics" if topic is None else f"topic {topic}"):
            while True:
                try:
                    return self._admin.list_topics(topic, timeout=min(TURN_S, self._answer_s / 5))
                except KafkaException as error:
                    self._admin.poll(0)
                    if self.refusal:
                        message = f"Kafka refuses us: {self.refusal}; check kafka.security_protocol, kafka.sasl and kafka.tls"
                        raise KafkaAccessError(message) from error
                    if WAITS.is_ending or time.monotonic() > deadline:
                        with contextlib.suppress(KafkaAccessError):  # a file that is missing for a moment
                            self._admin = opened(AdminClient, self._config)  # see `leaders_of`
                        message = f"Kafka cannot be reached: {error.args[0].str()}; check kafka.bootstrap_servers"
                        raise PublishError(message) from error


def _answer(future: Any) -> Any:
    """Return the answer about a partition; `KafkaException` without one.

    librdkafka (2.16) reports no error for the partitions of a leader that did not answer in time, and no offset.
    """
    answer = future.result()
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the leader did not answer in time"))  # noqa: SLF001 - its public name
    return answer


def _note_refusal(admin: weakref.ref[TopicAdmin], error: KafkaError) -> None:
    """Keep what the brokers report of users and certificates; a call of the client reports only that it timed out."""
    owner = admin()
    if owner is not None and is_refusal(error):
        owner.refusal = error.str()
