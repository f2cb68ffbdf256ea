from __future__ import annotations

import re
from pathlib import Path

import yaml

from schemas.settings import from_mapping
from tidemark.reference import markdown

ROOT = Path(__file__).parents[2]


def test_the_configuration_reference_is_what_the_settings_tree_generates() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text("utf-8")

    assert written == markdown(), "run: python -m tidemark.reference > docs/configuration.md"


def test_the_readmes_example_configuration_is_accepted() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)

    settings = from_mapping(yaml.safe_load(example))

    assert settings.source.captures("shop", "orders")
    assert settings.sink.path == "/data/lake"
