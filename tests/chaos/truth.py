"""What the status may not say: words that the harness knows to be false, because it knows which processes live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from tidemark.status.job_standing import Standing
from tidemark.status.status_tree import Status

BELIEVED_S: Final = 30.0
"""A process is called alive for up to 15 s after its last liveness record; a machine under load adds to that."""


class StatusTruth:
    """Notes since when a process is dead or frozen, and every status that calls it alive much later."""

    def __init__(self) -> None:
        self._down: dict[str, float] = {}
        self.contradictions: list[str] = []
        self.samples = 0

    def down(self, job: str) -> None:
        """The process was killed, stopped or frozen now."""
        self._down.setdefault(job, time.monotonic())

    def up(self, job: str) -> None:
        """A process of this job was started, or continues."""
        self._down.pop(job, None)

    def compare(self, asked_s: float, said: Mapping[str, Standing], sink: str = "") -> None:
        """Compare the standing of each job, asked for at that monotonic time, with what is known; `sink` is whose status it is."""
        self.samples += 1
        for job, standing in said.items():
            since = self._down.get(job)
            if since is None or asked_s - since < BELIEVED_S:
                continue
            if standing.alive or standing.caught_up:
                self.contradictions.append(
                    f"{job} {sink} is called {standing.state} ({standing.reason}), {asked_s - since:.0f} s after it was killed or frozen"
                )


def standings(status: Status) -> dict[str, Standing]:
    """The standing of each job by the verb that starts it."""
    return {"run": status.producer(), "merge": status.merge}
