"""Codecs for table versions: schemas built, registered, and compiled into a column program, once each."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from rowcodec import BinlogLayout, RecordOptions, SourceConstants, TableCodec, WireSchemas
from schemas import avro, jsonschema, topics
from schemas.applied.shape import described, shaped
from schemas.columns import TableSchema
from schemas.connect_types import SOURCE_VERSION, Connector, ValueModes
from schemas.errors import ConfigError
from schemas.types import connect

if TYPE_CHECKING:
    from schemas.settings import FormatSettings, RecordSettings, Settings


_IDENTITY_WIRE: Final = WireSchemas(format="json")
_IDENTITY_OPTIONS: Final = RecordOptions(tombstones=False)
_AVRO_HEADER: Final = 5


class SchemaRegistrar(Protocol):
    """The registry that gives schemas their ids."""

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema under a subject."""


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """What distinguishes the rows of a table: record keys, after their first `skip` bytes.

    They are those of the records themselves, or those that `codec` gives for the same rows. They are the same for
    rows of the log and of a chunk, whatever schema ids the two have. `is_silent`: the log may change a row without
    a record of it, since no published column changed.
    """

    codec: TableCodec | None
    skip: int
    is_silent: bool = False


class CodecFactory:
    """Makes the codec of a table version; log and chunks of one version share schema ids. Thread-safe."""

    def __init__(
        self,
        prefix: str,
        connector: Connector,
        wire: FormatSettings,
        registry: SchemaRegistrar | None,
        records: RecordSettings | None = None,
        signal_table: tuple[str, str] | None = None,
        delimiter: str = topics.DELIMITER,
        *,
        exact: bool = False,
    ) -> None:
        """`exact`: what an envelope cannot say of a row is in headers, and no update is skipped: NULL may have been a date."""
        self._prefix = prefix
        self._delimiter = delimiter
        self._connector = connector
        self._format = wire
        self._registry = registry
        self._modes = _modes_of(wire, delimiter)
        self._constants = SourceConstants(SOURCE_VERSION, connector, prefix, self._modes)
        self._records = records
        self._signal_table = signal_table
        options = RecordOptions() if records is None else _options(records)
        self._options = replace(options, exact=exact, skip_unchanged=options.skip_unchanged and not exact)
        self._shaped: dict[TableSchema, TableSchema] = {}
        self._schemas: dict[TableSchema, WireSchemas] = {}
        self._codecs: dict[tuple[TableSchema, BinlogLayout | None], TableCodec] = {}
        self._identities: dict[tuple[TableSchema, BinlogLayout | None], TableCodec] = {}
        self._lock = threading.Lock()

    def codec(self, table: TableSchema, layout: BinlogLayout | None = None) -> TableCodec:
        """Return the codec of a table version: for log rows with a layout, for chunk rows without one."""
        with self._lock:
            codec = self._codecs.get((table, layout))
            if codec is None:
                version = self._shape(table)
                codec = TableCodec(version, layout, self._wire(version), self._constants, self._options)
                self._codecs[table, layout] = codec
            return codec

    def schema_ids(self, table: TableSchema) -> tuple[int | None, int]:
        """Return the registry's ids of the schemas of a table's keys (None without a key) and values."""
        with self._lock:
            wire = self._wire(self._shape(table))
        return wire.key_id or None, wire.value_id

    def identity(self, table: TableSchema, layout: BinlogLayout | None = None) -> RowIdentity:
        """Return what distinguishes the table's rows: for log rows with a layout, for chunk rows without one.

        It rests on what every TABLE_MAP reports: the primary key, without one all columns.
        """
        keyed, options, is_silent = self._shape(table), _IDENTITY_OPTIONS, False
        if table.primary_key and set(table.primary_key) <= set(keyed.record_key):
            if self._format.type == "avro":
                return RowIdentity(None, _AVRO_HEADER)
            if not self._format.schemas:
                return RowIdentity(None, 0)
            options = replace(options, skip_unchanged=self._options.skip_unchanged)
        else:
            columns = table.primary_key or tuple(column.name for column in table.columns)
            keyed, is_silent = replace(table, message_key=columns), self._options.skip_unchanged
        with self._lock:
            codec = self._identities.get((table, layout))
            if codec is None:
                codec = TableCodec(keyed, layout, _IDENTITY_WIRE, self._constants, options)
                self._identities[table, layout] = codec
        return RowIdentity(codec, 0, is_silent)

    def _shape(self, table: TableSchema) -> TableSchema:
        """Return the table as the column options make it, the signal table only described; `ConfigError` where they do not fit."""
        if self._records is None:
            return table
        if (table.database, table.name) == self._signal_table:
            return described(table, self._records)
        known = self._shaped.get(table)
        if known is None:
            known = self._shaped[table] = shaped(table, self._records)
        return known

    def _wire(self, table: TableSchema) -> WireSchemas:
        wire = self._schemas.get(table)
        if wire is None:
            wire = self._schemas[table] = self._build(table)
        return wire

    def _build(self, table: TableSchema) -> WireSchemas:
        key = connect.key_schema(table, self._prefix, self._modes)
        if self._options.unwrap:
            value = connect.flat_schema(table, self._prefix, self._modes)
        else:
            value = connect.value_schema(table, self._prefix, self._connector, self._modes)
        if self._modes.field_names != "none":
            avro.require_distinct_field_names(
                table.full_name, (column.name for column in table.columns), self._modes.field_names
            )
        if self._format.type == "avro":
            if self._registry is None:
                message = "format.registry: Avro needs the URL of a schema registry"
                raise ConfigError(message)
            topic = topics.change_topic(self._prefix, table.database, table.name, self._delimiter)
            key_id = 0
            if key is not None:
                key_id = self._registry.register(topics.key_subject(topic), avro.to_avro(key))
            value_id = self._registry.register(topics.value_subject(topic), avro.to_avro(value))
            return WireSchemas(format="avro", key_id=key_id, value_id=value_id)
        if not self._format.schemas:
            return WireSchemas(format="json")
        return WireSchemas(
            format="json_schema",
            key_schema_json=None if key is None else _compact(jsonschema.to_json_schema(key)),
            value_schema_json=_compact(jsonschema.to_json_schema(value)),
        )


def _options(records: RecordSettings) -> RecordOptions:
    return RecordOptions(
        tombstones=records.tombstones,
        skip_unchanged=records.skip_messages_without_change,
        transactions=records.provide_transaction_metadata,
        unwrap=records.unwrap,
    )


def _compact(schema: object) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def schema_texts(table: TableSchema, settings: Settings) -> tuple[str | None, str]:
    """Return the Avro text of a table's keys (None without a key) and of its values, as they are registered."""
    modes = _modes_of(settings.format, settings.kafka.topic_delimiter)
    version = shaped(table, settings.records)
    key = connect.key_schema(version, settings.name, modes)
    value = connect.value_schema(version, settings.name, "mysql", modes)
    return None if key is None else avro.to_avro(key), avro.to_avro(value)


def _modes_of(wire: FormatSettings, delimiter: str) -> ValueModes:
    return ValueModes(
        wire.decimal,
        wire.bigint_unsigned,
        wire.binary,
        wire.time,
        wire.schema_names,
        wire.field_names,
        delimiter,
    )
