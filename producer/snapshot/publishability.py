"""Which tables cannot be published at present, and why (pure)."""

from __future__ import annotations

from producer.snapshot.snapshot_state import TableTask
from schemas.errors import is_of_one_table


class Publishability:
    """Tables that are set aside, as the log reader says, and those that readers found to be unfit since.

    `sets_aside` says whether a table that cannot be published is set aside, or stops the producer.
    """

    def __init__(self, *, sets_aside: bool) -> None:
        self._sets_aside = sets_aside
        self._aside: dict[str, str] = {}
        self._found: dict[str, str] = {}

    def __contains__(self, table: str) -> bool:
        """Whether the table is set aside."""
        return table in self._aside

    @property
    def has_aside(self) -> bool:
        """Whether any table is set aside."""
        return bool(self._aside)

    @property
    def has_found(self) -> bool:
        """Whether a table waits to be set aside by the log reader."""
        return bool(self._found)

    def set_aside(self, table: str, reason: str) -> None:
        """Remember why nothing of the table is read."""
        self._aside[table] = reason

    def take_up(self, table: str) -> None:
        """Forget the reason: the table can be published again."""
        self._aside.pop(table, None)

    def reason(self, table: str) -> str:
        """Return why nothing is read of a table that is set aside."""
        return f"{table} is set aside: {self._aside[table]}"

    def find(self, task: TableTask, error: BaseException, words: str) -> bool:
        """Return whether a table is set aside for such an error; if so, the log reader will do it."""
        if not (self._sets_aside and is_of_one_table(error)):
            return False
        self._found[task.table] = words
        return True

    def drain_found(self) -> dict[str, str]:
        """Return the tables found to be unfit, and why; each once."""
        found, self._found = self._found, {}
        return found
