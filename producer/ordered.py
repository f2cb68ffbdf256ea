"""Commit records of a start: the source's clock is read, and the writer of the records leaves."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_connector import ServerConnector
from producer.kafka.span_publisher import SpanPublisher
from producer.source.source_clock import SourceClock
from producer.stream.handlers.commit_seal import CommitSeal
from schemas import topics
from schemas.commit_records import StreamState

if TYPE_CHECKING:
    from mysqlio.server_facts import ServerFacts
    from producer.clients import Clients
    from producer.group.joined_source import JoinedSource
    from producer.resume import Resumption
    from schemas.settings import Settings


def commit_records(
    settings: Settings,
    clients: Clients,
    server: ServerFacts,
    resumption: Resumption,
    source: JoinedSource | None,
    resources: ExitStack,
) -> CommitSeal | None:
    """Return the writer of commit records; None without `order.group`. The `source` has joined its group before."""
    publisher = clients.publisher
    if source is None or not isinstance(publisher, SpanPublisher):
        return None
    topic = topics.commits_topic(settings.name, settings.kafka.topic_delimiter)
    publisher.note_ends(clients.tables.change_topics)
    here = ServerConnector(lambda: connect(ServerAccess.of(settings.source)), server.identity)
    clock = SourceClock(here, resumption.offset.epoch, settings.order.heartbeat_ms / 1000, corrects=settings.order.correct_skew)
    resources.callback(clock.stop)
    clock.start()
    signals = settings.source.signal_names
    signal_topic = topics.change_topic(settings.name, *signals, settings.kafka.topic_delimiter) if signals else ""
    state = resumption.offset.stream or StreamState()
    state = replace(state, promise_us=max(state.promise_us, source.join.floor_us), join=source.join.join)
    committed = resumption.offset.sealed(state)
    return CommitSeal(topic, publisher, clock, committed, resumption.lost, signals=signal_topic, server=server.identity)
