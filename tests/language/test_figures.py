"""The shape of the code stays within its limits; `tools/figures.py` says what they are and prints the figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# A kernel is compiled or parsed as a whole; it is longer than a reader's screen, and its tests are byte by byte.
KERNELS = frozenset(
    {
        "producer/binlog/events.py",  # a parser for each kind of event
        "rowcodec/cells.py",  # a value of each column type, compiled
        "rowcodec/encode.py",  # rows into records, compiled
        "rowcodec/json_binary.py",  # MySQL's binary JSON, compiled
        "rowcodec/program.py",  # the layouts that the compiled encoder follows
        "spark_jobs/arrow/avro_kernels.py",  # Avro records by their integer program, compiled
    }
)
LONG_LOOPS = frozenset({"producer/binlog/run_kernels.py", "rowcodec/encode_run.py"})
"""Kernels that are long only as functions: what they call costs a dozen arguments each time."""


SHARED_CLASSES = 1
"""Public class names that several modules have; the bound only falls, to 5."""
BROAD_EXCEPTS = 9
"""`except Exception` in the product; the bound only falls."""


def loaded() -> ModuleType:
    """`tools/figures.py` as a module."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module
    spec.loader.exec_module(module)
    return module


figures = loaded()


@pytest.fixture(scope="module")
def found() -> Any:
    """The figures of this checkout. Not at import: each worker imports this file, and one runs its tests."""
    return figures.measure(ROOT)


def outside_kernels(entries: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in entries.items() if name.partition(":")[0] not in KERNELS | LONG_LOOPS}


def test_no_file_class_function_or_constructor_is_too_large(found: Any) -> None:
    assert outside_kernels(found.files) == {}
    assert outside_kernels(found.classes) == {}
    assert outside_kernels(found.functions) == {}
    assert found.constructors == {}


def test_every_exception_is_still_one(found: Any) -> None:
    large = {name.partition(":")[0] for name in (*found.files, *found.functions)}
    assert large >= KERNELS


def test_packages_do_not_import_each_other_in_a_circle(found: Any) -> None:
    assert found.cycles == []


def test_a_public_class_has_a_name_of_its_own(found: Any) -> None:
    assert len(found.shared_classes) <= SHARED_CLASSES, found.shared_classes


def test_handlers_of_every_exception_become_fewer(found: Any) -> None:
    assert sum(found.broad_excepts.values()) <= BROAD_EXCEPTS, found.broad_excepts


def test_shared_class_names_and_broad_handlers_are_found(tmp_path: Path) -> None:
    paths = [tmp_path / "schemas" / name for name in ("one.py", "other.py")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_text("class Rows: pass\nclass _Own: pass\ntry: pass\nexcept Exception: pass\n", "utf-8")

    measured = figures.measure_files(tmp_path, paths)

    assert measured.shared_classes == {"Rows": ["schemas/one.py", "schemas/other.py"]}
    assert measured.broad_excepts == {"schemas/one.py": 1, "schemas/other.py": 1}


def test_what_is_too_large_is_found(tmp_path: Path) -> None:
    package = tmp_path / "schemas"
    package.mkdir()
    body = "\n".join(f"        self.a{number} = {number}" for number in range(500))
    wide = ", ".join(f"a{number}: int" for number in range(9))
    (package / "large.py").write_text(f"class Large:\n    def __init__(self, {wide}) -> None:\n{body}\n", "utf-8")

    measured = figures.measure_files(tmp_path, [package / "large.py"])

    assert measured.files == {"schemas/large.py": 502}
    assert measured.classes == {"schemas/large.py:Large": 502}
    assert measured.functions == {"schemas/large.py:__init__": 501}
    assert measured.constructors == {"schemas/large.py:Large": 9}


def test_a_circle_of_packages_is_found(tmp_path: Path) -> None:
    paths = []
    for one, other in (("schemas", "producer"), ("producer", "schemas")):
        (tmp_path / one).mkdir()
        (tmp_path / one / "__init__.py").touch()
        paths.append(tmp_path / one / "module.py")
        paths[-1].write_text(f"from {other}.module import thing\n", "utf-8")

    assert figures.measure_files(tmp_path, paths).cycles == [("producer", "schemas")]
