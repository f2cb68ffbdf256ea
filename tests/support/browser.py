"""A real Chromium for tests of pages, driven by Playwright.

A `conftest.py`, or a file of tests, imports the fixtures: `browser`, and `page`, a function that opens an empty page (`OpenPage`).
A test fails when its page reports an error that was not expected: an exception nobody caught, a line of `console.error`, an answer
of 400 or above. A test that fails leaves `page-<n>.png` and `page-<n>.log` in its `tmp_path`.

`browser` lives as long as a file of tests, not as long as the session: while Playwright runs, this thread has a running event
loop, and `asyncio.run` in a test of another file would fail. It starts within a second.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import playwright
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from devservers.chromium import chromium
from devservers.npm_packages import npm_files
from devservers.packages import library_folders
from tests.support.cpu_time import shared_start

PHONE: Final = (390, 844)
DESKTOP: Final = (1280, 800)
WCAG: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
"""The rules of axe for WCAG 2.0, 2.1 and 2.2, levels A and AA."""
_ANSWER_MS: Final = 5000
_RUN_AXE: Final = "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}}).then(found => found.violations)"


class OpenPage:
    """What the fixture `page` is: called, it opens a page of its own in a context of its own."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._pages: list[tuple[Page, list[str]]] = []
        self._errors: list[str] = []
        self._expected: list[str] = []

    def __call__(
        self, viewport: tuple[int, int] = DESKTOP, scheme: Literal["light", "dark"] = "light", *, reduced_motion: bool = False
    ) -> Page:
        """Open an empty page: width and height in CSS pixels, the colour scheme and the motion that its user prefers."""
        width, height = viewport
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme,
            reduced_motion="reduce" if reduced_motion else "no-preference",
        )  # fmt: skip
        page = context.new_page()
        log: list[str] = []
        self._pages.append((page, log))
        page.on("console", lambda message: self._said(message, log))
        page.on("pageerror", lambda error: self._failed(f"{error.stack or error}", log))
        page.on("crash", lambda _page: self._failed("the page crashed", log))
        return page

    def expect_error(self, text: str) -> None:
        """Expect errors that contain a text: they do not fail the test, but their absence does."""
        self._expected.append(text)

    def problems(self) -> list[str]:
        """Return the errors of all pages that nothing expected, and what was expected but did not come."""
        for page, _log in self._pages:
            with contextlib.suppress(PlaywrightError):  # an answer of the page comes after what it has reported so far
                page.wait_for_selector("html", state="attached", timeout=_ANSWER_MS)
        unexpected = [error for error in self._errors if not any(one in error for one in self._expected)]
        absent = [one for one in self._expected if not any(one in error for error in self._errors)]
        return unexpected + [f"no error contains {one!r}" for one in absent]

    def save(self, folder: Path) -> None:
        """Write what each page shows and has logged: `page-<n>.png`, `page-<n>.log`."""
        for number, (page, log) in enumerate(self._pages, 1):
            with contextlib.suppress(PlaywrightError):  # it is closed, or has crashed
                page.screenshot(path=folder / f"page-{number}.png", timeout=_ANSWER_MS)
            (folder / f"page-{number}.log").write_text("".join(f"{line}\n" for line in log), "utf-8")

    def close(self) -> None:
        """Close all pages."""
        for page, _log in self._pages:
            with contextlib.suppress(PlaywrightError):
                page.context.close()

    def _said(self, message: ConsoleMessage, log: list[str]) -> None:
        source = message.location
        line = f"[{message.type}] {message.text} ({source['url']}:{source['lineNumber'] + 1})"
        if message.type == "error":
            self._failed(line, log)
        else:
            log.append(line)

    def _failed(self, line: str, log: list[str]) -> None:
        log.append(line)
        self._errors.append(line)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with shared_start():
        program = chromium(print)
        driver = _driver()
    try:
        with shared_start():
            started = driver.chromium.launch(executable_path=program.executable, env=program.environment)
        yield started
        started.close()
    finally:
        driver.stop()


def _driver() -> Playwright:
    """Start Playwright's driver: a Node.js that needs a library which a small Debian does not have."""
    folders = library_folders(Path(playwright.__file__).parent / "driver" / "node", print)
    with pytest.MonkeyPatch.context() as patch:
        if folders:
            patch.setenv("LD_LIBRARY_PATH", os.pathsep.join(map(str, folders)))
        return sync_playwright().start()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenPage]:
    failed_before = request.session.testsfailed
    pages = OpenPage(browser)
    yield pages
    problems = pages.problems()
    if problems or request.session.testsfailed > failed_before:
        pages.save(tmp_path)
    pages.close()
    assert not problems, "the page reported errors:\n" + "\n".join(problems)


@cache
def axe() -> str:
    """Return the source of axe-core, which checks pages for accessibility."""
    (package,) = npm_files("axe", print)
    with tarfile.open(package) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode("utf-8")


def violations(page: Page) -> list[str]:
    """Return the violations of WCAG 2, levels A and AA, that axe finds in the page as it is now.

    One line for each rule and element: `<rule>: <what it asks for>: <selector>: <start of its HTML>`. A content security policy
    of the page does not matter. What axe cannot decide is not returned.
    """
    page.evaluate(axe())
    found: list[dict[str, Any]] = page.evaluate(_RUN_AXE, list(WCAG))
    return [
        f"{rule['id']}: {rule['help']}: {' '.join(map(str, node['target']))}: {node['html'][:120]}"
        for rule in found
        for node in rule["nodes"]
    ]
