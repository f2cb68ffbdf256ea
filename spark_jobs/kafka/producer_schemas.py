"""The schemas by the ids in records, as the producer keeps them in its state topic: also those that a registry lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import EndingError, SinkError
from schemas.settings import Settings
from schemas.topics import state_topic
from spark_jobs.kafka.admin import topic_exists
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.state_reader import schemas_by_subject

log = structlog.get_logger()

Given = Mapping[str, Sequence[RegisteredSchema]]


class ProducerSchemas:
    """The schemas that the producer used. Read at most once a batch, and only if the registry's answer is new. For several threads.

    An id is in the state topic before a record of the log that has it can be read: both are in one Kafka transaction. So what is
    read after a batch has begun has the ids of all its records.
    """

    def __init__(self, read: Callable[[], Given] = dict) -> None:
        self._read = read
        self._given: Given = {}
        self._answers: dict[str, tuple[RegisteredSchema, ...]] = {}
        self._is_fresh = False
        self._is_behind = False
        self._failure = ""
        self._lock = Lock()

    @classmethod
    def of_producer(cls, spark: SparkSession, settings: Settings, few: FewRecords) -> ProducerSchemas:
        """Return those of the configured producer; none while it has no state topic."""
        topic = state_topic(settings.name, settings.kafka.topic_delimiter)
        return cls(lambda: schemas_by_subject(spark, settings, few) if topic_exists(spark, settings.kafka, topic) else {})

    def begin(self) -> None:
        """Note that a batch begins: its records may have ids that are new."""
        self._is_fresh = False

    def of(self, subject: str, answer: Sequence[RegisteredSchema]) -> tuple[RegisteredSchema, ...]:
        """Return all schemas that were used in a subject, oldest first; `answer` is what the registry has of it now."""
        with self._lock:
            is_new = self._answers.get(subject) != tuple(answer)
            if (is_new or self._is_behind) and not self._is_fresh:
                self._refresh()
            elif is_new:  # it may be newer than what was read in this batch: the next one reads again
                self._is_behind = True
            if is_new and not answer and subject in self._given:
                log.warning("merge.registry_lost_subject", subject=subject, continues_with="what the producer keeps")
            self._answers[subject] = tuple(answer)
            return tuple(self._given.get(subject, ()))

    def _refresh(self) -> None:
        """Read, or continue with what is known: a registry that has all is enough, and a user may have no right to this topic."""
        self._is_fresh = True
        try:
            self._given = self._read()
            self._is_behind, self._failure = False, ""
        except EndingError:
            self._is_fresh = False  # who asks later is refused as well
            raise
        except (SinkError, PySparkException, Py4JError) as error:
            reason = str(error).partition("\n")[0]
            if reason != self._failure:  # each batch asks
                log.warning("merge.state_topic_not_read", reason=reason, advice="grant READ on the producer's state topic")
            self._is_behind, self._failure = True, reason
