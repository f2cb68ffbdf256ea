"""Kafka: reachability, and settings of brokers and topics that would lose or refuse records."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkaio.cluster_admin import ClusterAdmin
from kafkaio.committed_reader import CommittedReader
from kafkaio.transactional_writer import TRANSACTION_TIMEOUT_MS
from schemas import topics
from schemas.errors import KafkaAccessError, PublishError
from schemas.findings import Finding, Remedy, Severity
from schemas.liveness import SIGN_KEY
from schemas.state import partition_of
from schemas.topics import RECORD_BYTES
from tidemark.doctor.area_findings import UncheckedError, listed
from tidemark.doctor.kafka_rights import LIMIT, KafkaRights, not_to_be_asked, tool, tool_advice
from tidemark.doctor.other_writers import end_of_producer, last_signs, producer_findings, recent

if TYPE_CHECKING:
    from kafkaio.cluster_admin import ClusterFacts, ShownSettings
    from schemas.liveness import Sign
    from schemas.settings import Settings

_ANSWER_S: Final = 10.0
_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS


def kafka_findings(settings: Settings, *, of_producer: bool = True) -> Iterator[Finding]:
    """Yield what is wrong with brokers and topics. `UncheckedError` where no broker answers, or not all is shown to our user.

    `of_producer`: also the rights that the producer needs, and other producers of this name.
    """
    yield from _KafkaExamination(settings, of_producer=of_producer).findings()


class _KafkaExamination:
    """The questions to the brokers."""

    def __init__(self, settings: Settings, *, of_producer: bool) -> None:
        self._settings = settings
        self._of_producer = of_producer
        self._servers = settings.kafka.bootstrap_servers
        self._hidden: list[str] = []

    def findings(self) -> Iterator[Finding]:
        """Yield all findings."""
        admin, cluster = self._connected()
        ours, state = self._our_topics(cluster.copies), self._state
        last = self._signs() if self._of_producer and state in ours else []
        signs = recent(last)
        yield from producer_findings(self._settings, signs)
        yield from end_of_producer(last)
        limits = _limits(self._shown("brokers", admin.settings_of_brokers(cluster.brokers)))
        why_not = not_to_be_asked(cluster.brokers, limits, cluster.copies)
        if self._of_producer and not signs and why_not:
            self._hidden.append(f"the right to transactional ids: {why_not}")
        rights = KafkaRights(self._settings, admin, tuple(ours), self._of_producer)
        yield from rights.findings(asks_for_ids=not signs and not why_not)
        yield from copy_findings(state, cluster.copies[state] if state in ours else [], len(cluster.brokers))
        yield from self._brokers(limits)
        yield from self._topics(self._shown("topics", admin.settings_of_topics(ours)))
        if self._hidden:
            raise UncheckedError("; ".join(self._hidden))

    @property
    def _state(self) -> str:
        return topics.state_topic(self._settings.name, self._settings.kafka.topic_delimiter)

    def _signs(self) -> list[Sign]:
        """Return the last liveness records; none where our user may not read them, which is a finding of its own."""
        try:
            with CommittedReader(self._settings.kafka, f"{self._state}-reader", silence_s=_ANSWER_S) as reader:
                return last_signs(reader, self._state, partition_of(SIGN_KEY))
        except KafkaAccessError:
            return []
        except PublishError as error:
            self._hidden.append(f"the liveness records of producers: {error}")
            return []

    def _connected(self) -> tuple[ClusterAdmin, ClusterFacts]:
        try:
            admin = ClusterAdmin(self._settings.kafka, _ANSWER_S)
        except KafkaAccessError as error:
            found = Finding("kafka.client", Severity.ERROR, str(error), "no client can be made of these settings")
            raise UncheckedError("no client of Kafka can be made", [found]) from error
        try:
            return admin, admin.cluster()
        except KafkaAccessError as error:
            evidence, what = f"Kafka refuses us: {admin.refusal}", "nothing can be written"
            advice = "Check kafka.security_protocol, kafka.sasl and kafka.tls"
            found = Finding("kafka.access", Severity.ERROR, evidence, what, advice=advice)
            raise UncheckedError("Kafka refuses us", [found]) from error
        except PublishError as error:
            evidence = f"no broker of {self._servers} answers within {_ANSWER_S:g} s"
            found = Finding(
                "kafka.unreachable", Severity.ERROR, evidence, "nothing can be written", advice="Check kafka.bootstrap_servers"
            )
            raise UncheckedError("Kafka cannot be reached", [found]) from error

    def _our_topics(self, shown: Iterable[str]) -> list[str]:
        """Return the state topic and those with rows, of those that exist."""
        name, delimiter = self._settings.name, self._settings.kafka.topic_delimiter
        patterns = [topics.change_topic_pattern(name, delimiter), topics.snapshot_topic_pattern(name, delimiter)]
        patterns.append(re.escape(topics.state_topic(name, delimiter)))
        return sorted(topic for topic in shown if any(re.fullmatch(pattern, topic) for pattern in patterns))

    def _shown(self, what: str, answer: ShownSettings) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of brokers or topics; those that our user may not see are noted as hidden."""
        self._hidden += [f"Kafka does not show the settings of {what}: {reason}" for reason in answer.reasons]
        return answer.settings

    def _brokers(self, limits: Mapping[str, int]) -> Iterator[Finding]:
        ours = int(self._settings.kafka.options.get("transaction.timeout.ms") or TRANSACTION_TIMEOUT_MS)
        name = min(limits, key=limits.__getitem__, default="")
        longest = limits.get(name, ours)
        if longest < ours:
            evidence = f"{LIMIT} of broker {name} is {longest}"
            what = f"the producer's transactions may take {ours} ms: the broker refuses to begin one"
            options = {**self._settings.kafka.options, "transaction.timeout.ms": str(longest)}
            fix = f"export TIDEMARK_KAFKA__OPTIONS={shlex.quote(json.dumps(options))}"
            advice = "or raise the broker's limit"
            yield Finding("kafka.transaction_timeout", Severity.ERROR, evidence, what, fix, Remedy.SETTING, advice)

    def _topics(self, configs: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
        state = self._state
        if state in configs:
            yield from self._of_state(state, configs[state])
        of_rows = (one for topic, config in configs.items() if topic != state for one in self._of_rows(topic, config))
        yield from listed("kafka.topics", "findings on topics", of_rows)

    def _of_state(self, topic: str, config: Mapping[str, str]) -> Iterator[Finding]:
        policy = config.get("cleanup.policy", "compact")
        if "delete" in policy:
            evidence, what = f"cleanup.policy of the state topic {topic} is {policy}", "Kafka deletes the position of the log in it"
            yield self._mended("kafka.state_policy", Severity.ERROR, evidence, what, topic, "cleanup.policy=compact")

    def _of_rows(self, topic: str, config: Mapping[str, str]) -> Iterator[Finding]:
        largest = int(config.get("max.message.bytes") or RECORD_BYTES)
        if largest < RECORD_BYTES:
            evidence = f"max.message.bytes of {topic} is {largest}"
            what = f"Kafka refuses larger batches of records, and ours have up to {RECORD_BYTES} bytes: the producer would stop"
            yield self._mended("kafka.message_bytes", Severity.WARNING, evidence, what, topic, f"max.message.bytes={RECORD_BYTES}")
        kept = int(config.get("retention.ms") or -1)
        if "delete" in config.get("cleanup.policy", "") and 0 <= kept < _DAY_MS:
            evidence = f"Kafka keeps {topic} for {kept / 3_600_000:.1f} h"
            what = "when the merge job is down for longer, records are lost and the table is to be read again"
            yield self._mended("kafka.retention", Severity.WARNING, evidence, what, topic, f"retention.ms={_WEEK_MS}")

    def _mended(self, code: str, severity: Severity, evidence: str, what: str, topic: str, config: str) -> Finding:
        fix = f"{tool('kafka-configs.sh', self._settings.kafka)} --alter --entity-type topics --entity-name {topic}"
        advice = tool_advice(self._settings.kafka)
        return Finding(code, severity, evidence, what, f"{fix} --add-config {config}", Remedy.SHELL, advice)


def _limits(configs: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Return the longest transaction of each broker that says it."""
    return {name: int(config[LIMIT]) for name, config in configs.items() if config.get(LIMIT)}


def copy_findings(state: str, copies: Sequence[int], brokers: int) -> Iterator[Finding]:
    """Yield a state topic that is lost with one broker although there are several; `copies` are those of its partitions."""
    if brokers > 1 and min(copies, default=0) == 1:
        what = "when its broker is lost, so is the position of the log: all tables are to be read again"
        advice = "kafka-reassign-partitions.sh gives it more"
        yield Finding("kafka.one_copy", Severity.WARNING, f"the state topic {state} has one copy", what, advice=advice)
