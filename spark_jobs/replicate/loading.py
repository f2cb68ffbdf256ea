"""The begin of a task at a source: its start in the commit records, the tables, the request to read them, and its answers.

The topic of the statements has each table as it was, and every statement since. What came before the begin is run on the target for
tables that it lacks. A table that is there is kept as it is.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkaio.committed_reader import OPEN_END, SOON, CommittedReader
from kafkaio.record_writer import RecordWriter
from schemas import topics
from schemas.commit_records import CommitRecord
from schemas.errors import ConfigError, SinkError
from schemas.notifications import SIGNAL, ScanStatus
from schemas.signals import EXECUTE_SNAPSHOT, signal_document
from spark_jobs.replicate.apply.apply_target import SourceState
from spark_jobs.replicate.order.stream_reader import AGAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from schemas.position import Position
    from schemas.settings import KafkaSettings
    from schemas.settings.task_section import TaskSource
    from spark_jobs.replicate.destination import Destination
    from spark_jobs.replicate.order.log_order import LogOrder, StatementEvent
    from spark_jobs.replicate.rows.row_values import RowDecoder

LONGEST_REQUEST: Final = 42
"""Characters of a signal's id that the signal table of the source holds."""
_MOST_NAMED: Final = 48 * 1024
"""Bytes of names in a request; a signal may have 64 KiB."""
_FIRST_S: Final = 30.0
_ASKED_EVERY_S: Final = 0.2
_DELIVERY_S: Final = 20.0
_BEHIND: Final = 100
"""Offsets before the end of the commit records in which there is one: markers of transactions take offsets, too."""


class CommitStart(NamedTuple):
    """A start in the commit records of a source: the record at `offset`, of number `n`, is next; the log is read up to `begin`.

    `server` is the one that the source reads.
    """

    offset: int
    n: int
    begin: str
    server: str


class WholeEnd(NamedTuple):
    """The end of the last whole transaction in Kafka: the commit record before `offset` has it, and ends at `position`.

    `open` is the transaction behind it of which Kafka has a part; None without one.
    """

    offset: int
    position: str
    open: Position | None


