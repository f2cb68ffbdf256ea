"""The order of a run and the units of its distribution."""

from __future__ import annotations

from pathlib import Path

from tests.support.distribution import LONG, PURE, SPARKS, rank, unit

TESTS = Path(__file__).parents[1]


def test_a_file_is_a_unit_and_what_needs_spark_is_three() -> None:
    assert unit("tests/cli/test_cli.py::test_a[x::y]") == "tests/cli/test_cli.py"
    assert unit("tests/merge/test_decode.py::test") == unit("tests/merge/test_spark_model.py::test") == "tests/merge"
    assert unit("tests/merge/test_left_out.py::test") == unit("tests/merge/test_routed_merge.py::test") == "tests/merge, routes"
    assert unit("tests/sinks/test_delta_sink.py::test") == unit("tests/verify/test_image_verify.py::test") == "tests/sinks"


def test_what_is_pure_comes_first_then_the_longest() -> None:
    nodeids = ["tests/cli/test_cli.py::t", "tests/e2e/test_standby.py::t", "tests/e2e/test_crashes.py::t", "tests/schemas/test_avro.py::t"]
    assert sorted(nodeids, key=rank) == nodeids[::-1]


def test_what_is_named_is_there() -> None:
    missing = [name for name in (*PURE, *LONG) if not (TESTS / name).is_dir() and not (TESTS / f"{name}.py").is_file()]
    begins = [name for paths in SPARKS.values() for name in paths]
    assert missing + [name for name in begins if not list(TESTS.parent.glob(f"{name.removesuffix('/')}*"))] == []
