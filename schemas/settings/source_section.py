"""The section `source`: the database that is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from schemas.identity import TableName
from schemas.settings.declaration import check_patterns, checking, compiled, found_by, problem, setting
from schemas.settings.text_forms import channel, gtids, host, microseconds, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How the connections to the source are encrypted."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = setting(
        "preferred", help="as the `--ssl-mode` of the MySQL clients"
    )
    ca: str | None = setting(
        None, help="file with the certificates that may sign the server's; by default the system's", file=True
    )
    cert: str | None = setting(None, help="file with the client's certificate", file=True)
    key: str | None = setting(None, help="file with the client's private key", file=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAtSettings:
    """Where in the log the first start begins; without it, at the log's end. A restart resumes at its offset instead."""

    position: Literal["earliest", "latest"] | None = setting(
        None, help="first start: at the beginning of the oldest log file that the server has, or at the log's end (the default)"
    )
    timestamp: str | None = setting(
        None,
        help="first start: at the first transaction that was committed then or later; ISO 8601 with a time zone, for example "
        "`2026-11-25T09:00:00Z`",
    )
    gtids: str | None = setting(
        None, help="first start: behind these transactions (MySQL's or MariaDB's form), instead of at the log's end",
        form=gtids,
    )
    file: str | None = setting(None, help="first start, without GTIDs: log file, with `pos`")
    pos: int | None = setting(
        None, help="first start, without GTIDs: where in `file` a transaction begins", minimum=4
    )
    skip_events: int = setting(
        0, help="with `gtids` or `file`: events of the log to skip from there on, each GTID, BEGIN, TABLE_MAP … counts", minimum=0
    )
    skip_rows: int = setting(
        0, help="with `gtids` or `file`: rows to skip of the first rows event after that, whatever its table", minimum=0
    )

    @property
    def is_in_the_past(self) -> bool:
        """Whether the log from an earlier position on is read, and not only from its end on."""
        return self.position == "earliest" or any(one is not None for one in (self.timestamp, self.gtids, self.file))

    @property
    def timestamp_us(self) -> int | None:
        """Return the timestamp in µs since 1970; None without one. Raises `ValueError` for a text that is none."""
        return None if self.timestamp is None else microseconds(self.timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The database that is read."""

    host: str = setting("127.0.0.1", help="host name or address of the server", form=host)
    port: int = setting(3306, help="TCP port of the server", minimum=1, maximum=65535)
    user: str = setting("tidemark", help="user with the grants of the README", form=plain)
    password: str = setting("", help="the user's password; better: `password_file`", secret=True)
    password_file: str | None = setting(
        None, help="file whose first line is the password, read again for each connection", file=True
    )
    tables: tuple[str, ...] = setting(
        help="regular expressions on `database.table`, anchored, upper and lower case alike"
    )
    exclude_tables: tuple[str, ...] = setting(
        (r".*\._.+_(gho|ghc|del|new|old)",),
        help="tables left out though `tables` names them; the default: shadow tables of gh-ost and pt-online-schema-change",
    )
    signal_table: str | None = setting(
        None, help="`database.table` of the signal table, a name with a dot in backticks; snapshots need one, the log does not"
    )
    read_only: bool = setting(
        default=False,
        help="write nothing to the source, a replica for example: chunks are marked by GTIDs (MySQL, gtid_mode=ON) or by the "
        "position of a consistent snapshot (MariaDB), and signals come from Kafka or a file (over HTTP they take one of "
        "these ways), or from the table if somebody else writes to it",
    )
    server_id: int | None = setting(
        None,
        help="replication id, unique among the server's replicas; by default derived from `name`",
        minimum=1,
        maximum=2**32 - 1,
    )
    connect_timeout_s: int = setting(
        10,
        help="seconds to wait for a connection, and for each answer of the server until the session is set up",
        minimum=1,
        maximum=3600,
    )
    heartbeat_s: int = setting(
        2, help="seconds of silence in the log after which the server reports its position", minimum=1,
        maximum=3600,
    )
    log_head_room_s: int = setting(
        43_200,
        help="seconds before the server may purge log that is not read yet at which to warn; half of what it keeps is "
        "enough in any case",
        minimum=0,
        maximum=31_536_000,
    )
    start_at: StartAtSettings = setting(StartAtSettings(), help="where the first start begins")
    ignore_channels: tuple[str, ...] = setting(
        (),
        help="two-way replication: leave out all that the tasks with these `target.channel` write into this server",
    )
    tls: TlsSettings = setting(TlsSettings(), help="encryption of the connections")

    def captures(self, database: str, table: str) -> bool:
        """Return whether the rows of a table are published and merged; never so for the signal table."""
        signals, full_name = self.signal_names, f"{database}.{table}"
        if signals is not None and (database.casefold(), table.casefold()) == tuple(map(str.casefold, signals)):
            return False
        return self.names(database, table) and not any(
            compiled(pattern).fullmatch(full_name) for pattern in self.exclude_tables
        )

    def names(self, database: str, table: str) -> bool:
        """Return whether `tables` names it, excluded or not."""
        return any(compiled(pattern).fullmatch(f"{database}.{table}") for pattern in self.tables)

    @property
    def signal_names(self) -> tuple[str, str] | None:
        """Return database and name of the signal table, None when there is none."""
        if self.signal_table is None:
            return None
        return _names(self.signal_table)


@cache
def _names(text: str) -> tuple[str, str]:
    name = TableName.written(text)
    return name.database, name.table


@checking
def check_source(source: SourceSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    if not source.tables:
        yield problem("source.tables", "no table is named; for all tables of a database: 'shop\\..*'")
    yield from found_by(check_patterns, "source.tables", source.tables)
    yield from found_by(check_patterns, "source.exclude_tables", source.exclude_tables)
    try:
        _ = source.signal_names
    except ValueError as error:
        yield problem("source.signal_table", str(error))
    for name in source.ignore_channels:
        if reason := channel(name):
            yield problem("source.ignore_channels", reason)
    yield from found_by(_check_start, source.start_at)
    if source.password and source.password_file is not None:
        yield problem("source.password_file", "password and password_file are both given; keep the file")


@checking
def _check_start(start_at: StartAtSettings) -> Iterator[str]:
    if (start_at.file is None) != (start_at.pos is None):
        yield problem("source.start_at", "file and pos go together")
    names = ("position", "timestamp", "gtids", "file")
    given = [name for name in names if getattr(start_at, name) is not None]
    if given[1:]:
        yield problem(f"source.start_at.{given[0]}", f"and {given[1]} exclude each other; keep one of them")
    try:
        is_before_1970 = (start_at.timestamp_us or 0) < 0
    except (ValueError, OverflowError) as error:
        example = "expected ISO 8601 with a time zone, for example 2026-11-25T09:00:00Z"
        yield problem("source.start_at.timestamp", f"{start_at.timestamp!r} is no such time ({error}); {example}")
        is_before_1970 = False
    if is_before_1970:
        yield problem("source.start_at.timestamp", f"{start_at.timestamp!r} is before 1970")
    for name in ("skip_events", "skip_rows"):
        if getattr(start_at, name) and start_at.gtids is None and start_at.file is None:
            yield problem(f"source.start_at.{name}", "goes with gtids, or with file and pos")
