"""The example of docs/migrate-from-flink-cdc.md: `python -m tests.cli.flink_cdc_page` writes its translation again."""

from __future__ import annotations

import re
from pathlib import Path

from tidemark.commands.imported_settings import report, to_yaml
from tidemark.importers.flink_cdc import read_pipeline, translate_pipeline

PAGE = Path(__file__).parents[2] / "docs" / "migrate-from-flink-cdc.md"
_BLOCK = re.compile(r"```(?:ya?ml)?\n(.*?)```\n", re.DOTALL)


def executed(page: str) -> str:
    """Return the page with what the importer makes of its first block in the second, and what it prints in the third."""
    pipeline, settings, findings = _BLOCK.finditer(page)
    result = translate_pipeline(read_pipeline(pipeline[1], "pipeline.yaml"))
    body = "".join(line for line in to_yaml(result, "import-flink-cdc").splitlines(keepends=True) if not line.startswith("#"))
    parts = page[: settings.start(1)], body, page[settings.end(1) : findings.start(1)], report(result), page[findings.end(1) :]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(executed(PAGE.read_text("utf-8")), "utf-8")
