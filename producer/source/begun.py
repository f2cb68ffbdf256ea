"""The first event of a transaction, as proof that a log still has that transaction (pure)."""

from __future__ import annotations

from typing import NamedTuple


class Begun(NamedTuple):
    """The beginning of a transaction in the log: `pos` is the offset of its first event, `checksum` the CRC32 of that."""

    file: str
    pos: int
    gtid: str | None
    ts_us: int | None
    checksum: int
