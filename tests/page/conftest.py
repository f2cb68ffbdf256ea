"""The browser of the tests of the page."""

from tests.support.browser import browser, page

__all__ = ["browser", "page"]
