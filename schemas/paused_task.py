"""The record of a task that is paused, as it is kept at the task's target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from schemas.json_codec import Form, json_field


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPause:
    """A pause since `at_ms` (Unix): after an error with its `cause`, or by a person (`by`), or first one, then the other.

    `is_effective`: the process applies nothing. Before that it may be within a batch, or no process runs.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})

    at_ms: int
    cause: str = ""
    by: str = ""
    reason: str = ""
    is_effective: bool = json_field(default=False, name="effective")

    @property
    def text(self) -> str:
        """The person or the error that has paused the task."""
        by = f"by {self.by}{f': {self.reason}' if self.reason else ''}" if self.by else ""
        cause = f"after an error: {self.cause}" if self.cause else ""
        return ", and ".join(one for one in (by, cause) if one)
