"""Every view in a real browser while rows are written and a snapshot runs: screenshots, accessibility, no error in the console.

`TIDEMARK_SCREENSHOTS` names a folder that keeps the screenshots: those of the documentation come from there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.browser import DESKTOP, PHONE, OpenPage, browser, page, violations
from tests.support.page_client import PageClient, page_of_log
from tests.support.servers import new_database
from tidemark.page.page_views import VIEWS

__all__ = ["browser", "page"]

FORMS: tuple[tuple[str, tuple[int, int], Literal["light", "dark"]], ...] = (
    ("light", DESKTOP, "light"),
    ("dark", DESKTOP, "dark"),
    ("phone", PHONE, "light"),
)
ROWS = 60_000


@contextmanager
def written(pipeline: Pipeline) -> Iterator[None]:
    """Rows are inserted, updated and deleted, about a hundred a second."""
    ended = threading.Event()

    def write() -> None:
        with pipeline.connect() as connection, connection.cursor() as cursor:
            number = 1
            while not ended.wait(0.05):
                number += 1
                row = (number % 90, number / 7, f"note {number}")
                cursor.execute("INSERT INTO orders (customer, amount, note) VALUES (%s, %s, %s)", row)
                cursor.execute("UPDATE orders SET amount = amount + 1, note = 'changed' WHERE id = %s", (number,))
                cursor.execute("UPDATE customers SET visits = visits + 1 WHERE id = %s", (number % 90 + 1,))
                cursor.execute("DELETE FROM orders WHERE id = %s", (number - 20,))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline) -> Pipeline:
    settings = {"service": {"page_port": 0}, "snapshot": {"mode": "never", "chunk_rows": 300, "readers": 1, "max_rows_per_s": 200}}
    made = make_pipeline(mysql80, new_database(mysql80), **settings)
    with made.connect() as connection:
        create_signal_table(connection)
    numbers = f"WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
    with made.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET cte_max_recursion_depth = {2 * ROWS}")
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, amount DECIMAL(10,2), note VARCHAR(60))")
        cursor.execute(f"INSERT INTO orders {numbers} SELECT i, i MOD 90, i / 3, 'first' FROM n")
        cursor.execute("CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(60), visits INT)")
        cursor.execute(f"INSERT INTO customers {numbers} SELECT i, CONCAT('customer ', i), 0 FROM n WHERE i <= 90")
        cursor.execute("ANALYZE TABLE orders")
    return made


def shoot(shown: Page, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("TIDEMARK_SCREENSHOTS", tmp_path))
    shown.screenshot(path=folder / f"{name}.png", full_page=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_view_is_shown_while_rows_are_written_and_a_snapshot_runs(pipeline: Pipeline, page: OpenPage, tmp_path: Path) -> None:
    pipeline.start("run", "merge", "page")
    site = page_of_log(pipeline.log_path("page"))
    with written(pipeline):
        pipeline.wait_for_log()  # a signal from before the first start is not heard
        pipeline.request_snapshot("customers")
        pipeline.wait_for_sink("customers")
        pipeline.sql("ALTER TABLE orders ADD COLUMN paid BOOLEAN DEFAULT FALSE AFTER amount, MODIFY note VARCHAR(100)")
        pipeline.wait_for_log()
        shown = {name: page(size, scheme) for name, size, scheme in FORMS}
        for one in shown.values():
            sign_in(one, site)
        shown["light"].goto(f"{site.origin}/snapshots")
        shown["light"].get_by_label("Tables").first.fill(rf"{pipeline.database}\.orders")
        shown["light"].get_by_role("button", name="Start the snapshot").click()
        expect(shown["light"].get_by_text("The signal page-")).to_be_visible()
        site.wait("the snapshot", "snapshots", lambda found: found["requests"][0]["rows_read"] > 2_000, 120)
        for name, one in shown.items():
            for view in (*VIEWS, f"schema/{pipeline.database}.orders"):
                one.goto(f"{site.origin}/{'' if view == 'overview' else view}")
                if view == "checks":
                    expect(one.get_by_text("Checked: ")).to_be_visible(timeout=60_000)
                elif view == "changes":
                    expect(one.locator("tr.op-u").first).to_be_visible(timeout=20_000)
                one.wait_for_timeout(300)
                assert violations(one) == [], view
                assert one.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), view
                shoot(one, f"{view.partition('/')[0] + ('-history' if '/' in view else '')}-{name}", tmp_path)
        state = site.json("snapshots")["requests"][0]
        assert state["state"] == "running", state  # it ran all the time
        shown["dark"].goto(f"{site.origin}/snapshots")
        expect(shown["dark"].locator(f"[data-request='{state['id']}']")).to_have_attribute("data-state", "running")
        shown["dark"].get_by_role("button", name="Pause").click()
        site.wait("the pause", "snapshots", lambda found: found["paused"])
        shown["dark"].get_by_role("button", name="Resume").click()
        site.wait("the end of the pause", "snapshots", lambda found: not found["paused"])
        shown["dark"].get_by_label("Tables").nth(1).fill(rf"{pipeline.database}\.orders")
        shown["dark"].get_by_role("button", name="Stop the snapshot").click()
        site.wait("the stop", "snapshots", lambda found: found["requests"][0]["state"] in ("cancelled", "done"))


def sign_in(shown: Page, site: PageClient) -> None:
    shown.goto(f"{site.origin}/sign-in")
    shown.get_by_label("Token").fill(site.token)
    shown.get_by_role("button", name="Sign in").click()
    expect(shown.get_by_role("button", name="Sign out")).to_be_visible()
