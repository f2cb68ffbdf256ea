"""The types of columns are in one table, and whatever needs a fact of a type takes it from there."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.columns import ColumnType
from schemas.types.column_facts import FACTS, Semantic
from schemas.types.semantic_types import SEMANTIC_TYPES

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "kernels", "rowcodec", "producer", "spark_jobs", "tidemark", "conformance")
TABLES = ("schemas/types/", "rowcodec/", "tidemark/verify/")
"""The table, the compiler of rows, and verify, which is an independent witness."""
BRANCH = re.compile(r"\bColumnType\.[A-Z]|= ColumnType$", re.MULTILINE)


def test_every_column_type_and_every_semantic_type_has_a_row() -> None:
    assert set(FACTS) == set(ColumnType)
    assert set(SEMANTIC_TYPES) == set(Semantic) == {facts.semantic for facts in FACTS.values()}


def test_no_file_but_the_tables_branches_on_a_column_type() -> None:
    paths = [path.relative_to(ROOT).as_posix() for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    branching = [path for path in paths if BRANCH.search((ROOT / path).read_text("utf-8"))]

    assert [path for path in branching if not path.startswith(TABLES)] == []
    assert "schemas/types/column_facts.py" in branching  # the pattern finds them
