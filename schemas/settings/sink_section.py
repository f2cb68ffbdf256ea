"""The sections `sinks` and `spark`: where tables are merged into, and the session of the merge job."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from schemas.names import folder_name
from schemas.settings.database_url import DATABASES, parse_url
from schemas.settings.declaration import checking, found_by, problem, setting, settings_of_other_types
from schemas.settings.route_section import RouteSettings, TransformSettings, check_routes
from schemas.settings.schema_change_section import (
    SchemaChangeSettings,
    applied_kinds,
    check_schema_changes,
    is_plain,
)
from schemas.settings.text_forms import memory, sink_name

_NO_SERVER: Final = "no server of it is at hand to prove that rows are exact there"
UNAVAILABLE: Final[Mapping[str, str]] = {
    "paimon": "there is no release of Paimon for this version of Spark",
    "hudi": "there is no release of Hudi for this version of Spark",
    "doris": _NO_SERVER,
    "starrocks": _NO_SERVER,
    "oceanbase": _NO_SERVER,
}
"""Types of sinks that other tools have, with the reason why there are none here."""

MODES: Final[Mapping[str, tuple[str, ...]]] = {"files": ("changelog",), "kafka": ("mirror", "changelog", "both")}
"""The modes of sinks by type; others have `mirror`."""
SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("delta", "iceberg"), ("soft_delete", "partition_by", "options", "key")),
    **dict.fromkeys(DATABASES, ("soft_delete", "key")),
    "files": ("key",),
}
"""What transforms may say of a target, by the type of the sink. A changelog in Kafka is as in files, a mirror there has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Where tables are merged into."""

    name: str = setting("lake", help="name of the sink in logs and in its checkpoint", form=sink_name)
    type: Literal["delta", "iceberg", "postgresql", "mysql", "mariadb", "files", "kafka"] = setting(
        "delta",
        help="tables of Delta, of Iceberg (format version 3, in a Hadoop catalog whose warehouse is `path`), or of a database "
        "(`mysql` and `mariadb` are one: the server says which it is); `files`: changelogs in Parquet files or JSON lines; "
        "`kafka`: topics",
        unavailable=UNAVAILABLE,
    )
    path: str = setting(
        "",
        help="folder of the sink (a relative one is beside the YAML file), or `file:///...`; a table lands in "
        "`<path>/<database>/<table>`, where characters other than letters, digits, `_` "
        "and `-` become `@` and four hex digits, as in MySQL's own file names, and so does a `_` that comes first"
    )
    url: str = setting(
        "",
        types=DATABASES,
        help="databases: `postgresql://host:port/database`, `mysql://host:port` or `mariadb://host:port`, with options of the "
        "client",
    )
    user: str = setting("", types=DATABASES, help="databases: user that may make tables, and schemas or databases")
    password: str = setting("", types=DATABASES, help="databases: the user's password; better: `password_file`", secret=True)
    password_file: str | None = setting(
        None, types=DATABASES, help="databases: file whose first line is the password, read again for each connection", file=True
    )
    work: str = setting(
        "",
        types=DATABASES,
        help="databases: folder of the checkpoint, the state and the quarantine (a relative one is beside the YAML file)"
    )
    mode: Literal["mirror", "changelog", "both"] = setting(
        "mirror",
        help="`mirror`: the current rows of the source (in a topic: what its messages say, folded in their order); `changelog`: "
        "every change, with `type: files` and `type: kafka`; `both`, with `type: kafka`: the mirror, and its changelog as the "
        "target `<target>__changelog`",
    )
    format: Literal["parquet", "changelog-json", "debezium-json", "canal-json", "maxwell-json"] | None = setting(
        None,
        types=("files", "kafka"),
        help="how changes are written: `parquet` (the default of `type: files`; not for Kafka), `changelog-json` (the default "
        "of `type: kafka`), or another of the JSON formats, as Flink's formats of these names read them",
    )
    topic: str = setting(
        "$database.$table",
        types=("kafka",),
        help="the topic of a target, with `type: kafka`: `$database` and `$table` are the names of the target. Characters that "
        "Kafka does not allow become `_`",
    )

    writer: Literal["auto", "arrow", "jvm"] = setting(
        "auto",
        types=("delta",),
        help="what merges rows into Delta: `arrow` (delta-rs in Python workers), `jvm` (Spark's MERGE), or `auto`: for each table "
        "and batch what costs less. The rows are the same",
    )

    merge_memory_bytes: int = setting(
        2 << 30,
        types=("delta", "iceberg", *DATABASES, "kafka"),
        help="memory of a batch in a worker: records and what they became take half of it at most; the other half is for the hash "
        "table of a MERGE into Delta (`writer: auto`). The JVM merges a table that needs more, or, in Delta, whose touched files "
        "are more than a third of it",
        minimum=64 << 20,
        maximum=1 << 42,
    )
    deletion_vectors: bool = setting(
        True,
        types=("delta",),
        help="few changes in files of gigabytes: let the JVM mark rows as deleted instead of writing files again. The table "
        "gets the property `delta.enableDeletionVectors` then, and readers need that table feature",
    )
    vacuum_hours: int = setting(
        24,
        types=("delta",),
        help="Delta: a table loses the files that only older versions of it have (VACUUM) at most once in so many hours, by "
        "its `delta.deletedFileRetentionDuration`, a week where it has none; 0: never",
        minimum=0,
        maximum=87_600,
    )

    routes: tuple[RouteSettings, ...] = setting((), help="which table goes into which target; without one it keeps its name")
    match: Literal["all", "first"] = setting(
        "all", help="a table that several routes match: `all` of them count, or the `first` of the list"
    )
    unrouted: Literal["keep", "leave_out"] = setting(
        "keep", help="a table that no route matches: it keeps its name, or is not merged into this sink"
    )
    transforms: tuple[TransformSettings, ...] = setting((), help="what rows become on their way into a target")
    schema_changes: SchemaChangeSettings = setting(SchemaChangeSettings(), help="what becomes of changes of the source's tables")

    def table_path(self, database: str, table: str) -> str:
        """Return the folder of a table."""
        return f"{self.path}/{folder_name(database)}/{folder_name(table)}"

    @property
    def service_path(self) -> str:
        """Return the folder of what is not a mirror: tombstones, quarantine, progress, checkpoint."""
        return f"{self.folder}/_tidemark"

    @property
    def folder(self) -> str:
        """Return the folder of this machine that belongs to the sink: `work` of a database, else `path`."""
        return self.work if self.type in DATABASES else self.path

    @property
    def progress_path(self) -> str:
        """Return the path of the progress file, which is replaced after each batch."""
        return f"{self.service_path}/progress.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """A session of Spark."""

    master: str = setting("local[*]", help="Spark master: `local[*]`, `spark://…`, `yarn`, `k8s://…`")
    driver_memory: str = setting(
        "2g",
        help="heap of Spark's JVM, which plans, and merges what workers do not; Python workers need memory beside it, by "
        "`merge_memory_bytes` of the sink",
        form=memory,
    )
    start_timeout_s: int = setting(
        300,
        help="seconds within which Spark is up, with its JVM and its place on a cluster, in each command that needs it; a start "
        "that takes longer ends with an error",
        minimum=10,
        maximum=86_400,
    )
    jars: tuple[str, ...] = setting((), help="jars to use instead of those of the lock file")
    conf: Mapping[str, str] = setting({}, help="further Spark configuration", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings(SessionSettings):
    """The session of the merge job."""

    trigger_s: int = setting(
        2,
        help="seconds from the start of one batch to the next, under load; after a quiet time batches begin at once, about "
        "eight of them in eight times as long",
        minimum=0,
        maximum=86_400,
    )
    max_batch_records: int = setting(
        1_000_000, help="records of a batch, over all topics, when catching up", minimum=1,
        maximum=10_000_000_000,
    )


@checking
def check_sinks(sinks: Sequence[SinkSettings]) -> Iterator[str]:
    """Raise `ConfigError` for a name given twice, and for a folder that two sinks would write to."""
    names = [sink.name for sink in sinks]
    for name in names:
        if names.count(name) > 1:
            yield problem("sinks", f"two sinks are named {name!r}")
    for number, sink in enumerate(sinks):
        yield from found_by(_check_type, f"sinks.{number}", sink)
        yield from found_by(check_routes, f"sinks.{number}", sink.routes, sink.transforms)
        yield from found_by(check_schema_changes, f"sinks.{number}.schema_changes", sink.schema_changes)
        for other in sinks[:number]:
            if _is_within(sink.folder, other.folder) or _is_within(other.folder, sink.folder):
                reason = f"{sink.folder} and {other.folder} of {other.name!r} overlap: give each a folder of its own"
                yield problem(f"sinks.{number}.{folder_key(sink)}", reason)


def folder_key(sink: SinkSettings) -> str:
    """Return the key of the sink's folder."""
    return "work" if sink.type in DATABASES else "path"


