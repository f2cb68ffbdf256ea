"""The target of a task: connections, the tables that keep how far it is, and transactions that commit rows with that.

Database `tidemark_meta` of the target:

    task     one row per task: its epoch, which each start raises, its pause (`task_pause`), its process, and when that was seen
    source   one row per task and source: how far the log is applied, and which tables are read still
    stream   one row per task with `order: global`: how far the one order of all sources is applied
    ddl      the statement of the log that runs now (`ddl_statements`)
    channel_<name>    with `target.channel`: one row per task and connection, changed first in each transaction (`loop_marks`)
    plan     one row per task that has applied with workers: the open plan (`plans`)
    worker   one row per task and worker: how many rows of its share of the plan are applied

A transaction of rows locks the row of `task` and compares the epoch. So a start that comes later waits for it, and a process that
wakes up behind that start finds another epoch: `FencedError`. What is kept of a source commits with the rows that it counts.
A transaction of a worker locks its own row of `worker` in the same way: workers do not wait for each other.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mysqlio.connection import close_quietly, connect, server_version
from mysqlio.quoting import qualified
from mysqlio.server_errors import ServerCode, server_code, source_errors
from mysqlio.server_facts import identity_of, is_mariadb
from schemas.errors import ConfigError, FencedError, RetriableSourceError, SourceError
from schemas.json_codec import Form, decode, encode, json_field
from schemas.loop_marks import drop_table, mark_table
from schemas.paused_task import TaskPause
from schemas.stream_order import StreamPosition
from spark_jobs.replicate.apply.marked_statements import with_drop, with_mark
from spark_jobs.replicate.order.frontier import SourceCursor
from spark_jobs.replicate.rows.row_statements import MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mysqlio.connection import Connection
    from mysqlio.server_access import ServerAccess
    from spark_jobs.replicate.order.log_order import Event
    from spark_jobs.replicate.order.stream_reader import KafkaTransaction
    from spark_jobs.replicate.rows.row_events import RowEvent

_IDLE_S: Final = 28_800
_HANGS_S: Final = 30
"""Within a transaction: the server rolls a process back that is frozen, or on a machine that is gone, and another takes over."""
FOUND_ROWS: Final = 2
"""CLIENT_FOUND_ROWS: an UPDATE counts the rows that it matches, also those that it leaves as they are."""
SESSION: Final = (
    (
        f"SET SESSION sql_mode = 'STRICT_ALL_TABLES,{MODE}', "
        "time_zone = '+00:00', lock_wait_timeout = 60, innodb_lock_wait_timeout = 60, completion_type = 0, autocommit = 1, "
        f"net_read_timeout = 600, net_write_timeout = 600, wait_timeout = {_IDLE_S}"
    ),
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_COUNTER: Final = re.compile(r" AUTO_INCREMENT=\d+")
_PACKET_ROOM: Final = 1_024
"""For the switches of foreign key checks between statements."""
_NAME: Final = "VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_TEXT: Final = "LONGTEXT CHARACTER SET utf8mb4"
_OF_A_SOURCE: Final = f"task {_NAME}, name {_NAME}, {{}} {_TEXT} NOT NULL, PRIMARY KEY (task, name)"
_TABLES: Final = {
    "task": f"name {_NAME} PRIMARY KEY, epoch BIGINT NOT NULL, pause {_TEXT}, process {_TEXT}, seen DATETIME(6)",
    "source": _OF_A_SOURCE.format("state"),
    "stream": f"task {_NAME} PRIMARY KEY, progress {_TEXT} NOT NULL",
    "ddl": _OF_A_SOURCE.format("intent"),
    "plan": f"task {_NAME} PRIMARY KEY, number BIGINT NOT NULL, plan {_TEXT}",
    "worker": f"task {_NAME}, worker INT NOT NULL, epoch BIGINT NOT NULL, plan BIGINT NOT NULL, done BIGINT NOT NULL, "
    "PRIMARY KEY (task, worker)",
}
_NOW_US: Final = "FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000000)"
"""An epoch: no start has had it. In a target that is restored, the successor of the present epoch may have been in use."""
_NO_TABLES: Final = (ServerCode.UNKNOWN_DATABASE, ServerCode.NO_SUCH_TABLE, ServerCode.UNKNOWN_COLUMN)
_SEEN_EVERY_S: Final = 5.0
_ADDED: Final = {"pause": _TEXT, "process": _TEXT, "seen": "DATETIME(6)"}
"""Columns of `task` that it may lack, since an earlier version made it."""
_OF_TASK: Final = "SELECT epoch, {} FROM tidemark_meta.task WHERE name = %s"
_MARK: Final = "INSERT INTO tidemark_meta.{} VALUES (%s, CONNECTION_ID(), 1) ON DUPLICATE KEY UPDATE n = n + 1"
_MARKS: Final = f"task {_NAME}, connection BIGINT UNSIGNED, n BIGINT NOT NULL, PRIMARY KEY (task, connection)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How far a source is applied. With `order: global` its `cursor` of `StreamProgress` counts, and neither `offset` nor `done`.

    The commit record at `offset`, of number `n`, is next; the first `done` of its records, in the order of the log, are applied. Of
    the topic of statements everything before `ddl_offset` is. `loading` are the tables that `request` reads still: in them rows may
    be missing. Statements before `begin` are history: they make the tables that the target lacked then, so they are not run
    for tables of `kept`. The position is for people. `consistent`: the task was finished with all that Kafka had of the source, and
    everything up to the position is applied.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})

    offset: int
    n: int
    done: int = 0
    position: str = ""
    ddl_offset: int = 0
    begin: str = ""
    kept: tuple[str, ...] = ()
    request: str = ""
    asked_ms: int = 0
    consistent: bool = False
    loading: tuple[str, ...] = json_field((), required=True)

    def reaches(self, event: Event) -> bool:
        """Return whether an event is behind the begin, and of a transaction that is not skipped."""
        return not event.is_skipped and event.position >= self.begin

    def expects(self, event: RowEvent) -> bool:
        """Return whether a row is to be applied: a change, or one of the snapshot that the state has asked for."""
        return self.reaches(event) and (event.op != "r" or event.request == self.request)

    def behind(self, transaction: KafkaTransaction) -> SourceState:
        """Return the state behind a Kafka transaction, which is applied whole."""
        commit = transaction.commit
        complete = {one.table for one in commit.complete if one.request == self.request}
        loading = tuple(name for name in self.loading if name not in complete)
        return replace(
            self, offset=transaction.offset + 1, n=commit.n + 1, done=0, position=commit.to.text, loading=loading
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """How far the order of all sources is applied: everything before `released`, and the first `done` events at it.

    `cursors`: how far each source is read.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})

    released: StreamPosition = StreamPosition.START
    done: int = 0
    cursors: Mapping[str, SourceCursor] = json_field(factory=dict, required=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """A task as its target knows it. `process` was seen `seen_s` ago; "": it has ended; None: unknown.

    `statement` of DDL runs, or was interrupted. `progress` is of `order: global`. `plan` is the batch that workers apply.
    """

    epoch: int
    process: str | None
    seen_s: float | None
    pause: TaskPause | None
    statement: str | None
    states: Mapping[str, SourceState]
    progress: StreamProgress | None
    plan: OpenPlan | None = None


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A batch that workers apply: `done` of its `rows` are applied."""

    rows: int
    done: int
    workers: int


@dataclass(slots=True)
class ApplyTarget:
    """The database that a task applies to: one connection. Use it in one thread.

    Errors come from `mysqlio`: `RetriableSourceError` if another attempt may help.
    """

    access: ServerAccess
    task: str
    channel: str | None
    """Marks all that is written (`schemas.loop_marks`)."""
    epoch: int = 0
    progress: StreamProgress = field(default=StreamProgress(), init=False)
    """Kept with the next state; see `read_progress`."""
    _kept: StreamProgress = field(default=StreamProgress(), init=False)
    _connection: Connection | None = field(default=None, init=False)
    _next_seen_s: float = field(default=math.inf, init=False)
    """When it is noted again that this process, which has taken the task over, lives."""
    _packet_bytes: int = field(default=0, init=False)
    _last: list[str] | None = field(default=None, init=False)  # statements that run with the COMMIT of a transaction

    @property
    def connection(self) -> Connection:
        """The connection; it is opened at its first use."""
        if self._connection is None:
            self._connection = connect(self.access, SESSION, client_flag=FOUND_ROWS)
        return self._connection

    def close(self) -> None:
        """Give the connection up; the next use opens another one."""
        connection, self._connection, self._packet_bytes = self._connection, None, 0
        if connection is not None:
            close_quietly(connection)

    # ---- take over

    def take_over(self) -> None:
        """Make the tables of `tidemark_meta`, and raise the epoch: a process that applied this task before is fenced."""
        self.execute("CREATE DATABASE IF NOT EXISTS tidemark_meta")
        for name, columns in _TABLES.items():
            self._create(name, columns)
        present = {str(row[0]) for row in self.rows("SHOW COLUMNS FROM tidemark_meta.task")}
        for name, kind in _ADDED.items():
            if name not in present:
                self.execute(f"ALTER TABLE tidemark_meta.task ADD COLUMN {name} {kind}")
        self._create_marks()
        with self._transaction():
            self.execute(
                f"INSERT INTO tidemark_meta.task (name, epoch) VALUES (%s, {_NOW_US}) "  # noqa: S608
                f"ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch + 1, {_NOW_US})",
                self.task,
            )
            self.epoch = int(self.rows("SELECT epoch FROM tidemark_meta.task WHERE name = %s", self.task)[0][0])
            self.execute("UPDATE tidemark_meta.worker SET epoch = %s WHERE task = %s", self.epoch, self.task)
        if self.channel is not None:  # of connections that are gone; one that is open waits for the row of `task`
            gone = "DELETE FROM tidemark_meta.{} WHERE task = %s AND connection <> CONNECTION_ID()"
            self.execute(gone.format(mark_table(self.channel)), self.task)
        self._next_seen_s = 0.0

    def _create_marks(self) -> None:
        if self.channel is not None:
            self._create(mark_table(self.channel), _MARKS)

    def _create(self, name: str, columns: str) -> None:
        self.execute(f"CREATE TABLE IF NOT EXISTS tidemark_meta.{name} ({columns}) ENGINE=InnoDB")

    def attach(self) -> None:
        """Read and change the pause beside the process that runs the task. `ConfigError`: the task has never run here."""
        try:
            rows = self.rows("SELECT epoch, pause FROM tidemark_meta.task WHERE name = %s", self.task)
        except SourceError as error:
            if server_code(error) not in _NO_TABLES:
                raise
            rows = []
        if not rows:
            raise ConfigError(f"task: {self.task} has never run with target {self.access.address}: start it by `tidemark task run`")
        self.epoch = int(rows[0][0])
        self._create_marks()

    # ---- statements

    def execute(self, sql: str, *values: Any) -> int:
        """Run a statement; return the number of rows it matched."""
        with self._asking() as connection, connection.cursor() as cursor:
            return cursor.execute(sql, values or None)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, the last one of several statements."""
        with self._asking() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            while cursor.nextset():
                pass
            return list(cursor.fetchall())

    def execute_many(self, statements: list[bytes], counts: list[int]) -> None:
        """Run statements in one packet; add the rows that each matched to `counts`: after an error it has those before it."""
        with self._asking() as connection:
            # the client cuts packets off: of bytes it copies the rest each time
            counts.append(connection.query(memoryview(b";".join(statements))))
            while len(counts) < len(statements):
                counts.append(connection.next_result())

    def define(self, sql: str, sql_mode: int | None = None) -> None:
        """Run DDL, of a session with that sql_mode, with the mark of the channel. `SinkError`: it cannot be marked."""
        self.execute(sql if self.channel is None else with_mark(sql, self.channel, server_version(self.connection), sql_mode))

    def drop(self, sql: str, sql_mode: int | None = None) -> None:
        """Run a DROP TABLE in the same way."""
        if self.channel is not None:
            sql = with_drop(sql, self.channel, server_version(self.connection), sql_mode)
            self._create(drop_table(self.channel), "id INT PRIMARY KEY")
        self.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run statements in one transaction of this epoch; `FencedError` if another process has taken the task over."""
        with self._transaction(_OF_TASK.format("epoch") + " FOR UPDATE", self.task) as rows:
            self._require_epoch(rows)
            yield

    def _row(self, column: str) -> Any:
        """Return a column of the task's row; `FencedError` if another process has taken the task over."""
        rows = self.rows(_OF_TASK.format(column), self.task)
        self._require_epoch(rows)
        return rows[0][1]

    def _require_epoch(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows or int(rows[0][0]) != self.epoch:
            raise self._fenced()

    @contextmanager
    def share_transaction(self, plan: int, worker: int) -> Iterator[int]:
        """Run statements in one transaction of a worker; yield how many rows of its share are applied. Errors as `transaction`.

        The block notes its progress by `put_done`.
        """
        asked = "SELECT epoch, plan, done FROM tidemark_meta.worker WHERE task = %s AND worker = %s FOR UPDATE"
        with self._transaction(asked, self.task, worker) as rows:
            if not rows or rows[0][:2] != (self.epoch, plan):
                raise self._fenced()
            yield int(rows[0][2])

    def put_done(self, worker: int, done: int) -> None:
        """Write how many rows of its share a worker has applied, within a transaction."""
        self._execute_last("UPDATE tidemark_meta.worker SET done = %s WHERE task = %s AND worker = %s", done, self.task, worker)

    def _fenced(self) -> FencedError:
        return FencedError(f"another process has taken over task {self.task}: this one ends")

    @contextmanager
    def _transaction(self, asked: str = "", *values: Any) -> Iterator[list[tuple[Any, ...]]]:
        """Run statements in one transaction, which begins with the mark of the channel. Yield the rows of a query behind that."""
        begin, of_begin, self._last = [f"SET SESSION wait_timeout = {_HANGS_S}", "START TRANSACTION"], list[Any](), []
        if self.channel is not None:
            begin.append(_MARK.format(mark_table(self.channel)))
            of_begin.append(self.task)
        try:
            yield self.rows("; ".join([*begin, *[asked] * bool(asked)]), *of_begin, *values)
            self.execute("; ".join([*self._last, "COMMIT", f"SET SESSION wait_timeout = {_IDLE_S}"]))
        except BaseException:
            self.close()  # rolls back; whether a COMMIT without an answer counts, the state says
            raise
        finally:
            self._last = None

    def _execute_last(self, sql: str, *values: Any) -> None:
        assert self._last is not None, "outside of a transaction it would never run"
        self._last.append(self.connection.cursor().mogrify(sql, values))

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        try:
            with source_errors(self.access.address, self.access.section):
                yield self.connection
        except RetriableSourceError:
            self.close()  # it may be lost: the next attempt opens another one
            raise

    # ---- state

    def facts(self) -> TaskFacts:
        """Return the facts about the task, and change nothing. `ConfigError`: the task has never run here."""
        self.attach()
        asked = "SELECT process, TIMESTAMPDIFF(MICROSECOND, seen, UTC_TIMESTAMP(6)), pause FROM tidemark_meta.task WHERE name = %s"
        process, seen_us, pause = self.rows(asked, self.task)[0]
        intents = self.rows("SELECT intent FROM tidemark_meta.ddl WHERE task = %s", self.task)
        progress = self._progress()
        return TaskFacts(
            epoch=self.epoch,
            process=process,
            seen_s=None if seen_us is None else seen_us / 1_000_000,
            pause=_pause_of(pause),
            statement=next((json.loads(text)["sql"] for text, in intents), None),
            states=self.states(),
            progress=progress,
            plan=self._open_plan(),
        )

    def _open_plan(self) -> OpenPlan | None:
        asked = (
            "SELECT plan, (SELECT CAST(SUM(done) AS SIGNED) FROM tidemark_meta.worker WHERE task = name) "
            "FROM tidemark_meta.plan JOIN tidemark_meta.task ON task = name WHERE name = %s AND plan IS NOT NULL"
        )
        plans = [(json.loads(text), int(done or 0)) for text, done in self.rows(asked, self.task)]
        return next((OpenPlan(plan["rows"], done, plan["workers"]) for plan, done in plans), None)

    def _progress(self) -> StreamProgress | None:
        """Return the progress of the order of all sources; None if the task has begun with another order, or never."""
        rows = self.rows("SELECT progress FROM tidemark_meta.stream WHERE task = %s", self.task)
        return decode(StreamProgress, json.loads(rows[0][0])) if rows else None

    def states(self) -> Mapping[str, SourceState]:
        """Return the state of each source that this task has begun."""
        rows = self.rows("SELECT name, state FROM tidemark_meta.source WHERE task = %s", self.task)
        return {str(name): decode(SourceState, json.loads(state)) for name, state in rows}

    def put_state(self, source: str, state: SourceState) -> None:
        """Write the state of a source, within a transaction, and the progress."""
        self._execute_last("REPLACE INTO tidemark_meta.source VALUES (%s, %s, %s)", self.task, source, json.dumps(encode(state)))
        self.put_progress()

    @property
    def kept_progress(self) -> StreamProgress:
        """The progress as the target has it."""
        return self._kept

    def read_progress(self, *, is_global: bool) -> None:
        """Read the progress of the order of all sources. `ConfigError` if the task has begun with the other `order`."""
        progress = self._progress()
        if (progress is not None) != is_global and (progress is not None or self.states()):
            one, other = ("global", "source") if progress is not None else ("source", "global")
            raise ConfigError(f"order: task {self.task} has begun with {one}, and {other} needs a task of another name")
        if progress is not None:
            self.progress = self._kept = progress
        elif is_global:
            with self.transaction():
                self._put(self.progress)

    def put_progress(self) -> None:
        """Write the progress, within a transaction, if it is another one."""
        if self.progress != self._kept:
            self._put(self.progress)

    def _put(self, progress: StreamProgress) -> None:
        self._execute_last("REPLACE INTO tidemark_meta.stream VALUES (%s, %s)", self.task, json.dumps(encode(progress)))
        self._kept = progress

    # ---- pause and process

    def pause(self) -> TaskPause | None:
        """Return the record of the task's pause; None if it is not paused. The process of the task notes that it lives."""
        if time.monotonic() >= self._next_seen_s:
            self._note_process(f"{socket.gethostname()}, process {os.getpid()}")
            self._next_seen_s = time.monotonic() + _SEEN_EVERY_S
        return _pause_of(self._row("pause"))

    def note_end(self) -> None:
        """Note that the process of the task ends, if the target answers."""
        if self.epoch and self._connection is not None:
            with suppress(SourceError):
                self._note_process("")

    def _note_process(self, process: str) -> None:
        asked = "UPDATE tidemark_meta.task SET process = %s, seen = UTC_TIMESTAMP(6) WHERE name = %s AND epoch = %s"
        with self._transaction():
            self.execute(asked, process, self.task, self.epoch)

    def change_pause(self, change: Callable[[TaskPause | None], TaskPause | None]) -> None:
        """Replace the record by the result of `change`, in one transaction."""
        with self.transaction():
            pause = change(self.pause())
            text = None if pause is None else json.dumps(encode(pause))
            self.execute("UPDATE tidemark_meta.task SET pause = %s WHERE name = %s", text, self.task)

    # ---- server

    def require_usable(self, source: str, server: str) -> None:
        """Raise `ConfigError` if the server only reads, or is the one (`identity_of`) that the source reads."""
        if int(self.rows("SELECT @@global.read_only")[0][0]):
            raise ConfigError(f"target: {self.access.address} is read-only (@@read_only): a task has to write there")
        if identity_of(self.connection) == server:
            remedy = "name another, or give it another server_id" if is_mariadb(self.connection) else "name another"
            raise ConfigError(f"target: {self.access.address} is the server that source {source} reads ({server}): {remedy}")

    def is_transactional(self, database: str, table: str) -> bool:
        """Return whether the engine of a table has transactions; TiDB reports InnoDB."""
        asked = (
            "SELECT 1 FROM information_schema.TABLES t JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
            "WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s AND e.TRANSACTIONS = 'YES'"
        )
        return bool(self.rows(asked, database, table))

    @property
    def packet_bytes(self) -> int:
        """The longest text of statements that the server takes at once."""
        if not self._packet_bytes:
            self._packet_bytes = int(self.rows("SELECT @@max_allowed_packet")[0][0]) - _PACKET_ROOM
        return self._packet_bytes

    def exists(self, database: str, table: str) -> bool:
        """Return whether there is such a table."""
        asked = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        return bool(self.rows(asked, database, table))

    def has_rows(self, database: str, table: str) -> bool:
        """Return whether a table has any row."""
        return bool(self.rows(f"SELECT 1 FROM {qualified(database, table)} LIMIT 1"))  # noqa: S608

    def has_database(self, database: str) -> bool:
        """Return whether there is such a database."""
        return bool(self.rows("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", database))

    def definition(self, database: str, table: str) -> str:
        """Return SHOW CREATE TABLE; "" without such a table."""
        if not self.exists(database, table):
            return ""
        return str(self.rows(f"SHOW CREATE TABLE {qualified(database, table)}")[0][1])

    def digest(self, database: str, table: str) -> str:
        """Return a digest of the definition of a table, which its rows do not change."""
        return hashlib.sha256(_COUNTER.sub("", self.definition(database, table)).encode()).hexdigest()


def _pause_of(text: Any) -> TaskPause | None:
    return None if text is None else decode(TaskPause, json.loads(text))
