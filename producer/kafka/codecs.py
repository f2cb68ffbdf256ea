"""The codecs of the log: besides codecs of rows, the events of outbox tables, and the keys of headers."""

from __future__ import annotations

from producer.kafka.key_headers import KeyText, key_text
from producer.kafka.outbox_events import Outbox
from rowcodec import BinlogLayout, SourceConstants, TableCodec, WireSchemas
from rowcodec.codec_factory import CodecFactory
from schemas.columns import TableSchema
from schemas.connect_types import SOURCE_VERSION
from schemas.types import connect


class LogCodecs(CodecFactory):
    """The codecs of a producer. Thread-safe."""

    def outbox(self, table: TableSchema, layout: BinlogLayout) -> Outbox | None:
        """Return the maker of events from the rows of an outbox table; None for another table."""
        if self._records is None or not self._records.outbox.holds(table.database, table.name):
            return None
        version = self._shape(table)
        constants = SourceConstants(SOURCE_VERSION, self._connector, self._prefix)
        return Outbox(version, TableCodec(version, layout, WireSchemas("json"), constants), self._records.outbox)

    def key_text(self, table: TableSchema) -> KeyText | None:
        """Return the function that words a key of the table for a header; None for a table without a key."""
        version = self._shape(table)
        key = connect.key_schema(version, self._prefix, self._modes)
        return None if key is None else key_text(key, self._wire(version).format)
