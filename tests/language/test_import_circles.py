"""No modules import each other in a circle, not even by an import inside a function."""

from __future__ import annotations

import tomllib
from functools import cache

import grimp
import pytest

from tests.language.test_glossary import ROOT

PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["root_packages"]


@cache
def circles() -> frozenset[frozenset[str]]:
    """The groups of modules of which each imports each other, if only by way of others: at load, or later inside a function."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    groups = (frozenset(other for other in above[module] if module in above[other]) | {module} for module in above)
    return frozenset(group for group in groups if len(group) > 1)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    named = [sorted(circle) for circle in circles() if any(module.split(".")[0] == package for module in circle)]
    assert named == []
