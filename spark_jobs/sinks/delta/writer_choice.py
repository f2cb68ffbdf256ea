"""Which writer puts a batch into a table: what it will cost enters, a name leaves."""

from __future__ import annotations

from typing import Final, Literal

WriterName = Literal["arrow", "jvm"]
WriterSetting = Literal["auto", "arrow", "jvm"]

_COPY_NS_PER_ROW: Final = 1_000
_JVM_NS: Final = 1_200_000_000
_JVM_NS_PER_ROW: Final = 34_000
_BYTES_PER_ROW: Final = 1_000
"""Memory of a row of a batch as Arrow has it, with its copy in a MERGE; the table's rows are read as a stream."""


def chosen_writer(
    batch_rows: int, touched_rows: int, reason: str | None, memory_bytes: int, forced: WriterSetting = "auto"
) -> WriterName:
    """Return the cheaper writer of those that are possible.

    `touched_rows` are the rows of the files that the batch touches, or of the table where that is not known; `reason` is why
    delta-rs must not write the table (`arrow_limits.why_not`), which no setting overrules. `forced` decides otherwise.

    Any choice is exact, also another one when the batch is run again: both writers give the same rows from the same winners, and
    name the transaction alike, so the second does nothing once the first has made its commit.
    """
    if reason is not None or forced == "jvm":
        return "jvm"
    if forced == "arrow":
        return "arrow"
    if batch_rows * _BYTES_PER_ROW > memory_bytes:
        return "jvm"
    return "arrow" if touched_rows * _COPY_NS_PER_ROW <= _JVM_NS + batch_rows * _JVM_NS_PER_ROW else "jvm"
