"""The clients of one start: settings enter, connections that are made at their first use leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kafkaio.topic_admin import TopicAdmin
from mysqlio.connection import connect
from mysqlio.kept_connection import KeptConnection
from mysqlio.server_access import ServerAccess
from producer.kafka.alternating_publisher import AlternatingPublisher
from producer.kafka.state_topic import StateTopic
from producer.kafka.tables import TableTopics
from producer.stream.routes import CapturedTables
from schemas import topics
from schemas.identity import SourceId

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
        return cls(
            admin,
            AlternatingPublisher(settings.kafka, f"{settings.name}-log"),
            StateTopic(SourceId(settings.name), topics.state_topic(settings.name, delimiter), admin, settings.kafka),
            TableTopics(settings.name, admin, settings.kafka.partitions, delimiter),
            KeptConnection(lambda: connect(ServerAccess.of(settings.source))),
            CapturedTables(settings.source),
        )