def with_folder(sink: SinkSettings, folder: str) -> SinkSettings:
    """Return a sink with another folder."""
    return replace(sink, work=folder) if sink.type in DATABASES else replace(sink, path=folder)


@checking
def _check_database(where: str, sink: SinkSettings) -> Iterator[str]:
    """Raise `ConfigError` for a database that cannot be reached by what is given."""
    if sink.path:
        reason = f"a sink of type {sink.type} has no such setting: its tables are at `url`, its checkpoint is in `work`"
        yield problem(f"{where}.path", reason)
    if not sink.url:
        yield problem(f"{where}.url", f"is missing: the address of the database, as {sink.type}://host:port/database")
    else:
        yield from found_by(parse_url, sink.url, sink.type, f"{where}.url")
    if not sink.user:
        yield problem(f"{where}.user", "is missing: the user that writes the tables")
    if sink.password and sink.password_file is not None:
        yield problem(f"{where}.password_file", "password and password_file are both given; keep the file")


@checking
def _check_type(where: str, sink: SinkSettings) -> Iterator[str]:
    """Raise `ConfigError` for a setting that sinks of this type do not have, where it has not its default."""
    yield from settings_of_other_types(where, sink, "sink")
    if sink.type in DATABASES:
        yield from found_by(_check_database, where, sink)
    yield from found_by(_check_mode, where, sink)


