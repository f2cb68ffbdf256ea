"""Threads of the producer that serve it as long as it runs: an error that nobody expects does not end them."""

from __future__ import annotations

import threading
from typing import Any, NoReturn, cast

import pytest

from producer.kafka.registry import RegistryWatch
from producer.recapture import Recaptured
from producer.reloads import Reloads
from producer.sign import LivenessWriter
from producer.source.retention import ResumePosition, RetentionWatch
from producer.stream.handlers.heartbeat import HeartbeatAction
from schemas.notifications import Notification
from schemas.settings import Settings, SourceSettings, from_mapping

WAIT_S = 60.0


class Fails:
    """What a thread calls: it always fails, and can be waited for."""

    def __init__(self) -> None:
        self._calls = threading.Semaphore(0)

    def __call__(self, *_: object) -> NoReturn:
        self._calls.release()
        raise ZeroDivisionError

    def is_called(self) -> bool:
        return self._calls.acquire(timeout=WAIT_S)


class FailingStart:
    """A start that cannot take other tables."""

    def __init__(self, source: SourceSettings) -> None:
        self.source = source
        self.reported: list[Notification] = []
        self._reports = threading.Semaphore(0)

    def recapture(self, _source: SourceSettings, _adopted: object) -> Recaptured:
        raise ZeroDivisionError

    def report(self, notification: Notification) -> None:
        self.reported.append(notification)
        self._reports.release()

    def is_answered(self) -> bool:
        return self._reports.acquire(timeout=WAIT_S)


@pytest.fixture
def settings() -> Settings:
    return from_mapping({"name": "lasting", "source": {"tables": ["a.b"]}, "kafka": {"bootstrap_servers": "127.0.0.1:1"}})


def test_each_reload_that_fails_is_answered(settings: Settings) -> None:
    start = FailingStart(settings.source)
    with Reloads(settings, lambda: settings) as reloads:
        reloads.started(start)
        for number in range(2):
            reloads.ask(f"signal-{number}")
            assert start.is_answered()
    assert [one.id for one in start.reported] == ["signal-0", "signal-1"]
    assert all("ZeroDivisionError" in str(one.additional_data) for one in start.reported)


def test_the_statement_of_heartbeats_is_run_at_the_next_request() -> None:
    fails = Fails()
    action = HeartbeatAction(cast("Any", fails), "DO 1")
    action.start()
    try:
        for _ in range(2):
            action.request()
            assert fails.is_called()
    finally:
        action.stop()


def test_the_head_room_is_looked_at_again() -> None:
    fails = Fails()
    watch = RetentionWatch(cast("Any", fails), lambda: ResumePosition("binlog.000001", 4, None), 0, every_s=0.01)
    watch.start()
    try:
        assert all(fails.is_called() for _ in range(2))
        assert watch.latest is None
    finally:
        watch.stop()


def test_the_registry_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = Fails()
    watch = RegistryWatch(cast("Any", None), every_s=0.01)
    monkeypatch.setattr(watch, "look", fails)
    watch.start()
    try:
        assert all(fails.is_called() for _ in range(2))
    finally:
        watch.stop()


def test_the_liveness_record_is_written_at_the_next_time(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = Fails()
    writer = LivenessWriter(settings)
    monkeypatch.setattr(writer, "_opened", fails)
    with writer:
        assert all(fails.is_called() for _ in range(2))