class SourceTopics:
    """The topics of one source, as a task reads them once."""

    def __init__(self, kafka: KafkaSettings, source: str, group: str) -> None:
        self._kafka = kafka
        self._source = source
        self._group = group
        self._commits = (topics.commits_topic(source, kafka.topic_delimiter), 0)
        self._statements = (topics.schema_change_topic(source), 0)

    def newest_commit(self) -> CommitStart:
        """Return the start behind the newest commit record behind which no transaction is open.

        `ConfigError` if the source publishes none.
        """
        start = self.last_commit(_FIRST_S)
        if start is None:
            raise ConfigError(
                f"source {self._source}: its producer publishes no commit records ({self._commits[0]} has none, and none came for "
                f"{_FIRST_S:.0f} s). Set order.group there, and start it"
            )
        return start

    def last_commit(self, patience_s: float) -> CommitStart | None:
        """Return the same; None if the source has published none, and publishes none in that time."""
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            deadline = time.monotonic() + patience_s
            partition = self._commits
            while partition not in reader.partitions(partition[0]):
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_ASKED_EVERY_S)
            begin, end = reader.bounds([partition])[partition]
            reader.begin({partition: max(begin, end - _BEHIND)})
            newest: CommitStart | None = None
            for record in reader.read_to({partition: end}):
                newest = _behind(record.offset, record.value) or newest
            while newest is None and time.monotonic() < deadline:
                waited = reader.next_record(1.0)
                newest = None if waited is None else _behind(waited.offset, waited.value)
        return newest

    def last_whole(self, offset: int) -> WholeEnd:
        """Return the end of the last whole transaction. Commit records before `offset` are applied, at least in part."""
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            partition = self._commits
            begin, end = reader.bounds([partition])[partition]
            reader.begin({partition: max(begin, min(offset, end) - _BEHIND)})
            whole, opened = WholeEnd(offset, "", None), None
            for number, record in enumerate(reader.read_to({partition: end})):
                commit = CommitRecord.parse(record.value or b"")
                opened = commit.open_behind(opened)
                if opened is None:
                    whole = WholeEnd(record.offset + 1, commit.to.text, None)
                elif not number:
                    whole = WholeEnd(record.offset, commit.begin.text, None)
        return whole._replace(open=opened)

    def require_kept(self, offset: int) -> None:
        """Raise `ConfigError` if Kafka does not have the commit records from an offset on any more."""
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            first, end = reader.bounds([self._commits])[self._commits]
        if offset < first or offset > end:
            reason = "was created again" if offset > end else "has lost records by retention"
            raise ConfigError(
                f"source {self._source}: {self._commits[0]} {reason}: the task continues at offset {offset}, and the topic has "
                f"{first} to {end}. {AGAIN}"
            )

    def first_commit(self, first: int) -> CommitStart | None:
        """Return the start before the first commit record at offset `first` or behind it; None if it was not published yet."""
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            partition = self._commits
            if partition not in reader.partitions(partition[0]):
                return None
            reader.begin({partition: first})
            record = next(iter(reader.read_to({partition: OPEN_END})), None)
        if record is None:
            return None
        commit = CommitRecord.parse(record.value or b"")
        return CommitStart(record.offset, commit.n, commit.begin.text, commit.server)

    def history(self, order: LogOrder, before: str, done: int = 0) -> list[StatementEvent]:
        """Return the statements of before a position, with the descriptions of tables at the producer's first start.

        Those of databases are returned wherever they are before the offset `done` of the topic. Tables of databases that were
        dropped are left out, and tables without a topic, if the statement does not say whether they are captured.
        """
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            partition = self._statements
            reader.begin({partition: reader.bounds([partition])[partition][0]})
            statements = (order.statement(record) for record in reader.read_to({partition: OPEN_END}))
            found = [
                one
                for one in statements
                if one.position < before
                or (one.is_description and one.position == before)
                or (one.table is None and one.offset < done)
            ]
            there = reader.topics().keys()
        return [one for one in _lasting(found) if one.has_session or one.is_description or self._topic(one) in there]

    def _topic(self, statement: StatementEvent) -> str:
        """Return the topic of the changes of a statement's table; of a database the one of the statements."""
        table = statement.table
        return self._statements[0] if table is None else topics.change_topic(self._source, *table, self._kafka.topic_delimiter)

    def ask(self, request: str, source: TaskSource, tables: Sequence[str]) -> None:
        """Ask the producer to read tables into the change topics. `PublishError` if Kafka does not take that.

        Too many to be named are asked for by the patterns of the task, without those that it leaves out.
        """
        named = [re.escape(table) for table in tables]
        if sum(map(len, named)) > _MOST_NAMED:
            named = list(source.tables or [".*"])
        data = {"data-collections": named, "type": "incremental", "merge": "producer"}
        topic = topics.signal_topic(self._source)
        writer = RecordWriter(self._kafka, {"message.timeout.ms": int(_DELIVERY_S * 1000)})
        document = signal_document(request, EXECUTE_SNAPSHOT, json.dumps(data))
        writer.produce(topic, document.encode(), self._source, 0)
        writer.flush(_DELIVERY_S + 5.0)

    def watch(self, state: SourceState, decoder: RowDecoder) -> LoadAnswers:
        """Return the answers to the request of a state, about the tables that are loaded."""
        return LoadAnswers(self._kafka, self._source, self._group, state, decoder)


