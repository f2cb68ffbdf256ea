"""Transactions of a source that are not applied, because a person has named them.

Nothing of it is kept: which events are left out follows from the settings and the log. So a start that reads a transaction again
leaves out the same events of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from schemas.position import Position

log = structlog.get_logger()

_PREFIX: Final = len(Position.MINIMUM.prefix)


class SkippedTransactions:
    """The `names`, GTIDs and positions, of transactions of one source that are not applied."""

    def __init__(self, source: str, names: Sequence[str]) -> None:
        self._source = source
        gtids = [name for name in names if "." not in name]
        self._by_gtid = {name.lower().encode(): name for name in gtids}
        self._by_position = {name[:_PREFIX]: name for name in names if "." in name}
        self.read: set[str] = set()
        """The names of transactions that were read."""

    def has(self, prefix: str, text: bytes, gtid: Callable[[], str | None]) -> bool:
        """Return whether the transaction at a position is one of them. A record of it has the `text`, which contains its `gtid`."""
        name = self._by_position.get(prefix)
        if name is None and any(one in text for one in self._by_gtid):
            name = self._by_gtid.get((gtid() or "").encode())
        if name is None:
            return False
        if name not in self.read:
            self.read.add(name)
            log.warning("apply.transaction_skipped", source=self._source, transaction=name, position=prefix)
        return True
