"""The dump protocol: one replication connection, its packets framed into batches with file and offsets.

PyMySQL gives connection, TLS and authentication; from the dump command on its socket is ours and read in
large pieces. We read only when asked, so a slow consumer holds the server back through TCP.

Source: MySQL "Replication Protocol" pages, MySQL 9 `rpl_binlog_sender.cc`, MariaDB 11 `sql_repl.cc`.
"""

# ruff: noqa: SLF001 - PyMySQL has no public way to send a command and own the socket
from __future__ import annotations

import select
import ssl
import struct
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_URL, uuid5

import structlog

from mysqlio.connection import connect, server_version
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import GONE, source_errors
from mysqlio.server_facts import flavour_of, server_facts
from producer.binlog.framing import PacketFramer
from producer.binlog.positions import PositionTracker
from producer.source.gtid_bytes import encode_gtids
from producer.source.log_facts import available_log, log_sizes
from schemas.errors import DecodeError, LogTornError, RetriableSourceError, SourceError
from schemas.gtid_sets import MysqlGtidSet
from schemas.position import file_number
from schemas.waiting import TURN_S, WAITS, waiting

if TYPE_CHECKING:
    import socket

    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.binlog.framing import EventBatch, ServerMessage
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

LARGEST_DUMP_POSITION: Final = (1 << 32) - 1
"""Beyond it only GTIDs name a place: the dump command has 32 bits for the position."""
REGISTERED_AS: Final = "tidemark"
"""Our host in the server's list of replicas."""
_COM_BINLOG_DUMP: Final = 18
_COM_REGISTER_SLAVE: Final = 21
_COM_BINLOG_DUMP_GTID: Final = 30
_FIRST_OFFSET: Final = 4
_FLAG_HEARTBEAT_V2_OR_ANNOTATE: Final = 2
"""MySQL 8.0.26 and later: 64-bit heartbeats. MariaDB: send annotations, else offsets would not sum up."""
_DUMP_TIMEOUT_S: Final = 86_400
_MANY_BYTES: Final = 8 << 10
"""So much at once is more than the transactions of a moment: the log is behind."""
_ENOUGH_BYTES: Final = 512 << 10
_SILENT_HEARTBEATS: Final = 5
_SAID_AFTER_S: Final = 5.0
_TORN: Final = "truncated in the middle of event"
_ER_MASTER_FATAL: Final = 1236


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where to begin: behind every transaction of `gtid_set`, or at `pos` of `file` when that is None.

    An empty `file` without a GTID set is the oldest log file the server still has.
    """

    file: str = ""
    pos: int = _FIRST_OFFSET
    gtid_set: str | None = None


class BinlogStream:
    """Reads one server's binlog. Owned by one thread; nothing is read ahead of `read`.

    `position` and `file` are where the next event starts, `server_version` is who wrote that file (for
    `parse_table_map`). `facts` are of the server that is meant: another one is refused. A second stream with
    the same `server_id` ends this one.
    """

    def __init__(
        self, settings: SourceSettings, facts: ServerFacts | None = None, *, buffer_bytes: int = 2 << 20
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._where = f"{settings.host}:{settings.port}"
        self._buffer_bytes = buffer_bytes
        self._connection: Connection | None = None
        self._socket: socket.socket | None = None
        self._framer = PacketFramer(buffer_bytes)
        self._tracker = PositionTracker("", _FIRST_OFFSET)
        self._heartbeat_s = float(settings.heartbeat_s)
        self._silent_s = 0.0
        self._said = False
        self._server_id = 0
        self.flavour = ""
        self.server_version = ""

    @property
    def file(self) -> str:
        """The log file of the next event."""
        return self._tracker.file

    @property
    def position(self) -> int:
        """The 64-bit offset in `file` where the next event starts."""
        return self._tracker.offset

    def open(
        self, start: StreamStart, server_id: int | None = None, heartbeat_s: float | None = None
    ) -> None:
        """Connect, register as a replica and ask for the log from `start` on.

        Raises `SourceError`; what the server says about a missing position comes with the first `read`.
        """
        if self._connection is not None:
            message = "the stream is open already"
            raise SourceError(message)
        server_id = server_id or self._settings.server_id
        if not server_id:
            message = (
                "source.server_id is not set; a binlog reader needs one that no replica of the server uses"
            )
            raise SourceError(message)
        self._server_id = server_id
        self._heartbeat_s = heartbeat_s or self._heartbeat_s
        self._framer = PacketFramer(self._buffer_bytes, sequence=1)
        self._tracker = PositionTracker(start.file, start.pos, by_gtid=start.gtid_set is not None)
        self._silent_s = 0.0
        self._connection = connect(ServerAccess.of(self._settings))
        try:
            with source_errors(self._where):
                self._start_dump(self._connection, start, server_id)
        except BaseException:
            self.close()
            raise
        log.info(
            "binlog.connected",
            server=self._where,
            flavour=self.flavour,
            file=start.file,
            pos=start.pos,
            gtid_set=start.gtid_set,
        )

    def _start_dump(self, connection: Connection, start: StreamStart, server_id: int) -> None:
        self.flavour = flavour_of(server_version(connection))
        if self._facts is not None:
            _check_identity(self._facts, server_facts(connection))
        with connection.cursor() as cursor:
            for statement in self._session(start, server_id):
                cursor.execute(statement)
        commands: Any = connection  # PyMySQL has no public way to send a command
        commands._execute_command(_COM_REGISTER_SLAVE, _register(server_id))
        commands._read_ok_packet()
        if start.gtid_set is None or self.flavour == "mariadb":
            pos = start.pos if start.gtid_set is None else _FIRST_OFFSET
            file = start.file if start.gtid_set is None else ""
            commands._execute_command(_COM_BINLOG_DUMP, _dump(server_id, file, pos))
        else:
            gtids = encode_gtids(MysqlGtidSet.parse(start.gtid_set))
            commands._execute_command(_COM_BINLOG_DUMP_GTID, _dump_gtid(server_id, gtids))
        sock: socket.socket = commands._sock
        sock.setblocking(False)
        self._socket = sock
        # The command has no answer: as long as no event is there, the server may still take us for its next reader, and
        # throw out one of our id that came after us.
        first = select.poll()
        first.register(sock, select.POLLIN)
        with waiting("source", self._where, "the first event of the log"):
            deadline = time.monotonic() + self._settings.connect_timeout_s
            while not first.poll(TURN_S * 1000) and time.monotonic() < deadline and not WAITS.is_ending:
                pass

    def _session(self, start: StreamStart, server_id: int) -> list[str]:
        uuid = uuid5(NAMESPACE_URL, f"tidemark:binlog-reader:{server_id}")
        heartbeat_ns = int(self._heartbeat_s * 1e9)
        statements = [
            f"SET SESSION net_write_timeout = {_DUMP_TIMEOUT_S}",
            "SET @master_binlog_checksum = @@global.binlog_checksum",
            "SET @source_binlog_checksum = @@global.binlog_checksum",
            f"SET @master_heartbeat_period = {heartbeat_ns}, @source_heartbeat_period = {heartbeat_ns}",
            f"SET @slave_uuid = '{uuid}', @replica_uuid = '{uuid}'",
        ]
        if self.flavour == "mariadb":
            statements.append("SET @mariadb_slave_capability = 4")
            if start.gtid_set is not None:
                statements.append(f"SET @slave_connect_state = '{_checked(start.gtid_set)}'")
                statements.append("SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
        return statements

    def read(self, timeout_s: float) -> EventBatch | None:
        """Read the next complete events, all of one file, offsets filled in; None when none came within the time.

        The batch's memory is overwritten by the next call. Raises `RetriableSourceError` when the connection
        broke or has been silent for several heartbeats, `SourceError` with the server's words when it
        refuses, `LogTornError` where only `continue_in` helps, `DecodeError` with the position for bytes that are not a binlog.
        """
        self._open_socket()
        deadline = time.monotonic() + timeout_s
        while True:
            batch = self._next_batch()
            if batch is not None:
                return batch
            if not self._receive(deadline):
                return None

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            message = "the stream is not open"
            raise SourceError(message)
        return self._socket

    def _next_batch(self) -> EventBatch | None:
        try:
            batch = self._framer.next_batch()
            if batch is not None:
                self._tracker.advance(batch)
                self.server_version = self._tracker.server_version or self.server_version
        except DecodeError as error:
            raise error if error.position else error.at(self._tracker.text) from error
        if batch is None and self._framer.message is not None:
            raise self._server_error(self._framer.message)
        return batch

    def _receive(self, deadline: float) -> bool:
        """Take what the socket holds into the framer, waiting until `deadline`; False when nothing came."""
        sock = self._open_socket()
        space = self._framer.space()
        while True:
            try:
                size = sock.recv_into(space)
            except (BlockingIOError, ssl.SSLWantReadError):
                if not self._wait(deadline):
                    return False
                continue
            except OSError as error:
                message = (
                    f"the replication connection to {self._where} broke at {self._tracker.text}: {error}"
                )
                raise RetriableSourceError(message) from error
            if size == 0:
                message = f"{self._where} closed the replication connection at {self._tracker.text}"
                raise RetriableSourceError(message)
            self._silent_s, self._said = 0.0, False
            self._framer.filled(size)
            if size >= _MANY_BYTES:
                self._receive_more(sock)
            return True

    def _receive_more(self, sock: socket.socket) -> None:
        """Take what else the socket has: where the log is behind, a larger batch costs less per event."""
        while self._framer.pending_bytes < _ENOUGH_BYTES:
            try:
                size = sock.recv_into(self._framer.space())
            except OSError:  # nothing is there; an error comes again, with the next `_receive`
                return
            if size == 0:
                return
            self._framer.filled(size)

    def _wait(self, deadline: float) -> bool:
        """Wait until the socket can be read; False when the time is over."""
        sock = self._open_socket()
        before = time.monotonic()
        left = deadline - before
        if left <= 0:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if poll.poll(left * 1000):
            return True
        self._silent_s += min(time.monotonic() - before, left)  # a standstill of ours is not the server's
        if self._silent_s > self._heartbeat_s + _SAID_AFTER_S and not self._said:
            self._said = True
            what = f"an event or a heartbeat of the log, which comes every {self._heartbeat_s:g} s"
            log.warning("waiting.for_peer", peer="source", address=self._where, what=what, seconds=round(self._silent_s))
        if self._silent_s > self._heartbeat_s * _SILENT_HEARTBEATS + 5:
            message = (
                f"{self._where} has been silent for {self._silent_s:.0f} s at {self._tracker.text}, though "
                f"it should report every {self._heartbeat_s:g} s: the connection is taken for dead"
            )
            raise RetriableSourceError(message)
        return False

    def _server_error(self, message: ServerMessage) -> SourceError:
        at = self._tracker.text
        if message.code == 0:
            return RetriableSourceError(f"{self._where} ended the replication stream at {at}")
        words = f"{self._where} ended the replication stream at {at}: {message.text} ({message.code})"
        if message.code in GONE:
            return RetriableSourceError(words)
        if _TORN in message.text and self.flavour == "mariadb":
            return self._torn(words)
        if "same server_" in message.text:
            return SourceError(
                f"{words}. Another reader or replica uses the server id {self._server_id}, and the server serves the one that "
                f"came last: give each its own (source.server_id)"
            )
        if message.code != _ER_MASTER_FATAL:
            return SourceError(words)
        return SourceError(f"{words}. {self._what_is_there()}")

    def _torn(self, words: str) -> SourceError:
        """Return the error for a file that ends inside an event, as MariaDB leaves it after a crash."""
        with closing(connect(ServerAccess.of(self._settings))) as connection:
            files = list(log_sizes(connection))
        behind = [name for name in files if file_number(name) > file_number(self._tracker.file)]
        return LogTornError(words, behind[0]) if behind else RetriableSourceError(words)

    def _what_is_there(self) -> str:
        """Return what the server still has, for the message about a position it no longer has."""
        try:
            connection = connect(ServerAccess.of(self._settings))
        except SourceError:
            return "What the server still has could not be read"
        try:
            with source_errors(self._where):
                return available_log(connection)
        except SourceError:
            return "What the server still has could not be read"
        finally:
            connection.close()

    def continue_in(self, file: str) -> None:
        """Begin again at the beginning of a file, where the one before it breaks off (`LogTornError`)."""
        log.warning("binlog.torn", at=self._tracker.text, continues_in=file, reason="the server died while it wrote there")
        self.close()
        self.open(StreamStart(file), self._server_id, self._heartbeat_s)

    def close(self) -> None:
        """End the connection; may be called twice."""
        connection: Any = self._connection
        self._connection = self._socket = None
        if connection is not None:
            connection._force_close()  # COM_QUIT cannot be sent into a running dump


def _check_identity(expected: ServerFacts, found: ServerFacts) -> None:
    """Raise if the server behind host and port is another one than before (failover, load balancer)."""
    if found.identity != expected.identity:
        message = f"the replication connection reached server {found.identity}, not {expected.identity}"
        raise RetriableSourceError(message)


def _register(server_id: int) -> bytes:
    host = REGISTERED_AS.encode()
    return struct.pack("<IB", server_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)


def _dump(server_id: int, file: str, pos: int) -> bytes:
    if pos > LARGEST_DUMP_POSITION:
        message = (
            f"the log position {file}:{pos} is beyond 4 GiB, which a start by file and position cannot "
            f"name: GTIDs are needed (gtid_mode=ON), or a smaller max_binlog_size"
        )
        raise SourceError(message)
    return struct.pack("<IHI", pos, _FLAG_HEARTBEAT_V2_OR_ANNOTATE, server_id) + file.encode()


def _dump_gtid(server_id: int, gtids: bytes) -> bytes:
    head = struct.pack("<HII", _FLAG_HEARTBEAT_V2_OR_ANNOTATE, server_id, 0)
    return head + struct.pack("<QI", _FIRST_OFFSET, len(gtids)) + gtids


def _checked(gtid_set: str) -> str:
    if set(gtid_set) - set("0123456789-,"):
        message = f"not a MariaDB GTID position: {gtid_set!r}"
        raise SourceError(message)
    return gtid_set
