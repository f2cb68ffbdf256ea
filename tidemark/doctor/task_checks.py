"""A task: its target, its sources in Kafka, and the rights that it needs. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from kafkaio.cluster_admin import ClusterAdmin
from kafkaio.schema_registry import HttpRegistry
from kafkaio.topic_admin import TopicAdmin
from mysqlio.quoting import qualified, quoted
from mysqlio.server_facts import account, identity_of, is_mariadb, user_grants
from producer.group.last_commit import last_commit
from producer.source.coverage import privileges_on
from schemas.applied.registry_access import RegistryAccess
from schemas.findings import Finding, Remedy, Severity
from schemas.loop_marks import META
from schemas.settings.task_section import SERVERS
from schemas.topics import commits_topic, members_topic, schema_change_topic
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.destination import target_of
from spark_jobs.replicate.loading import tables_in
from spark_jobs.replicate.order.log_order import LogOrder
from spark_jobs.replicate.rows.row_values import RowDecoder
from spark_jobs.replicate.task_source import SourceOfTask
from tidemark.doctor.area_findings import listed
from tidemark.doctor.examination import AREA_S, Examination, asked, gathered

if TYPE_CHECKING:
    from schemas.settings.task_section import TaskSettings

_STATE: Final = frozenset({"CREATE", "ALTER", "SELECT", "INSERT", "UPDATE", "DELETE"})
_TABLES: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX", "REFERENCES"})
_DAY_MS: Final = 86_400_000
_ANSWER_S: Final = 10.0
_ALL: Final = "~"
"""Behind each position, as text."""


@dataclass(frozen=True, slots=True)
class TaskExamination:
    """The questions about one task."""

    settings: TaskSettings

    def kafka(self) -> Iterator[Finding]:
        """Yield the findings about the sources in Kafka, and about the rights on the topic of the group."""
        kafka = self.settings.kafka
        admin = TopicAdmin(kafka, _ANSWER_S)
        for source in self.settings.sources:
            topic = commits_topic(source.name, kafka.topic_delimiter)
            last = last_commit(kafka, topic)[1] if admin.partitions_now([topic]) else None
            if last is None:
                yield Finding(
                    "task.no_commits",
                    Severity.ERROR,
                    f"source {source.name} publishes no commit records: {topic} has none",
                    "the task cannot begin",
                    advice="Set order.group for its producer, and start it",
                )
                continue
            yield from self._retention(admin, source.name, topic)
        if self.settings.order == "global" and self.settings.group is not None:
            members = members_topic(self.settings.group)
            needed = frozenset({"READ", "WRITE", "DESCRIBE"})
            missing = ClusterAdmin(kafka, _ANSWER_S).missing_operations([members], needed).get(members, frozenset())
            if missing:
                evidence = f"Kafka does not allow our user {', '.join(sorted(missing))} on {members}"
                yield Finding("task.rights.members", Severity.ERROR, evidence, "the task cannot be a reader of its group")

    def _retention(self, admin: TopicAdmin, source: str, commits: str) -> Iterator[Finding]:
        for topic, config in admin.configs([commits, schema_change_topic(source)]).items():
            kept_ms = int(config.get("retention.ms") or -1)
            if "delete" in config.get("cleanup.policy", "") and 0 <= kept_ms < _DAY_MS:
                yield Finding(
                    "task.retention",
                    Severity.WARNING,
                    f"Kafka keeps {topic} for {kept_ms / 3_600_000:.1f} h",
                    "a task that is down for longer has to load its tables again",
                    advice=f"Raise retention.ms of {topic}, and of the topics of the tables",
                )

    def target(self) -> Iterator[Finding]:
        """Yield the findings about the server of the target. Errors as `ApplyTarget`."""
        with closing(target_of(self.settings)) as target:
            assert isinstance(target, ApplyTarget)
            address = target.access.address
            if int(target.rows("SELECT @@global.read_only")[0][0]):
                yield Finding(
                    "task.read_only",
                    Severity.ERROR,
                    f"target {address} is read-only",
                    "the task cannot write",
                    "SET GLOBAL read_only = OFF",
                    Remedy.SINK_SQL,
                )
            tables = {source.name: self._tables(source.name) for source in self.settings.sources}
            yield from self._grants(target, sorted(table for of_source in tables.values() for table in of_source))
            yield from self._own_source(target)
            for of_source in tables.values():
                findings = (one for table in sorted(of_source) for one in _of_table(target, *table))
                yield from listed("task.tables", "findings on tables", findings)

    def _own_source(self, target: ApplyTarget) -> Iterator[Finding]:
        kafka, identity = self.settings.kafka, identity_of(target.connection)
        for source in self.settings.sources:
            topic = commits_topic(source.name, kafka.topic_delimiter)
            last = last_commit(kafka, topic)[1] if TopicAdmin(kafka, _ANSWER_S).partitions_now([topic]) else None
            if last is not None and last.server == identity:
                other = ", or give it another server_id" if is_mariadb(target.connection) else ""
                advice = f"Name another server{other}"
                evidence = f"target {target.access.address} is the server that source {source.name} reads"
                yield Finding("task.own_source", Severity.ERROR, evidence, "the task would read its own changes", advice=advice)

    def _tables(self, name: str) -> set[tuple[str, str]]:
        """Return the tables of a source that the task has, by the topic of the statements; an empty set without that topic."""
        settings, kafka = self.settings, self.settings.kafka
        if not TopicAdmin(kafka, _ANSWER_S).partitions_now([schema_change_topic(name)]):
            return set()
        registry = HttpRegistry(settings.format.registry or "", RegistryAccess.of(settings.format))
        decoder = RowDecoder(cache(registry.text_of))
        of_task = next(one for one in settings.sources if one.name == name)
        source = SourceOfTask(of_task, kafka, f"tidemark-task-{settings.task}", decoder, ())
        history = source.topics.history(LogOrder(decoder, name, schema_change_topic(name)), _ALL)
        return {table for table, is_there in tables_in(history, source.follows).items() if is_there}

    def _grants(self, target: ApplyTarget, tables: Sequence[tuple[str, str]]) -> Iterator[Finding]:
        grants = user_grants(target.connection)
        _, user = account(target.connection)
        state = _STATE if target.channel is None else _STATE | {"DROP"}  # of the table that marks a DROP TABLE
        lacked = {META: state - _privileges(grants, META, "")}
        for database, table in tables:
            lacked[database] = lacked.get(database, frozenset()) | (_TABLES - _privileges(grants, database, table))
        for database, missing in lacked.items():
            if missing:
                rights = ", ".join(sorted(missing))
                yield Finding(
                    "task.privilege",
                    Severity.ERROR,
                    f"the user of the target does not have {rights} on {database}",
                    "the task cannot keep its state" if database == META else "the task cannot apply all changes",
                    f"GRANT {rights} ON {quoted(database)}.* TO {user}",
                    Remedy.SINK_SQL,
                )


def _privileges(grants: Mapping[str, frozenset[str]], database: str, table: str) -> frozenset[str]:
    privileges = privileges_on(grants, database, table)
    return privileges | _TABLES if "ALL PRIVILEGES" in privileges else privileges


def examine_task(settings: TaskSettings) -> Examination:
    """Ask everything that a task needs, within `AREA_S`."""
    task = TaskExamination(settings)
    areas: dict[str, Callable[[TaskSettings], Iterator[Finding]]] = {"kafka": lambda _: task.kafka()}
    if settings.target.type in SERVERS:
        areas["target"] = lambda _: task.target()
    return gathered(asked(areas, settings), time.monotonic() + AREA_S)


def _of_table(target: ApplyTarget, database: str, table: str) -> Iterator[Finding]:
    """Yield the findings about a table of the target, if it is there."""
    if not target.exists(database, table):
        return
    if not target.is_transactional(database, table):
        evidence = f"table {database}.{table} of the target has no transactions"
        fix = f"ALTER TABLE {qualified(database, table)} ENGINE=InnoDB"
        yield Finding("task.engine", Severity.ERROR, evidence, "the task cannot apply changes exactly once", fix, Remedy.SINK_SQL)
    asked = "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s"
    names = sorted(str(name) for name, in target.rows(asked, database, table))
    if names:
        evidence = f"table {database}.{table} of the target has the triggers {', '.join(names)}"
        what = "they run for each change, also for changes that triggers of the source have made"
        advice = "Drop them, unless they are meant for replicated changes"
        yield Finding("task.trigger", Severity.WARNING, evidence, what, advice=advice)
