"""The types of sinks that can be verified: settings of a sink enter, its reader leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from schemas.settings import SinkSettings
    from tidemark.verify.sink_reader import SinkReader


def _delta(sink: SinkSettings) -> SinkReader:
    from tidemark.verify.delta_reader import DeltaReader

    return DeltaReader(sink.path)


def _postgres(sink: SinkSettings) -> SinkReader:
    from tidemark.verify.postgres_rows import PostgresServer
    from tidemark.verify.relational_reader import RelationalReader

    return RelationalReader(PostgresServer(sink))


def _mysql(sink: SinkSettings) -> SinkReader:
    from tidemark.verify.mysql_rows import MySqlServer
    from tidemark.verify.relational_reader import RelationalReader

    return RelationalReader(MySqlServer(sink))


def _iceberg(sink: SinkSettings) -> SinkReader:
    from tidemark.verify.iceberg_reader import IcebergReader

    return IcebergReader(sink.path)


def _kafka(sink: SinkSettings) -> SinkReader:
    if sink.mode == "changelog":
        raise ConfigError(f"sinks: {sink.name}: mode: a changelog has no current rows that could be compared; verify a mirror")
    from tidemark.verify.delta_reader import DeltaReader

    return DeltaReader(sink.path)  # the rows that the messages of a mirror say


READERS: Final[Mapping[str, Callable[[SinkSettings], SinkReader]]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "kafka": _kafka,
}
"""How the reader of each type is opened; what it needs is imported then."""


def open_reader(sink: SinkSettings) -> SinkReader:
    """Return the reader of a sink; `ConfigError` for a type that cannot be read yet, or settings with which it cannot be."""
    opener = READERS.get(sink.type)
    if opener is None:
        message = f"sinks: {sink.name}: verify cannot read a sink of type {sink.type} yet, only of type {', '.join(READERS)}"
        raise ConfigError(message)
    return opener(sink)
