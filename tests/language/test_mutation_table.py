"""Every mutation fits one place of its module, and its tests are there: else it proves nothing, and says so only when it is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutations.mutation import Mutation
from tests.mutations.table import MUTATIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[one.name for one in MUTATIONS])
def test_a_mutation_fits_one_place_and_its_tests_are_there(mutation: Mutation) -> None:
    module = ROOT / (mutation.module.replace(".", "/") + ".py")
    assert module.read_text(encoding="utf-8").count(mutation.old) == 1
    for test in (one for one in mutation.tests if one.startswith("tests/")):
        path, _, name = test.partition("::")
        assert re.search(rf"def {re.escape(name.rpartition('::')[2].partition('[')[0])}", (ROOT / path).read_text(encoding="utf-8"))


def test_names_of_mutations_are_unique() -> None:
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)
