"""The page in a real browser, without Kafka: what it shows when nothing is known, by mouse, keyboard and screen reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Page, expect

from tests.page.test_page_access import TOKEN, page_of
from tests.support.browser import DESKTOP, PHONE, OpenPage, violations
from tests.support.page_client import PageClient
from tidemark.page.page_views import VIEWS


@pytest.fixture(autouse=True)
def stack() -> Iterator[ExitStack]:
    """Set up before the browser's page, and so ended after it: a page that renews itself fails without its server."""
    with ExitStack() as stack:
        yield stack


def path_of(view: str) -> str:
    return "/" if view == "overview" else f"/{view}"


def sign_in(shown: Page, site: PageClient) -> None:
    shown.goto(f"{site.origin}/sign-in")
    shown.get_by_label("Token").fill(site.token)
    shown.get_by_role("button", name="Sign in").click()
    expect(shown.get_by_role("button", name="Sign out")).to_be_visible()


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_each_view_is_accessible_and_fits_the_screen(viewport: tuple[int, int], scheme: str, page: OpenPage, stack: ExitStack) -> None:
    site = page_of(stack, token=TOKEN)
    shown = page(viewport, scheme)
    page.expect_error("503")  # the schema-change topic cannot be read: Kafka is not there
    sign_in(shown, site)

    for view in VIEWS:
        shown.goto(f"{site.origin}{path_of(view)}")
        expect(shown.get_by_role("navigation").get_by_role("link", name=view.capitalize())).to_be_visible()
        assert violations(shown) == [], view
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), view
    shown.goto(f"{site.origin}/")
    expect(shown.get_by_role("alert").filter(has_text="Not of now")).to_be_visible()


def test_the_browser_says_when_the_process_of_the_page_is_gone(page: OpenPage, stack: ExitStack) -> None:
    with ExitStack() as site_stack:
        site = page_of(site_stack)
        shown = page()
        shown.clock.install()
        shown.goto(f"{site.origin}/")
        shown.clock.run_for(5_000)
        expect(shown.locator("#lost")).to_be_hidden()
    page.expect_error("ERR_CONNECTION_REFUSED")
    page.expect_error("htmx:")  # htmx logs what it could not send
    shown.clock.run_for(15_000)
    expect(shown.locator("#lost")).to_contain_text("has not answered since")
    expect(shown.get_by_role("alert").filter(has_text="has not answered since")).to_be_visible()


def test_a_form_of_the_page_is_accepted_as_its_own(page: OpenPage, stack: ExitStack) -> None:
    site = page_of(stack, token=TOKEN)
    shown = page()
    sign_in(shown, site)
    shown.goto(f"{site.origin}/snapshots")
    shown.get_by_label("Tables").first.fill(r"shop\.orders")
    page.expect_error("503")
    shown.get_by_role("button", name="Start the snapshot").click()

    expect(shown.get_by_role("alert").filter(has_text="127.0.0.1:1")).to_be_visible()  # the source, which does not answer


def test_everything_is_reached_by_keyboard(page: OpenPage, stack: ExitStack) -> None:
    site = page_of(stack)
    shown = page()
    shown.goto(f"{site.origin}/changes")

    shown.keyboard.press("Tab")
    expect(shown.get_by_role("link", name="To the content")).to_be_focused()
    seen = []
    for _ in range(20):
        shown.keyboard.press("Tab")
        seen.append(shown.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))
    assert seen[1 : 1 + len(VIEWS)] == [view.capitalize() for view in VIEWS]
    assert {"table", "op", "key", "Sign in to act", "hold"} <= set(seen)


def test_a_filter_keeps_what_was_typed_and_holding_stops_the_renewal(page: OpenPage, stack: ExitStack) -> None:
    site = page_of(stack)
    shown = page()
    shown.goto(f"{site.origin}/changes")
    shown.get_by_label("Table contains").fill("<b>orders</b>")
    shown.get_by_role("button", name="Hold").click()

    expect(shown.get_by_label("Table contains")).to_have_value("<b>orders</b>")
    assert shown.locator("#live").get_attribute("hx-get") is None
    shown.get_by_role("button", name="Follow").click()
    assert "table=%3Cb%3Eorders" in (shown.locator("#live").get_attribute("hx-get") or "")
