"""Requests that wait for a silent peer: they end, their threads stay few, and what is not known is said so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

import pytest
import structlog
from structlog.testing import capture_logs

from schemas.errors import ConfigError, PublishError
from schemas.settings import Settings
from tests.page.test_page_access import TOKEN, page_of, settings_of
from tests.support.area_logs import of_area
from tests.support.page_client import PageClient
from tidemark.api import sending
from tidemark.page import live_changes, page_views
from tidemark.page.kept_schemas import KeptSchemas
from tidemark.page.live_changes import LiveChanges
from tidemark.page.parts import Checks
from tidemark.page.sink_details import files_of


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_request_that_gave_up_keeps_the_slot_of_its_thread(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    released, running = threading.Event(), [0]

    def latest(_self: KeptSchemas) -> None:
        running[0] += 1
        released.wait(60)

    monkeypatch.setattr(KeptSchemas, "latest", latest)
    page = page_of(stack, token=TOKEN)
    page.sign_in()
    monkeypatch.setattr(page_views, "_ANSWER_S", 0.3)
    threads = [threading.Thread(target=lambda: PageClient(page.port).get("/api/v1/schema")) for _ in range(30)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert running[0] == 8  # not thirty
        assert page.get("/livez").status == 200
        assert page.post("/snapshots/pause", {}).status == 503  # acting has slots of its own: the source does not answer
    finally:
        released.set()


def test_a_topic_that_cannot_be_read_is_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    looks = KeptSchemas(settings_of())
    monkeypatch.setattr(looks, "_read", lambda: asked.append(1) or ConfigError("no"))
    for _ in range(5):
        with pytest.raises(ConfigError):
            looks.latest()
    assert len(asked) == 1


def test_changes_are_unknown_before_kafka_has_answered_and_while_it_does_not(stack: ExitStack) -> None:
    page = page_of(stack)
    first = page.get("/api/v1/changes").document
    assert first["unknown"]
    assert first["as_of_ms"] is None
    assert "No change has come" not in page.get("/changes").text
    with LiveChanges(settings_of()) as changes:
        changes.newest()
        deadline = time.monotonic() + 60
        while "127.0.0.1:1" not in changes.trouble and "Kafka" not in changes.trouble:
            assert time.monotonic() < deadline
            changes.newest()
            time.sleep(0.2)
        assert changes.read_ms is None


def test_a_page_that_was_closed_says_nothing_of_the_changes_that_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, answered = threading.Event(), threading.Event()

    def silent(*_arguments: object, **_more: object) -> None:
        waits.set()
        answered.wait(60)
        raise PublishError("Kafka has not answered")

    monkeypatch.setattr(live_changes, "ChangeReader", silent)
    monkeypatch.setattr(live_changes, "log", structlog.get_logger())
    with capture_logs() as logged:
        with LiveChanges(settings_of()) as changes:
            changes.newest()
            assert waits.wait(60)
        (reader,) = (one for one in threading.enumerate() if one is changes._thread)
        answered.set()
        reader.join(60)
    assert not reader.is_alive()
    assert of_area(logged, "page") == []


def test_a_reader_that_is_slow_to_close_is_not_followed_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look while it closed started another reader, and the thread of the first one opened one of its own beside it."""
    settings, closes, closed, opened = settings_of(), threading.Event(), threading.Event(), list[threading.Thread]()

    class Reader:
        unread, answered_s = 0, None

        def __init__(self, of: Settings, **_more: object) -> None:
            if of is settings:  # and none of a page that an earlier test has left
                opened.append(threading.current_thread())

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            if threading.current_thread() in opened[:1]:
                closes.set()
                assert closed.wait(60)

        def next_change(self, _wait_s: float) -> None:
            time.sleep(0.01)

    def wait_for_readers(count: int) -> None:
        deadline = time.monotonic() + 60
        while len(opened) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(live_changes, "ChangeReader", Reader)
    with LiveChanges(settings) as changes:
        changes.newest()
        wait_for_readers(1)
        monkeypatch.setattr(live_changes, "_FORGOTTEN_S", 0.0)
        assert closes.wait(60)  # nobody has looked, and the reader closes
        monkeypatch.setattr(live_changes, "_FORGOTTEN_S", 60.0)
        changes.newest()
        closed.set()
        opened[0].join(30)
        assert not opened[0].is_alive()
        wait_for_readers(2)
    assert len(opened) == 2


def test_checks_that_have_not_ended_say_nothing_good(monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
    ended = threading.Event()
    monkeypatch.setattr(Checks, "_run", lambda _self: ended.wait(30))
    page = page_of(stack)
    try:
        found = page.get("/api/v1/checks").document
        assert found["unknown"] == "the checks run for the first time"
        assert found["as_of_ms"] is None
        assert "Nothing is wrong" not in page.get("/checks").text
    finally:
        ended.set()


def test_a_lake_that_is_not_mounted_is_not_empty() -> None:
    assert "there is no folder" in files_of(settings_of().of_sink("lake"))["unknown"]


def test_a_signal_that_is_wider_than_the_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="2049 characters"):
        sending.insert(settings_of(), "page-1", "execute-snapshot", "x" * 2049)
