"""How tables are reached: connections to the server whose log is read, definitions, codecs of table versions, topics.

And the errors of that: which are expected, which a retry may heal, and how they are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mysqlio.information_schema import read_table_schema
from mysqlio.server_errors import ServerCode, ServerError, source_error
from schemas import topics
from schemas.errors import (
    ACCESS_ERRORS,
    FencedError,
    PublishError,
    RegistryUnavailableError,
    RetriableSourceError,
    TidemarkError,
)

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from rowcodec.codec_factory import CodecFactory
    from schemas.columns import TableSchema

EXPECTED: Final = (TidemarkError, ServerError, OSError)
SchemaReader = Callable[["Connection", str, str], "TableSchema | None"]


@dataclass(frozen=True, slots=True)
class TopicNames:
    """How the topics of tables are called: the prefix and the delimiter of the settings."""

    prefix: str
    delimiter: str = topics.DELIMITER

    def of(self, table: tuple[str, str], merge: str) -> str:
        """Return the topic of a table's snapshot rows: that of its changes where the producer merges them."""
        name = topics.change_topic if merge == "producer" else topics.snapshot_topic
        return name(self.prefix, *table, self.delimiter)


@dataclass(frozen=True, slots=True)
class TableAccess:
    """What every thread that reads tables needs. `connect` reaches the server whose log is read, in this `epoch`.

    `schemas` returns a table as it is now, None where it does not exist. `server` is the identity of that server.
    """

    connect: Callable[[], Connection]
    codecs: CodecFactory
    epoch: int = 0
    schemas: SchemaReader = read_table_schema
    server: str = ""


def heals_by_itself(error: BaseException) -> bool:
    """Return whether source or Kafka was unreachable, not ready or short of something: waited for longer than a wrong query."""
    if isinstance(error, ServerError):
        if _is_read_only(error):
            return True
        error = source_error(error, "the source")
    outages = (RetriableSourceError, PublishError, FencedError, RegistryUnavailableError, OSError, *ACCESS_ERRORS)
    return isinstance(error, outages)


def _is_read_only(error: ServerError) -> bool:
    """Return whether the source takes no rows at present: before a switch-over, or with its disk full at some providers."""
    code, text = (*error.args, 0, "")[:2]
    return code == ServerCode.READ_ONLY_MODE or (code == ServerCode.OPTION_PREVENTS_STATEMENT and "read-only" in str(text))
