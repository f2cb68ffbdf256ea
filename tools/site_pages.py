"""Hooks of MkDocs: three files of the root become pages, links to them lead there, and the markers of the tests are left out."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {"README.md": "start.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository's root, and the pages that they become."""
_LINK: Final = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_MARK: Final = re.compile(r" *<!-- docs: .* -->$", re.MULTILINE)
_LIST: Final = re.compile(r"(?<=[^\n])\n(?=(?:\* |\d+\. ))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose sources are not in the folder of the documentation."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return the text without the markers of the tests, and with links as they are in the site."""
    name = page.file.src_uri
    text = _MARK.sub("", markdown)
    return _LINK.sub(lambda link: f"]({_in_the_site(name, link[1])}{link[2] or ''})", text)


def _in_the_site(page: str, link: str) -> str:
    """Return a link of a page as it is in the site, where the files of the root are beside those of `docs/`."""
    if "://" in link:
        return link
    source = {own: name for name, own in PAGES.items()}.get(page)
    path = posixpath.normpath(posixpath.join("" if source else posixpath.join("docs", posixpath.dirname(page)), link))
    target = PAGES.get(path, path.removeprefix("docs/"))
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
