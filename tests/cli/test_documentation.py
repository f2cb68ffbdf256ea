"""README and docs: short where a newcomer reads, links that lead somewhere, commands and examples that are accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.settings import from_mapping, task_from_mapping
from tidemark import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WRONG = ROOT / "docs" / "wrong-settings.md"
"""Examples that are to be refused: `tests/verify/test_wrong_settings.py` runs them."""
COMMAND = re.compile(r"^    (?:tidemark|docker compose run --rm tools) (.*)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def is_dead(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page if not path else (page.parent / path).resolve()
    return not target.exists() or bool(anchor and anchor not in anchors_of(target))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [link for link in links_of(page) if "://" not in link and is_dead(page, link)] == []


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading, here\n[a](page.md#one-heading-here) [b](#two) [c](gone.md)\n", "utf-8")

    assert [link for link in links_of(page) if is_dead(page, link)] == ["#two", "gone.md"]


def test_the_readme_is_short_enough_for_a_newcomer() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_the_index_of_the_documentation_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"

    pages = {str(page.relative_to(index.parent)) for page in index.parent.rglob("*.md")}
    assert pages - {index.name} == set(links_of(index))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_command_takes_every_command_line_of_a_page(page: Path) -> None:
    for line in COMMAND.findall(page.read_text("utf-8")):
        verb, *arguments = shlex.split(line, comments=True)
        assert cli.parser().parse_args([verb, *arguments]).verb == verb


def test_the_readme_shows_commands_at_all() -> None:
    assert len(COMMAND.findall((ROOT / "README.md").read_text("utf-8"))) >= 8


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_example_compiles(page: Path) -> None:
    for number, example in enumerate(blocks(page, "python")):
        compile(example, f"{name_of(page)}, example {number}", "exec")


@pytest.mark.parametrize("page", [page for page in PAGES if page != WRONG], ids=name_of)
def test_every_example_configuration_is_accepted_beside_that_of_the_readme(page: Path) -> None:
    (base,) = blocks(ROOT / "README.md", "yaml")
    for example in blocks(page, "yaml"):
        settings = yaml.safe_load(example)
        if "task" in settings:
            task_from_mapping(settings)
        else:
            from_mapping(merged(yaml.safe_load(base), settings))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: merged(base[key], more[key]) for key in base.keys() & more.keys() if isinstance(more[key], dict)
    }
    return {**base, **more, **both}
