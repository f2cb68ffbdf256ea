"""Commit records of a start: the topic is made, the source's clock is read, and the writer of the records leaves."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_connector import ServerConnector
from producer.kafka.span_publisher import SpanPublisher
from producer.source.source_clock import SourceClock
from producer.stream.handlers.commit_seal import CommitSeal
from schemas import topics

if TYPE_CHECKING:
    from mysqlio.server_facts import ServerFacts
    from producer.clients import Clients
    from producer.resume import Resumption
    from schemas.settings import Settings

_TOPIC_CONFIG: Final = {"cleanup.policy": "delete", "max.message.bytes": str(topics.RECORD_BYTES)}


def commit_records(
    settings: Settings, clients: Clients, server: ServerFacts, resumption: Resumption, resources: ExitStack
) -> CommitSeal | None:
    """Return the writer of commit records; None without `order.group`. The publisher has fenced its predecessors before."""
    publisher = clients.publisher
    if not isinstance(publisher, SpanPublisher):
        return None
    topic = topics.commits_topic(settings.name, settings.kafka.topic_delimiter)
    clients.admin.ensure_single(topic, _TOPIC_CONFIG)
    publisher.note_ends(clients.tables.change_topics)
    here = ServerConnector(lambda: connect(ServerAccess.of(settings.source)), server.identity)
    clock = SourceClock(here, resumption.offset.epoch, settings.order.heartbeat_ms / 1000)
    resources.callback(clock.stop)
    clock.start()
    signals = settings.source.signal_names
    signal_topic = topics.change_topic(settings.name, *signals, settings.kafka.topic_delimiter) if signals else ""
    return CommitSeal(
        topic, publisher, clock, resumption.offset, resumption.lost, signals=signal_topic, server=server.identity
    )
