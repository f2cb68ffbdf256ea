"""Names of the columns that a decoded record has besides those of its table."""

from __future__ import annotations

from typing import Final

POSITION: Final = "_tm_position"
SOURCE: Final = "_tm_source"
"""The source table of a row, as `SourceTable.text` has it: only in a target that several tables go into."""
# A column of MySQL or MariaDB never has a name that ends with a space.
DELETED: Final = "_tm_deleted "
REASON: Final = "_tm_reason "
WRITER: Final = "_tm_writer "
TOPIC: Final = "_tm_topic "
PARTITION: Final = "_tm_partition "
OFFSET: Final = "_tm_offset "
SNAPSHOT: Final = "_tm_snapshot "
CHANGED: Final = "_tm_changed "
COMMITTED: Final = "_tm_committed "
ORIGIN: Final = (TOPIC, PARTITION, OFFSET, SNAPSHOT)

CHANGE: Final = "_tm_change "
"""The op of a change: `c` and `r` (read by a snapshot) have a row after it, `d` one before it, `u` both or only the one after."""
BEFORE: Final = "_tm_before "
AFTER: Final = "_tm_after "
KEYS: Final = "_tm_keys "
