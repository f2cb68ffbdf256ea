"""Which of several producers, or of several processes of a task, runs: one leads, the others wait to take over.

All of them are members of one consumer group on a topic of one partition (`<name>.notifications`); the one that has it, the
first where there are more, leads. A member that dies or freezes is missed by Kafka after six seconds, and the partition
goes to another.
That only decides who *tries*: two producers that both think they lead are distinguished by the transactional id, which fences
the older one before the newer reads where to continue; the target of a task does so by an epoch. Nobody writes twice, whatever
this module does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

import structlog

from kafkaio.group_member import GroupMember
from kafkaio.topic_admin import TopicAdmin
from schemas import topics
from schemas.errors import FencedError, KafkaAccessError, PublishError, SecretError, SourceError

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings, Settings, TaskSettings

log = structlog.get_logger(__name__)

SESSION_MS: Final = 6_000
"""The least that brokers allow as they come (`group.min.session.timeout.ms`)."""
_POLL_S: Final = 0.2
_RETRY_S: Final = 1.0
_ASKS_EACH_S: Final = 30.0
_ANSWERS_S: Final = 3.0
_HEARD_S: Final = 2 * SESSION_MS / 1000
"""As long as that Kafka has to report that another one leads, when an error has reported it already."""


class Leadership:
    """Membership in a consumer group of which one member leads, while entered. `stop` ends every term.

    `source` is the name of the producer whose topic of notifications the group shares.
    """

    def __init__(self, kafka: KafkaSettings, group: str, source: str, stop: threading.Event) -> None:
        self._kafka = kafka
        self._group = group
        self._topic = topics.notifications_topic(source, kafka.topic_delimiter)
        self._admin = TopicAdmin(kafka)
        self._member = self._new_member()
        self.stop = stop
        self._left = threading.Event()
        self._changed = threading.Condition()
        self._term: threading.Event | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    @classmethod
    def of_producer(cls, settings: Settings, stop: threading.Event) -> Self:
        """Return the membership of a producer."""
        return cls(settings.kafka, f"{settings.name}-leader", settings.name, stop)

    @classmethod
    def of_task(cls, settings: TaskSettings, stop: threading.Event) -> Self:
        """Return the membership of a process of a task."""
        return cls(settings.kafka, f"tidemark-task-{settings.task}-leader", settings.sources[0].name, stop)

    def _new_member(self) -> GroupMember:
        """Return one with the credentials as they are now."""
        return GroupMember(self._kafka, self._group, self._topic, SESSION_MS)

    def __enter__(self) -> Self:
        while not self.stop.is_set():  # as a producer alone, it waits for a Kafka that is unreachable
            try:
                self._admin.ensure({self._topic: 1})
                break
            except KafkaAccessError:  # as of a producer alone: wrong from the start
                raise
            except PublishError as error:
                log.warning("standby.waits_for_kafka", reason=str(error))
                self.stop.wait(_RETRY_S)
        self._member.join(self._won, self._lost)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join(10)
        self._member.close()  # another one leads at once

    def wait(self) -> threading.Event | None:
        """Wait until this one leads: an event that is set when it does no longer; None when it is to stop.

        `PublishError` where the thread that keeps the membership has ended by an error: this one would never lead.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._term is not None or self.stop.is_set() or self._failure is not None, None)
            if self.stop.is_set():
                return None
            if self._failure is not None:
                message = f"the membership in the group {self._group} ended by an error: {self._failure!r}; the log has the trace"
                raise PublishError(message) from self._failure
            return self._term

    def holds(self, term: threading.Event) -> bool:
        """Return whether this one still leads, as it did when `wait` gave the term."""
        with self._changed:
            return self._term is term

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            log.exception("standby.thread_died")
            self._failure = error
            self._end_term()

    def _follow(self) -> None:
        """Keep the membership; a Kafka that is unreachable is waited for, the one that led leads on."""
        asked = time.monotonic()
        while not self._left.is_set():
            try:
                if self._member.refusal:
                    self._rejoin()
                elif self._term is None and time.monotonic() - asked > _ASKS_EACH_S:
                    self._rejoin_if_cut_off()
                    asked = time.monotonic()
                if problem := self._member.poll(_POLL_S):
                    log.warning("standby.kafka_says", error=problem)  # that we may not join, for one
            except PublishError as error:
                log.warning("standby.kafka_says", error=str(error))
                self._left.wait(_RETRY_S)
            if self.stop.is_set():
                self._end_term()

    def _rejoin(self) -> None:
        """Join the group with a new client: a client keeps the credentials it was made with, and a password may be rotated."""
        try:
            if self._term is not None and self._member.has_credentials:
                return  # it leads by connections that it has; another client would be refused as well
            log.warning("standby.refused", reason=self._member.refusal)
            self._left.wait(_RETRY_S)
            member = self._new_member()
        except (SecretError, KafkaAccessError) as error:
            log.warning("standby.refused", reason=str(error))
            self._left.wait(_RETRY_S)
            return
        self._join_with(member)

    def _rejoin_if_cut_off(self) -> None:
        """Join the group with a new client where another one reaches Kafka, and ours does not (`leaders_of`)."""
        if self._reaches_kafka(self._member):
            return
        try:
            if not self._reaches_kafka(TopicAdmin(self._kafka)):
                return  # it is Kafka that cannot be reached
            if self._reaches_kafka(self._member):
                return  # it could not a moment before, either
            member = self._new_member()
        except (SecretError, KafkaAccessError) as error:
            log.warning("standby.kafka_says", error=str(error))
            return
        log.warning("standby.client_renewed", reason="its client has no connection to a broker, and another one gets one")
        self._join_with(member)

    def _reaches_kafka(self, client: GroupMember | TopicAdmin) -> bool:
        """Return whether a client has an answer soon; when this one is to stop, that is of no interest any more."""
        return self._ends() or client.answers(self._topic, _ANSWERS_S) or self._ends()

    def _ends(self) -> bool:
        return self.stop.is_set() or self._left.is_set()

    def _join_with(self, member: GroupMember) -> None:
        self._member.close()
        self._end_term()
        self._member = member
        member.join(self._won, self._lost)

    def _won(self, partitions: list[int]) -> None:
        if _leads(partitions):
            with self._changed:
                self._term = threading.Event()
                self._changed.notify_all()

    def _lost(self, partitions: list[int]) -> None:
        if _leads(partitions):
            self._end_term()

    def _end_term(self) -> None:
        with self._changed:
            if self._term is not None:
                self._term.set()
                self._term = None
            self._changed.notify_all()


def _leads(partitions: list[int]) -> bool:
    """Return whether the one that decides is among them: somebody else may have made the topic, with more than one."""
    return 0 in partitions


def run_when_leading(leadership: Leadership, run: Callable[[threading.Event], None]) -> None:
    """Call `run` with the event that ends it whenever this process leads, until it is to stop or `run` is done.

    It is done when it returns although this process still leads (`snapshot.mode: initial_only`). After `FencedError` this process
    waits to lead again. So it does after an error of a server, or of Kafka, if it no longer leads: frozen for a while, it may learn
    of the new leader by such an error before Kafka reports it, and a Kafka that is down ends its term. Every other error of `run`
    is raised.
    """
    stop = leadership.stop
    with leadership:
        log.info("standby.waits", session_s=SESSION_MS / 1000)
        while (term := leadership.wait()) is not None:
            log.info("standby.leads")
            try:
                run(term)
                if leadership.holds(term):
                    return
            except FencedError as error:
                log.warning("standby.fenced", reason=str(error))
                stop.wait(_RETRY_S)
            except (SourceError, PublishError) as error:
                if not term.wait(_HEARD_S):
                    raise
                log.warning("standby.fenced", reason=str(error))
            if not stop.is_set():
                log.info("standby.waits")