@checking
def _check_mode(where: str, sink: SinkSettings) -> Iterator[str]:
    """Raise `ConfigError` for a mode, a format or a target's shape that sinks of this type do not have."""
    modes = MODES.get(sink.type, ("mirror",))
    if sink.mode not in modes:
        yield problem(f"{where}.mode", f"a sink of type {sink.type} has no mode {sink.mode}, only {', '.join(modes)}")
        return
    if sink.type == "kafka" and sink.format == "parquet":
        yield problem(f"{where}.format", "parquet is for files; a topic has one of the JSON formats")
    for number, transform in enumerate(sink.transforms):
        shapes = SHAPES.get("files" if sink.mode == "changelog" else sink.type, ())
        given = {name: getattr(transform, name) for name in ("soft_delete", "partition_by", "options", "key")}
        for name in [name for name, value in given.items() if value and name not in shapes]:
            reason = f"a sink of type {sink.type} has no such setting"
            yield problem(f"{where}.transforms.{number}.{name}", reason)
    if sink.mode == "changelog" and not is_plain(sink.schema_changes):
        reason = "each event has the columns that its table had then: take lenient with all columns, or exception"
        yield problem(f"{where}.schema_changes", reason)
    elif sink.mode == "changelog" and not {"truncate.table", "drop.table"} <= applied_kinds(sink.schema_changes):
        reason = f"a sink of type {sink.type} cannot keep rows: apply truncate.table and drop.table"
        yield problem(f"{where}.schema_changes", reason)


def _is_within(path: str, folder: str) -> bool:
    return f"{posixpath.normpath(path)}/".startswith(f"{posixpath.normpath(folder).rstrip('/')}/")
