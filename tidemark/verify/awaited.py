"""Which rows are on their way to a table of the sink, as the producer's documents and the merge job's progress report."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from schemas.errors import TidemarkError
from tidemark.api.observe import Observer

if TYPE_CHECKING:
    from schemas.settings import Settings


class AwaitedRows:
    """Asks Kafka when it is called, from any thread; connects at the first question."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._observer: Observer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer is not None:
            self._observer.close()

    def __call__(self, table: str) -> str:
        """Return why rows of the table are still to come; "" where none are. What cannot be asked is not known to be nothing."""
        try:
            with self._lock:
                if self._observer is None:
                    self._observer = Observer(self._settings)
                status = self._observer.read()
        except TidemarkError as error:
            return f"whether it is being read again is not known: {error}"
        return next((one.awaited for one in status.tables if one.table == table), "")
