"""The clients of one start: settings enter, connections that are made at their first use leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kafkaio.topic_admin import TopicAdmin
from mysqlio.connection import connect
from mysqlio.kept_connection import KeptConnection
from mysqlio.server_access import ServerAccess
from producer.kafka.alternating_publisher import AlternatingPublisher
from producer.kafka.span_publisher import SpanPublisher
from producer.kafka.state_topic import StateTopic
from producer.kafka.tables import TableTopics
from producer.stream.routes import CapturedTables
from schemas import topics
from schemas.identity import SourceId
from schemas.members import log_writer

if TYPE_CHECKING:
    from schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Clients:
    """The Kafka clients of one start, the connection for questions to the source, and the captured tables."""

    admin: TopicAdmin
    publisher: AlternatingPublisher
    state: StateTopic
    tables: TableTopics
    questions: KeptConnection
    captured: CapturedTables

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Make the clients of these settings; none connects yet."""
        delimiter = settings.kafka.topic_delimiter
        admin = TopicAdmin(settings.kafka)
        tables = TableTopics(settings.name, admin, settings.kafka.partitions, delimiter)
        return cls(
            admin,
            _publisher(settings, admin, tables),
            StateTopic(SourceId(settings.name), topics.state_topic(settings.name, delimiter), admin, settings.kafka),
            tables,
            KeptConnection(lambda: connect(ServerAccess.of(settings.source))),
            CapturedTables(settings.source),
        )


def _publisher(settings: Settings, admin: TopicAdmin, tables: TableTopics) -> AlternatingPublisher:
    """Return the log reader's publisher; with commit records one that knows the offsets of changes and of statements."""
    ident, statements = log_writer(settings.name), topics.schema_change_topic(settings.name)
    if settings.order.group is None:
        return AlternatingPublisher(settings.kafka, ident)
    return SpanPublisher(settings.kafka, ident, admin, lambda topic: topic == statements or tables.is_change_topic(topic))
