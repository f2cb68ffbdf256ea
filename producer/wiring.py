"""The wiring of one start: settings, the server's facts and the resume point enter, the connected objects leave.

Nothing is read or published here. Every constructor call of the log reader's side is in this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_connector import ServerConnector
from mysqlio.server_facts import LogPosition
from producer.catalog import Catalog
from producer.catalog.foreign_keys import logs_cascades_since
from producer.catalog.statement_reach import ServerObjects, StatementReach, read_objects
from producer.catalog.tables_at import tables_at
from producer.control.channels import FileSignals, KafkaSignals, SignalChannel
from producer.control.signal_control import SignalControl
from producer.group.source_changes import SourceChanges
from producer.kafka.chunk_sink import KafkaChunkWriter
from producer.kafka.codecs import LogCodecs
from producer.kafka.connect_records import RecordEncoder
from producer.kafka.registry import SchemaIdRegistry
from producer.kafka.schema_ids import SchemaIds
from producer.ordered import commit_records
from producer.recapture import Recapture, RecaptureParts, delays_of
from producer.resume import stream_start
from producer.snapshot.coordinator import SnapshotCoordinator
from producer.snapshot.table_access import TableAccess
from producer.source.dump import BinlogStream
from producer.source.source_clock import end_of_log
from producer.stream.checkpoint import Checkpoints
from producer.stream.cursor import LogCursor
from producer.stream.groups import OPS, TransactionAssembler
from producer.stream.handlers.cascades import CascadeRequests, Cascades
from producer.stream.handlers.change_records import ChangeRecords
from producer.stream.handlers.ddl_effects import FloorsAndSnapshots, ForgottenRoutes, TruncateRecords
from producer.stream.handlers.heartbeat import HeartbeatAction, SourceHeartbeat
from producer.stream.handlers.outbox_topics import OutboxTopics
from producer.stream.handlers.schema_change_records import SchemaChanges
from producer.stream.handlers.set_aside import AsideCheckpoint, AsideTables
from producer.stream.handlers.snapshot_markers import MarkerTopics, SnapshotMarkers
from producer.stream.handlers.snapshot_windows import (
    InvalidatedChunks,
    OpenWindowRows,
    SignalRows,
    SnapshotCheckpoint,
)
from producer.stream.handlers.state_keepers import (
    CatalogDocuments,
    SchemaIdDocuments,
    StartDocuments,
    TopicDocuments,
)
from producer.stream.handlers.table_heartbeats import HeartbeatSchedule
from producer.stream.handlers.transaction_metadata import TransactionMetadata
from producer.stream.log_reader import LogReader
from producer.stream.publication import LogPublication
from producer.stream.reader_progress import LogProgress
from producer.stream.routes import RouteBuilder, Router
from producer.stream.statements import Statements
from producer.stream.temporary_tables import TemporaryTables
from producer.stream.view_publication import ViewPublication
from schemas import topics
from schemas.documents import CoverageDocument, InexactDocument, UnseenStatementsDocument
from schemas.heartbeats import HEARTBEAT_KEY, HEARTBEAT_VALUE
from schemas.json_codec import decode, encode
from schemas.liveness import SIGN_KEY
from schemas.schema_changes import schema_change_key, schema_change_value
from schemas.signals import ChangeSource, ReloadTables
from schemas.transactions import TRANSACTION_KEY, TRANSACTION_VALUE

if TYPE_CHECKING:
    from mysqlio.information_schema import TableFacts
    from mysqlio.server_facts import ServerFacts
    from producer.clients import Clients
    from producer.control.command_registry import Handler
    from producer.group.joined_source import JoinedSource
    from producer.resume import Resumption
    from producer.snapshot.buffered_chunk import WrittenRows
    from producer.snapshot.log_windows import LogWindows
    from producer.stream.handlers.commit_seal import CommitSeal
    from producer.stream.ports import (
        BoundaryTask,
        CheckpointParticipant,
        RowsHandler,
        State,
        StatementHandler,
    )
    from producer.stream.steps import RereadHint
    from schemas.connect_types import Connector
    from schemas.position import Position
    from schemas.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What a start knows before it is wired: the server, where to resume, the state topic's documents.

    `coverage` is the document of what the settings name and the source does not show. `left` are tables that are captured no
    longer, `gone` those that are captured again and were dropped meanwhile. `hint` is of an attempt before. `reload` is the
    handler of the signal that asks for the tables of the file. `source` is a member of the group of `order.group`.
    """

    server: ServerFacts
    resumption: Resumption
    documents: State
    coverage: dict[str, Any]
    left: Collection[tuple[str, str]] = ()
    gone: Collection[tuple[str, str]] = ()
    hint: RereadHint | None = None
    reload: Handler | None = None
    source: JoinedSource | None = None


