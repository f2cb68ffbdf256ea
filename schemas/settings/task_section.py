"""The settings of a replication task: sources that are read, and one target.

They are a tree beside `tree.Settings`, with a YAML file of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from schemas.settings.declaration import (
    Problems,
    check_patterns,
    checking,
    found_by,
    problem,
    setting,
    settings_of_other_types,
)
from schemas.settings.format_section import FormatSettings, check_format
from schemas.settings.kafka_section import KafkaSettings, check_kafka
from schemas.settings.parsing import build_members, check_members
from schemas.settings.service_section import ServiceSettings, check_service
from schemas.settings.sink_section import SessionSettings
from schemas.settings.source_section import TlsSettings
from schemas.settings.text_forms import (
    channel,
    gtids,
    host,
    log_position,
    moment,
    names_one_server,
    plain,
    topic_part,
    transaction,
)

SERVERS: Final = ("mysql", "mariadb", "tidb")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStart:
    """The begin of a task in the changes of a source that Kafka has; by default their end. Only the first start counts."""

    gtid: str | None = setting(None, help="behind these transactions: a set of GTIDs, of MySQL's or MariaDB's form", form=gtids)
    position: str | None = setting(
        None, help="at the first transaction that begins there or later: log file and position, for example `binlog.000007:4511`",
        form=log_position,
    )
    time: str | None = setting(
        None, help="at the first transaction of that time or later: ISO 8601 with a time zone, for example `2026-11-25T09:00:00Z`",
        form=moment,
    )

    @property
    def given(self) -> list[str]:
        """The names of the settings that have a value."""
        return [name for name in ("gtid", "position", "time") if getattr(self, name) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSource:
    """A source whose changes are applied."""

    name: str = setting(help="`name` of the producer that publishes the source", form=topic_part)
    tables: tuple[str, ...] = setting(
        (),
        help="regular expressions on `database.table`, anchored, upper and lower case alike; by default all tables that the "
        "producer publishes",
    )
    exclude_tables: tuple[str, ...] = setting((), help="tables left out though `tables` names them")
    start: TaskStart = setting(TaskStart(), help="`mode: incremental`: the begin of the task at its first start, one of these")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTarget:
    """The server that the changes are applied to, or the folder of the files that keep them."""

    type: Literal["mysql", "mariadb", "tidb", "file"] = setting(
        help="the kind of the server (`tidb` is not tested on a real server), or `file`: files that `tidemark replay` applies later"
    )
    host: str = setting("", types=SERVERS, help="host name or address of the server", form=host)
    port: int = setting(3306, types=SERVERS, help="TCP port of the server", minimum=1, maximum=65535)
    user: str = setting(
        "tidemark", types=SERVERS, help="user with rights on the replicated tables and on `tidemark_meta`", form=plain
    )
    password: str = setting("", types=SERVERS, help="the user's password; better: `password_file`", secret=True)
    password_file: str | None = setting(
        None, types=SERVERS, help="file whose first line is the password, read again for each connection", file=True
    )
    consistency: Literal["transaction", "eventual"] = setting(
        "transaction",
        types=SERVERS,
        help="`transaction`: a reader sees the transactions of a source whole, and in their order; `eventual`: large batches are "
        "applied by `apply.workers`, and within a batch rows may be at different positions of the source",
    )
    connect_timeout_s: int = setting(
        10,
        types=SERVERS,
        help="seconds to wait for a connection, and for each answer of the server until the session is set up",
        minimum=1,
        maximum=3600,
    )
    tls: TlsSettings = setting(TlsSettings(), types=SERVERS, help="encryption of the connections")
    channel: str | None = setting(
        None,
        types=SERVERS,
        help="two-way replication: a mark in all that the task writes, so that a producer of this server with "
        "`source.ignore_channels` leaves it out",
        form=channel,
    )
    path: str | None = setting(
        None,
        types=("file",),
        help="`type: file`: folder of the files, of this task alone (a relative one is beside the YAML file)",
        file=True,
    )
    segment_bytes: int = setting(
        128 << 20,
        types=("file",),
        help="`type: file`: size from which a file is closed, and another one begins",
        minimum=1 << 10,
        maximum=1 << 40,
    )
    segment_s: int = setting(
        3600, types=("file",), help="`type: file`: seconds after which a file is closed, if it has records", minimum=1,
        maximum=31_622_400,
    )
    retention_hours: int = setting(
        0,
        types=("file",),
        help="`type: file`: hours after which a closed file is removed; 0: never",
        minimum=0,
        maximum=876_000,
    )

    @property
    def address(self) -> str:
        """The server or the folder, as a status names it."""
        return str(self.path) if self.type == "file" else f"{self.type} {self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings:
    """How changes are applied."""

    driver_rows: int = setting(
        2_000,
        help="rows from which a transaction of the target ends",
        minimum=1,
        maximum=100_000,
    )
    workers: int = setting(
        4,
        help="`target.consistency: eventual`: connections that apply a batch of more than `driver_rows` rows at the same time, "
        "each other rows; 1: rows are applied in order, `driver_rows` at a time",
        minimum=1,
        maximum=64,
    )
    executor_rows: int = setting(
        0,
        help="`target.consistency: eventual`: batches of more rows are applied by tasks of Spark, one for each of the `workers`, "
        "instead of threads; 0: never. The session of Spark (`spark`) starts with the first such batch",
        minimum=0,
        maximum=10_000_000,
    )
    txn_rows: int = setting(
        2_000, help="`target.consistency: eventual`: rows of one transaction of a worker at most", minimum=1, maximum=100_000
    )
    max_batch_rows: int = setting(
        200_000,
        help="rows of a batch at most, or 32 MiB of rows; with `target.consistency: transaction` a larger transaction of a source "
        "is divided",
        minimum=1,
        maximum=10_000_000,
    )
    max_delay_ms: int = setting(
        200, help="milliseconds after which a batch is applied, even if more rows could join it", minimum=0, maximum=60_000
    )
    compact: bool = setting(
        default=True,
        help="write all changes of a row within a transaction of the target as one, in tables that have no unique key beside the "
        "primary key, no foreign key and no trigger; `false`: write each change by itself",
    )
    safe_mode: bool = setting(
        default=False, help="apply changes so that it passes over rows which are missing, or present already"
    )
    skip_transactions: tuple[str, ...] = setting(
        (),
        help="transactions of the sources that are not applied, rows and DDL: GTIDs, or positions as messages have them; for "
        "several sources only GTIDs of MySQL",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Everything that can be set for a task."""

    task: str = setting(help="name of the task", form=topic_part)
    mode: Literal["all", "incremental"] = setting(
        "all",
        help="`all`: load the tables, then follow their changes; `incremental`: follow changes alone",
        unavailable={"full": "a task that ends after the load is not built yet"},
    )
    order: Literal["source", "global"] = setting(
        "source",
        help="`source`: the transactions of each source are applied in their commit order; `global`: all sources have one "
        "order, by the clocks of their servers",
    )
    group: str | None = setting(None, help="`order.group` of the sources; `order: global` needs it", form=topic_part)
    sources: tuple[TaskSource, ...] = setting(help="the sources that are read")
    kafka: KafkaSettings = setting(KafkaSettings(), help="the cluster that the producers publish to")
    format: FormatSettings = setting(help="the schema registry of the producers: `registry`, and `registry_access`")
    target: TaskTarget = setting(help="where the changes are applied to, or kept")
    apply: ApplySettings = setting(ApplySettings(), help="how changes are applied")
    spark: SessionSettings = setting(SessionSettings(), help="the session of Spark, with `apply.executor_rows`")
    service: ServiceSettings = setting(
        ServiceSettings(), help="the HTTP endpoint of the task: `port` has `/livez`, `/readyz` and `/metrics`"
    )


