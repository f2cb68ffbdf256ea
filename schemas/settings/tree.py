"""The settings tree: one validated, frozen value, read once at the edge and passed in.

A plain mapping enters (a parsed YAML file with environment variables laid over it, see `tidemark.process`); `Settings` leaves.
Every key is known, typed and bounded by its declaration: an unknown key is a `ConfigError` that names the key, where it is and the
nearest valid name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from schemas.errors import ConfigError
from schemas.settings.database_url import DATABASES, parse_url
from schemas.settings.declaration import Problems, checking, problem, refuse, setting
from schemas.settings.format_section import FormatSettings, check_format
from schemas.settings.kafka_section import KafkaSettings, check_kafka
from schemas.settings.order_section import OrderSettings
from schemas.settings.parsing import build_members, check_members, from_text, member_type
from schemas.settings.records_section import RecordSettings, check_records
from schemas.settings.route_section import UdfSettings, check_udfs
from schemas.settings.service_section import ServiceSettings, SignalSettings, check_service, check_signal
from schemas.settings.sink_section import SinkSettings, SparkSettings, check_sinks, folder_key, with_folder
from schemas.settings.snapshot_section import SnapshotSettings, check_snapshot
from schemas.settings.source_section import SourceSettings, check_source
from schemas.settings.text_forms import path as path_form
from schemas.sink_paths import local_path

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_FIRST_DERIVED_SERVER_ID: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    name: str = setting(help="logical name of the source and prefix of every topic")
    source: SourceSettings = setting(help="the database that is read")
    kafka: KafkaSettings = setting(KafkaSettings(), help="the cluster between producer and merge job")
    format: FormatSettings = setting(FormatSettings(), help="how keys and values are written")
    records: RecordSettings = setting(RecordSettings(), help="which records a change becomes")
    order: OrderSettings = setting(OrderSettings(), help="records by which changes of many sources are brought into one order")
    snapshot: SnapshotSettings = setting(SnapshotSettings(), help="how tables are read")
    signal: SignalSettings = setting(SignalSettings(), help="where signals come from")
    sinks: tuple[SinkSettings, ...] = setting((), help="where the tables are merged into, each sink by a query of its own")
    udfs: tuple[UdfSettings, ...] = setting((), help="Python functions for the expressions of `sinks[].transforms`")
    spark: SparkSettings = setting(SparkSettings(), help="the session of the merge job")
    service: ServiceSettings = setting(ServiceSettings(), help="the HTTP endpoint of the producer")
    on_table_error: Literal["set_aside", "stop"] = setting(
        "set_aside",
        help="a table that cannot be published or merged: `set_aside` leaves it out and reports why; `stop` ends",
    )

    @property
    def sets_tables_aside(self) -> bool:
        """Whether the producer continues without a table that it cannot publish. What is ordered has to be whole."""
        return self.on_table_error == "set_aside" and self.order.group is None

    @property
    def sink(self) -> SinkSettings:
        """Return the only sink; `ConfigError` unless there is exactly one."""
        return self.of_sink(None).sinks[0]

    def of_sink(self, name: str | None) -> Settings:
        """Return the settings with this sink alone; None is the only one. `ConfigError` where there is none, or more than one."""
        names = [sink.name for sink in self.sinks]
        chosen = [sink for sink in self.sinks if name in (None, sink.name)]
        if not names:
            raise ConfigError("sinks: none is given, so there is nothing to merge into")
        if not chosen:
            raise ConfigError(f"--sink: no sink is named {name!r}; there are {', '.join(names)}")
        if len(chosen) > 1:
            raise ConfigError(f"sinks: there are {len(names)} ({', '.join(names)}): choose one with --sink")
        return replace(self, sinks=(chosen[0],))

    def comes_round(self, sink: SinkSettings, database: str, table: str) -> bool:
        """Return whether rows of a target would be read again: it is captured, and the server of `url` is the one that is read."""
        return _is_source(sink, self.source) and self.source.captures(database, table)

    @property
    def why_no_loads(self) -> str:
        """Say why the merge job can read no table itself, by the settings alone; "" where it can."""
        if self.source.read_only or self.source.signal_names is None:
            return "its answers are rows of a signal table (source.signal_table), and nothing is written with source.read_only"
        if self.format.type != "avro":
            return f"format.type is {self.format.type}, and its rows are Avro"
        if self.records.unwrap:
            return "records.unwrap: flat rows have no position"
        if self.records.message_key_columns:
            return "records.message_key_columns: rows may share a key"
        if len(self.sinks) != 1 or self.sinks[0].type != "delta":
            return f"sinks: there must be one, of type delta; {len(self.sinks)} are given"
        if self.sinks[0].routes or self.sinks[0].transforms:
            return "sinks.0.routes and sinks.0.transforms: what a chunk becomes is up to the merge"
        return ""


def why_no_merge(settings: Settings) -> tuple[str, ...]:
    """Return what keeps any merge job from serving these settings, which are right for the producer alone."""
    problems = []
    if settings.format.type != "avro":
        problems.append("format.type: the merge job reads Avro only so far; set format.registry, and type: avro")
    skipped = [op for op in "cud" if settings.records.skips(op)]
    if skipped:
        problems.append(
            f"records.skipped_operations: without {', '.join(skipped)} a mirror does not follow its source; "
            f"leave them to be published, or run no merge job on these topics"
        )
    if settings.records.unwrap:
        problems.append(
            "records.unwrap: flat rows have no position, so which of two is newer cannot be known; turn it off, or "
            "run no merge job on these topics"
        )
    if settings.records.message_key_columns:
        problems.append(
            "records.message_key_columns: a chosen key need not be unique, a mirror is merged by the key the "
            "tables have; leave it out, or run no merge job on these topics"
        )
    return tuple(problems)


def _ordered(settings: Settings) -> Settings:
    """Return the settings with what a reader in order needs: it asks for snapshots in Kafka, and truncates follow the source."""
    if settings.order.group is None:
        return settings
    heard = tuple(dict.fromkeys((*settings.signal.channels, "kafka")))
    skipped = tuple(op for op in settings.records.skipped_operations if op != "t") or ("none",)
    return replace(
        settings,
        signal=replace(settings.signal, channels=heard),
        records=replace(settings.records, skipped_operations=skipped),
    )


@checking
def _check_channels(settings: Settings) -> Iterator[str]:
    """Raise `ConfigError` if ignored transactions would be announced by records of their own."""
    if settings.source.ignore_channels and settings.records.provide_transaction_metadata:
        reason = "goes without records.provide_transaction_metadata, which counts the rows of all transactions"
        yield problem("source.ignore_channels", reason)


@checking
def _check_ordered(settings: Settings) -> Iterator[str]:
    """Raise `ConfigError` if rows that are published in order are not whole rows, or some of them are not published."""
    if settings.order.group is None:
        return
    key, records = "order.group", settings.records
    if settings.format.type != "avro":
        yield problem(key, f"format.type is {settings.format.type}, and commit records need Avro: set format.registry, type: avro")
    if records.unwrap:
        yield problem(key, "records.unwrap: flat rows have no position; turn it off")
    if records.column_include_list or records.column_exclude_list:
        yield problem(key, "records.column_include_list and column_exclude_list leave out columns, which a target would lack")
    if records.masks():
        yield problem(key, "records.column_mask_… and column_truncate_…: a target would get other values than the source has")
    skipped = [op for op in "cud" if records.skips(op)]
    if skipped:
        yield problem(key, f"records.skipped_operations: without {', '.join(skipped)} a target does not follow its source")
    if not records.include_schema_changes:
        yield problem(key, "records.include_schema_changes: a target gets its DDL from the topic of the statements; turn it on")


def from_mapping(mapping: Mapping[str, object]) -> Settings:
    """Return the settings of a mapping, checked and with defaults filled in.

    Raises one `ConfigError` with everything that is wrong: the path of each key (`source.prot`) and, for an unknown one, the
    nearest valid name.
    """
    problems = Problems()
    built = build_members(Settings, mapping, "", problems)
    if (wire := built.get("format")) is not None and wire.type is None:
        built["format"] = replace(wire, type="json" if wire.registry is None else "avro")
    sinks = []
    for number, sink in enumerate(built.get("sinks", ())):
        with problems.noted():
            key = f"sinks.{number}.{folder_key(sink)}"
            if sink.folder.strip() and (reason := path_form(sink.folder)):
                refuse(key, reason)
            sinks.append(with_folder(sink, local_path(sink.folder, key)))
    if len(sinks) == len(built.get("sinks", ())):
        built["sinks"] = tuple(sinks)
    check_members(built, _CHECKS, problems)
    problems.raise_all()
    settings = _ordered(Settings(**{"format": FormatSettings(type="json"), **built}))
    if settings.source.server_id is None:
        settings = replace(settings, source=replace(settings.source, server_id=_derived_server_id(settings.name)))
    _check_whole(settings)
    return settings


def parse_text(path: Sequence[str], text: str, tree: type = Settings) -> object:
    """Return the value that a text (an environment variable) gives to the key at `path` of a tree.

    Lists are JSON or separated by commas, mappings and sinks are JSON. Raises `ConfigError` for an unknown
    key and for text that is not of the key's type.
    """
    kind: object = tree
    for depth, part in enumerate(path):
        kind = member_type(kind, part, ".".join(path[: depth + 1]), tuple(path[:depth]))
    return from_text(kind, text, ".".join(path))


def _derived_server_id(name: str) -> int:
    """Return the replication id of a name: it is always the same, so that one instance takes over from another."""
    return _FIRST_DERIVED_SERVER_ID + zlib.crc32(name.encode()) % _FIRST_DERIVED_SERVER_ID


def _is_source(sink: SinkSettings, source: SourceSettings) -> bool:
    """Return whether a sink is the server that is read by its name."""
    if sink.type not in DATABASES or sink.type == "postgresql":
        return False
    return parse_url(sink.url, sink.type, "sinks: url").is_server(source.host, source.port)


def _check_no_circle(settings: Settings) -> None:
    """Raise `ConfigError` for a sink that is the server that is read, where a target is captured whatever tables there are."""
    for number, sink in enumerate(settings.sinks):
        named = [route.into for route in sink.routes if "$" not in route.into]
        circle = [target for target in named if settings.comes_round(sink, *target.split(".", 1))]
        where = f"sinks.{number}.url"
        keeps_all = not sink.routes and sink.unrouted == "keep"
        if keeps_all and _is_source(sink, settings.source):
            refuse(where, "this is the server that is read, and the tables keep their names: route them elsewhere")
        if circle:
            refuse(where, f"this is the server that is read, and {circle[0]} is captured there: rows would come round")


def _check_name(name: str) -> None:
    if _NAME.match(name) is None:
        refuse("name", f"{name!r} is not a topic prefix: 1 to 100 of A-Z a-z 0-9 . _ -")


_CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "name": _check_name,
    "source": check_source,
    "kafka": check_kafka,
    "format": check_format,
    "records": check_records,
    "service": check_service,
    "snapshot": check_snapshot,
    "signal": check_signal,
    "sinks": check_sinks,
    "udfs": check_udfs,
}
"""By the section: what its settings exclude of each other. The defaults of each are right."""


def _check_whole(settings: Settings) -> None:
    """Raise `ConfigError` for settings of several sections that exclude each other."""
    problems = Problems()
    with problems.noted():
        _check_no_circle(settings)
    with problems.noted():
        _check_ordered(settings)
    with problems.noted():
        _check_channels(settings)
    with problems.noted():
        if settings.snapshot.via == "spark":
            reason = settings.why_no_loads or ("snapshot.merge is producer" if settings.snapshot.merge == "producer" else "")
            if reason:
                refuse("snapshot.via", f"the merge job cannot read tables itself: {reason}")
    problems.raise_all()
