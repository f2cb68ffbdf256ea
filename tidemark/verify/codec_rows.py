"""Rows of a source table as the merge job decodes them: a condition enters, tables of Arrow leave.

They are read by the codec that writes the records of a snapshot, and decoded as the merge job decodes those, without Kafka and
without a registry. So an expression gets the values that it gets there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mysqlio.binary_query import BinaryQuery
from mysqlio.connection import close_quietly, connect, server_version
from mysqlio.information_schema import read_table_schema
from mysqlio.result_columns import require_columns
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import flavour_of
from producer.snapshot.ranges import rows_query
from producer.snapshot.reader import shown_by_star
from rowcodec import ChunkContext
from rowcodec.codec_factory import CodecFactory
from schemas import topics
from schemas.errors import DecodeError, RetriableSourceError, SourceError, TidemarkError, UnsupportedTypeError
from schemas.position import Position
from spark_jobs.arrow.arrow_decoder import REASONS, ArrowDecoder
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.loads.chunk_source import arrays_of
from spark_jobs.pipeline.preview import layout_of_schemas
from tidemark.verify.column_rule import NO_KEY, IncomparableError
from tidemark.verify.source import GONE

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.columns import TableSchema
    from schemas.settings import Settings

_KEY_ID: Final = 1
_VALUE_ID: Final = 2
_NOWHERE: Final = Position(1, 1, 4)
_NO_PARTITION: Final = 0


class CodecRows:
    """The rows of one table, as it is defined when this is made. Any thread may read; each reading has a connection of its own.

    Raises `IncomparableError` for a table that has no records or whose records only the JVM decodes, `SourceError` where the
    source cannot be read.
    """

    def __init__(self, settings: Settings, database: str, name: str) -> None:
        self._settings = settings
        self._names = (database, name)
        connection = connect(ServerAccess.of(settings.source))
        try:
            self._table = self._definition(connection)
            schemas = _Schemas()
            self._codec = _codecs(settings, connection, schemas).codec(self._table)
        except UnsupportedTypeError as error:
            raise IncomparableError(str(error)) from error
        finally:
            close_quietly(connection)
        key = schemas.texts.get(_KEY_ID)
        if key is None:
            raise IncomparableError(NO_KEY)
        self.layout: TableLayout = layout_of_schemas(key, schemas.texts[_VALUE_ID])
        """The columns, as the merge job has them of a table that was never altered."""
        try:
            self._decoder = ArrowDecoder(DecoderPlan.of(self.layout))
        except UnsupportedTypeError as error:
            raise IncomparableError(f"its rows cannot be decoded here: {error}") from error

    def read(self, rest: str) -> Iterator[pa.Table]:
        """Yield the rows with the columns of the layout, in blocks of some MB; `rest` is what follows the table in SELECT.

        `RetriableSourceError` where the table was altered since.
        """
        connection = connect(ServerAccess.of(self._settings.source))
        try:
            if self._definition(connection) != self._table:
                raise RetriableSourceError(f"{'.'.join(self._names)} was altered meanwhile")
            query = rows_query(self._table, rest, shown_by_star(connection, self._table))
            yield from self._blocks(connection, query)
        except SourceError:
            raise
        except TidemarkError as error:
            raise IncomparableError(str(error)) from error
        finally:
            close_quietly(connection)

    def _blocks(self, connection: Connection, sql: str) -> Iterator[pa.Table]:
        now_ns = time.time_ns()
        context = ChunkContext(
            position=_NOWHERE.text, snapshot="true", ts_us=now_ns // 1000, file="", pos=_NOWHERE.offset, gtid=None, now_ns=now_ns
        )
        with BinaryQuery(connection, sql) as query:
            require_columns(self._table, query.columns)
            for buf, start, end in query.blocks():
                yield self._decoded(*arrays_of(self._codec.encode_resultset(buf, start, end, context)))

    def _decoded(self, keys: pa.Array, values: pa.Array) -> pa.Table:
        judged = self._decoder.judge(keys, values, is_snapshot=True, partitions=_NO_PARTITION)
        if not judged.good.all():
            code = int(judged.reasons[~judged.good][0])
            raise DecodeError(f"a row cannot be merged: {REASONS.get(code, 'its record is none')}")
        names = [name for name in self._decoder.schema.names if name not in (POSITION, DELETED)]
        return self._decoder.columns(judged, np.arange(len(values)), names)

    def _definition(self, connection: Connection) -> TableSchema:
        table = read_table_schema(connection, *self._names)
        if table is None:
            raise IncomparableError(GONE)
        return table


class _Schemas:
    """In the registry's place where codecs are made."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def register(self, subject: str, schema: str) -> int:
        """Return the number of a key's schema or a value's, and keep the schema."""
        number = _KEY_ID if subject.endswith(topics.key_subject("")) else _VALUE_ID
        self.texts[number] = schema
        return number


def _codecs(settings: Settings, connection: Connection, schemas: _Schemas) -> CodecFactory:
    wire = replace(settings.format, type="avro", schemas=False)
    connector = flavour_of(server_version(connection))
    delimiter = settings.kafka.topic_delimiter
    return CodecFactory(settings.name, connector, wire, schemas, settings.records, settings.source.signal_names, delimiter)
