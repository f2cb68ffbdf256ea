"""The documentation as a site: it builds without a warning, has every page, and asks no other server for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.doc_blocks import PAGES, ROOT

_FETCHED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"> ]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_every_page_is_in_the_site_without_the_markers_of_the_tests(site: Path) -> None:
    names = {"start.html", "contributing.html", "changelog.html"}
    for path in PAGES[1:]:
        name = path.relative_to(ROOT / "docs").with_suffix(".html")
        names.add(str(name).replace("README.html", "index.html"))
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages - {"404.html"} == names
    assert [name for name in sorted(names) if "docs: " in re.sub(r"<code.*?</code>", "", (site / name).read_text("utf-8"), flags=re.DOTALL)] == []


def test_the_site_asks_no_other_server_for_anything(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert _FETCHED.findall(path.read_text("utf-8")) == [], path.name
    for path in site.rglob("*.css"):
        assert re.findall(r"url\(\"?(?:https?:)?//", path.read_text("utf-8")) == [], path.name


def test_what_is_code_in_a_page_is_code_in_the_site(site: Path) -> None:
    """Python's Markdown reads lists and blocks in its own way: a command must not become a sentence."""
    start = (site / "start.html").read_text("utf-8")
    assert re.search(r"<code[^>]*>[^<]*tidemark verify", start)
    assert (site / "troubleshoot.html").read_text("utf-8").count("<table>") >= 6
    for path in PAGES[1:]:
        page = (site / path.relative_to(ROOT / "docs").with_suffix(".html")) if path.name != "README.md" else site / "index.html"
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert re.findall(r"<p>(?:[^<]*\n)?\s*(?:tidemark (?:run|signal|verify)|\* |\d\. )", text) == [], path.name
