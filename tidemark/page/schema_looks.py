"""The histories of all tables' columns, read from the schema-change topic when somebody asks, and kept for some seconds."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from schemas.identity import TableName
from tidemark.api.schema_history import SchemaHistory, difference, history_of
from tidemark.api.schema_reader import SchemaTopic, read_schema_topic

if TYPE_CHECKING:
    from schemas.settings import Settings

_KEPT_S: Final = 15.0
_ID: Final = re.compile(r'"(.*)"\."(.*)"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SchemaLook:
    """The topic at one moment: the tables that it names, and the history of each. `missing` says why there is none, else ""."""

    topic: SchemaTopic
    tables: tuple[TableName, ...]

    @property
    def missing(self) -> str:
        """Why nothing is known of any table."""
        return self.topic.missing

    def history(self, table: str) -> SchemaHistory | None:
        """Return the history of a table (`database.table`), None for one that the topic does not name."""
        named = next((one for one in self.tables if one.plain == table), None)
        return None if named is None else history_of(named, self.topic.records, is_complete=self.topic.is_complete)


class SchemaLooks:
    """Reads the topic, at most once in 15 seconds. For threads of requests: `look` may take as long as Kafka does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._seen: tuple[float, SchemaLook] | None = None
        self._versions: Mapping[str, int] = {}

    def look(self) -> SchemaLook:
        """Return what the topic says; the errors are those of `read_schema_topic`."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > _KEPT_S:
                topic = read_schema_topic(self._settings)
                self._seen = time.monotonic(), SchemaLook(topic, _named(topic))
                histories = (self._seen[1].history(one.plain) for one in self._seen[1].tables)
                self._versions = {one.table: one.version for one in histories if one is not None and one.version is not None}
            return self._seen[1]

    def versions(self) -> Mapping[str, int]:
        """Return the version of each table's columns; errors as `look`."""
        self.look()
        return self._versions


def _named(topic: SchemaTopic) -> tuple[TableName, ...]:
    """Return the tables that the records name, each once, in the order of their names."""
    found = set()
    for record in topic.records:
        for change in record.get("tableChanges") or ():
            if (match := _ID.fullmatch(str(change.get("id")))) is not None:
                found.add(TableName(match[1], match[2]))
    return tuple(sorted(found, key=lambda one: one.plain))


def history_document(history: SchemaHistory) -> dict[str, Any]:
    """Return a history, newest first, each version with what it has that the one before had not."""
    events, last = [], None
    for event in history.events:
        columns = event.columns
        events.append(
            {
                "kind": event.kind,
                "ddl": event.ddl,
                "version": event.version,
                "committed_ms": event.committed_ms,
                "file": event.file,
                "pos": event.pos,
                "gtid": event.gtid,
                "columns": None if columns is None else columns.document,
                "difference": None if columns is None or last is None else difference(last, columns).document,
            }
        )
        last = columns or last
    return {"table": history.table, "version": history.version, "is_complete": history.is_complete, "events": events[::-1]}
