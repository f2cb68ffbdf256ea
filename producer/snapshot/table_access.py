"""How tables are reached: connections to the server whose log is read, definitions, and the codecs of table versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mysqlio.connection import close_quietly
from mysqlio.server_facts import identity_of
from producer.catalog import read_table_schema
from schemas.errors import RetriableSourceError

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.kafka.codecs import RowIdentity
    from producer.source.query import Buffer
    from rowcodec import ChunkContext, Records
    from schemas.columns import TableSchema

SchemaReader = Callable[["Connection", str, str], "TableSchema | None"]


class ChunkCodec(Protocol):
    """Raw row packets in, finished records out: `rowcodec.TableCodec`."""

    def encode_resultset(self, buf: Buffer, start: int, end: int, ctx: ChunkContext) -> Records:
        """Encode whole row packets."""


class CodecSource(Protocol):
    """Codecs of table versions, cached, for all readers: `producer.kafka.codecs.CodecFactory`."""

    def codec(self, table: TableSchema) -> ChunkCodec:
        """Return the codec of this very version."""

    def identity(self, table: TableSchema) -> RowIdentity:
        """Return what identifies its rows."""

    def schema_ids(self, table: TableSchema) -> tuple[int | None, int]:
        """Return the registry's ids of the schemas of its keys and values."""


@dataclass(frozen=True, slots=True)
class TableAccess:
    """What every thread that reads tables needs. `connect` reaches the server whose log is read, in this `epoch`.

    `schemas` returns a table as it is now, None where it does not exist. `server` is the identity of that server.
    """

    connect: Callable[[], Connection]
    codecs: CodecSource
    epoch: int = 0
    schemas: SchemaReader = read_table_schema
    server: str = ""


class ServerConnector:
    """Connections to the server whose log is read, and to no other one behind the same address."""

    def __init__(self, source: Callable[[], Connection], server: str) -> None:
        self._source = source
        self._server = server

    def __call__(self) -> Connection:
        """Return a connection; `RetriableSourceError` where it leads to another server."""
        connection = self._source()
        try:
            found = identity_of(connection)
        except BaseException:
            close_quietly(connection)
            raise
        if self._server and found != self._server:
            connection.close()
            message = (
                f"a connection for chunks reached another server than {self._server}, whose log is read; "
                f"source.host must lead to one server"
            )
            raise RetriableSourceError(message)
        return connection
