"""Chromium runs here without being installed, shows a page as its user prefers it, and no error of a page is overlooked."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from devservers import npm_packages
from devservers.chromium import chromium
from devservers.npm_packages import wheel_npm
from tests.support.browser import DESKTOP, PHONE, OpenPage, browser, page, violations  # noqa: F401 - fixtures

ROOT: Final = Path(__file__).resolve().parents[2]
HTML: Final = """<!doctype html><html lang="en"><head><title>Tide</title><style>
body { background: #fff; color: #111; font-family: system-ui }
code { font-family: monospace }
@media (prefers-color-scheme: dark) { body { background: #111; color: #eee } }
</style></head><body><main><h1>The tide is high</h1><code>iiiiiiii</code><p>→✓</p>BODY</main></body></html>"""
BODIES: Final = {
    "/": "",
    "/without-alt": '<img src="/dot.svg">',
    "/throws": "<script>throw new Error('out of water')</script>",
    "/complains": "<script>console.warn('shallow'); console.error('aground')</script>",
    "/lost": '<img src="/nowhere.png" alt="A buoy">',
}
DOT: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><circle r="4" cx="4" cy="4"/></svg>'
POLICY: Final = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
FROM_THE_MACHINE: Final = {
    "linux-vdso.so.1", "/lib64/ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1",
}  # fmt: skip


class Harbour(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, kind, text = 200, "text/html", HTML
        if self.path == "/dot.svg":
            kind, text = "image/svg+xml", DOT
        elif self.path in BODIES:
            text = HTML.replace("BODY", BODIES[self.path])
        else:
            status = 404
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Harbour) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def looked_at(png: bytes) -> tuple[tuple[int, int], bytes, int]:
    """Return size, first pixel (RGB) and the number of different bytes of a PNG; of one colour, it has next to none."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, head = 8, b"", b""
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        packed += data if kind == b"IDAT" else b""
        head = data if kind == b"IHDR" else head
        at += size + 12
    width, height = struct.unpack_from(">II", head)
    rows = zlib.decompress(packed)
    return (width, height), rows[1:4], len(set(rows))  # each filter of PNG leaves the first pixel of the first row as it is


def test_chromium_needs_no_library_of_the_machine_but_the_c_library() -> None:
    program = chromium(print)
    listed = subprocess.run(
        ["ldd", program.executable], env=program.environment, capture_output=True, text=True, check=True
    ).stdout
    own = f"=> {program.folder}/"
    others = {line.split()[0] for line in listed.splitlines() if own not in line}
    assert others <= FROM_THE_MACHINE
    assert listed.count(own) >= 5


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
@pytest.mark.parametrize(("scheme", "background"), [("light", b"\xff\xff\xff"), ("dark", b"\x11\x11\x11")])
def test_a_page_is_shown_as_its_user_prefers_it(site, page, viewport, scheme, background) -> None:  # noqa: F811
    tab = page(viewport, scheme)
    tab.goto(site)
    assert tab.get_by_role("heading").inner_text() == "The tide is high"
    size, first, different = looked_at(tab.screenshot())
    assert (size, first) == (viewport, background)
    assert different > 40
    tab.goto("about:blank")
    assert looked_at(tab.screenshot())[2] < 10


def test_reduced_motion_is_a_preference_too(page) -> None:  # noqa: F811
    asked = "matchMedia('(prefers-reduced-motion: reduce)').matches"
    assert (page(reduced_motion=True).evaluate(asked), page().evaluate(asked)) == (True, False)


@pytest.mark.parametrize(("element", "font"), [("h1", "Open Sans"), ("code", "DejaVu Sans Mono"), ("p", "DejaVu Sans")])
def test_text_has_the_shape_of_the_fonts_that_come_along(site, page, element, font) -> None:  # noqa: F811
    tab = page()
    tab.goto(site)
    devtools = tab.context.new_cdp_session(tab)
    devtools.send("DOM.enable")
    devtools.send("CSS.enable")
    document = devtools.send("DOM.getDocument")["root"]["nodeId"]
    node = devtools.send("DOM.querySelector", {"nodeId": document, "selector": element})
    (used,) = devtools.send("CSS.getPlatformFontsForNode", node)["fonts"]
    assert used["familyName"] == font


def test_axe_finds_an_image_without_a_text_and_nothing_else(site, page) -> None:  # noqa: F811
    tab = page()
    tab.goto(site)
    assert violations(tab) == []
    tab.goto(f"{site}/without-alt")
    (found,) = violations(tab)
    assert found == 'image-alt: Images must have alternative text: img: <img src="/dot.svg">'


@pytest.mark.parametrize(
    ("path", "said"),
    [("/throws", "Error: out of water"), ("/complains", "[error] aground"), ("/lost", "404 (Not Found)")],
)
def test_an_error_of_the_page_is_a_problem_unless_it_is_expected(site, browser, path, said) -> None:  # noqa: F811
    pages = OpenPage(browser)
    pages().goto(f"{site}{path}")
    (problem,) = pages.problems()
    assert said in problem
    pages.expect_error(said)
    assert pages.problems() == []
    pages.expect_error("a mermaid")
    assert pages.problems() == ["no error contains 'a mermaid'"]
    pages.close()


INNER: Final = """
from tests.support.browser import browser, page

def test_good(page):
    page().set_content("<p>good</p>")

def test_failing(page):
    page().evaluate("console.log('before it failed')")
    assert page().evaluate("1") == 2

def test_reporting(page):
    page().evaluate("console.error('not expected')")
"""


def test_a_test_fails_with_its_page_and_leaves_what_it_showed(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(INNER, "utf-8")
    command = [
        sys.executable, "-m", "pytest", "-q", "-W", "error", "-c", "/dev/null", "--rootdir", tmp_path, "--basetemp", tmp_path / "of",
        "-p", "no:cacheprovider", tmp_path,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed, 1 error" in done.stdout
    assert "the page reported errors:\n" in done.stdout
    left = {str(path.relative_to(tmp_path / "of")): path for path in (tmp_path / "of").glob("*0/page-*")}
    assert sorted(left) == [
        "test_failing0/page-1.log", "test_failing0/page-1.png", "test_failing0/page-2.log", "test_failing0/page-2.png",
        "test_reporting0/page-1.log", "test_reporting0/page-1.png",
    ]  # fmt: skip
    assert left["test_failing0/page-1.log"].read_text("utf-8").startswith("[log] before it failed")
    assert left["test_reporting0/page-1.log"].read_text("utf-8").startswith("[error] not expected")
    assert looked_at(left["test_failing0/page-2.png"].read_bytes())[0] == DESKTOP


@pytest.mark.slow
def test_npm_comes_from_a_wheel_where_the_machine_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = wheel_npm(print)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert npm_packages.npm(print) == own
    monkeypatch.setattr(npm_packages, "npm", lambda _say: own)  # the wheel need not be fetched into the empty cache, too
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path))
    (package,) = npm_packages.npm_files("axe", print)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*.tgz")] == [package.relative_to(tmp_path)]
