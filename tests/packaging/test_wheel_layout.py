"""The layout of a wheel: every package below `tidemark`, every import changed with it."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def layout() -> ModuleType:
    """tools/wheel_layout.py, which hatchling runs by its path."""
    path = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["path"]
    spec = importlib.util.spec_from_file_location("wheel_layout", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wheel_has_one_package_and_imports_no_other_of_ours(layout: ModuleType, tmp_path: Path) -> None:
    files = dict(layout.wheel_files(ROOT, tmp_path))
    assert {path.split("/")[0] for path in files} == {"tidemark"}
    for package in ("tidemark", "tidemark/schemas", "tidemark/kernels", "tidemark/producer", "tidemark/spark_jobs", "tidemark/devservers"):
        assert files[f"{package}/py.typed"].is_file()
    for path, source in files.items():
        if path.endswith(".py"):
            names = imported(ast.parse(source.read_text("utf-8")))
            assert not {name for name in names if name.partition(".")[0] in layout.MOVED}, path
            ours = {name for name in names if name.startswith("tidemark.")}
            assert not {name for name in ours if not is_there(name, files)}, path


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module))
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def is_there(name: str, files: dict[str, Path]) -> bool:
    path = name.replace(".", "/")
    return f"{path}.py" in files or f"{path}/__init__.py" in files


def test_import_statements_are_changed_and_lines_keep_their_numbers(layout: ModuleType) -> None:
    text = '"""From\nschemas, producer.\n"""\nfrom schemas.errors import (\n    A,\n)\nä = 1; from producer import b\nif ä:\n    import spark_jobs.x as x\nfrom schemas_of_others import c\nfrom .schemas import d\n'
    assert layout.with_moved_imports(text, ROOT / "tidemark" / "x.py") == (
        '"""From\nschemas, producer.\n"""\nfrom tidemark.schemas.errors import (\n    A,\n)\nä = 1; from tidemark.producer import b\nif ä:\n    import tidemark.spark_jobs.x as x\nfrom schemas_of_others import c\nfrom .schemas import d\n'
    )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("import schemas.errors\n", "import package.module as name"),
        ("from \\\n  schemas import errors\n", "on the line of"),
        ("MODULE = 'spark_jobs.jobs.worker_daemon'\n", "from `__name__` or `__package__`"),
    ],
)
def test_what_the_build_cannot_change_fails_it_with_the_line(layout: ModuleType, text: str, advice: str) -> None:
    with pytest.raises(layout.LayoutError, match=r"x\.py, line 1: ") as raised:
        layout.with_moved_imports(text, ROOT / "tidemark" / "x.py")
    assert advice in str(raised.value)


def test_text_that_looks_like_a_module_is_left_alone(layout: ModuleType) -> None:
    text = "EVENT = 'producer.started'\n"
    assert layout.with_moved_imports(text, ROOT / "tidemark" / "x.py") == text
