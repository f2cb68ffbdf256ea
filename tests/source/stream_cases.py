"""What the tests of the log stream share: some changes, and where events are."""

from __future__ import annotations

from collections.abc import Callable

from devservers import Database
from mysqlio.server_facts import LogPosition
from producer.source.dump import StreamStart
from tests.source.reading import (
    Read,
)

FreshDatabase = Callable[[Database], str]
Case = tuple[Database, str, LogPosition]


def start_at(position: LogPosition) -> StreamStart:
    return StreamStart(position.file, position.pos)


def positions(found: list[Read]) -> list[tuple[str, int]]:
    return [(one.file, one.offset) for one in found if not one.artificial]