def task_from_mapping(mapping: Mapping[str, object]) -> TaskSettings:
    """Return the settings of a task, checked and with defaults filled in.

    Raises one `ConfigError` with all problems, each with the path of its key.
    """
    problems = Problems()
    built = build_members(TaskSettings, mapping, "", problems)
    check_members(built, _CHECKS, problems)
    with problems.noted():
        _check_whole(built)
    problems.raise_all()
    return TaskSettings(**{**built, "format": replace(built["format"], type="avro")})


@checking
def _check_sources(sources: Sequence[TaskSource]) -> Iterator[str]:
    """Raise `ConfigError` for sources that a task cannot read, and for patterns that are not regular expressions."""
    names = [source.name for source in sources]
    if not names:
        yield problem("sources", "no source is named; give one, for example [{name: shop}]")
    for number, source in enumerate(sources):
        if source.name in names[:number]:
            yield problem(f"sources.{number}.name", f"{source.name!r} is given twice; name all its tables in one entry")
        if source.start.given[1:]:
            yield problem(f"sources.{number}.start", f"{' and '.join(source.start.given)} exclude each other; keep one of them")
        yield from found_by(check_patterns, f"sources.{number}.tables", source.tables)
        yield from found_by(check_patterns, f"sources.{number}.exclude_tables", source.exclude_tables)


