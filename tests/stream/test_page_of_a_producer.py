"""The page beside a producer, in a real browser: answers to signals, tables that fit the screen, a table without a key."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from devservers import Kafka
from schemas.json_codec import encode
from schemas.liveness import Sign, machine
from schemas.merge_progress import MergeProgress, TableProgress
from schemas.position import Position
from schemas.settings import Settings, from_mapping
from tests.support.browser import DESKTOP, PHONE, OpenPage, browser, page, violations
from tests.support.page_client import PageClient
from tests.support.producers import SIGNAL, Source
from tidemark.commands.run import run_producer
from tidemark.page.page_views import Views
from tidemark.page.parts import Parts
from tidemark.page.server import PageServer
from tidemark.page.sign_in import Access

__all__ = ["browser", "page"]
_APPLIED = Position(0, 1, 4)
_SCREENS = ((DESKTOP, "light"), (PHONE, "dark"))


@pytest.fixture
def site(mysql: Source, kafka: Kafka, tmp_path: Path) -> Iterator[PageClient]:
    """A page of a producer that runs, with two tables, one of them without a key, and a merge job that wrote a while ago."""
    mysql.execute(
        SIGNAL,
        "CREATE TABLE orders_of_all_customers (id INT PRIMARY KEY)",
        "INSERT INTO orders_of_all_customers VALUES (1), (2), (3)",
        "CREATE TABLE without_key (id INT)",
    )
    document: dict[str, Any] = mysql.mapping()
    document |= {"sinks": [{"name": "lake", "type": "delta", "path": str(tmp_path / "lake")}], "snapshot": {"mode": "initial"}}
    document |= {"service": {"token": "a token"}}
    settings, stop = from_mapping(document), threading.Event()
    merged(settings, mysql.schema)
    producer = threading.Thread(target=run_producer, args=(settings, stop, None))
    with ExitStack() as stack:
        access = Access(settings.service, 0)
        parts = stack.enter_context(Parts(settings))
        server = stack.enter_context(PageServer(Views(settings, parts, access).application(), "127.0.0.1", 0))
        producer.start()
        stack.callback(producer.join, 120)
        stack.callback(stop.set)
        client = PageClient(server.port, access.token)
        client.wait("the initial snapshot", "snapshots", lambda found: found["requests"] and found["requests"][0]["state"] == "done")
        yield client


def merged(settings: Settings, schema: str) -> None:
    """Write what a merge job writes."""
    service = Path(settings.sink.service_path)
    service.mkdir(parents=True)
    tables = {f"{schema}.orders_of_all_customers": TableProgress(rows=3, applied_position=_APPLIED, consistent_at=_APPLIED)}
    now_ms = time.time_ns() // 1_000_000
    progress = MergeProgress(query_id="q", batch_id=1, updated_ms=now_ms, rows_total=3, tables=tables)
    (service / "progress.json").write_text(json.dumps(encode(progress)), "utf-8")
    (service / "alive.json").write_text(json.dumps(encode(Sign(at_ms=now_ms + 10_000, machine=f"not {machine()}"))), "utf-8")


def signed_in(shown: Page, site: PageClient) -> None:
    shown.goto(f"{site.origin}/sign-in")
    shown.get_by_label("Token").fill(site.token)
    shown.get_by_role("button", name="Sign in").click()
    expect(shown.get_by_role("button", name="Sign out")).to_be_visible()


def ask_for(shown: Page, site: PageClient, tables: str) -> None:
    shown.goto(f"{site.origin}/snapshots")
    shown.locator("form[action='/snapshots/start'] textarea").fill(tables)
    shown.get_by_role("button", name="Start the snapshot").click()


def shoot(shown: Page, name: str) -> None:
    if folder := os.environ.get("TIDEMARK_SCREENSHOTS"):
        shown.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_the_page_shows_answers_positions_and_what_failed(site: PageClient, mysql: Source, page: OpenPage) -> None:
    for viewport, scheme in _SCREENS:
        shown, name = page(viewport, scheme), f"{viewport[0]}"
        signed_in(shown, site)
        ask_for(shown, site, "nothing\\.like_it")
        refused = shown.locator("[data-answer=rejected]")
        expect(refused).to_be_visible(timeout=20_000)
        assert "matches no captured table" in refused.inner_text()
        shoot(shown, f"rejected-{name}")
        ask_for(shown, site, f"{mysql.schema}\\.orders_of_all_customers")
        expect(shown.locator("[data-answer=accepted]")).to_be_visible(timeout=20_000)
        initial = shown.locator("[data-request]").last
        assert "1 without a key" in initial.inner_text()
        assert "word-done" not in (initial.locator(".pill").get_attribute("class") or "")
        assert violations(shown) == []
        shoot(shown, f"accepted-{name}")

        shown.goto(f"{site.origin}/tables")
        row = shown.locator(f"[data-table='{mysql.schema}.orders_of_all_customers']")
        assert "000001:4" in row.inner_text()
        assert _APPLIED.text not in row.inner_text()
        assert "no key" in shown.locator(f"[data-table='{mysql.schema}.without_key']").inner_text()
        edges = row.evaluate("row => [...row.querySelectorAll('td')].map(one => one.getBoundingClientRect()).map(one => [one.left, one.right])")
        assert all(0 <= left < right <= viewport[0] for left, right in edges), edges
        assert violations(shown) == []
        shoot(shown, f"tables-{name}")


def test_a_table_without_a_key_is_a_note_and_no_alarm(site: PageClient) -> None:
    deadline = time.monotonic() + 60
    while True:  # on a slow machine its snapshot is still queued, or a lag names it
        (sink,) = site.json("overview")["sinks"]
        reasons = [reason for reason in sink["reasons"] if not reason.startswith("Kafka to sink: ")]
        named = [reason for reason in reasons if "without_key" in reason]
        if not [reason for reason in named if reason.endswith("rows read")] or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert not named, sink
