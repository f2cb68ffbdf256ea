"""Up to when everything is in Kafka: proved by events with times and by heartbeats at the end of the log, and by nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from producer.binlog.event_types import HEARTBEAT_EVENT, HEARTBEAT_V2_EVENT, XID_EVENT
from producer.stream.read_times import ReadTimes


class Scene:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.times = ReadTimes(lambda: int(self.now_s * 1000))

    def read(self, *events: tuple[int, int]) -> None:
        """Read and publish events: type and time in seconds."""
        batch: Any = SimpleNamespace(
            count=len(events), types=np.array([kind for kind, _ in events]), timestamps=np.array([at for _, at in events])
        )
        self.times.published(self.times.came(batch))

    @property
    def proved(self) -> tuple[float, float]:
        """Up to when everything is read, and in Kafka, in seconds."""
        return self.times.read_ms / 1000, self.times.in_kafka_ms / 1000


def test_nothing_is_known_before_anything_was_read() -> None:
    scene = Scene()
    scene.times.nothing_came()
    scene.times.committed()
    assert scene.proved == (0, 0)


def test_an_event_proves_its_own_time_once_it_is_committed() -> None:
    scene = Scene()
    scene.read((XID_EVENT, 990))
    assert scene.proved == (990, 0)
    scene.times.committed()
    assert scene.proved == (990, 990)


def test_what_was_published_after_a_commit_began_is_of_the_next() -> None:
    scene = Scene()
    scene.read((XID_EVENT, 990))
    scene.times.commit_begun()
    scene.read((XID_EVENT, 995))
    scene.times.committed()
    assert scene.proved == (995, 990)
    scene.times.committed()
    assert scene.proved == (995, 995)


def test_a_heartbeat_proves_when_it_came_if_nothing_came_behind_it() -> None:
    for kind in (HEARTBEAT_EVENT, HEARTBEAT_V2_EVENT):
        scene = Scene()
        scene.read((XID_EVENT, 900), (kind, 0))
        assert scene.proved == (900, 0)
        scene.now_s += 60  # the connection may have been cut meanwhile: nothing is known of these seconds
        scene.times.nothing_came()
        scene.times.committed()
        assert scene.proved == (1_000, 1_000)
        scene.times.nothing_came()
        scene.times.committed()
        assert scene.proved == (1_000, 1_000)


def test_a_heartbeat_that_lay_in_the_socket_while_we_were_frozen_proves_nothing() -> None:
    scene = Scene()
    scene.now_s += 60
    scene.read((HEARTBEAT_EVENT, 0))
    scene.read((XID_EVENT, 1_005))
    scene.times.nothing_came()
    scene.times.committed()
    assert scene.proved == (1_005, 1_005)


def test_times_that_are_old_or_of_the_future_prove_no_less_and_no_more() -> None:
    scene = Scene()
    scene.read((XID_EVENT, 990))
    scene.read((XID_EVENT, 400))  # a transaction that took long
    assert scene.proved == (990, 0)
    scene.read((XID_EVENT, 2**31))  # SET timestamp
    assert scene.proved == (1_000, 0)
    scene.read()
    assert scene.proved == (1_000, 0)
