"""How long the stages of a merge job's last batches took, in its liveness record: for people who look why it is slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.json_codec import decode

KEPT: Final = 60
"""So many batches are kept: a few minutes of a job that is idle, half an hour of one that catches up."""
RECENT: Final = "recent"
"""The member of `Sign.batch` that has them, oldest first."""
STAGES: Final = ("read_s", "merge_s", "load_s", "save_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStages:
    """One batch that ended at `ended_ms`: its `records` in Kafka, markers too, and the seconds of its stages.

    `read_s`: offsets, markers and topics are looked up, and the tables planned. `merge_s`: rows are read from Kafka and written to
    the sink. `load_s`: chunks are read from the source straight into the sink. `save_s`: state and progress are written.
    """

    number: int
    ended_ms: int
    records: int
    read_s: float
    merge_s: float
    load_s: float
    save_s: float

    @property
    def seconds(self) -> float:
        """All stages together."""
        return self.read_s + self.merge_s + self.load_s + self.save_s


def recent_batches(batch: Mapping[str, Any]) -> tuple[BatchStages, ...]:
    """Return the batches of a liveness record's `batch`, oldest first; none where an earlier version wrote it, or another form."""
    found = []
    for one in batch.get(RECENT, ()):
        try:
            found.append(decode(BatchStages, one))
        except (KeyError, TypeError):  # of a version with other fields
            continue
    return tuple(found)