@dataclass(frozen=True, slots=True)
class WiredStart:
    """The objects of one start that its life needs."""

    reader: LogReader
    coordinator: SnapshotCoordinator
    aside: AsideTables
    registry: SchemaIdRegistry | None
    schema_changes: SchemaChanges | None
    cascades: Cascades | None
    recapture: Recapture
    changes: SourceChanges | None
    commits: CommitSeal | None


class Wiring:
    """One start's objects while they are connected. `resources` closes those that were opened, in reverse order."""

    def __init__(self, settings: Settings, clients: Clients, start: StartFacts, resources: ExitStack) -> None:
        self._settings = settings
        self._clients = clients
        self._start = start
        self._resources = resources
        self._offset = start.resumption.offset
        self._delimiter = settings.kafka.topic_delimiter
        self._connector: Connector = "mariadb" if start.server.flavour == "mariadb" else "mysql"
        self._progress = LogProgress(self._offset.position, alive_s=time.monotonic())
        self._cursor = LogCursor(self._offset, start.server.flavour)
        self._assembler = TransactionAssembler(
            self._cursor,
            start.server.flavour,
            include_query=settings.records.include_query,
            hint=start.hint,
            exact=settings.order.group is not None,
        )
        self._schema_ids = SchemaIds(start.documents)
        self._registry = SchemaIdRegistry.of(settings.format, self._schema_ids) if settings.format.type == "avro" else None
        self._codecs = LogCodecs(
            settings.name,
            self._connector,
            settings.format,
            self._registry,
            settings.records,
            settings.source.signal_names,
            self._delimiter,
            exact=settings.order.group is not None,
        )
        self._catalog = Catalog(
            clients.questions.session, start.server.flavour, start.resumption.tracked, self._table_at_cursor
        )
        self._schedule = HeartbeatSchedule(time.monotonic)
        self._stream = BinlogStream(settings.source, start.server)
        self._checkpoints: Checkpoints | None = None
        self._commits: CommitSeal | None = None
        self._not_followed: Cascades | None = None

    def connect(self) -> WiredStart:
        """Connect everything, give it the documents of an earlier process, and open the stream of the log."""
        settings, clients, start = self._settings, self._clients, self._start
        self._commits = commit_records(settings, clients, start.server, start.resumption, start.source, self._resources)
        coordinator = self._coordinator()
        aside = AsideTables(
            settings.name,
            coordinator.shared,
            coordinator.requests,
            self._may_be_set_aside,
            stops=not settings.sets_tables_aside,
        )
        cascades = self._cascades(coordinator.windows)
        unseen = self._still_unseen()
        documents = {**self._inexact(), CoverageDocument.KEY: start.coverage, **delays_of(start.left)}
        facts_found = StartDocuments({**documents, UnseenStatementsDocument.KEY: None if unseen is None else encode(unseen)})
        reach = self._reach(facts_found, unseen)
        metadata, schema_changes = self._metadata(), self._schema_changes()
        builder = self._route_builder()
        router = Router(
            builder,
            clients.captured,
            aside,
            self._rows_handlers(coordinator, cascades, metadata),
            cascades.describes if cascades is not None else lambda _database, _table: False,
        )
        effects = FloorsAndSnapshots(clients.captured, coordinator.requests, clients.tables, aside)
        participants: list[CheckpointParticipant] = [
            AsideCheckpoint(aside, router),
            self._snapshots(coordinator),
            effects,
            TopicDocuments(clients.tables),
            CatalogDocuments(start.resumption.tracked),
            facts_found,
        ]
        if cascades is not None and cascades.makes_requests:
            participants.insert(0, CascadeRequests(cascades, coordinator.shared, clients.tables, aside))
        participants += [one for one in (schema_changes, self._heartbeat(), self._commits) if one is not None]
        participants.append(SchemaIdDocuments(self._schema_ids))  # after all that encode records
        checkpoints = self._checkpoints = self._made_checkpoints(participants, aside)
        checkpoints.restore(start.documents)
        self._progress.times.known(start.documents.get(SIGN_KEY, {}).get("in_kafka_ms"))  # nothing of a start rests on it
        for table in start.gone:
            effects.note_gone(table, self._offset.position)
        statement_handlers: list[StatementHandler | None] = [
            schema_changes,
            self._commits,
            aside,
            ForgottenRoutes(router, cascades),
            InvalidatedChunks(coordinator.windows, clients.captured),
            effects,
            self._truncates(builder, aside),
        ]
        parts = RecaptureParts(coordinator, aside, router, reach, cascades, effects, facts_found, self._progress, self._inexact)
        recapture = Recapture(settings, clients, start.server, parts)
        self._resources.callback(recapture.close)
        publication = self._publication(router, [one for one in statement_handlers if one is not None], metadata, reach)
        changes = self._source_changes(coordinator.control)
        reader = self._reader(coordinator, publication, checkpoints, [recapture, *([] if changes is None else [changes])])
        return WiredStart(reader, coordinator, aside, self._registry, schema_changes, cascades, recapture, changes, self._commits)

    def _source_changes(self, control: SignalControl) -> SourceChanges | None:
        """Return the one that carries out signals about the source as a member of its group; None without a group."""
        source, commits, server = self._start.source, self._commits, self._start.server
        if source is None or commits is None:
            return None
        here = ServerConnector(lambda: connect(ServerAccess.of(self._settings.source)), server.identity)

        def end() -> Position:
            with closing(here()) as connection:
                return end_of_log(connection, self._offset.epoch)

        changes = SourceChanges(source, commits, self._cursor.boundary_position, end, lambda: not control.inbox.is_empty)
        control.commands.register(ChangeSource, changes.handle)
        return changes

    def _publication(
        self,
        router: Router,
        statement_handlers: Sequence[StatementHandler],
        metadata: TransactionMetadata | None,
        reach: StatementReach,
    ) -> LogPublication:
        server = self._start.server
        folds = server.lower_case_table_names == 1
        statements = Statements(
            server.flavour,
            self._catalog,
            statement_handlers,
            self._clients.captured,
            TemporaryTables(self._newest_session()),
            lower_case_names=folds,
        )
        return LogPublication(router, statements, self._progress, lambda: self._stream.server_version, metadata, reach=reach)

    def _objects_of_server(self) -> ServerObjects:
        with self._clients.questions.session() as connection:
            return read_objects(connection)

    def _reach(self, documents: StartDocuments, unseen: UnseenStatementsDocument | None) -> StatementReach:
        server = self._start.server
        return StatementReach(
            self._objects_of_server,
            server.flavour,
            self._clients.captured.follows,
            lambda document: documents.add({UnseenStatementsDocument.KEY: encode(document)}),
            unseen,
            lower_case_names=server.lower_case_table_names == 1,
        )

    def _still_unseen(self) -> UnseenStatementsDocument | None:
        """Return the document about unseen statements; None if there is none, or the rights that it asks for are granted."""
        document = self._start.documents.get(UnseenStatementsDocument.KEY)
        if document is None:
            return None
        unseen = decode(UnseenStatementsDocument, document)
        return unseen if self._objects_of_server().lack(unseen.grants) else None

    def _newest_session(self) -> int:
        """Return the number of the newest session of the server, which is our own."""
        with closing(connect(ServerAccess.of(self._settings.source))) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            row = cursor.fetchone()
        assert row is not None
        return int(row[0])

    def _reader(
        self, coordinator: SnapshotCoordinator, publication: LogPublication, checkpoints: Checkpoints, tasks: Sequence[BoundaryTask]
    ) -> LogReader:
        stream, publisher = self._stream, self._clients.publisher
        self._resources.callback(stream.close)
        stream.open(stream_start(self._offset.start))
        view = ViewPublication(coordinator.views, checkpoints)
        return LogReader(stream, self._assembler, publication, checkpoints, view, publisher, tasks=tasks)

    # ---- handlers

    def _rows_handlers(
        self, coordinator: SnapshotCoordinator, cascades: Cascades | None, metadata: TransactionMetadata | None
    ) -> list[RowsHandler]:
        """Return the handlers in the order in which each event goes through them."""
        publisher, progress = self._clients.publisher, self._progress
        return [
            *([] if cascades is None else [cascades]),
            *([] if self._commits is None else [self._commits]),
            SignalRows(coordinator.windows, publisher, progress, self._on_snapshot_rows),
            OpenWindowRows(coordinator.windows, self._codecs),
            *([] if metadata is None else [metadata]),
            ChangeRecords(publisher, progress, self._schedule),
            OutboxTopics(publisher, self._clients.admin.ensure, self._settings.kafka.partitions),
        ]

    def _truncates(self, builder: RouteBuilder, aside: AsideTables) -> TruncateRecords | None:
        if self._settings.records.skips("t"):
            return None
        return TruncateRecords(self._clients.captured, builder, aside, self._clients.publisher, self._progress)

    def _route_builder(self) -> RouteBuilder:
        clients, records = self._clients, self._settings.records
        return RouteBuilder(
            self._settings.name,
            self._catalog,
            self._codecs,
            clients.tables,
            clients.captured,
            frozenset(op for op in OPS.values() if records.skips(op)),
            self._delimiter,
        )

    def _snapshots(self, coordinator: SnapshotCoordinator) -> SnapshotCheckpoint:
        topic = topics.notifications_topic(self._settings.name, self._delimiter)
        coordinator.views.on_rows = self._on_snapshot_rows
        return SnapshotCheckpoint(
            coordinator, self._cursor, self._clients.captured.holds_data, topic, self._on_snapshot_rows
        )

    @property
    def _on_snapshot_rows(self) -> Callable[[WrittenRows], None] | None:
        return None if self._commits is None else self._commits.snapshot_rows

    def _made_checkpoints(self, participants: Sequence[CheckpointParticipant], aside: AsideTables) -> Checkpoints:
        clients = self._clients
        marker_topics = MarkerTopics(self._settings.name, clients.admin, clients.tables, self._delimiter)
        markers = SnapshotMarkers(clients.publisher, marker_topics, self._schedule, aside)
        interval_s = self._settings.kafka.commit_interval_ms / 1000
        return Checkpoints(
            self._offset, clients.publisher, clients.state, markers, participants, self._progress, interval_s=interval_s
        )

    def _cascades(self, windows: LogWindows) -> Cascades | None:
        """Return the foreign keys to follow; None where the log has what they change after the offset, or none are followed."""
        settings, last = self._settings, self._offset.last
        with self._clients.questions.session() as connection:
            logged_since = logs_cascades_since(connection)
        read_until_us = last.ts_us if last is not None else None
        if logged_since is not None and (read_until_us is None or read_until_us >= logged_since * 1_000_000):
            return None
        has_windows = settings.source.read_only or settings.source.signal_names is not None
        follows = settings.snapshot.follow_cascades and settings.snapshot.merge == "spark" and has_windows
        session, captured = self._clients.questions.session, self._clients.captured
        cascades = Cascades(
            session, captured, settings.format, settings.records, windows, logged_since, makes_requests=follows
        )
        self._not_followed = None if follows else cascades
        return cascades if follows or (has_windows and settings.order.group) else None

    def _inexact(self) -> dict[str, dict[str, Any]]:
        """Return the document that names the captured tables whose foreign keys change rows and are not followed."""
        inexact = [] if self._not_followed is None else [".".join(table) for table in self._not_followed.children]
        if inexact:
            reason = "the server does not log the rows that foreign keys change in them, and they are not followed"
            log.warning("cascades.not_followed", tables=inexact, reason=reason)
        return {InexactDocument.KEY: encode(InexactDocument(tuple(inexact)))}

    def _metadata(self) -> TransactionMetadata | None:
        settings = self._settings
        if not settings.records.provide_transaction_metadata:
            return None
        topic = topics.transaction_topic(settings.name, self._delimiter)
        self._clients.admin.ensure({topic: 1})
        encoder = RecordEncoder(topic, TRANSACTION_KEY, TRANSACTION_VALUE, settings.format, self._registry)
        return TransactionMetadata(encoder, self._clients.publisher)

    def _heartbeat(self) -> SourceHeartbeat | None:
        settings = self._settings
        interval_ms, query = settings.records.heartbeat_interval_ms, settings.records.heartbeat_action_query
        if not interval_ms:
            return None
        topic = topics.heartbeat_topic(settings.name, self._delimiter)
        self._clients.admin.ensure({topic: 1})
        encoder = RecordEncoder(topic, HEARTBEAT_KEY, HEARTBEAT_VALUE, settings.format, self._registry)
        action = None
        if query is not None:
            action = HeartbeatAction(lambda: connect(ServerAccess.of(settings.source)), query)
            self._resources.callback(action.stop)
            action.start()
        return SourceHeartbeat(settings.name, interval_ms / 1000, encoder, action)

    def _schema_changes(self) -> SchemaChanges | None:
        settings, connector = self._settings, self._connector
        if not settings.records.include_schema_changes:
            return None
        topic = topics.schema_change_topic(settings.name)
        self._clients.admin.ensure({topic: 1})
        key, value = schema_change_key(connector), schema_change_value(connector)
        return SchemaChanges(
            settings.name,
            connector,
            RecordEncoder(topic, key, value, settings.format, self._registry),
            self._clients.publisher,
            self._clients.questions.session,
            comments=settings.records.include_schema_comments,
            lower_case_names=self._start.server.lower_case_table_names == 1,
            captures=None if settings.order.group is None else self._clients.captured.holds_data,
        )

    # ---- snapshots

    def _coordinator(self) -> SnapshotCoordinator:
        settings, clients = self._settings, self._clients
        captured = clients.captured
        control = SignalControl.of(settings, self._channels(), self._registry)
        if self._start.reload is not None:
            control.commands.register(ReloadTables, self._start.reload)
        return SnapshotCoordinator(
            settings=settings,
            access=TableAccess(
                ServerConnector(lambda: connect(ServerAccess.of(settings.source)), self._start.server.identity),
                self._codecs,
                self._offset.epoch,
                server=self._start.server.identity,
            ),
            writer=self._chunk_writer,
            captured=lambda: [table for table in clients.tables.known() if captured.holds_data(*table)],
            control=control,
            committed=self._committed,
        )

    def _committed(self) -> LogPosition:
        """Return where the log reader has committed."""
        assert self._checkpoints is not None
        offset = self._checkpoints.committed
        return LogPosition(offset.file, offset.pos, offset.gtid_set)

    def _chunk_writer(self, slot: int) -> KafkaChunkWriter:
        return KafkaChunkWriter(self._clients.admin, self._settings.kafka, f"{self._settings.name}-chunk-{slot}")

    def _channels(self) -> list[SignalChannel]:
        settings = self._settings
        channels: list[SignalChannel] = []
        if "kafka" in settings.signal.channels:
            topic = settings.signal.topic(settings.name)
            self._clients.admin.ensure({topic: 1})
            kafka = settings.kafka
            channels.append(KafkaSignals(topic, settings.name, kafka))
        if settings.signal.file is not None:
            channels.append(FileSignals(Path(settings.signal.file)))
        return channels

    # ---- tables

    def _table_at_cursor(self, database: str, table: str) -> TableFacts | str:
        """Return a table as it is where the log is read, or why that is not known."""
        here = stream_start(self._assembler.resume_point())
        past = tables_at(here, [(database, table)], self._settings.source, self._start.server)
        if past.changed:
            return "a statement further on in the log changes it"
        known = past.tables.get((database, table))
        return "it is gone" if known is None else known

    def _may_be_set_aside(self, database: str, table: str) -> bool:
        """Return whether a snapshot brings back what was not published: it has no signals and no events of an outbox."""
        captured = self._clients.captured
        is_data = captured.holds_data(database, table) and not captured.is_signal(database, table)
        return is_data and not self._settings.records.outbox.holds(database, table)
