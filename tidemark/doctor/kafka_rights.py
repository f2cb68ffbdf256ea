"""What Kafka allows our user: on topics, consumer groups and transactional ids of this name, asked for without writing.

Topics by the operations that Kafka says are allowed, groups by whether they are shown, and creating topics by a request that is
only validated. A transactional id by asking for it with a longer transaction than brokers allow (`ClusterAdmin.is_id_refused`). It
is not asked for where a broker might not refuse, nor where the question might create the topic of transactions: `not_to_be_asked`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kafkaio.cluster_admin import LONGEST_MS
from schemas import topics
from schemas.findings import Finding, Remedy, Severity

if TYPE_CHECKING:
    from kafkaio.cluster_admin import ClusterAdmin
    from schemas.settings import KafkaSettings, Settings

LIMIT: Final = "transaction.max.timeout.ms"
_TRANSACTIONS: Final = "__transaction_state"
_WORDS: Final = {"READ": "Read", "WRITE": "Write", "CREATE": "Create", "DESCRIBE": "Describe"}


def not_to_be_asked(brokers: Collection[str], limits: Mapping[str, int], topics_shown: Collection[str]) -> str:
    """Return why a transactional id is not to be asked for; "" where every broker refuses the question and changes nothing.

    `limits`: the longest transaction in ms by broker, of those that said it. Whether a producer runs is no reason: one that has
    written no liveness record for a while may still have the id.
    """
    for broker in brokers:
        if broker not in limits:
            return f"{LIMIT} of broker {broker} is not known, and without a limit the question would end a producer that runs"
        if limits[broker] >= LONGEST_MS:
            return f"{LIMIT} of broker {broker} is {limits[broker]}: the question would end a producer that runs"
    if not brokers:
        return "no broker is known"
    if _TRANSACTIONS not in topics_shown:
        return f"Kafka shows our user no topic {_TRANSACTIONS}: if there is none yet, the question would create it"
    return ""


@dataclass(frozen=True, slots=True)
class KafkaRights:
    """The questions to Kafka about the rights of our user.

    `of_producer`: those of the producer as well. `topics_seen` are topics of this name that our user is shown.
    """

    settings: Settings
    admin: ClusterAdmin
    topics_seen: tuple[str, ...]
    of_producer: bool

    def findings(self, *, asks_for_ids: bool) -> Iterator[Finding]:
        """Yield the rights that are missing; with `asks_for_ids` those on transactional ids, too: a producer that runs has them."""
        yield from self._topic_findings()
        if not self.of_producer:
            return
        state = self._state
        if not self.admin.may_describe_group(f"{state}-reader"):
            what = "the producer cannot read its position"
            yield self._missing("kafka.rights.group", f"consumer groups {self._prefix}*", what, ["READ"], "group")
        yield from self._group_findings()
        ident = f"{self.settings.name}-log"
        if asks_for_ids and self.admin.is_id_refused(ident):
            what = "the producer cannot begin a transaction"
            named = f"the transactional ids {self.settings.name}*"
            fix = ["DESCRIBE", "WRITE"]
            yield self._missing("kafka.rights.transactional_id", named, what, fix, "transactional-id", self.settings.name)

    def _group_findings(self) -> Iterator[Finding]:
        """Yield the rights that are missing on the topic of the members of the source's group."""
        if self.settings.order.group is None:
            return
        topic, needed = topics.members_topic(self.settings.order.group), frozenset({"DESCRIBE", "READ", "WRITE"})
        lacked = self.admin.missing_operations([topic], needed).get(topic)
        if lacked is None:
            lacked = frozenset() if self.admin.may_create(topic) else needed | {"CREATE"}
        if lacked:
            what = "the source cannot join its group"
            yield self._missing("kafka.rights.members", f"the topic {topic}", what, sorted(lacked), "topic", topic)

    @property
    def _prefix(self) -> str:
        return topics.sanitise(self.settings.name)

    @property
    def _state(self) -> str:
        return topics.state_topic(self.settings.name, self.settings.kafka.topic_delimiter)

    def _topic_findings(self) -> Iterator[Finding]:
        needed = {"DESCRIBE", "READ"} | ({"WRITE"} if self.of_producer else set())
        lacked = self.admin.missing_operations(self._topics_asked(), frozenset(needed))
        missing, exists = set[str]().union(*lacked.values()), self._state in lacked
        if self.of_producer and not self.admin.may_create(self._state):
            missing.add("CREATE")
        if not missing:
            return
        severity = Severity.WARNING if exists and missing == {"CREATE"} else Severity.ERROR
        jobs = "the producer and the merge job" if self.of_producer else "the merge job"
        what = "a table that is captured later gets no topic" if severity is Severity.WARNING else f"{jobs} cannot work"
        all_of_it = sorted(needed | ({"CREATE"} if self.of_producer else set()))
        evidence = f"the topics {self._prefix}*"
        found = self._missing("kafka.rights.topics", evidence, what, sorted(missing), "topic", fixed=all_of_it)
        yield replace(found, severity=severity)

    def _topics_asked(self) -> set[str]:
        """Return the topics whose operations are asked for: a merge job does without the state topic."""
        others = {*self.topics_seen} - {self._state}
        return others if others and not self.of_producer else others | {self._state}

    def _missing(
        self, code: str, where: str, what: str, lacks: list[str], resource: str, name: str = "", fixed: list[str] | None = None
    ) -> Finding:
        kafka = self.settings.kafka
        principal = _principal(kafka)
        words = ", ".join(_WORDS[one] for one in lacks)
        evidence = f"Kafka allows {principal or 'our user'} no {words} on {where}"
        if not principal:
            advice = f"Allow the principal of kafka.tls.cert {words} on {where}"
            return Finding(code, Severity.ERROR, evidence, what, advice=advice)
        operations = " ".join(f"--operation {_WORDS[one]}" for one in fixed or lacks)
        named = f"--{resource} {shlex.quote(name or self._prefix)} --resource-pattern-type prefixed"
        fix = f"{tool('kafka-acls.sh', kafka)} --add --allow-principal {shlex.quote(principal)} {operations} {named}"
        return Finding(code, Severity.ERROR, evidence, what, fix, Remedy.SHELL, tool_advice(kafka))


def tool(script: str, kafka: KafkaSettings) -> str:
    """Return how a script of Kafka is called for the brokers of the settings."""
    config = "" if kafka.security_protocol == "PLAINTEXT" else " --command-config admin.properties"
    return f"{script} --bootstrap-server {shlex.quote(kafka.bootstrap_servers)}{config}"


def tool_advice(kafka: KafkaSettings) -> str:
    """Return what a person needs besides the call."""
    if kafka.security_protocol == "PLAINTEXT":
        return ""
    return "admin.properties: the security.protocol and sasl settings of an administrator"


def _principal(kafka: KafkaSettings) -> str:
    """Return Kafka's name of our user; "" where that depends on a certificate."""
    if kafka.security_protocol.startswith("SASL"):
        return f"User:{kafka.sasl.username or kafka.options.get('sasl.username', '')}"
    return "User:ANONYMOUS" if kafka.security_protocol == "PLAINTEXT" else ""
