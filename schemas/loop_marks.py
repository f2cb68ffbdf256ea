"""Loop marks: a task with a channel marks all that it writes into its target, and the producer of the target leaves it out (pure).

A transaction begins with a change of the channel's mark table in `tidemark_meta`. A statement of DDL begins with a comment. Servers
log DROP TABLE as a text of their own, without comments: so it drops another table of the channel, too, as the first one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

META: Final = "tidemark_meta"
"""The database in which tasks keep their state. It is not captured."""
_MARK: Final = re.compile(
    rf"\s*(?:/\* tidemark:(\w+) \*/|DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?`{META}`\s*\.\s*`dropped_(\w+)`\s*,)", re.IGNORECASE
)


def mark_table(channel: str) -> str:
    """Return the table of `META` that is changed first in each transaction of the channel."""
    return f"channel_{channel}"


def drop_table(channel: str) -> str:
    """Return the table of `META` that is dropped first with each table that the channel drops."""
    return f"dropped_{channel}"


def with_comment(sql: str, channel: str) -> str:
    """Return the statement with the comment of the channel."""
    return f"/* tidemark:{channel} */ {sql}"


def is_marked(sql: str, channels: Collection[str]) -> bool:
    """Return whether one of the channels has run the statement."""
    mark = _MARK.match(sql) if channels else None
    return mark is not None and (mark[1] or mark[2]) in channels
