"""The histories of all tables' columns, read from the schema-change topic when somebody asks, and kept for some seconds."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from schemas.errors import PublishError, TidemarkError
from schemas.identity import TableName
from schemas.json_codec import encode
from tidemark.api.schema_history import SchemaHistory, TableColumns, difference, histories_of
from tidemark.api.schema_reader import SchemaReader, SchemaTopic

if TYPE_CHECKING:
    from schemas.settings import Settings

_KEPT_S: Final = 15.0
_PATIENCE_S: Final = 5.0
_ID: Final = re.compile(r'"(.*)"\."(.*)"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SchemaHistories:
    """The topic at one moment: the histories of the tables that it names. `missing` says why there are none, else "".

    It was read from `read_ms` on, by the clock of this machine.
    """

    histories: Mapping[str, SchemaHistory]
    missing: str
    read_ms: int

    def history(self, table: str) -> SchemaHistory | None:
        """Return the history of a table (`database.table`), None for one that the topic does not name."""
        return self.histories.get(table)

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of each table's columns, where it has some."""
        return {name: one.version for name, one in self.histories.items() if one.version is not None}


class KeptSchemas:
    """Reads the topic, at most once in 15 seconds, also where that fails. For threads: `latest` may take as long as Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._reader: SchemaReader | None = None
        self._seen: tuple[float, SchemaHistories | TidemarkError] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock.acquire(timeout=_PATIENCE_S):
            self._close()

    def latest(self) -> SchemaHistories:
        """Return what the topic says; the errors are those of `SchemaReader.read`, `PublishError` also where others wait for it."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise PublishError(f"the schema-change topic is being read, for more than {_PATIENCE_S:g} s")
        try:
            if self._seen is None or time.monotonic() - self._seen[0] > _KEPT_S:
                self._seen = time.monotonic(), self._read()
            found = self._seen[1]
        finally:
            self._lock.release()
        if isinstance(found, TidemarkError):
            raise found
        return found

    def _read(self) -> SchemaHistories | TidemarkError:
        read_ms = time.time_ns() // 1_000_000
        try:
            self._reader = self._reader or SchemaReader(self._settings)
            topic = self._reader.read()
            histories = histories_of(_named(topic), topic.records)
        except TidemarkError as error:
            self._close()
            return error
        found = {table.plain: replace(one, is_complete=topic.is_complete) for table, one in histories.items()}
        return SchemaHistories(found, topic.missing, read_ms)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.__exit__(None, None, None)
        self._reader = None


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
    events: list[dict[str, Any]] = []
    last: TableColumns | None = None
    for event in history.events:
        columns = event.columns
        change = None if columns is None or last is None else encode(difference(last, columns))
        events.append({**encode(event), "difference": change})
        last = columns or last
    return {"table": history.table, "version": history.version, "is_complete": history.is_complete, "events": events[::-1]}
