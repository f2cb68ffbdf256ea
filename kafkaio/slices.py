"""Slices of partitions: which records of Kafka a batch has."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.errors import SinkError

Offsets = Mapping[str, Mapping[int, int]]  # topic → partition → offset, exclusive

EARLIEST: Final = -2

NUMBER: Final = "number"
SNAPSHOT: Final = "snapshot"
"""Columns of records as workers take them: the number of their table, and whether they are of its snapshot topic."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Records `start` (inclusive) to `end` (exclusive) of a partition; `start` may be EARLIEST."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of records at most."""
        return self.end - max(self.start, 0)


def lost_partitions(start: Offsets, end: Offsets) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of what was read further than it goes now."""
    return [
        (topic, partition, offset)
        for topic, partitions in start.items()
        for partition, offset in partitions.items()
        if end.get(topic, {}).get(partition, 0) < offset
    ]


def slices_between(start: Offsets, end: Offsets, others: Container[str] = ()) -> list[Slice]:
    """Return the slices between two sets of offsets; `SinkError` if a topic of ours (not of `others`) is shorter or gone."""
    for topic, partition, offset in lost_partitions(start, end):
        if topic not in others:
            message = (
                f"topic {topic} partition {partition} was read up to {offset} and ends before that: it "
                "was deleted or created again, or this Kafka user cannot see it. If it does not come back, start the merge "
                "job on an empty sink path and snapshot again"
            )
            raise SinkError(message)
    slices: list[Slice] = []
    for topic, partitions in end.items():
        for partition, offset in partitions.items():
            first = start.get(topic, {}).get(partition, EARLIEST)
            if offset > 0 and first < offset:
                slices.append(Slice(topic, partition, first, offset))
    return slices