class LoadAnswers:
    """The answers of the producer to a request to read tables. Use it in one thread."""

    def __init__(self, kafka: KafkaSettings, source: str, group: str, state: SourceState, decoder: RowDecoder) -> None:
        self._source, self._request, self._decoder = source, state.request, decoder
        self._tables = frozenset(state.loading)
        self._next_s = 0.0
        self._reader = CommittedReader(kafka, group, SOON)
        partitions = self._reader.partitions(topics.notifications_topic(source, kafka.topic_delimiter))
        ends = self._reader.ends(partitions)
        begins = self._reader.offsets_since(partitions, state.asked_ms)
        self._reader.begin({one: end if begins[one] < 0 else begins[one] for one, end in ends.items()})

    def close(self) -> None:
        """Give the connection up."""
        self._reader.close()

    def require_hope(self) -> None:
        """Read the answers, once a second. `ConfigError`: the request is refused. `SinkError`: a table cannot be read."""
        if time.monotonic() < self._next_s:
            return
        while (record := self._reader.next_record(0.0)) is not None:
            value = self._decoder.payload(record.value or b"")
            if value["id"] == self._request:
                self._judge(value["aggregate_type"], value["type"], value["additional_data"] or {})
        self._next_s = time.monotonic() + 1.0

    def _judge(self, aggregate: str, kind: str, data: Mapping[str, str]) -> None:
        if (aggregate, kind) == (SIGNAL, "REJECTED"):
            reason = data.get("reason", "it gives no reason")
            raise ConfigError(f"source {self._source} refuses to read the task's tables: {reason}")
        status, table = data.get("status"), data.get("scanned_collection")
        is_bad = status not in (ScanStatus.SUCCEEDED, ScanStatus.EMPTY)
        if kind == "TABLE_SCAN_COMPLETED" and is_bad and table in self._tables:
            message = (
                f"source {self._source} cannot read table {table} for the task: {status}. Leave it out "
                "with exclude_tables, or copy its rows yourself and use mode: incremental"
            )
            raise SinkError(message)
        if kind == "ABORTED":
            raise SinkError(f"source {self._source}: snapshot {self._request} was stopped, and tables are not read. {AGAIN}")


def _behind(offset: int, value: bytes | None) -> CommitStart | None:
    commit = CommitRecord.parse(value or b"")
    return None if commit.open is not None else CommitStart(offset + 1, commit.n + 1, commit.to.text, commit.server)


def begun(
    source_topics: SourceTopics,
    target: Destination,
    order: LogOrder,
    source: TaskSource,
    follows: Callable[[str, str], bool],
    start: CommitStart,
    taken: Collection[str],
    *,
    loads: bool,
) -> SourceState:
    """Return the state of a source that begins now at `start`, which is committed. Tables that are `taken` are refused."""
    tables = tables_in(source_topics.history(order, start.begin), follows)
    shared = sorted(name for table in tables if (name := ".".join(table)) in taken)
    if shared:
        raise ConfigError(
            f"sources: {source.name} has tables that another source of the task has, too: {', '.join(shared)}. Leave them out at "
            "one of the two with exclude_tables"
        )
    if loads and not any(tables.values()):
        raise ConfigError(f"sources: {source.name} publishes no table that the task names: check its tables and exclude_tables")
    kept = [table for table in tables if target.exists(*table)]
    filled = [".".join(table) for table in kept if loads and target.has_rows(*table)]
    if filled:
        raise ConfigError(
            f"target: {', '.join(filled)} has rows already, and a load leaves those that the source does not have. Empty the "
            "tables, or use mode: incremental if they are as in the source"
        )
    state = SourceState(
        offset=start.offset,
        n=start.n,
        position=start.begin,
        begin=start.begin,
        kept=tuple(sorted(".".join(table) for table in kept)),
        request=new_request(target.task) if loads else "",
        loading=tuple(sorted(".".join(table) for table, is_there in tables.items() if is_there)) if loads else (),
    )
    with target.transaction():
        target.put_state(source.name, state)
    return state


def new_request(task: str) -> str:
    """Return a name for a request, which no other has."""
    return f"task-{secrets.token_hex(4)}-{task}"[:LONGEST_REQUEST]


def _lasting(history: Sequence[StatementEvent]) -> list[StatementEvent]:
    """Return the statements without those on databases that were dropped later, and without the drops."""
    lasting: list[StatementEvent] = []
    for one in history:
        if one.table is None and not one.is_description and one.sql.upper().startswith("DROP"):
            lasting = [other for other in lasting if other.database != one.database]
        else:
            lasting.append(one)
    return lasting


def tables_in(history: Sequence[StatementEvent], follows: Callable[[str, str], bool]) -> dict[tuple[str, str], bool]:
    """Return the tables of the task that history names, and whether each is there at its end."""
    tables: dict[tuple[str, str], bool] = {}
    for statement in history:
        if statement.table is not None and statement.session.is_captured and follows(*statement.table):
            tables[statement.table] = statement.kind != "DROP"
    return tables

