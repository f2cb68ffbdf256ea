"""Every block of the documentation is run by some test or says why not; their number does not fall unnoticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.doc_blocks import PAGES, ROOT, Block, UnmarkedBlockError, language_of, page_of
from tests.docs.doc_execution import SETUPS, check_statically, counted
from tidemark import cli

LEAST = {"shell": 78, "sql": 12, "yaml": 26, "python": 7, "json": 7, "promql": 1}
"""Blocks that are run, by language. Raise a number when blocks are added; lower it only with the page that lost one."""
MOST_SHOWN = 17
"""Blocks that are shown and not run, each with its reason."""


def blocks_of(path: Path) -> list[Block]:
    return [block for block in page_of(path).blocks if not block.shown]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_a_page_is_run_or_says_why_not(path: Path) -> None:
    page = page_of(path)
    if "test" not in page.options:
        for block in blocks_of(path):
            check_statically(block)


def test_no_block_is_dropped_in_silence() -> None:
    executed, shown = counted(page_of(path) for path in PAGES)
    print(f"blocks run: {dict(sorted(executed.items()))}; shown with a reason: {sum(shown.values())}")

    assert {language: executed[language] for language in LEAST if executed[language] < LEAST[language]} == {}
    assert sum(shown.values()) <= MOST_SHOWN


def test_a_test_that_a_page_names_exists_and_each_setup_is_known() -> None:
    for path in PAGES:
        page = page_of(path)
        named = [page.options.get("test"), *(block.options.get("test") for block in page.blocks)]
        assert [name for name in named if name and not (ROOT / name).is_file()] == []
        assert {block.options["setup"] for block in page.blocks if "setup" in block.options} <= SETUPS.keys()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    ["# A\n\n    what is this\n", "# A\n\n```\noutput\n```\n", "# A\n\n<!-- docs: shown -->\n    tidemark run\n", "# A\n\n<!-- docs: exit2 -->\n    tidemark run\n"],
    ids=["unknown language", "no language", "no reason", "unknown option"],
)
def test_a_block_that_nobody_runs_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnmarkedBlockError, match=r"page\.md"):
        page_of(written(tmp_path, text), tmp_path)


def test_blocks_are_found_wherever_markdown_has_them(tmp_path: Path) -> None:
    text = """# A
<!-- docs: page inline -->

    tidemark run    # a comment

    tidemark merge

Text
    that continues is no block.

<!-- docs: exit=1 -->
```sql
SELECT 1;
```

1. A step

        tidemark status

2. `tidemark lag`, and `tidemark lag`. <!-- docs: stop=merge -->

* An item
    that continues.
<!-- docs: shown: a picture -->
    ──▶
"""
    blocks = page_of(written(tmp_path, text), tmp_path).blocks
    assert [(block.line, block.language, block.text.strip(), dict(block.options), block.shown) for block in blocks] == [
        (4, "shell", "tidemark run    # a comment\n\ntidemark merge", {}, ""),
        (12, "sql", "SELECT 1;", {"exit": "1"}, ""),
        (18, "shell", "tidemark status", {}, ""),
        (20, "shell", "tidemark lag", {"stop": "merge"}, ""),
        (25, "", "──▶", {}, "a picture"),
    ]


def test_the_language_of_an_indented_block_is_that_of_its_first_word() -> None:
    assert [language_of(text) for text in ("tidemark run", "# first\nmake demo", "grant x", "GRANT x ON y", "")] == ["shell", "shell", "", "sql", ""]


def test_the_words_that_the_page_of_troubles_quotes_are_in_the_code() -> None:
    text = (ROOT / "docs" / "troubleshoot.md").read_text("utf-8")
    quoted = [quote for cell in re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.MULTILINE) for quote in re.findall(r"`([^`]+)`", cell) if " " in quote and not quote.startswith("tidemark ")]
    files = [path for room in ("schemas", "kafkaio", "mysqlio", "rowcodec", "producer", "spark_jobs", "tidemark") for path in (ROOT / room).rglob("*.py")]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text("utf-8") for path in files))

    assert len(quoted) >= 6
    assert [part for quote in quoted for part in quote.split("…") if part.strip() not in code] == []


def test_a_verb_that_a_sentence_names_exists() -> None:
    for path in PAGES:
        for verb in dict.fromkeys(re.findall(r"`tidemark ([a-z][a-z-]*)(?![\w(-])", path.read_text("utf-8"))):
            with pytest.raises(SystemExit) as ended:
                cli.parser().parse_args([verb, "--help"])
            assert ended.value.code == 0, f"{path.name}: there is no tidemark {verb}"
