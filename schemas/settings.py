"""The settings tree: one validated, frozen value, read once at the edge and passed in.

What enters is a plain mapping (a parsed YAML file with environment variables laid over it, see
`tidemark/config.py`); what leaves is `Settings`. Every key is known, typed and bounded here and nowhere
else: an unknown key is a `ConfigError` that names the key, where it stands and the nearest valid name.

Passwords never appear in a `repr`.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from schemas.columns import Mask
from schemas.errors import ConfigError
from schemas.names import folder_name
from schemas.sink_paths import local_path
from schemas.topics import DELIMITER, signal_topic

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_DELIMITER = re.compile(r"[A-Za-z0-9._-]{1,20}\Z")
_FIRST_DERIVED_SERVER_ID = 1 << 30
_OPERATIONS = ("c", "u", "d", "t", "none")
_CHANNELS = ("source", "kafka", "file")


def _setting(
    default: Any = MISSING,
    *,
    help: str,  # noqa: A002 - reads as what it is at every use below
    minimum: int | None = None,
    maximum: int | None = None,
    secret: bool = False,
    file: bool = False,
) -> Any:
    """A dataclass field with the text of the configuration reference and its bounds.

    A `secret` is in no `repr` and no message. `file` names a file: a relative one is beside the YAML file.
    """
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "secret": secret, "file": file}
    if isinstance(default, (dict, list)):
        return field(default_factory=default.copy, metadata=metadata, repr=not secret)
    if default is MISSING:
        return field(metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How the connections to the source are encrypted."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = _setting(
        "preferred", help="as the `--ssl-mode` of the MySQL clients"
    )
    ca: str | None = _setting(
        None, help="file with the certificates that may sign the server's; by default the system's", file=True
    )
    cert: str | None = _setting(None, help="file with the client's certificate", file=True)
    key: str | None = _setting(None, help="file with the client's private key", file=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAtSettings:
    """Where in the log the first start begins; without it, at the log's end."""

    gtids: str | None = _setting(
        None, help="first start: behind these transactions (MySQL's or MariaDB's form), instead of at the log's end"
    )
    file: str | None = _setting(None, help="first start, without GTIDs: log file, with `pos`")
    pos: int | None = _setting(
        None, help="first start, without GTIDs: where in `file` a transaction begins", minimum=4
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The database that is read."""

    host: str = _setting("127.0.0.1", help="host name or address of the server")
    port: int = _setting(3306, help="TCP port of the server", minimum=1, maximum=65535)
    user: str = _setting("tidemark", help="user with the grants of the README")
    password: str = _setting("", help="the user's password; better: `password_file`", secret=True)
    password_file: str | None = _setting(
        None, help="file whose first line is the password, read anew for each connection", file=True
    )
    tables: tuple[str, ...] = _setting(
        help="regular expressions on `database.table`, anchored, upper and lower case alike"
    )
    exclude_tables: tuple[str, ...] = _setting(
        (r".*\._.+_(gho|ghc|del|new|old)",),
        help="tables left out though `tables` names them; the default: shadow tables of gh-ost and pt-online-schema-change",
    )
    signal_table: str | None = _setting(
        None, help="`database.table` of the signal table; snapshots need one, the log alone does not"
    )
    read_only: bool = _setting(
        default=False,
        help="write nothing to the source, a replica for example: chunks are marked by GTIDs (MySQL, gtid_mode=ON) or by the "
        "place of a consistent snapshot (MariaDB), and signals come from Kafka or a file (over HTTP they take one of "
        "these ways), or from the table if somebody else writes to it",
    )
    server_id: int | None = _setting(
        None,
        help="replication id, unique among the server's replicas; by default derived from `name`",
        minimum=1,
        maximum=2**32 - 1,
    )
    connect_timeout_s: int = _setting(
        10,
        help="seconds to wait for a connection, and for each answer of the server until the session is set up",
        minimum=1,
    )
    heartbeat_s: int = _setting(
        2, help="seconds of silence in the log after which the server reports its position", minimum=1
    )
    log_head_room_s: int = _setting(
        43_200,
        help="seconds before the server may purge log that is not read yet at which to warn; half of what it keeps is "
        "enough in any case",
        minimum=0,
    )
    start_at: StartAtSettings = _setting(StartAtSettings(), help="where the first start begins")
    tls: TlsSettings = _setting(TlsSettings(), help="encryption of the connections")

    def captures(self, database: str, table: str) -> bool:
        """Whether the rows of a table are published and merged; never so for the signal table."""
        full_name = f"{database}.{table}"
        if self.signal_table is not None and full_name.casefold() == self.signal_table.casefold():
            return False
        return self.names(database, table) and not any(
            _compiled(pattern).fullmatch(full_name) for pattern in self.exclude_tables
        )

    def names(self, database: str, table: str) -> bool:
        """Whether `tables` names it, excluded or not."""
        return any(_compiled(pattern).fullmatch(f"{database}.{table}") for pattern in self.tables)

    @property
    def signal_names(self) -> tuple[str, str] | None:
        """Database and name of the signal table, None when there is none."""
        if self.signal_table is None:
            return None
        database, _, table = self.signal_table.partition(".")
        return database, table


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTlsSettings:
    """How connections to the brokers are encrypted, with `security_protocol` SSL or SASL_SSL."""

    ca: str | None = _setting(
        None, help="file (PEM) with the certificates that may sign the brokers'; by default the system's", file=True
    )
    cert: str | None = _setting(None, help="file (PEM) with the client's certificate", file=True)
    key: str | None = _setting(None, help="file (PEM) with the client's private key", file=True)
    key_password: str = _setting("", help="what that key is encrypted with; better: `key_password_file`", secret=True)
    key_password_file: str | None = _setting(None, help="file whose first line is that", file=True)
    verify_hostname: bool = _setting(default=True, help="whether the brokers' certificates must have their host names")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Who we are, with `security_protocol` SASL_PLAINTEXT or SASL_SSL."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = _setting(
        "SCRAM-SHA-512", help="how the password is shown"
    )
    username: str | None = _setting(None, help="user of the brokers")
    password: str = _setting("", help="that user's password; better: `password_file`", secret=True)
    password_file: str | None = _setting(
        None, help="file whose first line is the password, read anew for each connection of a start", file=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The cluster between producer and merge job."""

    bootstrap_servers: str = _setting("127.0.0.1:9092", help="brokers to begin with, `host:port,host:port`")
    partitions: int = _setting(4, help="partitions of a change or snapshot topic we create", minimum=1)
    topic_delimiter: str = _setting(
        DELIMITER,
        help="what stands between the parts of topic names, and of the names of schemas, as Debezium's `topic.delimiter`; "
        "another one means new topics, and a new start",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = _setting(
        "lz4", help="compression of the records"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = _setting(
        "PLAINTEXT", help="whether connections are encrypted (`tls`), and whether we say who we are (`sasl`)"
    )
    tls: KafkaTlsSettings = _setting(KafkaTlsSettings(), help="encryption of the connections")
    sasl: SaslSettings = _setting(SaslSettings(), help="who we are")
    options: Mapping[str, str] = _setting(
        {},
        help="further librdkafka options of every client; they win over the settings above. The merge job takes those of "
        "TLS and SASL, and refuses what Java's client has not",
        secret=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Who we are to the schema registry, and whom we trust to be it."""

    user: str | None = _setting(None, help="user of the registry (basic authentication)")
    password: str = _setting("", help="that user's password; better: `password_file`", secret=True)
    password_file: str | None = _setting(None, help="file whose first line is the password", file=True)
    ca: str | None = _setting(
        None, help="file with the certificates that may sign the registry's; by default the system's", file=True
    )
    cert: str | None = _setting(None, help="file with the client's certificate", file=True)
    key: str | None = _setting(None, help="file with the client's private key", file=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSettings:
    """How keys and values are written."""

    type: Literal["avro", "json"] | None = _setting(
        None, help="Avro in Confluent wire format, or JSON; by default Avro where a registry is given"
    )
    registry: str | None = _setting(None, help="URL of the schema registry (Confluent API); Avro needs it")
    registry_access: RegistrySettings = _setting(RegistrySettings(), help="how the registry is reached")
    schemas: bool = _setting(default=False, help="JSON: write the schema block into every key and value")
    decimal: Literal["precise", "double", "string"] = _setting(
        "precise", help="DECIMAL: exact (Connect's Decimal), the nearest double, or text"
    )
    bigint_unsigned: Literal["precise", "long"] = _setting(
        "precise", help="BIGINT UNSIGNED: exact (Connect's Decimal), or int64, negative from 2^63 on"
    )
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = _setting(
        "bytes", help="BINARY, VARBINARY and BLOB: bytes, or text; BIT stays bytes"
    )
    time: Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] = _setting(
        "adaptive_time_microseconds",
        help="DATE, TIME and DATETIME as `time.precision.mode`: milliseconds up to three fraction digits and microseconds "
        "beyond, always microseconds, nanoseconds, ISO 8601 text, or Connect's own types (milliseconds). `connect` and "
        "`isostring` hold no TIME outside a day, `nanoseconds` no DATETIME before 1677 or after 2262: NULL, as Debezium "
        "has it; in a NOT NULL column the producer stops",
    )


    schema_names: Literal["none", "avro", "avro_unicode"] = _setting(
        "none",
        help="names of schemas as `schema.name.adjustment.mode`: as they are, other characters than Avro's as `_`, or as "
        "`_uXXXX`; Avro itself never has others",
    )
    field_names: Literal["none", "avro", "avro_unicode"] = _setting(
        "none", help="names of columns as `field.name.adjustment.mode`, in the same ways"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMaskSettings:
    """Columns whose texts are hashed."""

    algorithm: str = _setting("SHA-256", help="hash algorithm, by Java's name")
    salt: str = _setting(help="what is hashed before the text", secret=True)
    columns: tuple[str, ...] = _setting(help="patterns of the columns that are hashed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CharsMaskSettings:
    """Columns whose texts become asterisks, or are cut."""

    chars: int = _setting(help="how many characters are left, or asterisks written", minimum=0)
    columns: tuple[str, ...] = _setting(help="patterns of the columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """Tables whose inserted rows are events, as Debezium's outbox event router takes them."""

    tables: tuple[str, ...] = _setting(
        (), help="patterns of `database.table`, captured tables: each inserted row is also an event in a topic of its own"
    )
    id: str = _setting("id", help="column of the event's id, the header `id`")
    key: str = _setting("aggregateid", help="column of the record key")
    payload: str = _setting("payload", help="column of the record value, written as it is")
    route_by: str = _setting("aggregatetype", help="column that names the topic")
    topic: str = _setting("outbox.event.${routedByValue}", help="the topic; `${routedByValue}` is what `route_by` holds")

    def holds(self, database: str, table: str) -> bool:
        """Whether a table is an outbox."""
        return any(_compiled(pattern).fullmatch(f"{database}.{table}") for pattern in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Which records a change becomes, and what stands in them; names and meaning are Debezium's."""

    tombstones: bool = _setting(
        default=True, help="whether a record without value follows each delete (`tombstones.on.delete`)"
    )
    skipped_operations: tuple[str, ...] = _setting(
        ("t",),
        help="log events that are not published: `c`, `u`, `d`, `t` (truncate), or `none`; the signal table's always are",
    )
    skip_messages_without_change: bool = _setting(
        default=False, help="leave out updates that change no published column"
    )

    provide_transaction_metadata: bool = _setting(
        default=False, help="transaction blocks in envelopes, BEGIN and END in `<name>.transaction`"
    )

    heartbeat_interval_ms: int = _setting(
        0,
        help="milliseconds from one record in `__debezium-heartbeat.<name>` to the next; 0: none",
        minimum=0,
    )
    heartbeat_action_query: str | None = _setting(
        None, help="SQL that is run on the source with each heartbeat, on a connection of its own"
    )

    column_include_list: tuple[str, ...] = _setting(
        (), help="patterns of `database.table.column`: only these columns are in rows; keys keep theirs"
    )
    column_exclude_list: tuple[str, ...] = _setting((), help="patterns of columns that are not in rows")
    column_mask_hash_v2: tuple[HashMaskSettings, ...] = _setting(
        (), help="`column.mask.hash.v2.<algorithm>.with.salt.<salt>`, in keys too"
    )
    column_mask_with_chars: tuple[CharsMaskSettings, ...] = _setting(
        (), help="`column.mask.with.<chars>.chars`; NULL stays NULL"
    )
    column_truncate_to_chars: tuple[CharsMaskSettings, ...] = _setting(
        (), help="`column.truncate.to.<chars>.chars`"
    )
    message_key_columns: Mapping[str, str] = _setting(
        {}, help="pattern of `database.table` to the columns of its record key, separated by commas"
    )

    @property
    def shapes_columns(self) -> bool:
        """Whether any option changes which columns are written, or how, or the key."""
        return bool(
            self.column_include_list or self.column_exclude_list or self.message_key_columns or self.masks()
        )

    def masks(self) -> tuple[tuple[str, tuple[str, ...], Mask], ...]:
        """Every mask as (setting, patterns, mask), in the order of the tree."""
        hashes = [
            (item.columns, Mask("hash", algorithm=item.algorithm, salt=item.salt))
            for item in self.column_mask_hash_v2
        ]
        asterisks = [(item.columns, Mask("asterisks", item.chars)) for item in self.column_mask_with_chars]
        cut = [(item.columns, Mask("truncate", item.chars)) for item in self.column_truncate_to_chars]
        return (
            *(("records.column_mask_hash_v2", *item) for item in hashes),
            *(("records.column_mask_with_chars", *item) for item in asterisks),
            *(("records.column_truncate_to_chars", *item) for item in cut),
        )

    include_schema_changes: bool = _setting(
        default=True, help="DDL statements, and what their tables look like after them, in the topic `<name>`"
    )

    include_schema_comments: bool = _setting(
        default=False,
        help="comments of columns as `doc` of their fields, and those of tables and columns in the topic `<name>`",
    )
    column_propagate_source_type: tuple[str, ...] = _setting(
        (),
        help="patterns of `database.table.column`: the schemas of these fields tell type, length and scale of the column, in "
        "parameters `__debezium.source.column.…`",
    )
    datatype_propagate_source_type: tuple[str, ...] = _setting(
        (), help="the same, by patterns of `database.table.TYPE`, for example `.+\\.DECIMAL( UNSIGNED)?`"
    )

    include_query: bool = _setting(
        default=False,
        help="the statement in `source.query`; the server must log it (`binlog_rows_query_log_events`, MariaDB "
        "`binlog_annotate_row_events`)",
    )

    unwrap: bool = _setting(
        default=False,
        help="flat rows with `__deleted`, `__op` and `__source_ts_ms` instead of envelopes; they cannot be merged",
    )

    outbox: OutboxSettings = _setting(OutboxSettings(), help="tables whose rows are events")

    def skips(self, op: str) -> bool:
        """Whether log events of that operation are not published."""
        return op in self.skipped_operations


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFlags:
    """What `mode: configuration_based` does; names and defaults are Debezium's."""

    snapshot_data: bool = _setting(default=False, help="read the captured tables at the first start")
    start_stream: bool = _setting(default=False, help="follow the log after that")
    snapshot_on_data_error: bool = _setting(
        default=False, help="read them again when the server no longer has the log"
    )


@dataclass(frozen=True, slots=True)
class StartBehaviour:
    """What a snapshot mode means: when all captured tables are read, and whether the log is followed after that."""

    at_first_start: bool = False
    at_every_start: bool = False
    when_log_is_lost: bool = False
    follows_log: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """How tables are read."""

    mode: Literal[
        "initial",
        "initial_only",
        "always",
        "no_data",
        "never",
        "when_needed",
        "recovery",
        "configuration_based",
    ] = _setting(
        "initial",
        help="when all captured tables are read: at the first start (`initial`; `initial_only` ends after that), at "
        "every start (`always`), only when signalled (`no_data`, also `never`), at the first start and when the "
        "server no longer has the log (`when_needed`), or as `configuration_based` says",
    )
    configuration_based: SnapshotFlags = _setting(
        SnapshotFlags(), help="what `mode: configuration_based` does"
    )
    readers: int = _setting(4, help="connections that read chunks at the same time", minimum=1, maximum=64)
    chunk_rows: int = _setting(50_000, help="rows of a chunk, about", minimum=1, maximum=10_000_000)
    merge: Literal["spark", "producer"] = _setting(
        "spark",
        help="who merges snapshot rows with the log: `spark` from topics of their own, or the `producer`, which "
        "writes them into the change topics as Debezium does; a signal may say it with `merge`",
    )
    chunk_bytes: int = _setting(
        64 << 20,
        help="bytes of a chunk, about; with `merge: producer` its rows wait in memory, so it is never more",
        minimum=1 << 16,
    )
    follow_cascades: bool = _setting(
        True,
        help="with `merge: spark`, whether children that a foreign key changed are read again and swept when their parent "
        "changes, on servers that do not log those rows (MySQL before 9.6, MariaDB)",
    )
    watermarking_strategy: Literal["insert_insert", "insert_delete"] = _setting(
        "insert_insert",
        help="the row that closes a window in the signal table: one more, or the open row deleted (needs DELETE)",
    )
    consistency: Literal["chunked", "one_transaction"] = _setting(
        "chunked",
        help="how the tables of a start are read: in chunks beside the log, without locks, each as of its own position; or "
        "`one_transaction`, all as of one position, before the log is read on. Interrupted, that is begun anew",
    )
    locking_mode: Literal["none", "minimal", "extended"] = _setting(
        "minimal",
        help="how `one_transaction` and signals of type BLOCKING fix their position, as `snapshot.locking.mode`: a lock while "
        "the transaction is opened (FLUSH TABLES WITH READ LOCK, or LOCK TABLES where RELOAD is not granted), until all is "
        "read, or none: exact on MariaDB, on MySQL only in a moment without commits, else refused",
    )
    lock_timeout_ms: int = _setting(
        10_000,
        help="milliseconds to wait for that lock, in whole seconds, or for that moment; writers wait as long",
        minimum=1,
    )


    @property
    def at_start(self) -> StartBehaviour:
        """What the mode means."""
        flags = self.configuration_based
        return {
            "initial": StartBehaviour(at_first_start=True),
            "initial_only": StartBehaviour(at_first_start=True, follows_log=False),
            "always": StartBehaviour(at_first_start=True, at_every_start=True),
            "when_needed": StartBehaviour(at_first_start=True, when_log_is_lost=True),
            "configuration_based": StartBehaviour(
                at_first_start=flags.snapshot_data,
                when_log_is_lost=flags.snapshot_on_data_error,
                follows_log=flags.start_stream,
            ),
        }.get(self.mode, StartBehaviour())


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings:
    """Where signals come from."""

    channels: tuple[str, ...] = _setting(
        ("source",),
        help="`source` (the signal table, always heard), `kafka` (a topic) and `file`",
    )
    kafka_topic: str | None = _setting(
        None,
        help="topic of signals, `<name>-signal` by default: partition 0, key `<name>`, "
        'value `{"id": …, "type": …, "data": {…}}`',
    )
    file: str | None = _setting(
        None, help="file of signals, one such JSON object per line; it is only read", file=True
    )
    poll_interval_ms: int = _setting(
        1000, help="milliseconds from one look into topic or file to the next", minimum=10
    )

    def topic(self, name: str) -> str:
        """The topic of signals."""
        return self.kafka_topic or signal_topic(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """A place the tables are merged into."""

    name: str = _setting("lake", help="name of the sink in logs and in its checkpoint")
    type: Literal["delta"] = _setting("delta", help="kind of table")
    path: str = _setting(
        help="folder of the sink (a relative one is beside the YAML file), or `file:///...`; a table lands in "
        "`<path>/<database>/<table>`, where characters other than letters, digits, `_` "
        "and `-` become `@` and four hex digits, as in MySQL's own file names, and so does a `_` that comes first"
    )
    mode: Literal["mirror"] = _setting("mirror", help="`mirror`: the current rows of the source")

    def table_path(self, database: str, table: str) -> str:
        """Where a table lands."""
        return f"{self.path}/{folder_name(database)}/{folder_name(table)}"

    @property
    def service_path(self) -> str:
        """Where the merge job keeps what is not a mirror: tombstones, quarantine, progress, checkpoint."""
        return f"{self.path}/_tidemark"

    @property
    def progress_path(self) -> str:
        """The file that says how far the sink has come, replaced after each batch."""
        return f"{self.service_path}/progress.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The session of the merge job."""

    master: str = _setting("local[*]", help="Spark master: `local[*]`, `spark://…`, `yarn`, `k8s://…`")
    driver_memory: str = _setting("2g", help="heap of the driver, which in local mode does all the work")
    trigger_s: int = _setting(2, help="seconds from the start of one batch to the next", minimum=0)
    max_batch_records: int = _setting(
        1_000_000, help="records of a batch, over all topics, when catching up", minimum=1
    )
    jars: tuple[str, ...] = _setting((), help="jars to use instead of those of the lock file")
    conf: Mapping[str, str] = _setting({}, help="further Spark configuration", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The producer's HTTP endpoint: health, metrics, status, signals; and the merge job's: health."""

    host: str = _setting(
        "127.0.0.1", help="address to listen on; `0.0.0.0` for all, which needs a token for signals"
    )
    port: int = _setting(0, help="TCP port; 0: nothing listens", minimum=0, maximum=65535)
    merge_port: int = _setting(
        0, help="TCP port on which the merge job answers `/livez` and `/readyz`; 0: nothing listens", minimum=0, maximum=65535
    )
    token: str = _setting(
        "", help="what a signal must show as `Authorization: Bearer …`; better: `token_file`", secret=True
    )
    token_file: str | None = _setting(None, help="file whose first line is the token", file=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    name: str = _setting(help="logical name of the source and prefix of every topic")
    source: SourceSettings = _setting(help="the database that is read")
    kafka: KafkaSettings = _setting(KafkaSettings(), help="the cluster between producer and merge job")
    format: FormatSettings = _setting(FormatSettings(), help="how keys and values are written")
    records: RecordSettings = _setting(RecordSettings(), help="which records a change becomes")
    snapshot: SnapshotSettings = _setting(SnapshotSettings(), help="how tables are read")
    signal: SignalSettings = _setting(SignalSettings(), help="where signals come from")
    sinks: tuple[SinkSettings, ...] = _setting((), help="places the tables are merged into")
    spark: SparkSettings = _setting(SparkSettings(), help="the session of the merge job")
    service: ServiceSettings = _setting(ServiceSettings(), help="the HTTP endpoint of the producer")
    on_table_error: Literal["set_aside", "stop"] = _setting(
        "set_aside",
        help="a table that cannot be published or merged: `set_aside` leaves it out, says why, and serves the others; `stop` ends",
    )

    @property
    def sink(self) -> SinkSettings:
        """The sink of the merge job; `ConfigError` unless there is exactly one."""
        if len(self.sinks) != 1:
            message = f"sinks: the merge job serves exactly one sink, {len(self.sinks)} are given"
            raise ConfigError(message)
        return self.sinks[0]


def from_mapping(mapping: Mapping[str, object]) -> Settings:
    """The settings a mapping stands for, checked and with defaults filled in.

    Raises `ConfigError` naming the path of the offending key (`source.prot`) and, for an unknown one, the
    nearest valid name.
    """
    settings = _build(Settings, mapping, "")
    assert isinstance(settings, Settings)
    source = settings.source
    if source.server_id is None:
        source = replace(source, server_id=_derived_server_id(settings.name))
    wire = settings.format
    if wire.type is None:
        wire = replace(wire, type="json" if wire.registry is None else "avro")
    sinks = tuple(
        replace(sink, path=local_path(sink.path, f"sinks.{number}.path")) for number, sink in enumerate(settings.sinks)
    )
    settings = replace(settings, source=source, format=wire, sinks=sinks)
    _check(settings)
    return settings


def parse_text(path: Sequence[str], text: str) -> object:
    """The value that a text (an environment variable) gives to the key at `path`.

    Lists are JSON or separated by commas, mappings and sinks are JSON. Raises `ConfigError` for an unknown
    key and for text that is not of the key's type.
    """
    kind: object = Settings
    for depth, part in enumerate(path):
        kind = _member_type(kind, part, ".".join(path[: depth + 1]), tuple(path[:depth]))
    return _from_text(kind, text, ".".join(path))


@dataclass(frozen=True, slots=True)
class Described:
    """One key of the configuration reference."""

    path: str
    type: str
    default: str
    help: str
    secret: bool = False
    file: bool = False


def secret_keys() -> frozenset[str]:
    """The paths of all keys that hold secrets, as the configuration reference has them."""
    return frozenset(item.path for item in describe() if item.secret)


def file_keys() -> frozenset[str]:
    """The paths of all keys that name a file: a secret's, a certificate's, a key's."""
    return frozenset(item.path for item in describe() if item.file)


def describe() -> tuple[Described, ...]:
    """Every key, in the order of the tree: what the configuration reference is generated from."""
    return tuple(_describe(Settings, ""))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _derived_server_id(name: str) -> int:
    """A replication id that the same name always gets: one instance then takes over from another."""
    return _FIRST_DERIVED_SERVER_ID + zlib.crc32(name.encode()) % _FIRST_DERIVED_SERVER_ID


# --- checks that go beyond one value ---------------------------------------------------------------------


def _check(settings: Settings) -> None:
    if _NAME.match(settings.name) is None:
        _refuse("name", f"{settings.name!r} is not a topic prefix: 1 to 100 of A-Z a-z 0-9 . _ -")
    _check_source(settings.source)
    if _DELIMITER.match(settings.kafka.topic_delimiter) is None:
        delimiter = settings.kafka.topic_delimiter
        _refuse("kafka.topic_delimiter", f"{delimiter!r} cannot stand in a topic's name: 1 to 20 of A-Z a-z 0-9 . _ -")
    _check_kafka(settings.kafka)
    _check_format(settings.format)
    _check_records(settings.records)
    if settings.service.token and settings.service.token_file is not None:
        _refuse("service.token_file", "token and token_file are both given; keep the file")
    _check_snapshot(settings.snapshot)
    _check_signal(settings.signal)
    names = [sink.name for sink in settings.sinks]
    for name in names:
        if names.count(name) > 1:
            _refuse("sinks", f"two sinks are named {name!r}")


def _check_source(source: SourceSettings) -> None:
    if not source.tables:
        _refuse("source.tables", "no table is named; for all tables of a database: 'shop\\..*'")
    _check_patterns("source.tables", source.tables)
    _check_patterns("source.exclude_tables", source.exclude_tables)
    if source.signal_table is not None and source.signal_table.count(".") != 1:
        _refuse("source.signal_table", f"{source.signal_table!r} is not of the form database.table")
    if (source.start_at.file is None) != (source.start_at.pos is None):
        _refuse("source.start_at", "file and pos go together")
    if source.start_at.gtids is not None and source.start_at.file is not None:
        _refuse("source.start_at.gtids", "and file exclude each other; keep the GTIDs")
    if source.password and source.password_file is not None:
        _refuse("source.password_file", "password and password_file are both given; keep the file")


def _check_patterns(path: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            _refuse(path, f"{pattern!r} is not a regular expression: {error}")


def _check_kafka(kafka: KafkaSettings) -> None:
    tls, sasl = kafka.tls, kafka.sasl
    if kafka.security_protocol.startswith("SASL"):
        if sasl.username is None and "sasl.username" not in kafka.options:
            _refuse("kafka.sasl.username", f"is missing, and security_protocol is {kafka.security_protocol}")
    elif sasl.username is not None:
        _refuse("kafka.sasl", f"is not used with security_protocol: {kafka.security_protocol}; set SASL_SSL")
    if not kafka.security_protocol.endswith("SSL") and tls != KafkaTlsSettings():
        _refuse("kafka.tls", f"is not used with security_protocol: {kafka.security_protocol}; set SSL or SASL_SSL")
    if sasl.password and sasl.password_file is not None:
        _refuse("kafka.sasl.password_file", "password and password_file are both given; keep the file")
    if tls.key_password and tls.key_password_file is not None:
        _refuse("kafka.tls.key_password_file", "key_password and key_password_file are both given; keep the file")
    if (tls.cert is None) != (tls.key is None):
        _refuse("kafka.tls.key", "and cert go together; give both")


def _check_format(wire: FormatSettings) -> None:
    access = wire.registry_access
    if wire.registry is not None and "@" in wire.registry.partition("://")[2].partition("/")[0]:
        _refuse("format.registry", "credentials in the URL would be logged; put them into registry_access")
    if access.password and access.password_file is not None:
        _refuse("format.registry_access.password_file", "password and password_file are both given; keep the file")
    if access.user is None and (access.password or access.password_file is not None):
        _refuse("format.registry_access.user", "is missing, and there is a password")
    if wire.type == "avro" and wire.registry is None:
        _refuse("format.registry", "Avro needs the URL of a schema registry; without one: type: json")
    if wire.type == "avro" and wire.schemas:
        _refuse("format.schemas", "is for type: json; Avro schemas are in the registry")


def _check_records(records: RecordSettings) -> None:
    for op in records.skipped_operations:
        if op not in _OPERATIONS:
            _refuse("records.skipped_operations", f"{op!r} is not one of {', '.join(_OPERATIONS)}")
    if "none" in records.skipped_operations and len(records.skipped_operations) > 1:
        _refuse("records.skipped_operations", "none stands alone")
    if records.unwrap and not records.skips("t"):
        _refuse("records.unwrap", "a truncate has no row: leave t in skipped_operations")
    if records.include_query and (
        records.masks() or records.column_include_list or records.column_exclude_list
    ):
        _refuse("records.include_query", "statements hold the values that other options mask or leave out")
    if records.column_include_list and records.column_exclude_list:
        _refuse("records.column_exclude_list", "and column_include_list exclude each other; give one of them")
    for path, patterns in (
        ("records.column_include_list", records.column_include_list),
        ("records.column_exclude_list", records.column_exclude_list),
        ("records.message_key_columns", tuple(records.message_key_columns)),
        ("records.outbox.tables", records.outbox.tables),
        ("records.column_propagate_source_type", records.column_propagate_source_type),
        ("records.datatype_propagate_source_type", records.datatype_propagate_source_type),
        *((path, patterns) for path, patterns, _ in records.masks()),
    ):
        _check_patterns(path, patterns)
    if records.outbox.tables and "${routedByValue}" not in records.outbox.topic:
        _refuse("records.outbox.topic", "needs ${routedByValue}, which `route_by` fills in")
    if records.outbox.tables and records.skips("c"):
        _refuse("records.outbox.tables", "an event is an inserted row: leave c out of skipped_operations")
    if records.heartbeat_action_query is not None and not records.heartbeat_interval_ms:
        _refuse("records.heartbeat_action_query", "is never run: set records.heartbeat_interval_ms as well")


def _check_snapshot(snapshot: SnapshotSettings) -> None:
    if snapshot.mode == "recovery":
        _refuse(
            "snapshot.mode",
            "recovery rebuilds Debezium's schema history, and there is none here: the log itself says which "
            "columns its rows have. Use no_data, or when_needed where the server may have lost its log",
        )
    flags = snapshot.configuration_based
    if snapshot.mode == "configuration_based" and not (flags.snapshot_data or flags.start_stream):
        _refuse(
            "snapshot.configuration_based",
            "neither reads tables nor follows the log: set snapshot_data, start_stream or both",
        )
    if snapshot.mode != "configuration_based" and flags != SnapshotFlags():
        _refuse("snapshot.configuration_based", f"says nothing with snapshot.mode: {snapshot.mode}")


def _check_signal(signal: SignalSettings) -> None:
    for channel in signal.channels:
        if channel in ("jmx", "in-process"):
            _refuse("signal.channels", f"{channel!r} is a channel of Java processes; use kafka or file")
        if channel not in _CHANNELS:
            _refuse("signal.channels", f"{channel!r} is not one of {', '.join(_CHANNELS)}")
    if ("file" in signal.channels) != (signal.file is not None):
        _refuse("signal.file", "the channel `file` and the name of the file go together; give both")
    if signal.kafka_topic is not None and "kafka" not in signal.channels:
        _refuse("signal.kafka_topic", "is never read: add kafka to signal.channels")


def _refuse(path: str, reason: str) -> typing.NoReturn:
    message = f"{path}: {reason}"
    raise ConfigError(message)


# --- from a mapping to dataclasses ------------------------------------------------------------------------


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _build(kind: type, value: object, path: str) -> object:
    if not isinstance(value, Mapping):
        _refuse(path or "configuration", f"expected a mapping of keys, got {_kind(value)}")
    known = {item.name: item for item in _fields(kind)}
    for key in value:
        if key not in known:
            name = _key_alone(str(key))
            if value[key] is None and name != str(key):
                _refuse(_join(path, name), "its colon needs a blank behind it, else what follows is a part of the key")
            _unknown(str(key), known, path)
    built = {key: _member(kind, known[key], given, _join(path, key)) for key, given in value.items()}
    for name, item in known.items():
        if name in built:
            _check_bounds(item, built[name], _join(path, name))
        elif item.default is MISSING and item.default_factory is MISSING:
            _refuse(_join(path, name), f"is missing: {item.metadata['help']}")
    return kind(**built)


def _member(kind: type, item: Field[Any], value: object, path: str) -> object:
    """The value of one key; what is wrong with a secret is said without showing it."""
    try:
        return _convert(_hints(kind)[item.name], value, path)
    except ConfigError as error:
        if not item.metadata["secret"]:
            raise
        message = f"{str(error).partition(', got ')[0]}, got something else"
        raise ConfigError(message) from None


def _fields(kind: type) -> tuple[Field[Any], ...]:
    return fields(kind)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _unknown(key: str, known: Mapping[str, object], path: str) -> typing.NoReturn:
    where = f" in {path}" if path else ""
    message = f"{_join(path, key)}: unknown key {key!r}{where}; {_nearest(key, known)}"
    raise ConfigError(message)


def _nearest(key: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(key.lower(), list(known), n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid keys: {', '.join(known)}"


def _key_alone(key: str) -> str:
    """A key without what stands in it behind its name: the value, where a blank is missing, and that may be a password."""
    return re.split(r"[:=\s]", key, maxsplit=1)[0]


def _kind(value: object) -> str:
    """What a value is, without the value: that of a section may hold secrets."""
    return "nothing" if value is None else type(value).__name__


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {value!r}"


def _alternatives(kind: object) -> tuple[object, ...]:
    """The members of an optional type without None; the type itself otherwise."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(part for part in get_args(kind) if part is not type(None))
    return (kind,)


def _is_optional(kind: object) -> bool:
    return get_origin(kind) in (typing.Union, types.UnionType) and type(None) in get_args(kind)


def _convert(kind: object, value: object, path: str) -> object:
    if value is None and _is_optional(kind):
        return None
    (inner,) = _alternatives(kind)
    origin = get_origin(inner)
    if origin is Literal:
        return _choice(inner, value, path)
    if origin is tuple:
        return _items(get_args(inner)[0], value, path)
    if origin is Mapping:
        return _texts(value, path)
    if isinstance(inner, type) and is_dataclass(inner):
        return _build(inner, value, path)
    return _scalar(inner, value, path)


def _scalar(kind: object, value: object, path: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, bool) if kind is bool else type(value) is kind
    if not fits:
        names = {str: "text", int: "an integer", bool: "true or false"}
        _refuse(path, f"expected {names.get(typing.cast('type', kind), str(kind))}, got {_shown(value)}")
    return value


def _choice(kind: object, value: object, path: str) -> object:
    choices = get_args(kind)
    if value not in choices:
        hint = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.5)
        nearest = f"; did you mean {hint[0]!r}?" if hint else ""
        _refuse(path, f"expected one of {', '.join(choices)}, got {_shown(value)}{nearest}")
    return value


def _items(kind: object, value: object, path: str) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _refuse(path, f"expected a list, got {_kind(value) if is_dataclass(kind) else _shown(value)}")
    return tuple(_convert(kind, item, f"{path}.{index}") for index, item in enumerate(value))


def _texts(value: object, path: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _refuse(path, f"expected a mapping, got {_shown(value)}")
    texts: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, (Mapping, list, tuple)) or item is None:
            _refuse(f"{path}.{_key_alone(str(key))}", f"expected text, got {_shown(item)}")
        texts[str(key)] = str(item).lower() if isinstance(item, bool) else str(item)
    return texts


def _check_bounds(item: Field[Any], value: object, path: str) -> None:
    minimum, maximum = item.metadata["minimum"], item.metadata["maximum"]
    if not isinstance(value, int) or isinstance(value, bool):
        return
    if minimum is not None and value < minimum:
        _refuse(path, f"{value} is below the smallest value, {minimum}")
    if maximum is not None and value > maximum:
        _refuse(path, f"{value} is above the largest value, {maximum}")


# --- from text --------------------------------------------------------------------------------------------


def _member_type(kind: object, part: str, path: str, parent: tuple[str, ...]) -> object:
    (inner,) = _alternatives(kind)
    if get_origin(inner) is tuple and part.isdigit():
        return get_args(inner)[0]
    if not (isinstance(inner, type) and is_dataclass(inner)):
        _refuse(path, f"{'.'.join(parent)} has no keys of its own")
    hints = _hints(inner)
    if part not in hints:
        _unknown(part, hints, ".".join(parent))
    return hints[part]


def _from_text(kind: object, text: str, path: str) -> object:
    if text == "" and _is_optional(kind):
        return None
    (inner,) = _alternatives(kind)
    origin = get_origin(inner)
    if inner is str or origin is Literal:
        return text
    if origin is tuple and get_args(inner)[0] is str and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        shown = repr(text) if inner in (int, bool) else "the text"  # mappings hold passwords
        message = f"{path}: cannot read {shown} as {_type_name(inner)}"
        raise ConfigError(message) from None


# --- the reference ----------------------------------------------------------------------------------------


def _describe(kind: type, path: str) -> typing.Iterator[Described]:
    for item in _fields(kind):
        hint = _hints(kind)[item.name]
        (inner,) = _alternatives(hint)
        here = _join(path, item.name)
        nested = get_args(inner)[0] if get_origin(inner) is tuple else inner
        if isinstance(nested, type) and is_dataclass(nested):
            yield from _describe(nested, here if nested is inner else f"{here}[]")
            continue
        meta = item.metadata
        yield Described(
            here, _type_name(inner), _default_text(item), meta["help"], secret=meta["secret"], file=meta["file"]
        )


def _type_name(kind: object) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return " \\| ".join(f"`{choice}`" for choice in get_args(kind))
    if origin is tuple:
        return "list"
    if origin is Mapping:
        return "mapping"
    return {str: "text", int: "integer", bool: "true or false"}.get(typing.cast("type", kind), "mapping")


def _default_text(item: Field[Any]) -> str:
    if item.default_factory is not MISSING:
        return "`{}`"
    if item.default is MISSING:
        return "required"
    if item.default in (None, "", ()):
        return "none"
    return f"`{json.dumps(item.default)}`" if not isinstance(item.default, str) else f"`{item.default}`"
