"""The producer: its starts, one after the other, and the life of one start.

A start does this, in the order that makes it safe::

    1. source: preflight (settings of the server that would lose data are refused with an explicit error)
    2. Kafka: fence every earlier instance of this name, then read the state topic to its end
    3. resume at the committed offset, or start at the end of the log (with `one_transaction` where its view is) and
       request the initial snapshot; where the log does not name columns, tables are followed from that very position
    4. with `order.group` join the group
    5. wire the objects, restore their state, fence chunk slots; then the log reader runs until stopped

A broken connection to source or Kafka leads to another start: there is one way of recovery.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import server_facts
from producer import all_kernels
from producer.catalog.tables_at import altered_since
from producer.clients import Clients
from producer.group.joining import joined
from producer.group.last_commit import last_commit
from producer.kafka.registry import RegistryWatch
from producer.preparation import (
    create_common_topics,
    create_topics,
    reported_coverage,
    require_own_server_id,
    tables_without_topics,
    view_of_first_start,
)
from producer.recapture import NEW, RETURNED, Recapture, Recaptured, gone_while_released
from producer.reloads import Reloads
from producer.resume import Resumption, find_resumption, last_stream, stream_start
from producer.snapshot.requests import RESTART_PREFIX
from producer.source.log_facts import require_logged, require_stored_name
from producer.source.retention import ResumePosition, RetentionWatch
from producer.source.source_preflight import preflight
from producer.stream.steps import RereadError, RereadHint
from producer.wiring import StartFacts, Wiring
from schemas import topics
from schemas.documents import OffsetDocument
from schemas.errors import (
    ACCESS_ERRORS,
    PublishError,
    RegistryUnavailableError,
    RetriableSourceError,
    SourceError,
    StateError,
)
from schemas.identity import TableId
from schemas.overriding import override
from schemas.schema_changes import ChangeOrigin
from schemas.waiting import waiting

if TYPE_CHECKING:
    from typing import Self

    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.control.command_registry import Handler
    from producer.group.joined_source import JoinedSource
    from producer.group.source_changes import SourceChanges
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.snapshot.own_requests import OwnRequests
    from producer.snapshot.view import FirstView
    from producer.stream.handlers.cascades import Cascades
    from producer.stream.handlers.commit_seal import CommitSeal
    from producer.stream.handlers.set_aside import AsideTables
    from producer.stream.log_reader import LogReader
    from producer.stream.ports import State
    from producer.wiring import WiredStart
    from schemas.errors import RegistryLostError, TidemarkError
    from schemas.notifications import Notification
    from schemas.settings import Settings, SourceSettings

log = structlog.get_logger(__name__)

_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
_HEALTHY_AFTER_S: Final = 60.0


def run(
    settings: Settings,
    stop: threading.Event | None = None,
    on_status: Callable[[Producer], None] | None = None,
    on_waiting: Callable[[str], None] | None = None,
    reloads: Reloads | None = None,
) -> None:
    """Run the producer until `stop` is set. `on_waiting` gets the reason why it waits before its next attempt.

    `reloads` has the settings where their tables may change meanwhile.

    Connection errors are retried for ever with back-off through a full restart. So are credentials that are no longer
    valid (a password is being rotated; its file is read again). Every other error is raised: `FencedError` when another
    instance took over, `SourceError`, `DecodeError`, `ConfigError`, and credentials that never were valid.
    """
    stop = stop or threading.Event()
    reloads = reloads or Reloads(settings)
    ident = str(uuid.uuid4())
    failures = 0
    last: Producer | None = None
    hint: RereadHint | None = None
    try:
        while not stop.is_set():
            started = time.monotonic()
            try:
                with Producer(reloads.settings, ident, hint=hint, reload=reloads.handle, stop=stop) as producer:
                    if last is not None:
                        last.end_watch()
                    last = producer
                    reloads.started(producer)
                    if on_status is not None:
                        on_status(producer)
                    producer.run(stop)
            except (RetriableSourceError, PublishError, RegistryUnavailableError, *ACCESS_ERRORS) as error:
                if isinstance(error, ACCESS_ERRORS) and last is None:
                    raise
                if isinstance(error, RereadError):
                    hint = error.hint
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
                reloads.ended()
    finally:
        if last is not None:
            last.end_watch()


def warm_up() -> None:
    """Load the kernels, which the first start of a version compiles, before the first event has to wait for it."""
    with waiting("compiler", "this process", "the row codec, which the first start of a version compiles"):
        all_kernels.load()


class Producer:
    """One start of the producer: everything it owns, opened in order and closed in reverse.

    `ident` is the id of the process's start, the same for all attempts at it: a snapshot at every start is requested
    once. `restart_reason` is a reason to restart at the log's present end even where reading could resume. `lost` says why it
    restarted there although there was a start before it, "" where it did not. `flavour` is the server's, ""
    while that is not known. `hint` is of a transaction that an
    attempt before this one has seen. `reload` is the handler of the signal that asks for the tables of the file.
    `stop` ends a start that waits for readers of its group.
    """

    def __init__(
        self,
        settings: Settings,
        ident: str | None = None,
        *,
        restart_reason: str = "",
        hint: RereadHint | None = None,
        reload: Handler | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings = settings
        self._reload = reload
        self._stop = stop or threading.Event()
        self._recapture: Recapture | None = None
        self._changes: SourceChanges | None = None
        self._hint = hint
        self._restart_reason = restart_reason
        self._ident = ident or str(uuid.uuid4())
        self._clients = clients = Clients.of(settings)
        self.publisher = clients.publisher
        self.tables = clients.tables
        self.coordinator: SnapshotCoordinator | None = None
        self.reader: LogReader | None = None
        self.aside: AsideTables
        self.cascades: Cascades | None = None
        self.lost = ""
        self.flavour = ""
        self.commits: CommitSeal | None = None
        self.retention: RetentionWatch | None = None
        self._registry_watch: RegistryWatch | None = None
        self._resources = ExitStack()
        self._resources.callback(clients.publisher.close)
        self._resources.callback(clients.questions.close)

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
            if self._changes is not None:
                self._changes.source.stop = stop
            self.reader.run(_EndOfStart(stop, self._registry_problem, self._is_published))
            if self._is_published():
                self._leave_group(stop)
            self._require_registry(stop)
            return
        self.reader.run(_EndOfStart(stop, self._registry_problem, self.coordinator.requests.initial_ended))
        self._require_registry(stop)
        stop.set()
        self.coordinator.requests.require_initial()
        for database, table in sorted(self.aside.tables):
            message = f"{database}.{table} was not read: it cannot be published, see the table's reason in the status"
            raise SourceError(message)

    def _is_published(self) -> bool:
        """Whether the source closes, and everything before its last commit record is published."""
        return self._changes is not None and self._changes.is_published

    def _leave_group(self, stop: threading.Event) -> None:
        """Take the source out of its group behind its last commit record; `stop` is then set."""
        assert self._changes is not None
        commits = topics.commits_topic(self._settings.name, self._settings.kafka.topic_delimiter)
        end, _ = last_commit(self._settings.kafka, commits)
        self._changes.source.leave(end)
        stop.set()

    def close(self) -> None:
        """Stop chunk readers, close the connections to source and Kafka."""
        self.end_watch()
        self._resources.close()

    # ---- the captured tables (`Reloads`)

    @property
    def source(self) -> SourceSettings:
        """What this start captured when it began."""
        return self._settings.source

    def recapture(self, source: SourceSettings, adopted: Callable[[SourceSettings], None]) -> Recaptured:
        """Capture what these settings name from the next transaction boundary on (`Recapture.change`)."""
        assert self._recapture is not None
        return self._recapture.change(source, adopted)

    def report(self, notification: Notification) -> None:
        """Send a notification with the next checkpoint."""
        assert self.coordinator is not None
        with self.coordinator.shared.changing() as ledger:
            ledger.outbox.notify(notification)

    # ---- the watch over the source's log

    def watch_on(self) -> None:
        """Watch the source's log even when this start has ended: what was not read may be purged meanwhile."""
        if self.retention is None or self.retention.has_ended:
            self._begin_watch()

    def end_watch(self) -> None:
        """Stop watching the source's log."""
        if self.retention is not None:
            self.retention.stop()

    def _begin_watch(self) -> None:
        self.retention = RetentionWatch(
            lambda: connect(ServerAccess.of(self._settings.source)), self._reading_position, self._settings.source.log_head_room_s
        )
        self.retention.start()

    def _reading_position(self) -> ResumePosition:
        """Return where reading would resume after a restart."""
        assert self.reader is not None
        offset, read_ms = self.reader.committed, self.reader.progress.source_ts_ms
        if not read_ms and offset.last is not None and offset.last.ts_us is not None:
            read_ms = offset.last.ts_us // 1000
        return ResumePosition(offset.start.file, offset.start.pos, read_ms / 1000 if read_ms else None, offset.server)

    # ---- the registry

    def _registry_problem(self) -> RegistryLostError | None:
        return None if self._registry_watch is None else self._registry_watch.problem

    def _require_registry(self, stop: threading.Event) -> None:
        """Raise the error that ended the reading, if it is one of the registry."""
        problem = self._registry_problem()
        if problem is not None and not stop.is_set():
            raise problem

    def _watch_registry(self, start: WiredStart) -> None:
        if start.registry is not None:
            self._registry_watch = RegistryWatch(start.registry)
            self._resources.callback(self._registry_watch.stop)
            self._registry_watch.start()

    # ---- the start

    def _open(self) -> None:
        settings, clients = self._settings, self._clients
        warm_up()
        connection = connect(ServerAccess.of(settings.source))
        try:
            facts = server_facts(connection)
            self.flavour = facts.flavour
            preflight(facts, connection)
            require_stored_name(facts, "source.signal_table", settings.source.signal_table)
            require_own_server_id(settings, connection, facts)
            clients.state.ensure()
            clients.publisher.fence()
            documents = clients.state.read()
            self._start(facts, documents, connection)
        finally:
            connection.close()

    def _start(self, facts: ServerFacts, documents: State, connection: Connection) -> None:
        settings, clients = self._settings, self._clients
        is_first = OffsetDocument.KEY not in documents
        view = view_of_first_start(settings, clients, facts, connection) if is_first else None
        if view is not None:
            self._resources.callback(view.close)
        source = None if view is None else self._joined(documents)  # the transaction of the view is not to wait for readers
        resumption = find_resumption(settings, clients.captured, documents, facts, connection, view, self._restart_reason)
        offset, captured = resumption.offset, resumption.captured
        self.lost = resumption.lost
        signal_database = settings.source.signal_names[:1] if settings.source.signal_names else ()
        require_logged(connection, facts, {*(database for database, _ in captured), *signal_database})
        coverage = reported_coverage(settings, connection)
        clients.tables.restore(documents)
        left = [table for table in clients.tables.known() if not clients.captured.holds_data(*table)]
        clients.tables.release(left)
        known = set(clients.tables.known())
        gone = gone_while_released(clients, captured)
        returned = {table for table in captured if clients.tables.is_released(*table)}
        refused = dict(resumption.refused)
        refused |= tables_without_topics(settings, clients, captured, resumption.refused.keys())
        create_common_topics(settings, clients)
        refused |= create_topics(settings, clients.tables.ensure_all, [table for table in captured if table not in refused])
        source = source or self._joined(documents)
        start = Wiring(
            settings,
            clients,
            StartFacts(facts, resumption, documents, coverage, left, gone, self._hint, self._reload, source),
            self._resources,
        ).connect()
        self._adopt(start, resumption, refused)
        served = [table for table in captured if table not in refused]
        new = {table: RETURNED if table in returned else NEW for table in served if table not in known}
        self._request_snapshots(start.coordinator.requests, resumption, served, new, is_first)
        self._begin(start, view)
        if (is_first or resumption.lost) and start.schema_changes is not None:
            origin = ChangeOrigin(offset.position, time.time_ns() // 1000, offset.file, offset.pos, snapshot="true")
            start.schema_changes.publish_tables(captured, origin)
            if not (is_first and settings.source.start_at.is_in_the_past):
                self._require_unaltered(resumption, facts)
        log.info("producer.started", file=offset.file, pos=offset.pos, first_start=is_first, tables=len(captured))

    def _require_unaltered(self, resumption: Resumption, facts: ServerFacts) -> None:
        """Raise `RetriableSourceError` if the log continues with statements whose effect the descriptions of the tables have.

        Nothing is committed yet. The next start begins behind the statements.
        """
        altered = altered_since(stream_start(resumption.offset.start), resumption.captured, self._settings.source, facts)
        if altered:
            name = ".".join(altered[0])
            raise RetriableSourceError(f"table {name} was altered while the producer started: it starts again behind that")

    def _joined(self, documents: State) -> JoinedSource | None:
        """Join the group, as late as that may be: the frontier of all readers waits for a source that joins and does not start."""
        stream = last_stream(self._settings, documents)
        join = None if stream is None else stream.join
        return joined(self._settings, self._clients.admin, join, self._stop, self._resources)

    def _adopt(self, start: WiredStart, resumption: Resumption, refused: dict[TableId, TidemarkError]) -> None:
        """Take over the wired objects, and set aside the tables that cannot be published."""
        self.aside, self.cascades, self._recapture = start.aside, start.cascades, start.recapture
        self._changes, self.commits = start.changes, start.commits
        self.coordinator = start.coordinator
        self.reader = start.reader  # last: others look at the rest once there is a reader
        self._resources.callback(start.coordinator.stop)
        for table, error in refused.items():
            start.aside.put(*table, error, resumption.offset.position)

    def _begin(self, start: WiredStart, view: FirstView | None) -> None:
        """Start the threads beside the log reader."""
        opened = None if view is None else view.release()
        if opened is not None:
            start.coordinator.views.adopt(opened)
        start.coordinator.start()
        self._begin_watch()
        self._watch_registry(start)

    def _request_snapshots(
        self,
        requests: OwnRequests,
        resumption: Resumption,
        served: list[TableId],
        new: dict[TableId, str],
        is_first: bool,  # noqa: FBT001 - a fact, not a mode
    ) -> None:
        """Request what this start reads whole, according to the snapshot mode; what comes back in any case, since it has a gap.

        `new` are the tables that the last start did not capture, with the reason to read them.
        """
        behaviour = self._settings.snapshot.at_start
        if resumption.has_moved:
            requests.restart_unfinished()
        names = [f"{database}.{table}" for database, table in served]
        if resumption.lost:
            requests.start_over(names, f"{RESTART_PREFIX}{self._ident}", resumption.lost)
        elif is_first and behaviour.at_first_start:
            requests.request_initial(names)
        elif behaviour.at_every_start:
            requests.request_initial(names, f"start-{self._ident}")
        elif behaviour.follows_log:
            for (database, table), reason in new.items():
                if behaviour.at_first_start or reason == RETURNED:
                    requests.request_table(f"{database}.{table}", reason)


class _EndOfStart(threading.Event):
    """Set when another event is, when the registry needs a new start, or when the only task of this start has ended."""

    def __init__(
        self, stop: threading.Event, problem: Callable[[], object | None], ended: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self._stop = stop
        self._problem = problem
        self._has_ended = ended

    @override
    def is_set(self) -> bool:
        return self._stop.is_set() or self._problem() is not None or self._has_ended()
