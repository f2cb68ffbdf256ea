"""The last commit record of a source, read from the end of its topic, and one at an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.slices import Slice
from schemas.commit_records import CommitRecord

if TYPE_CHECKING:
    from kafkaio.committed_reader import CommittedRecord
    from schemas.settings import KafkaSettings

_BEHIND: Final = 100
"""Offsets before the end of the commit records in which there is one: markers of transactions take offsets, too."""


def last_commit(kafka: KafkaSettings, topic: str) -> tuple[int, CommitRecord | None]:
    """Return the offset behind the last commit record, and that record; the offset is final if nobody may write to the topic.

    Readers do not come to the markers behind the last record, so their offsets are not counted.
    """
    with CommittedReader(kafka, f"{topic}-reader", SOON) as reader:
        first, end = reader.bounds([(topic, 0)])[topic, 0]
        for begin in sorted({max(first, end - _BEHIND), first}, reverse=True) if end > first else ():
            records: list[CommittedRecord] = list(reader.read_slices([Slice(topic, 0, begin, end)]))
            if records:
                return records[-1].offset + 1, CommitRecord.parse(records[-1].value or b"")
    return first, None


def commit_at(kafka: KafkaSettings, topic: str, offset: int) -> CommitRecord | None:
    """Return the commit record at an offset; None without one, for example since retention removed it."""
    with CommittedReader(kafka, f"{topic}-reader", SOON) as reader:
        first, end = reader.bounds([(topic, 0)])[topic, 0]
        records = list(reader.read_slices([Slice(topic, 0, offset, offset + 1)])) if first <= offset < end else []
    return CommitRecord.parse(records[0].value or b"") if records else None
