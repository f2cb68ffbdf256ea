"""What a start prepares before its objects are wired: checks of the source, the view of a first start, topics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import structlog

from mysqlio.connection import connect
from mysqlio.information_schema import list_tables, read_table_schema, unsupported_tables
from mysqlio.server_access import ServerAccess
from mysqlio.server_connector import ServerConnector
from mysqlio.server_errors import source_errors
from mysqlio.server_facts import user_grants
from mysqlio.signal_table import SignalTable
from producer.snapshot.view import FirstView, View, open_view
from producer.source.coverage import coverage
from producer.source.dump import REGISTERED_AS
from producer.source.log_facts import other_replica
from schemas import topics
from schemas.errors import ConfigError, SourceError, StateError
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.clients import Clients
    from schemas.errors import TidemarkError
    from schemas.settings import Settings

log = structlog.get_logger(__name__)


def require_own_server_id(settings: Settings, connection: Connection, facts: ServerFacts) -> None:
    """Raise `SourceError` where another replica has our server id: the server would disconnect one of the two."""
    server_id = settings.source.server_id or 0
    other = other_replica(connection, facts, server_id, REGISTERED_AS)
    if other:
        message = (
            f"the replica {other} is connected with our server id {server_id}, and the server may serve only one of us: "
            f"set source.server_id to one that no replica has"
        )
        raise SourceError(message)


def reported_coverage(settings: Settings, connection: Connection) -> dict[str, Any]:
    """Log what the settings name and the source does not show; return the document for the status."""
    document = coverage(settings.source, list_tables(connection), user_grants(connection))
    for pattern, reason in document["unmatched"].items():
        log.warning("source.tables_without_match", pattern=pattern, reason=reason)
    if document["unreadable"]:
        log.warning("source.tables_not_readable", tables=document["unreadable"], advice="GRANT SELECT on them")
    return document


def view_of_first_start(
    settings: Settings, clients: Clients, facts: ServerFacts, connection: Connection
) -> FirstView | None:
    """Return the view that is read before the log; None where the settings do not ask for one."""
    snapshot, source = settings.snapshot, settings.source
    if snapshot.consistency != "one_transaction" or not snapshot.at_start.at_first_start:
        return None

    def open_one() -> View:
        tables = [table for table in list_tables(connection) if clients.captured.holds_data(*table)]
        if settings.sets_tables_aside:
            refused = unsupported_tables(connection, tables)
            tables = [table for table in tables if table not in refused]
        here = ServerConnector(lambda: connect(ServerAccess.of(source)), facts.identity)
        names = None if source.read_only else source.signal_names
        signals = None if names is None else SignalTable(*names)
        with source_errors(f"{source.host}:{source.port}"):
            if signals is not None:
                signals.ensure(connection)  # the view's lock would prevent it
            return open_view(here, tables, snapshot, signals, read_table_schema)

    return FirstView(open_one)


def tables_without_topics(
    settings: Settings, clients: Clients, captured: list[TableId], refused: Collection[TableId]
) -> dict[TableId, TidemarkError]:
    """Return the tables that cannot have topics beside those of the others; raise where one is to stop all."""
    found = clients.tables.without_topics(table for table in captured if table not in refused)
    for message in () if settings.sets_tables_aside else found.values():
        raise ConfigError(message)
    return {table: ConfigError(message) for table, message in found.items()}


def create_topics(
    settings: Settings, create: Callable[[list[TableId]], None], tables: list[TableId]
) -> dict[TableId, TidemarkError]:
    """Make the missing topics by `create`; return the tables whose topics exist and cannot be theirs, unless one is to stop all."""
    refused: dict[TableId, TidemarkError] = {}
    try:
        create(tables)
    except StateError:
        if not settings.sets_tables_aside:
            raise
        for table in tables:
            try:
                create([table])
            except StateError as error:
                refused[table] = error
    return refused


def create_common_topics(settings: Settings, clients: Clients) -> None:
    """Make the topics that are of no captured table: notifications, and the signal table's."""
    clients.admin.ensure({topics.notifications_topic(settings.name, settings.kafka.topic_delimiter): 1})
    signal = settings.source.signal_names
    if signal is not None:
        clients.tables.ensure_signal(*signal)
