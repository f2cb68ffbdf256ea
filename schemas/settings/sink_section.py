"""The sections `sinks` and `spark`: where tables are merged into, and the session of the merge job."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from schemas.names import folder_name
from schemas.settings.declaration import refuse, setting
from schemas.settings.route_section import RouteSettings, TransformSettings, check_routes

_ONLY_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "writer": ("delta",),
    "merge_memory_bytes": ("delta",),
    "deletion_vectors": ("delta",),
    "format": ("files", "kafka"),
    "topic": ("kafka",),
}
"""Settings that only sinks of some types have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Where tables are merged into."""

    name: str = setting("lake", help="name of the sink in logs and in its checkpoint")
    type: Literal["delta", "files", "kafka"] = setting(
        "delta", help="`delta`: tables; `files`: changelogs in Parquet files or JSON lines; `kafka`: changelogs in topics"
    )
    path: str = setting(
        help="folder of the sink (a relative one is beside the YAML file), or `file:///...`; a table lands in "
        "`<path>/<database>/<table>`, where characters other than letters, digits, `_` "
        "and `-` become `@` and four hex digits, as in MySQL's own file names, and so does a `_` that comes first"
    )
    mode: Literal["mirror", "changelog"] = setting(
        "mirror", help="`mirror`: the current rows of the source; `changelog`: every change, with `type: files` and `type: kafka`"
    )
    format: Literal["parquet", "changelog-json", "debezium-json", "canal-json", "maxwell-json"] | None = setting(
        None,
        help="how a changelog is written: `parquet` (the default of `type: files`; not for Kafka), `changelog-json` (the default "
        "of `type: kafka`), or another of the JSON formats, as Flink's formats of these names read them",
    )
    topic: str = setting(
        "$database.$table",
        help="the topic of a target, with `type: kafka`: `$database` and `$table` are the names of the target. Characters that "
        "Kafka does not allow become `_`",
    )

    writer: Literal["auto", "arrow", "jvm"] = setting(
        "auto",
        help="what merges rows into Delta: `arrow` (delta-rs in Python workers), `jvm` (Spark's MERGE), or `auto`: for each table "
        "and batch what costs less. The rows are the same",
    )

    merge_memory_bytes: int = setting(
        2 << 30,
        help="memory of a batch in a worker with `writer: auto`: records and what they became take half of it at most, the hash "
        "table of a MERGE the other half. The JVM merges a table that needs more, or whose touched files are more than a third "
        "of it",
        minimum=64 << 20,
    )
    deletion_vectors: bool = setting(
        True,
        help="few changes in files of gigabytes: let the JVM mark rows as deleted instead of writing files again. The table "
        "gets the property `delta.enableDeletionVectors` then, and readers need that table feature",
    )

    routes: tuple[RouteSettings, ...] = setting((), help="which table goes into which target; without one it keeps its name")
    match: Literal["all", "first"] = setting(
        "all", help="a table that several routes match: `all` of them count, or the `first` of the list"
    )
    unrouted: Literal["keep", "leave_out"] = setting(
        "keep", help="a table that no route matches: it keeps its name, or is not merged into this sink"
    )
    transforms: tuple[TransformSettings, ...] = setting((), help="what rows become on their way into a target")

    def table_path(self, database: str, table: str) -> str:
        """Return the folder of a table."""
        return f"{self.path}/{folder_name(database)}/{folder_name(table)}"

    @property
    def service_path(self) -> str:
        """Return the folder of what is not a mirror: tombstones, quarantine, progress, checkpoint."""
        return f"{self.path}/_tidemark"

    @property
    def progress_path(self) -> str:
        """Return the path of the progress file, which is replaced after each batch."""
        return f"{self.service_path}/progress.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The session of the merge job."""

    master: str = setting("local[*]", help="Spark master: `local[*]`, `spark://…`, `yarn`, `k8s://…`")
    driver_memory: str = setting("2g", help="heap of the driver, which in local mode does all the work")
    trigger_s: int = setting(2, help="seconds from the start of one batch to the next", minimum=0)
    max_batch_records: int = setting(
        1_000_000, help="records of a batch, over all topics, when catching up", minimum=1
    )
    jars: tuple[str, ...] = setting((), help="jars to use instead of those of the lock file")
    conf: Mapping[str, str] = setting({}, help="further Spark configuration", secret=True)


def check_sinks(sinks: Sequence[SinkSettings]) -> None:
    """Raise `ConfigError` for a name given twice, and for a folder that two sinks would write to."""
    names = [sink.name for sink in sinks]
    for name in names:
        if names.count(name) > 1:
            refuse("sinks", f"two sinks are named {name!r}")
    for number, sink in enumerate(sinks):
        _check_type(f"sinks.{number}", sink)
        check_routes(f"sinks.{number}", sink.routes, sink.transforms)
        for other in sinks[:number]:
            if _is_within(sink.path, other.path) or _is_within(other.path, sink.path):
                reason = f"{sink.path} and {other.path} of {other.name!r} overlap: give each a folder of its own"
                refuse(f"sinks.{number}.path", reason)


def _check_type(where: str, sink: SinkSettings) -> None:
    """Raise `ConfigError` for a setting that sinks of this type do not have, where it has not its default."""
    defaults = {field.name: field.default for field in fields(SinkSettings)}
    for key, types in _ONLY_OF.items():
        if sink.type not in types and getattr(sink, key) != defaults[key]:
            refuse(f"{where}.{key}", f"a sink of type {sink.type} has no such setting, only {', '.join(types)}")


def _is_within(path: str, folder: str) -> bool:
    return f"{posixpath.normpath(path)}/".startswith(f"{posixpath.normpath(folder).rstrip('/')}/")
