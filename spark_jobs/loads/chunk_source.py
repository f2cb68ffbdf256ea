"""The reader of chunks in executors: a load marker enters, finished records leave, as blocks of Arrow arrays.

The records are those that a chunk reader of the producer would have written into the snapshot topic, byte for byte but for the
times of reading: the session, the definition of the table, the check of the result set and the codec are the producer's own. Only
the ids of the schemas come from the marker. That they are the schemas of the rows is checked with the registry.

No Python object is made per row: the arrays have the codec's output buffers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkaio.schema_registry import HttpRegistry
from mysqlio.binary_query import BinaryQuery
from mysqlio.connection import close_quietly, connect, server_version
from mysqlio.information_schema import read_table_schema
from mysqlio.result_columns import require_columns
from mysqlio.server_access import ServerAccess
from mysqlio.server_connector import ServerConnector
from mysqlio.server_errors import ServerError, described
from mysqlio.server_facts import flavour_of
from mysqlio.signal_table import SignalTable, insert_row
from rowcodec import ChunkContext
from rowcodec.codec_factory import CodecFactory
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import ConfigError, LoadError, LoadImpossibleError, TidemarkError, UnsupportedTypeError
from schemas.topics import GENERATION

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from rowcodec import Records
    from rowcodec.types import SnapshotMark
    from schemas.columns import TableSchema
    from schemas.loads import LoadAnswer
    from schemas.markers import LoadMarker
    from schemas.settings import Settings

Block: TypeAlias = "tuple[pa.Array, pa.Array]"
_MOST_BYTES: Final = (1 << 31) - 1
_LOCK_WAIT_S: Final = 20
"""So long a chunk waits for a table that is locked. The batch waits with it, and so does each table of the sink."""


@dataclass(frozen=True, slots=True)
class TableChunks:
    """The source of chunks, as driver and executors have it: settings only, so it can be sent. Each call connects by itself."""

    settings: Settings

    def read(self, database: str, table: str, load: LoadMarker) -> Iterator[Block]:
        """Yield keys and values of the rows of a chunk, in blocks of some MB; keys are null in a table without a key.

        Raises `LoadError` where another attempt may help, `LoadImpossibleError` where none does.
        """
        with _load_errors(f"{database}.{table}", load):
            connection = ServerConnector(lambda: connect(ServerAccess.of(self.settings.source)), load.server)()
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SET SESSION lock_wait_timeout = %s", (_LOCK_WAIT_S,))
                yield from self._blocks(connection, database, table, load)
            finally:
                close_quietly(connection)

    def answer(self, answers: Iterable[LoadAnswer]) -> None:
        """Insert the answers into the signal table of their servers; one that is there already is as good.

        `LoadError` where that fails, or where the address leads to another server by now: its log is not the one that is read.
        """
        by_server: dict[str, list[tuple[str, str, str]]] = {}
        for answer in answers:
            by_server.setdefault(answer.server, []).append(answer.row)
        names = self.settings.source.signal_names
        if not by_server:
            return
        if names is None:
            message = "source.signal_table is not set, and answers to load markers are its rows"
            raise LoadImpossibleError(message)
        for server, rows in by_server.items():
            with _load_errors("the signal table"):
                connection = ServerConnector(lambda: connect(ServerAccess.of(self.settings.source)), server)()
                try:
                    for row in rows:
                        insert_row(connection, SignalTable(*names), row)
                finally:
                    close_quietly(connection)

    def _blocks(self, connection: Connection, database: str, name: str, load: LoadMarker) -> Iterator[Block]:
        table = read_table_schema(connection, database, name)
        if table is None:
            message = f"{database}.{name} does not exist"
            raise LoadError(message)
        codec = self._codecs(connection, table, load).codec(table)
        now_ns = time.time_ns()
        context = ChunkContext(
            position=load.low.text,
            snapshot=cast("SnapshotMark", load.snapshot),
            ts_us=now_ns // 1000,
            file=load.file,
            pos=load.low.offset,
            gtid=None,
            now_ns=now_ns,
        )
        with BinaryQuery(connection, load.query) as query:
            require_columns(table, query.columns)
            for buf, start, end in query.blocks():
                yield arrays_of(codec.encode_resultset(buf, start, end, context))

    def _codecs(self, connection: Connection, table: TableSchema, load: LoadMarker) -> CodecFactory:
        """Return the codecs of a table with the marker's ids, which are of these columns."""
        settings = self.settings
        topic = topics.change_topic(settings.name, table.database, table.name, settings.kafka.topic_delimiter)
        marked = MarkedSchemas(
            {topics.key_subject(topic): load.key_schema, topics.value_subject(topic): load.value_schema}
        )
        codecs = CodecFactory(
            settings.name,
            flavour_of(server_version(connection)),
            settings.format,
            marked,
            settings.records,
            settings.source.signal_names,
            settings.kafka.topic_delimiter,
        )
        codecs.codec(table)
        marked.check(self._registered)
        return codecs

    def _registered(self, subject: str, ident: int) -> str:
        """Return the schema of an id in a subject."""
        wire = self.settings.format
        found = HttpRegistry(wire.registry or "", RegistryAccess.of(wire)).versions(subject)
        for one in found:
            if one.id == ident:
                return one.text
        message = f"the registry has no schema {ident} of {subject}"
        raise LoadError(message)


