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

    def wait(self, *, at_boundary: bool = True) -> None:
        """Read nothing."""
        self.times.nothing_came(at_boundary=at_boundary)

    @property
    def proved(self) -> tuple[float, float]:
        """Up to when everything is read, and in Kafka, in seconds."""
        return self.times.read_ms / 1000, self.times.in_kafka_ms / 1000


def test_nothing_is_known_before_anything_was_read() -> None:
    scene = Scene()
    scene.wait()
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


def test_a_heartbeat_proves_when_the_connection_was_seen_empty_before_it_came_if_nothing_came_behind_it() -> None:
    for kind in (HEARTBEAT_EVENT, HEARTBEAT_V2_EVENT):
        scene = Scene()
        scene.wait()
        scene.now_s += 0.5
        scene.read((kind, 0))
        assert scene.proved == (0, 0)
        scene.now_s += 60  # the connection may have been cut meanwhile: nothing is known of these seconds
        scene.wait()
        scene.times.committed()
        assert scene.proved == (1_000, 1_000)
        scene.wait()
        scene.times.committed()
        assert scene.proved == (1_000, 1_000)


def test_a_heartbeat_that_lay_in_the_socket_while_we_did_not_read_proves_nothing_of_that_time() -> None:
    """Kafka took five minutes, in which the source died: the heartbeat is of their beginning."""
    scene = Scene()
    scene.wait()
    scene.now_s += 300
    scene.read((HEARTBEAT_EVENT, 0))
    scene.wait()
    scene.times.committed()
    assert scene.proved == (1_000, 1_000)


def test_a_heartbeat_with_events_behind_it_proves_nothing() -> None:
    scene = Scene()
    scene.wait()
    scene.now_s += 60
    scene.read((HEARTBEAT_EVENT, 0))
    scene.read((XID_EVENT, 900))
    scene.wait()
    scene.times.committed()
    assert scene.proved == (900, 900)


def test_heartbeats_prove_nothing_while_the_server_passes_over_what_was_read_before() -> None:
    scene = Scene()
    scene.wait(at_boundary=False)
    scene.read((HEARTBEAT_EVENT, 0))
    scene.wait(at_boundary=False)
    scene.times.committed()
    assert scene.proved == (0, 0)


def test_old_times_prove_no_less_and_those_of_the_future_nothing() -> None:
    scene = Scene()
    scene.read((XID_EVENT, 990))
    scene.read((XID_EVENT, 400))  # a transaction that took long
    assert scene.proved == (990, 0)
    scene.read((XID_EVENT, 2**31), (XID_EVENT, 991))  # SET timestamp, while hours of the log are left
    assert scene.proved == (991, 0)
    scene.read((XID_EVENT, 1_003))  # two clocks
    assert scene.proved == (1_000, 0)
    scene.read()
    assert scene.proved == (1_000, 0)


def test_what_an_earlier_process_knew_stays_true() -> None:
    scene = Scene()
    scene.times.known(None)
    assert scene.proved == (0, 0)
    scene.times.known(900_000)
    scene.read((XID_EVENT, 400))
    scene.times.committed()
    assert scene.proved == (900, 900)
