"""The types of sinks that can be verified: settings of a sink enter, its reader leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from schemas.settings.database_url import DATABASES

if TYPE_CHECKING:
    from schemas.settings import Settings, SinkSettings
    from tidemark.verify.relational_reader import SinkServer
    from tidemark.verify.sink_reader import SinkReader


def _delta(settings: Settings) -> SinkReader:
    from tidemark.verify.delta_reader import DeltaReader

    return DeltaReader(settings.sink.path)


def server_of(sink: SinkSettings) -> SinkServer:
    """Return the server of a sink of a type of databases; nothing is connected to."""
    if sink.type == "postgresql":
        from tidemark.verify.postgres_rows import PostgresServer

        return PostgresServer(sink)
    from tidemark.verify.mysql_rows import MySqlServer

    return MySqlServer(sink)


def _database(settings: Settings) -> SinkReader:
    from tidemark.verify.relational_reader import RelationalReader

    return RelationalReader(server_of(settings.sink))


def _iceberg(settings: Settings) -> SinkReader:
    from tidemark.verify.iceberg_reader import IcebergReader

    return IcebergReader(settings.sink.path)


def _kafka(settings: Settings) -> SinkReader:
    sink = settings.sink
    if sink.mode == "changelog":
        raise ConfigError(f"sinks: {sink.name}: mode: a changelog has no current rows that could be compared; verify a mirror")
    from tidemark.verify.mirror_reader import MirrorReader

    return MirrorReader(settings)


READERS: Final[Mapping[str, Callable[[Settings], SinkReader]]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    **dict.fromkeys(DATABASES, _database),
    "kafka": _kafka,
}
"""How the reader of each type is opened; what it needs is imported then."""


def open_reader(settings: Settings) -> SinkReader:
    """Return the reader of the only sink of the settings; `ConfigError` for a type, or settings, with which it cannot be read."""
    sink = settings.sink
    opener = READERS.get(sink.type)
    if opener is None:
        message = f"sinks: {sink.name}: verify cannot read a sink of type {sink.type} yet, only of type {', '.join(READERS)}"
        raise ConfigError(message)
    return opener(settings)
