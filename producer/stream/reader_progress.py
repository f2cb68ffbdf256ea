"""Live figures of the log reader, for status and the demo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from producer.stream.commit_delays import CommitDelays
from producer.stream.read_times import ReadTimes

if TYPE_CHECKING:
    from schemas.position import Position


@dataclass(slots=True)
class LogProgress:
    """What was read and published since the start, `bytes` of the log. `delays` are up to Kafka.

    `alive_s` is the log reader's clock at its last read. `times` are up to when everything that the source committed was read, and
    is in Kafka.
    """

    position: Position
    source_ts_ms: int = 0
    committed_ms: int = 0
    transactions: int = 0
    rows: int = 0
    records: int = 0
    bytes: int = 0
    checkpoints: int = 0
    alive_s: float = 0.0
    delays: CommitDelays = field(default_factory=CommitDelays)
    times: ReadTimes = field(default_factory=ReadTimes)
