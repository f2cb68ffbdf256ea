"""The begin of a task at a source: its start in the commit records, the tables there are, and the request to read them.

The topic of the statements has each table as it was, and every statement since. What came before the begin is run on the target for
tables that it lacks. A table that is there is kept as it is.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from kafkaio.committed_reader import OPEN_END, SOON, CommittedReader
from kafkaio.record_writer import RecordWriter
from schemas import topics
from schemas.commit_records import CommitRecord
from schemas.errors import ConfigError
from schemas.signals import EXECUTE_SNAPSHOT, signal_document
from spark_jobs.replicate.apply_target import SourceState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.settings import KafkaSettings
    from schemas.settings.task_section import TaskSource
    from spark_jobs.replicate.apply_target import ApplyTarget
    from spark_jobs.replicate.log_order import LogOrder, StatementEvent

_FIRST_S: Final = 30.0
_DELIVERY_S: Final = 20.0
_BEHIND: Final = 100
"""Offsets before the end of the commit records in which there is one: markers of transactions take offsets, too."""


class SourceTopics:
    """The topics of one source, as a task reads them once."""

    def __init__(self, kafka: KafkaSettings, source: str, group: str) -> None:
        self._kafka = kafka
        self._source = source
        self._group = group
        self._commits = (topics.commits_topic(source, kafka.topic_delimiter), 0)
        self._statements = (topics.schema_change_topic(source), 0)

    def newest_commit(self) -> tuple[int, CommitRecord]:
        """Return the offset of a commit record and the record: the newest one behind which no transaction is open.

        `ConfigError` if the source publishes none.
        """
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            partition = self._commits
            if partition not in reader.partitions(partition[0]):
                raise ConfigError(self._silent("the topic does not exist"))
            begin, end = reader.bounds([partition])[partition]
            reader.begin({partition: max(begin, end - _BEHIND)})
            newest: tuple[int, CommitRecord] | None = None
            for record in reader.read_to({partition: end}):
                newest = _closed(record.offset, record.value) or newest
            deadline = time.monotonic() + _FIRST_S
            while newest is None and time.monotonic() < deadline:
                waited = reader.next_record(1.0)
                newest = None if waited is None else _closed(waited.offset, waited.value)
        if newest is None:
            raise ConfigError(self._silent(f"no record came for {_FIRST_S:.0f} s"))
        return newest

    def history(self, order: LogOrder, before: str) -> list[StatementEvent]:
        """Return the statements of before a position, with the descriptions of tables at the producer's first start."""
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            partition = self._statements
            reader.begin({partition: reader.bounds([partition])[partition][0]})
            statements = (order.statement(record) for record in reader.read_to({partition: OPEN_END}))
            return [one for one in statements if one.position < before or (one.is_description and one.position == before)]

    def ask(self, request: str, source: TaskSource) -> None:
        """Ask the producer to read the task's tables into the change topics. `PublishError` if Kafka does not take that."""
        data = {"data-collections": list(source.tables or [".*"]), "type": "incremental", "merge": "producer"}
        topic = topics.signal_topic(self._source)
        writer = RecordWriter(self._kafka, {"message.timeout.ms": int(_DELIVERY_S * 1000)})
        document = signal_document(request, EXECUTE_SNAPSHOT, json.dumps(data))
        writer.produce(topic, document.encode(), self._source, 0)
        writer.flush(_DELIVERY_S + 5.0)

    def _silent(self, why: str) -> str:
        return (
            f"source {self._source}: its producer publishes no commit records ({self._commits[0]}: {why}). Set order.group there, "
            "and start it"
        )


def _closed(offset: int, value: bytes | None) -> tuple[int, CommitRecord] | None:
    commit = CommitRecord.parse(value or b"")
    return None if commit.open is not None else (offset, commit)


def begun(
    source_topics: SourceTopics,
    target: ApplyTarget,
    order: LogOrder,
    source: TaskSource,
    follows: Callable[[str, str], bool],
    *,
    loads: bool,
) -> SourceState:
    """Return the state of a task that begins now, which is committed."""
    offset, commit = source_topics.newest_commit()
    begin = commit.to.text
    tables = _tables(source_topics.history(order, begin), follows)
    state = SourceState(
        offset=offset + 1,
        n=commit.n + 1,
        position=begin,
        begin=begin,
        kept=tuple(sorted(".".join(table) for table in tables if target.exists(*table))),
        request=f"task-{target.task}-{secrets.token_hex(4)}"[:42] if loads else "",
        loading=tuple(sorted(".".join(table) for table, is_there in tables.items() if is_there)) if loads else (),
    )
    with target.transaction():
        target.put_state(source.name, state)
    return state


def _tables(history: Sequence[StatementEvent], follows: Callable[[str, str], bool]) -> dict[tuple[str, str], bool]:
    """Return the tables of the task that history names, and whether each is there at its end."""
    tables: dict[tuple[str, str], bool] = {}
    for statement in history:
        if statement.table is not None and follows(*statement.table):
            tables[statement.table] = statement.kind != "DROP"
    return tables

