"""A look that is too old: whatever the page showed of it before, it shows as unknown now, in JSON and HTML."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from schemas.identity import SourceId
from schemas.liveness import Sign
from schemas.position import Position
from tests.page.test_page_access import settings_of
from tests.support.page_client import PageClient
from tidemark.api.source_log import UNSEEN, SourceLog
from tidemark.page import page_facts
from tidemark.page.page_facts import BELIEVED_S, Facts, SourceQuestion
from tidemark.page.page_views import Views
from tidemark.page.parts import Parts
from tidemark.page.server import PageServer
from tidemark.page.sign_in import Access
from tidemark.status.job_standing import JobState, Standing
from tidemark.status.lags import Word, lags_of
from tidemark.status.snapshot_list import SnapshotList
from tidemark.status.status_tree import LogStatus, Status, TableStatus

NOTHING_READ = LogStatus(
    file="binlog.000001", pos=4, gtid_set="", position=Position(0, 1, 4), committed_ms=0, needed_file="binlog.000001", needed_pos=4,
    read_ms=0,
)  # fmt: skip


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def look_of(age_s: float) -> Facts:
    """All was well so long ago."""
    read_ms = int((time.time() - age_s) * 1000)
    status = Status(
        source=SourceId("shop"), read_ms=read_ms, log=None, paused=False, sink_updated_ms=read_ms,
        tables=(TableStatus(table="shop.orders", behind=0, sink_rows=7),),
        sign=Sign(at_ms=read_ms, state="reading", in_kafka_ms=read_ms), merge=Standing(JobState.CAUGHT_UP, alive=True),
    )  # fmt: skip
    reading = Standing(JobState.READING, alive=True)
    none = SnapshotList(read_ms=read_ms, requests=(), children=(), producer=reading, sign_ms=read_ms)
    statuses = {"lake": status}
    return Facts(
        began_s=time.monotonic() - age_s, began_ms=read_ms, read_ms=read_ms, statuses=statuses, lags={"lake": lags_of(status, 0)},
        source=UNSEEN, snapshots=none, chunks={},
    )  # fmt: skip


def page_with(stack: ExitStack, facts: Facts) -> PageClient:
    settings = settings_of()
    parts = Parts(settings)
    parts.facts._kept.append(facts)
    views = Views(settings, parts, Access(replace(settings.service), 0))
    return PageClient(stack.enter_context(PageServer(views.application(), "127.0.0.1", 0)).port)


def test_a_look_of_now_is_shown_as_it_was(stack: ExitStack) -> None:
    page = page_with(stack, look_of(1))
    (sink,) = page.json("overview")["sinks"]
    assert (sink["word"], sink["to_kafka"]["lag_s"], sink["to_sink"]["lag_s"]) == ("running", 0.0, 0.0)
    assert page.json("sinks")[0]["word"] == "running"
    assert 'data-word="running" data-to-kafka="0.0" data-to-sink="0.0"' in page.get("/").text


def test_nothing_of_a_look_that_is_too_old_is_shown_as_the_state_of_now(stack: ExitStack) -> None:
    page = page_with(stack, look_of(BELIEVED_S + 5))
    overview = page.json("overview")
    (sink,) = overview["sinks"]
    assert sink["word"] == Word.UNKNOWN
    assert "nothing is known of the last 15 s" in sink["reasons"][0]
    for lag, unit in ((sink["to_kafka"], "bytes"), (sink["to_sink"], "records"), (overview["to_kafka"], "bytes")):
        assert (lag["lag_s"], lag[unit]) == (None, None)
        assert "nothing is known" in lag["unknown"]
    assert (sink["merge"]["state"], overview["producer"]["state"]) == ("unknown", "unknown")
    (of_sinks,) = page.json("sinks")
    assert (of_sinks["word"], of_sinks["alive"], of_sinks["lag"]["lag_s"]) == ("unknown", None, None)
    (in_sink,) = page.json("tables")[0]["sinks"]
    assert (in_sink["state"], in_sink["lag"]["lag_s"]) == ("unknown", None)
    assert [one["word"] for one in page.json("problems")] == ["unknown"]
    text = page.get("/").text
    assert 'data-word="unknown" data-to-kafka="" data-to-sink=""' in text
    assert not re.search(r"Now: [^\"<]*\d s", text)


def test_a_source_that_does_not_answer_is_waited_for_once_and_not_at_each_look(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its patience at each look the looks were more than ten seconds apart: everything was unknown, for the reason of Kafka."""
    answers = threading.Event()
    answer = SourceLog(None, "it answered")

    def ask(_: Status) -> SourceLog:
        answers.wait(60)
        return answer

    def waiting(asked: list[Future[SourceLog]], timeout: float) -> object:
        waits_s.append(timeout)
        return wait(asked, timeout)

    waits_s: list[float] = []
    monkeypatch.setattr(page_facts, "wait", waiting)
    status = replace(look_of(0).first, log=NOTHING_READ)
    source = SourceQuestion(ask, patience_s=1.0)
    stack.callback(source.close)
    stack.callback(answers.set)
    began_s = time.monotonic()
    problems = [source.ask(status).problem for _ in range(6)]
    assert time.monotonic() - began_s >= 1.0
    assert all(re.search(r"no answer for [1-9]\d* s", problem) for problem in problems), problems
    assert waits_s == [1.0, 0, 0, 0, 0, 0]
    answers.set()
    deadline = time.monotonic() + 30
    while source.ask(status).problem != answer.problem:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("error", [ZeroDivisionError(), TimeoutError()])
def test_the_next_look_asks_the_source_after_an_error_that_nobody_expects(stack: ExitStack, error: Exception) -> None:
    asked = threading.Semaphore(0)

    def ask(_: Status) -> SourceLog:
        asked.release()
        raise error

    source = SourceQuestion(ask)
    stack.callback(source.close)
    for _ in range(2):
        with suppress(ZeroDivisionError, TimeoutError):
            source.ask(replace(look_of(0).first, log=NOTHING_READ))
        assert asked.acquire(timeout=60)


def test_each_answer_of_the_source_is_shown_also_one_that_comes_just_as_the_wait_for_it_ends(stack: ExitStack) -> None:
    """Such an answer was dropped, and the source asked once more: the part of the source stayed unknown for one look longer."""
    asked: list[None] = []

    def ask(_: Status) -> SourceLog:
        asked.append(None)
        time.sleep(0.0002)
        return SourceLog(None, "it answered")

    status = replace(look_of(0).first, log=NOTHING_READ)
    source = SourceQuestion(ask, patience_s=0)
    stack.callback(source.close)
    shown, deadline = 0, time.monotonic() + 60
    while shown < 50:
        shown += source.ask(status).problem == "it answered"
        assert time.monotonic() < deadline
    assert len(asked) == shown
