"""The sinks of the workload `merge-sinks`, in one table: a further type or mode of a sink is a line of `SINKS`.

Databases are servers of their own beside the source's, with the durability that they have by default: each commit is flushed. Only
their memory and their logs are larger, as those of a server that is merged into would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.bench_figures import OURS
from bench.lake_feed import Feed
from bench.lake_jobs import MergeJob
from bench.scene import DATABASE as TABLE
from bench.sink_outcomes import FilesOutcome, MirrorOutcome, Outcome, TopicOutcome
from devservers import start_database, start_postgres
from schemas.identity import TableName
from schemas.names import folder_name
from tidemark.process import config
from tidemark.verify.sink_types import open_reader

if TYPE_CHECKING:
    from devservers import Database, Postgres

_POSTGRES, _MYSQL = "postgres17", "mysql97"
POSTGRES_OPTIONS: Final = {"shared_buffers": "1GB", "max_wal_size": "4GB"}
MYSQL_OPTIONS: Final = {"innodb_buffer_pool_size": "1G", "innodb_redo_log_capacity": "2G"}


@dataclass(frozen=True, slots=True)
class OpenSink:
    """The settings of a sink of this run, and the server whose CPU is stated beside that of the job, if it has one of its own."""

    settings: Mapping[str, Any]
    server: Database | Postgres | None = None


@dataclass(frozen=True, slots=True)
class BenchedSink:
    """A sink as it is measured.

    `opened` starts the server that it needs, which ends with the stack, its files in the folder. `outcome` reads back what the job
    has written.
    """

    opened: Callable[[ExitStack, Path], OpenSink]
    outcome: Callable[[Feed, MergeJob], Outcome]

    @staticmethod
    def tool(name: str) -> str:
        """Return the name of a sink of the table in figures."""
        return f"{OURS} into {name}"


def _settings(**settings: Any) -> Callable[[ExitStack, Path], OpenSink]:
    return lambda _stack, _folder: OpenSink(settings)


def _postgresql(stack: ExitStack, folder: Path) -> OpenSink:
    server = stack.enter_context(start_postgres(_POSTGRES, folder, POSTGRES_OPTIONS))
    url = server.jdbc_url.removeprefix("jdbc:")
    return OpenSink(_database("postgresql", url, server), server)


def _mysql(stack: ExitStack, folder: Path) -> OpenSink:
    server = stack.enter_context(start_database(_MYSQL, folder, MYSQL_OPTIONS))
    url = f"mysql://{server.host}:{server.port}"
    return OpenSink(_database("mysql", url, server), server)


def _database(kind: str, url: str, server: Database | Postgres) -> dict[str, Any]:
    return {"name": kind, "type": kind, "url": url, "user": server.user, "password": server.password}


def _mirror(feed: Feed, job: MergeJob) -> Outcome:
    return MirrorOutcome(open_reader(config.load(job.config, {})), TableName(feed.stage.name, TABLE))


def _files(feed: Feed, job: MergeJob) -> Outcome:
    return FilesOutcome(job.lake / folder_name(feed.stage.name) / folder_name(TABLE))


def _topics(name: str, mode: str) -> BenchedSink:
    """Return a sink in Kafka of this mode, whose topics and commits begin with its name."""
    topic = f"{name}.$database.$table"

    def outcome(feed: Feed, _job: MergeJob) -> Outcome:
        return TopicOutcome(feed.servers, topic.replace("$database", feed.stage.name).replace("$table", TABLE))

    return BenchedSink(_settings(name=name, type="kafka", mode=mode, format="changelog-json", topic=topic), outcome)


BASE: Final = BenchedSink.tool("delta")
"""What the others are compared with."""
SINKS: Final[Mapping[str, BenchedSink]] = {
    "delta": BenchedSink(_settings(name="delta", type="delta"), _mirror),
    "iceberg": BenchedSink(_settings(name="iceberg", type="iceberg"), _mirror),
    "postgresql": BenchedSink(_postgresql, _mirror),
    "mysql": BenchedSink(_mysql, _mirror),
    "kafka-changelog": _topics("changes", "changelog"),
    "kafka-mirror": _topics("rows", "mirror"),
    "files": BenchedSink(_settings(name="archive", type="files", mode="changelog", format="parquet"), _files),
}
"""By name. The net changes of a mirror in Kafka are those of its changelog here, for each key changes once in a step."""
