"""The order of a run and the units of its distribution."""

from __future__ import annotations

from pathlib import Path

from tests.support.distribution import LONG, PURE, rank, unit

TESTS = Path(__file__).parents[1]


def test_a_file_is_a_unit_and_all_of_spark_is_one() -> None:
    assert unit("tests/cli/test_cli.py::test_a[x::y]") == "tests/cli/test_cli.py"
    assert unit("tests/merge/test_decode.py::test") == unit("tests/merge/test_left_out.py::test") == "tests/merge"


def test_what_is_pure_comes_first_then_the_longest() -> None:
    nodeids = ["tests/cli/test_cli.py::t", "tests/e2e/test_standby.py::t", "tests/e2e/test_crashes.py::t", "tests/schemas/test_avro.py::t"]
    assert sorted(nodeids, key=rank) == nodeids[::-1]


def test_what_is_named_is_there() -> None:
    missing = [name for name in (*PURE, *LONG) if not (TESTS / name).is_dir() and not (TESTS / f"{name}.py").is_file()]
    assert missing == []
