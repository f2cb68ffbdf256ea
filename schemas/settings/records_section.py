"""The section `records`: which records a change becomes, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.columns import Mask
from schemas.settings.declaration import check_patterns, checking, compiled, found_by, problem, setting
from schemas.settings.text_forms import outbox_topic, plain

_OPERATIONS: Final = ("c", "u", "d", "t", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMaskSettings:
    """Columns whose texts are hashed."""

    algorithm: str = setting("SHA-256", help="hash algorithm, by Java's name")
    salt: str = setting(help="what is hashed before the text", secret=True)
    columns: tuple[str, ...] = setting(help="patterns of the columns that are hashed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CharsMaskSettings:
    """Columns whose texts become asterisks, or are truncated."""

    chars: int = setting(help="how many characters are left, or asterisks written", minimum=0)
    columns: tuple[str, ...] = setting(help="patterns of the columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """Tables whose inserted rows are events, as Debezium's outbox event router takes them."""

    tables: tuple[str, ...] = setting(
        (), help="patterns of `database.table`, captured tables: each inserted row is also an event in a topic of its own"
    )
    id: str = setting("id", help="column of the event's id, the header `id`", form=plain)
    key: str = setting("aggregateid", help="column of the record key", form=plain)
    payload: str = setting("payload", help="column of the record value, written as it is", form=plain)
    route_by: str = setting("aggregatetype", help="column that names the topic", form=plain)
    topic: str = setting(
        "outbox.event.${routedByValue}", help="the topic; `${routedByValue}` is the value of `route_by`", form=outbox_topic
    )

    def holds(self, database: str, table: str) -> bool:
        """Return whether a table is an outbox."""
        return any(compiled(pattern).fullmatch(f"{database}.{table}") for pattern in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Which records a change becomes, and what is in them; names and meaning are Debezium's."""

    tombstones: bool = setting(
        default=True, help="whether a record without value follows each delete (`tombstones.on.delete`)"
    )
    skipped_operations: tuple[str, ...] = setting(
        ("t",),
        help="log events that are not published: `c`, `u`, `d`, `t` (truncate), or `none`; the signal table's always are",
    )
    skip_messages_without_change: bool = setting(
        default=False, help="leave out updates that change no published column; with `order.group` all are published"
    )

    provide_transaction_metadata: bool = setting(
        default=False, help="transaction blocks in envelopes, BEGIN and END in `<name>.transaction`"
    )

    heartbeat_interval_ms: int = setting(
        0,
        help="milliseconds from one record in `__debezium-heartbeat.<name>` to the next; 0: none",
        minimum=0,
        maximum=86_400_000,
    )
    heartbeat_action_query: str | None = setting(
        None, help="SQL that is run on the source with each heartbeat, on a connection of its own"
    )

    column_include_list: tuple[str, ...] = setting(
        (), help="patterns of `database.table.column`: only these columns are in rows; keys keep theirs"
    )
    column_exclude_list: tuple[str, ...] = setting((), help="patterns of columns that are not in rows")
    column_mask_hash_v2: tuple[HashMaskSettings, ...] = setting(
        (), help="`column.mask.hash.v2.<algorithm>.with.salt.<salt>`, in keys too"
    )
    column_mask_with_chars: tuple[CharsMaskSettings, ...] = setting(
        (), help="`column.mask.with.<chars>.chars`; NULL stays NULL"
    )
    column_truncate_to_chars: tuple[CharsMaskSettings, ...] = setting(
        (), help="`column.truncate.to.<chars>.chars`"
    )
    message_key_columns: Mapping[str, str] = setting(
        {}, help="pattern of `database.table` to the columns of its record key, separated by commas"
    )

    @property
    def shapes_columns(self) -> bool:
        """Return whether any option changes which columns are written, or how, or the key."""
        return bool(
            self.column_include_list or self.column_exclude_list or self.message_key_columns or self.masks()
        )

    def masks(self) -> tuple[tuple[str, tuple[str, ...], Mask], ...]:
        """Return every mask as (setting, patterns, mask), in the order of the tree."""
        hashes = [
            (item.columns, Mask("hash", algorithm=item.algorithm, salt=item.salt))
            for item in self.column_mask_hash_v2
        ]
        asterisks = [(item.columns, Mask("asterisks", item.chars)) for item in self.column_mask_with_chars]
        truncated = [(item.columns, Mask("truncate", item.chars)) for item in self.column_truncate_to_chars]
        return (
            *(("records.column_mask_hash_v2", *item) for item in hashes),
            *(("records.column_mask_with_chars", *item) for item in asterisks),
            *(("records.column_truncate_to_chars", *item) for item in truncated),
        )

    include_schema_changes: bool = setting(
        default=True, help="DDL statements, and what their tables look like after them, in the topic `<name>`"
    )

    include_schema_comments: bool = setting(
        default=False,
        help="comments of columns as `doc` of their fields, and those of tables and columns in the topic `<name>`",
    )
    column_propagate_source_type: tuple[str, ...] = setting(
        (),
        help="patterns of `database.table.column`: the schemas of these fields have type, length and scale of the column, in "
        "parameters `__debezium.source.column.…`",
    )
    datatype_propagate_source_type: tuple[str, ...] = setting(
        (), help="the same, by patterns of `database.table.TYPE`, for example `.+\\.DECIMAL( UNSIGNED)?`"
    )

    include_query: bool = setting(
        default=False,
        help="the statement in `source.query`; the server must log it (`binlog_rows_query_log_events`, MariaDB "
        "`binlog_annotate_row_events`)",
    )

    unwrap: bool = setting(
        default=False,
        help="flat rows with `__deleted`, `__op` and `__source_ts_ms` instead of envelopes; they cannot be merged",
    )

    outbox: OutboxSettings = setting(OutboxSettings(), help="tables whose rows are events")

    def skips(self, op: str) -> bool:
        """Return whether log events of that operation are not published."""
        return op in self.skipped_operations


@checking
def check_records(records: RecordSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    for op in records.skipped_operations:
        if op not in _OPERATIONS:
            yield problem("records.skipped_operations", f"{op!r} is not one of {', '.join(_OPERATIONS)}")
    if "none" in records.skipped_operations and len(records.skipped_operations) > 1:
        yield problem("records.skipped_operations", "none excludes every other operation")
    if records.unwrap and not records.skips("t"):
        yield problem("records.unwrap", "a truncate has no row: leave t in skipped_operations")
    if records.include_query and (
        records.masks() or records.column_include_list or records.column_exclude_list
    ):
        yield problem("records.include_query", "statements hold the values that other options mask or leave out")
    if records.column_include_list and records.column_exclude_list:
        yield problem("records.column_exclude_list", "and column_include_list exclude each other; give one of them")
    for path, patterns in (
        ("records.column_include_list", records.column_include_list),
        ("records.column_exclude_list", records.column_exclude_list),
        ("records.message_key_columns", tuple(records.message_key_columns)),
        ("records.outbox.tables", records.outbox.tables),
        ("records.column_propagate_source_type", records.column_propagate_source_type),
        ("records.datatype_propagate_source_type", records.datatype_propagate_source_type),
        *((path, patterns) for path, patterns, _ in records.masks()),
    ):
        yield from found_by(check_patterns, path, patterns)
    if records.outbox.tables and "${routedByValue}" not in records.outbox.topic:
        yield problem("records.outbox.topic", "needs ${routedByValue}, which `route_by` fills in")
    if records.outbox.tables and records.skips("c"):
        yield problem("records.outbox.tables", "an event is an inserted row: leave c out of skipped_operations")
    if records.heartbeat_action_query is not None and not records.heartbeat_interval_ms:
        yield problem("records.heartbeat_action_query", "is never run: set records.heartbeat_interval_ms as well")