@dataclass(slots=True)
class MarkedSchemas:
    """In the registry's place where codecs are made: it gives the ids of a marker, and remembers for which schemas."""

    ids: Mapping[str, int | None]
    schemas: dict[str, str] = field(default_factory=dict)

    def register(self, subject: str, schema: str) -> int:
        """Return the marker's id for the subject; `LoadError` where it has none: the table is not the one that was meant."""
        ident = self.ids.get(subject)
        if ident is None:
            message = f"the load marker has no schema of {subject}: the table has changed since"
            raise LoadError(message)
        self.schemas[subject] = schema
        return ident

    def check(self, registered: Any) -> None:
        """Raise `LoadError` unless the ids are those of the schemas that the table has now, and none is left over."""
        for subject, ident in self.ids.items():
            schema = self.schemas.get(subject)
            if ident is None and schema is None:
                continue
            if ident is None or schema is None or _meaning(registered(subject, ident)) != _meaning(schema):
                message = f"schema {ident} of {subject} is not that of the columns as they are now: the table has changed since"
                raise LoadError(message)


def _meaning(schema: str) -> Any:
    """Return an Avro schema without what only distinguishes it from itself."""
    document = json.loads(schema)
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if name != GENERATION}


def arrays_of(records: Records) -> Block:
    """Return keys and values; both have the codec's bytes as they are."""
    values = _binary(records.values, records.value_offsets, records.count)
    if not records.has_key:
        return pa.nulls(records.count, pa.binary()), values
    return _binary(records.keys, records.key_offsets, records.count), values


def _binary(data: bytes, offsets: npt.NDArray[np.int64], count: int) -> pa.Array:
    if int(offsets[count]) > _MOST_BYTES:
        message = f"a row of {int(offsets[count]):,} bytes is too large for a block"
        raise LoadImpossibleError(message)
    narrow = offsets[: count + 1].astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(narrow), pa.py_buffer(data)])


@contextmanager
def _load_errors(what: str, load: LoadMarker | None = None) -> Iterator[None]:
    """Turn every expected error into a `LoadError` that says what was read."""
    where = what if load is None else f"{what}, chunk {load.chunk}"
    try:
        yield
    except LoadError:
        raise
    except (UnsupportedTypeError, ConfigError) as error:
        raise LoadImpossibleError(f"{where}: {error}") from error
    except (TidemarkError, ServerError, OSError) as error:
        raise LoadError(f"{where}: {described(error)}") from error