@checking
def _check_avro(wire: FormatSettings) -> Iterator[str]:
    """Raise `ConfigError` for records that are not Avro."""
    if wire.type == "json":
        yield problem("format.type", "a task reads Avro only; set format.registry, and type: avro, for the producer, too")
    elif wire.registry is None:
        yield problem("format.registry", "is missing: the URL of the schema registry that the producer uses")
    else:
        yield from found_by(check_format, wire)


@checking
def _check_target(target: TaskTarget) -> Iterator[str]:
    yield from settings_of_other_types("target", target, "target")
    if target.type == "file" and target.path is None:
        yield problem("target.path", "is missing: folder of the files")
    if target.type in SERVERS and not target.host:
        yield problem("target.host", "is missing: host name or address of the server")
    if target.password and target.password_file is not None:
        yield problem("target.password_file", "password and password_file are both given; keep the file")


@checking
def _check_apply(apply: ApplySettings) -> Iterator[str]:
    for name in apply.skip_transactions:
        if reason := transaction(name):
            yield problem("apply.skip_transactions", reason)


@checking
def _check_whole(built: Mapping[str, Any]) -> Iterator[str]:
    """Raise `ConfigError` for settings that do not go together."""
    is_global = built.get("order") == "global"
    if is_global and not built.get("group"):
        yield problem("group", "is missing: order: global needs the order.group of the sources")
    if getattr(built.get("target"), "type", None) == "file" and (is_global or len(built.get("sources", ())) > 1):
        yield problem("target.type", "files keep one source, with order: source; give each source a task and a folder")
    for number, source in enumerate(built.get("sources", ())):
        if source.start.given and built.get("mode") != "incremental":
            reason = "goes with mode: incremental; a task that loads begins at the end of the log"
            yield problem(f"sources.{number}.start.{source.start.given[0]}", reason)
    if "apply" in built and "target" in built and built["apply"].executor_rows:
        yield from _problems_of_executors(built["apply"], built["target"])
    if len(built.get("sources", ())) > 1:
        for name in getattr(built.get("apply"), "skip_transactions", ()):
            if not names_one_server(name):
                yield problem("apply.skip_transactions", f"{name} may be a transaction of each source: give a GTID of MySQL")


def _problems_of_executors(apply: ApplySettings, target: TaskTarget) -> Iterator[str]:
    """Yield why no batch would ever reach an executor."""
    key = "apply.executor_rows"
    if target.consistency != "eventual":
        yield problem(key, "needs target.consistency: eventual; otherwise no batch is divided among workers")
    if apply.workers == 1:
        yield problem(key, "needs apply.workers: 2 or more; one worker applies rows in order, and not by executors")
    if apply.executor_rows >= apply.max_batch_rows:
        yield problem(key, f"no batch has more rows: set it below apply.max_batch_rows, which is {apply.max_batch_rows:,}")


_CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "sources": _check_sources,
    "kafka": check_kafka,
    "format": _check_avro,
    "target": _check_target,
    "apply": _check_apply,
    "service": check_service,
}
