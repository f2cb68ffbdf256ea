"""The *liveness record* that producer and merge job write: a time, and the interval after which the next one is due."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from schemas.errors import StateError
from schemas.json_codec import Form, decode, json_field

EVERY_S: Final = 2.0
"""How often a job writes a liveness record."""
SIGN_KEY: Final = "alive"
"""The key of the producer's liveness record in the state topic."""
_MISSED: Final = 4
_LEAST_MS: Final = 15_000
_CLOCKS_MS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A liveness record: written at `at_ms` of the job's clock, the next one is due `every_s` later.

    `state` is what the job says of itself (`starting`, `waiting`, `reading`; of the merge job `running`; `ended` at its end), for
    `reason`, since `since_ms`. `machine` names the running kernel of the job's machine. `batch` are facts of the merge job's
    batches: the `number` of the one that runs and `since_ms`, the seconds `last_s` that the one before took, and the `recent` ones
    (`schemas.batch_stages`). `snapshot_waits` is why the producer reads no chunk at the moment although there are some to read, ""
    where it does. Everything that the source committed up to `in_kafka_ms` is in Kafka, by the producer; None where that is not
    known. `clock_skew_us`: how far the clock of the source's server is ahead of the clock of the job; None: unknown.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})
    KEY: ClassVar = SIGN_KEY

    at_ms: int
    every_s: float = json_field(EVERY_S, required=True)
    state: str = json_field("running", required=True)
    reason: str = ""
    since_ms: int | None = None
    machine: str = ""
    batch: Mapping[str, Any] = field(default_factory=dict)
    snapshot_waits: str = json_field("", omits_default=True)
    in_kafka_ms: int | None = json_field(None, omits_default=True)
    clock_skew_us: int | None = json_field(None, omits_default=True)

    def silent_ms(self, now_ms: int) -> int:
        """For how long the next sign has been overdue by far; 0 while it is not."""
        age = now_ms - self.at_ms
        return age if age > max(_LEAST_MS, _MISSED * self.every_s * 1000) else 0

    def is_of_another_clock(self, now_ms: int) -> bool:
        """Whether it comes from the future: its age says nothing then."""
        return self.at_ms - now_ms > _CLOCKS_MS


def read_sign(path: Path) -> Sign | None:
    """Return the liveness record in a file, None if there is none; raises `StateError` if it cannot be read."""
    try:
        return decode(Sign, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} cannot be read: {error}"
        raise StateError(message) from error


def machine() -> str:
    """Return the running kernel, of this machine and all its containers; "" where it has no name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
