"""Composition root of the producer: settings in, a running log reader and snapshot coordinator out.

The start, in the order that makes it safe::

    1. source: preflight (settings of the server that would lose data are refused in words)
    2. Kafka: fence every earlier instance of this name, then read the state topic to its end
    3. resume at the committed offset, or begin at the end of the log (with `one_transaction` where its view stands) and
       ask for the initial snapshot; where the log does not name columns, tables are followed from that very place
    4. coordinator restored, chunk slots fenced, then the log reader runs until stopped

A broken connection to source or Kafka goes through the same start again: recovery has one path.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from producer.beginning import Beginning, find_beginning, stream_start
from producer.catalog import Catalog, TrackedTables, list_tables, read_table_schema, unsupported_tables
from producer.catalog.foreign_keys import logs_cascades_since
from producer.catalog.looking import TableLooks
from producer.codec.jit import compile_kernels
from producer.control.channels import FileSignals, KafkaSignals, SignalChannel
from producer.kafka.chunk_sink import KafkaChunkSink
from producer.kafka.client import TopicAdmin
from producer.kafka.codecs import CodecFactory
from producer.kafka.connect_records import RecordEncoder
from producer.kafka.publisher import TransactionalPublisher
from producer.kafka.registry import RegistryWatch, SchemaRegistry
from producer.kafka.schema_ids import SchemaIds
from producer.kafka.state_topic import StateTopic
from producer.kafka.tables import TableTopics
from producer.snapshot.coordinator import ServerConnector, SnapshotCoordinator
from producer.snapshot.ledger import ANEW
from producer.snapshot.view import FirstView, View, open_view
from producer.snapshot.watermark import SignalTable
from producer.source.connection import connect, source_errors
from producer.source.coverage import coverage
from producer.source.dump import REGISTERED_AS, BinlogStream
from producer.source.facts import (
    ServerFacts,
    other_replica,
    preflight,
    require_logged,
    require_stored_name,
    server_facts,
    user_grants,
)
from producer.source.gtid import parse_gtid_set
from producer.source.kept_connection import KeptConnection
from producer.source.retention import ResumePosition, RetentionWatch
from producer.stream.aside import AsideTables
from producer.stream.cascades import Cascades
from producer.stream.commits import Commits
from producer.stream.definitions import Definitions
from producer.stream.heartbeat import Heartbeat, HeartbeatAction
from producer.stream.log_reader import LogReader, MetTransaction, MetTransactionError
from producer.stream.metadata import TransactionMetadata
from producer.stream.offset import LogOffset
from producer.stream.outbox import OutboxTopics
from producer.stream.routes import CapturedTables, Router
from producer.stream.rows import RowPublisher
from producer.stream.schema_changes import SchemaChanges
from schemas import topics
from schemas.documents import CoverageDocument, InexactDocument, OffsetDocument
from schemas.errors import (
    ACCESS_ERRORS,
    ConfigError,
    PublishError,
    RegistryUnavailableError,
    RetriableSourceError,
    SourceError,
    StateError,
)
from schemas.heartbeats import HEARTBEAT_KEY, HEARTBEAT_VALUE
from schemas.identity import SourceId
from schemas.json_codec import encode
from schemas.kafka_security import client_options
from schemas.schema_changes import ChangePlace, schema_change_key, schema_change_value
from schemas.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from schemas.waiting import waiting

if TYPE_CHECKING:
    from typing import Any, Self

    from producer.catalog.information_schema import TableFacts
    from producer.source.connection import Connection
    from producer.source.lineage import Begun
    from schemas.connect import Connector
    from schemas.errors import RegistryLostError, TidemarkError
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
_HEALTHY_AFTER_S: Final = 60.0


def run(
    settings: Settings,
    stop: threading.Event | None = None,
    on_status: Callable[[Producer], None] | None = None,
    on_waiting: Callable[[str], None] | None = None,
) -> None:
    """Run the producer until `stop` is set. `on_waiting` is told why it waits before its next attempt.

    Connection errors are retried for ever with back-off through a full restart, and so are credentials that no longer
    hold (a password is being rotated; its file is read again). Every other error is raised: `FencedError` when another
    instance took over, `SourceError`, `DecodeError`, `ConfigError` in words, and credentials that never held.
    """
    stop = stop or threading.Event()
    ident = str(uuid.uuid4())
    failures = 0
    last: Producer | None = None
    met: MetTransaction | None = None
    try:
        while not stop.is_set():
            started = time.monotonic()
            try:
                with Producer(settings, ident, met=met) as producer:
                    if last is not None:
                        last.end_watch()
                    last = producer
                    if on_status is not None:
                        on_status(producer)
                    producer.run(stop)
            except (RetriableSourceError, PublishError, RegistryUnavailableError, *ACCESS_ERRORS) as error:
                if isinstance(error, ACCESS_ERRORS) and last is None:
                    raise
                if isinstance(error, MetTransactionError):
                    met = error.met
                if stop.is_set():
                    log.info("producer.stopped_while_it_waited", reason=str(error))
                    return
                failures = 0 if time.monotonic() - started > _HEALTHY_AFTER_S else failures + 1
                delay = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
                log.warning("producer.restarts", error=str(error), in_s=delay)
                if on_waiting is not None:
                    on_waiting(str(error))
                if last is not None:
                    last.watch_on()
                stop.wait(delay)
    finally:
        if last is not None:
            last.end_watch()


def warm_up() -> None:
    """Compile what `run` needs, ahead of the moment when it counts."""
    with waiting("compiler", "this process", "the row codec, which the first start of a version compiles"):
        compile_kernels()


class Producer:
    """One start of the producer: everything it owns, opened in order and closed in reverse.

    `ident` is that of the process's start, the same for all attempts at it: a snapshot at every start is asked
    for once. `anew` is a reason to begin at the log's present end even where it could be read on. `lost` says why
    it began anew although there was a start before it, "" where it did not. `met` is a transaction
    that an attempt before this one has met.
    """

    def __init__(
        self, settings: Settings, ident: str | None = None, *, anew: str = "", met: MetTransaction | None = None
    ) -> None:
        self._settings = settings
        self._met = met
        self._anew = anew
        self._ident = ident or str(uuid.uuid4())
        options = client_options(settings.kafka)
        servers = settings.kafka.bootstrap_servers
        self.admin = TopicAdmin(servers, options)
        self.publisher = TransactionalPublisher(
            servers, f"{settings.name}-log", {**options, "compression.type": settings.kafka.compression}
        )
        self._delimiter = delimiter = settings.kafka.topic_delimiter
        self.state = StateTopic(SourceId(settings.name), topics.state_topic(settings.name, delimiter), self.admin, servers, options)
        self.tables = TableTopics(settings.name, self.admin, settings.kafka.partitions, delimiter)
        self.captured = CapturedTables(settings.source)
        self.coordinator: SnapshotCoordinator | None = None
        self.reader: LogReader | None = None
        self.aside: AsideTables
        self.lost = ""
        self._questions = KeptConnection(lambda: connect(settings.source))
        self._registry: SchemaRegistry | None = None
        self._registry_watch: RegistryWatch | None = None
        self._stream: BinlogStream | None = None
        self._action: HeartbeatAction | None = None
        self.retention: RetentionWatch | None = None
        self._schema_changes: SchemaChanges | None = None
        self._first_view: FirstView | None = None
        self._coverage: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, stop: threading.Event) -> None:
        """Read the log and publish until `stop` is set, or where the log is not followed, until all tables are read.

        Raises `SourceError` when one of those tables could not be read; `stop` is then set, too.
        """
        if self.reader is None or self.coordinator is None:
            message = "the producer is run before it is entered"
            raise StateError(message)
        if self._settings.snapshot.at_start.follows_log:
            self.reader.run(_EndOfStart(stop, self._registry_problem))
            self._require_registry(stop)
            return
        self.reader.run(_EndOfStart(stop, self._registry_problem, self.coordinator.initial_ended))
        self._require_registry(stop)
        stop.set()
        self.coordinator.require_initial()
        for database, table in sorted(self.aside.tables):
            message = f"{database}.{table} was not read: it cannot be published, see the table's reason in the status"
            raise SourceError(message)

    def _registry_problem(self) -> RegistryLostError | None:
        return None if self._registry_watch is None else self._registry_watch.problem

    def _require_registry(self, stop: threading.Event) -> None:
        """Raise what ended the reading, if the registry did."""
        problem = self._registry_problem()
        if problem is not None and not stop.is_set():
            raise problem

    def watch_on(self) -> None:
        """Look at the source's log also when this one has ended: whatever is waited for, what was not read may be purged."""
        if self.retention is None or self.retention.has_ended:
            self._begin_watch()

    def end_watch(self) -> None:
        """Look no more."""
        if self.retention is not None:
            self.retention.stop()

    def _begin_watch(self) -> None:
        self.retention = RetentionWatch(
            lambda: connect(self._settings.source), self._log_place, self._settings.source.log_head_room_s
        )
        self.retention.start()

    def close(self) -> None:
        """Stop chunk readers, leave the log, give Kafka up."""
        if self._first_view is not None:
            self._first_view.close()
        if self.coordinator is not None:
            self.coordinator.stop()
        if self._action is not None:
            self._action.stop()
        self.end_watch()
        if self._stream is not None:
            self._stream.close()
        self._questions.close()
        self.publisher.close()
        if self._registry_watch is not None:
            self._registry_watch.stop()
        if self._registry is not None:
            self._registry.close()

    def _open(self) -> None:
        warm_up()
        settings = self._settings
        connection = connect(settings.source)
        try:
            facts = server_facts(connection)
            preflight(facts, connection)
            require_stored_name(facts, "source.signal_table", settings.source.signal_table)
            self._require_own_server_id(connection, facts)
            self.state.ensure()
            self.publisher.fence()
            documents = self.state.read()
            first_start = OffsetDocument.KEY not in documents
            view = self._first_view = self._view_of_first_start(facts, connection) if first_start else None
            begun = find_beginning(settings, self.captured, documents, facts, connection, view, self._anew)
            offset, captured, lost = begun.offset, begun.captured, begun.lost
            self.lost = lost
            signal_database = settings.source.signal_names[:1] if settings.source.signal_names else ()
            require_logged(connection, facts, {*(database for database, _ in captured), *signal_database})
            self._coverage = self._say_what_is_not_seen(connection)
            self.tables.restore(documents)
            known = set(self.tables.known())
            refused = dict(begun.refused) | self._without_topics(captured, begun.refused.keys())
            refused |= self._create_topics([table for table in captured if table not in refused])
            coordinator = self._build(facts, offset, documents, begun.tracked)
            for table, error in refused.items():
                self.aside.put(*table, error, offset.position)
            served = [table for table in captured if table not in refused]
            new = [table for table in served if table not in known]
            self._ask_for_snapshots(coordinator, begun, served, new, first_start=first_start)
            opened = None if view is None else view.take()
            if opened is not None:
                coordinator.adopt_view(opened)
            coordinator.start()
            self._begin_watch()
            if self._registry is not None:
                self._registry_watch = RegistryWatch(self._registry)
                self._registry_watch.start()
            if (first_start or lost) and self._schema_changes is not None:
                ts_us = time.time_ns() // 1000
                place = ChangePlace(offset.position, ts_us, offset.file, offset.pos, snapshot="true")
                self._schema_changes.tell_tables(captured, place)
        finally:
            connection.close()
        log.info(
            "producer.started",
            file=offset.file,
            pos=offset.pos,
            first_start=first_start,
            tables=len(captured),
        )

    def _say_what_is_not_seen(self, connection: Connection) -> dict[str, Any]:
        """Warn of what the settings want and the source does not show; the document for the status."""
        document = coverage(self._settings.source, list_tables(connection), user_grants(connection))
        for pattern, reason in document["unmatched"].items():
            log.warning("source.tables_without_match", pattern=pattern, reason=reason)
        if document["unreadable"]:
            log.warning("source.tables_not_readable", tables=document["unreadable"], advice="GRANT SELECT on them")
        return document

    def _require_own_server_id(self, connection: Connection, facts: ServerFacts) -> None:
        """Another replica with our id would be cut off by us, and cut us off when it comes back."""
        server_id = self._settings.source.server_id or 0
        other = other_replica(connection, facts, server_id, REGISTERED_AS)
        if other:
            message = (
                f"the replica {other} is connected with our server id {server_id}, and the server may serve only one of us: "
                f"set source.server_id to one that no replica has"
            )
            raise SourceError(message)

    def _view_of_first_start(self, facts: ServerFacts, connection: Connection) -> FirstView | None:
        """The view that is read before the log; None where the settings want none."""
        settings = self._settings
        snapshot, source = settings.snapshot, settings.source
        if snapshot.consistency != "one_transaction" or not snapshot.at_start.at_first_start:
            return None

        def open_one() -> View:
            tables = [table for table in list_tables(connection) if self.captured.holds_data(*table)]
            if settings.on_table_error == "set_aside":
                refused = unsupported_tables(connection, tables)
                tables = [table for table in tables if table not in refused]
            here = ServerConnector(lambda: connect(source), facts.identity)
            names = None if source.read_only else source.signal_names
            signals = None if names is None else SignalTable(*names)
            with source_errors(f"{source.host}:{source.port}"):
                if signals is not None:
                    signals.ensure(connection)  # behind a lock that is kept it could not be made any more
                return open_view(here, tables, snapshot, signals, read_table_schema)

        return FirstView(open_one)

    def _ask_for_snapshots(
        self,
        coordinator: SnapshotCoordinator,
        begun: Beginning,
        served: list[tuple[str, str]],
        new: list[tuple[str, str]],
        *,
        first_start: bool,
    ) -> None:
        """What this start reads whole, as the snapshot mode has it."""
        behaviour = self._settings.snapshot.at_start
        if begun.has_moved:
            coordinator.restart_unfinished()
        names = [f"{database}.{table}" for database, table in served]
        if begun.lost:
            coordinator.begin_anew(names, f"{ANEW}{self._ident}", begun.lost)
        elif first_start and behaviour.at_first_start:
            coordinator.request_initial(names)
        elif behaviour.at_every_start:
            coordinator.request_initial(names, f"start-{self._ident}")
        elif behaviour.at_first_start and behaviour.follows_log:
            for database, table in new:
                coordinator.request_table(f"{database}.{table}", "the table was not captured before")

    def _without_topics(
        self, captured: list[tuple[str, str]], refused: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], TidemarkError]:
        """The tables that cannot have topics beside those of the others; raises where one is to stop all."""
        found = self.tables.without_topics(table for table in captured if table not in refused)
        for message in found.values() if self._settings.on_table_error == "stop" else ():
            raise ConfigError(message)
        return {table: ConfigError(message) for table, message in found.items()}

    def _create_topics(self, captured: list[tuple[str, str]]) -> dict[tuple[str, str], TidemarkError]:
        """Make what is missing; the tables whose topics are there and cannot be theirs, unless one is to stop all."""
        self.admin.ensure({topics.notifications_topic(self._settings.name, self._delimiter): 1})
        signal = self._settings.source.signal_names
        if signal is not None:
            self.tables.ensure_signal(*signal)
        refused: dict[tuple[str, str], TidemarkError] = {}
        try:
            self.tables.ensure_all(captured)
        except StateError:
            if self._settings.on_table_error == "stop":
                raise
            for table in captured:
                try:
                    self.tables.ensure(*table)
                except StateError as error:
                    refused[table] = error
        return refused

    def _build(
        self,
        facts: ServerFacts,
        offset: LogOffset,
        documents: Mapping[str, object],
        tracked: TrackedTables,
    ) -> SnapshotCoordinator:
        settings = self._settings
        wire = settings.format
        schema_ids = SchemaIds(documents)
        registry = SchemaRegistry.of(wire, schema_ids) if wire.type == "avro" else None
        self._registry = registry
        codecs = CodecFactory(
            settings.name,
            _connector(facts),
            wire,
            registry,
            settings.records,
            settings.source.signal_names,
            self._delimiter,
        )
        catalog = Catalog(
            self._questions.session,
            facts.flavour,
            tracked,
            lambda database, table: self._look(facts, database, table),
        )
        coordinator = self.coordinator = SnapshotCoordinator(
            settings=settings,
            source=lambda: connect(settings.source),
            sink=self._chunk_sink,
            codecs=codecs,
            captured=lambda: [table for table in self.tables.known() if self.captured.holds_data(*table)],
            epoch=offset.epoch,
            register=None if registry is None else registry.register,
            server=facts.identity,
            channels=self._channels(),
            place=self._place,
        )
        coordinator.restore(documents)
        coordinator.leave_out_others(self.captured.holds_data)
        self.aside = AsideTables(
            settings.name, coordinator, self._may_be_set_aside, stops=settings.on_table_error == "stop"
        )
        self.aside.restore(documents)
        cascades, inexact = self._cascades(offset.last)
        told = {**inexact, CoverageDocument.KEY: self._coverage}
        changed_documents = {key: document for key, document in told.items() if document != documents.get(key)}
        self._schema_changes = self._schema_change_records(registry, facts, documents)
        router = Router(
            settings.name,
            self.captured,
            catalog,
            codecs,
            self._on_new_table,
            self._delimiter,
            None if cascades is None else cascades.describes,
            self.aside,
        )
        commits = Commits(
            prefix=settings.name,
            offset=offset,
            publisher=self.publisher,
            state=self.state,
            admin=self.admin,
            coordinator=coordinator,
            table_topics=self.tables,
            catalog=catalog,
            heartbeat=self._heartbeat(registry),
            schema_changes=self._schema_changes,
            cascades=cascades,
            documents=changed_documents,
            schema_ids=schema_ids,
            aside=self.aside,
            is_publishable=router.is_publishable,
            delimiter=self._delimiter,
        )
        self.reader = self._log_reader(facts, offset, registry, coordinator, catalog, router, commits, cascades)
        return coordinator

    def _log_reader(
        self,
        facts: ServerFacts,
        offset: LogOffset,
        registry: SchemaRegistry | None,
        coordinator: SnapshotCoordinator,
        catalog: Catalog,
        router: Router,
        commits: Commits,
        cascades: Cascades | None,
    ) -> LogReader:
        settings, records = self._settings, self._settings.records
        metadata = self._metadata(registry)
        rows = RowPublisher(
            router=router,
            coordinator=coordinator,
            publisher=self.publisher,
            commits=commits,
            records=records,
            metadata=metadata,
            outbox=OutboxTopics(self.publisher.produce, self.admin.ensure, settings.kafka.partitions),
            cascades=cascades,
        )
        definitions = Definitions(
            flavour=facts.flavour,
            lower_case_names=facts.lower_case_table_names == 1,
            catalog=catalog,
            captured=self.captured,
            router=router,
            coordinator=coordinator,
            table_topics=self.tables,
            publisher=self.publisher,
            commits=commits,
            schema_changes=self._schema_changes,
            cascades=cascades,
            publishes_truncates=not records.skips("t"),
            aside=self.aside,
        )
        self._stream = BinlogStream(settings.source, facts)
        self._stream.open(stream_start(offset.start))
        return LogReader(
            stream=self._stream,
            offset=offset,
            gtids=parse_gtid_set(offset.start.gtid_set, facts.flavour),
            flavour=facts.flavour,
            publisher=self.publisher,
            coordinator=coordinator,
            commits=commits,
            rows=rows,
            definitions=definitions,
            metadata=metadata,
            include_query=records.include_query,
            met=self._met,
        )

    def _cascades(self, last: Begun | None) -> tuple[Cascades | None, dict[str, Any]]:
        """What follows the foreign keys; None where the log holds what they change behind `last`, or nobody wants it.

        And the document that names what is not followed.
        """
        settings = self._settings
        snapshot, inexact = settings.snapshot, list[str]()
        cascades: Cascades | None = None
        with self._questions.session() as connection:
            logged_since = logs_cascades_since(connection)
        read_until_us = last.ts_us if last is not None else None
        is_logged = logged_since is not None and (read_until_us is None or read_until_us >= logged_since * 1_000_000)
        if not is_logged:
            cascades = Cascades(
                self._questions.session, self.captured, settings.format, settings.records, logged_since
            )
            has_windows = settings.source.read_only or settings.source.signal_names is not None
            if not (snapshot.follow_cascades and snapshot.merge == "spark" and has_windows):
                inexact = [".".join(table) for table in cascades.children]
                cascades = None
        if inexact:
            reason = "the server does not log the rows that foreign keys change in them, and they are not followed"
            log.warning("cascades.not_followed", tables=inexact, reason=reason)
        return cascades, {InexactDocument.KEY: encode(InexactDocument(tuple(inexact)))}

    def _place(self) -> LogOffset:
        """Where the log reader has committed."""
        assert self.reader is not None
        return self.reader.committed

    def _log_place(self) -> ResumePosition:
        """Where reading would go on after a restart."""
        assert self.reader is not None
        offset, read_ms = self.reader.committed, self.reader.progress.source_ts_ms
        if not read_ms and offset.last is not None and offset.last.ts_us is not None:
            read_ms = offset.last.ts_us // 1000
        return ResumePosition(offset.start.file, offset.start.pos, read_ms / 1000 if read_ms else None, offset.server)

    def _channels(self) -> list[SignalChannel]:
        settings = self._settings
        channels: list[SignalChannel] = []
        if "kafka" in settings.signal.channels:
            topic = settings.signal.topic(settings.name)
            self.admin.ensure({topic: 1})
            kafka = settings.kafka
            options = client_options(kafka)
            channels.append(KafkaSignals(topic, settings.name, kafka.bootstrap_servers, options))
        if settings.signal.file is not None:
            channels.append(FileSignals(Path(settings.signal.file)))
        return channels

    def _look(self, facts: ServerFacts, database: str, table: str) -> TableFacts | str:
        """A table as it is where the log reader stands, or why that cannot be told."""
        if self.reader is None:
            return "the log is not read yet"
        looks = TableLooks(self._settings.source, facts, lambda: connect(self._settings.source))
        looked = looks.read([(database, table)], stream_start(self.reader.place()))
        if looked.changed:
            return "a statement further on in the log changes it"
        known = looked.tables.get((database, table))
        return "it is gone" if known is None else known

    def _metadata(self, registry: SchemaRegistry | None) -> TransactionMetadata | None:
        settings = self._settings
        if not settings.records.provide_transaction_metadata:
            return None
        topic = topics.transaction_topic(settings.name, self._delimiter)
        self.admin.ensure({topic: 1})
        encoder = RecordEncoder(topic, TRANSACTION_KEY, TRANSACTION_VALUE, settings.format, registry)
        return TransactionMetadata(encoder, self.publisher.produce)

    def _heartbeat(self, registry: SchemaRegistry | None) -> Heartbeat | None:
        settings = self._settings
        interval_ms, query = settings.records.heartbeat_interval_ms, settings.records.heartbeat_action_query
        if not interval_ms:
            return None
        topic = topics.heartbeat_topic(settings.name, self._delimiter)
        self.admin.ensure({topic: 1})
        encoder = RecordEncoder(topic, HEARTBEAT_KEY, HEARTBEAT_VALUE, settings.format, registry)
        if query is not None:
            self._action = HeartbeatAction(lambda: connect(settings.source), query)
            self._action.start()
        return Heartbeat(settings.name, interval_ms / 1000, encoder, self.publisher.produce, self._action)

    def _schema_change_records(
        self, registry: SchemaRegistry | None, facts: ServerFacts, documents: Mapping[str, object]
    ) -> SchemaChanges | None:
        settings, connector = self._settings, _connector(facts)
        if not settings.records.include_schema_changes:
            return None
        topic = topics.schema_change_topic(settings.name)
        self.admin.ensure({topic: 1})
        key, value = schema_change_key(connector), schema_change_value(connector)
        encoder = RecordEncoder(topic, key, value, settings.format, registry)
        changes = SchemaChanges(
            settings.name,
            connector,
            encoder,
            self.publisher.produce,
            self._questions.session,
            comments=settings.records.include_schema_comments,
            lower_case_names=facts.lower_case_table_names == 1,
        )
        changes.restore(documents)
        return changes

    def _may_be_set_aside(self, database: str, table: str) -> bool:
        """Whether a snapshot brings back what was not published: it has neither signals nor the events of an outbox."""
        is_data = self.captured.holds_data(database, table) and not self.captured.is_signal(database, table)
        return is_data and not self._settings.records.outbox.holds(database, table)

    def _on_new_table(self, database: str, table: str) -> None:
        if self.captured.is_signal(database, table):
            self.tables.ensure_signal(database, table)
        else:
            self.tables.ensure(database, table)

    def _chunk_sink(self, slot: int) -> KafkaChunkSink:
        kafka = self._settings.kafka
        return KafkaChunkSink(
            self.admin,
            kafka.bootstrap_servers,
            f"{self._settings.name}-chunk-{slot}",
            lambda: {**client_options(kafka), "compression.type": kafka.compression},
        )


class _EndOfStart(threading.Event):
    """Set when another event is, when the registry needs a new start, or when what alone was to be done has ended, well or not."""

    def __init__(
        self, stop: threading.Event, problem: Callable[[], object | None], ended: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self._stop = stop
        self._problem = problem
        self._has_ended = ended

    def is_set(self) -> bool:
        return self._stop.is_set() or self._problem() is not None or self._has_ended()


def _connector(facts: ServerFacts) -> Connector:
    """Debezium's name of the connector, which names schemas and stands in every source block."""
    return "mariadb" if facts.flavour == "mariadb" else "mysql"
