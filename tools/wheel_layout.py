"""The layout of a wheel: one package, `tidemark`, with the packages of `MOVED` below it.

In the repository they are packages of their own. An environment that also has another project's `schemas` cannot have ours:
pip installs two packages of one name into one folder, without a warning, and each overwrites files of the other. So the build
moves them to `tidemark.schemas` and so on, and changes the import statements. An editable installation keeps the layout of the
repository.

Hatchling runs this file as a build hook of the wheel (`pyproject.toml`).
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT_PACKAGE: Final = "tidemark"
MOVED: Final = ("devservers", "kafkaio", "kernels", "mysqlio", "producer", "rowcodec", "schemas", "spark_jobs")
"""The packages that a wheel has below `tidemark`."""

_IMPORT: Final = re.compile(rf"(from|import) +(?=({'|'.join(MOVED)})\b)")
_NAME: Final = re.compile(rf"({'|'.join(MOVED)})(\.\w+)+")


class LayoutError(Exception):
    """A module names a moved package in a way that the build cannot change; says where, and what to write."""


class WheelLayout(BuildHookInterface):
    """The build hook: it hands hatchling every file of a wheel, with the path that it has there."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the changed modules into a temporary folder and name all files for the wheel."""
        if version == "editable":
            return
        self._changed = tempfile.TemporaryDirectory(prefix="tidemark-wheel-")
        build_data["force_include"] |= {
            str(source): path for path, source in wheel_files(Path(self.root), Path(self._changed.name))
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's signature
        """Remove the temporary folder."""
        if version != "editable":
            self._changed.cleanup()


def wheel_files(root: Path, changed: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file of a wheel: its path there, and where its content is. Changed modules are written below `changed`.

    Raise `LayoutError` for a module that cannot be changed.
    """
    for package in (ROOT_PACKAGE, *MOVED):
        for file in sorted((root / package).rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            path = file.relative_to(root).as_posix()
            if package != ROOT_PACKAGE:
                path = f"{ROOT_PACKAGE}/{path}"
            yield path, _moved(file, changed / path) if file.suffix == ".py" else file


def _moved(file: Path, into: Path) -> Path:
    """Return `file`, or `into` with its text changed."""
    text = file.read_text("utf-8")
    renamed = with_moved_imports(text, file)
    if renamed == text:
        return file
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(renamed, "utf-8")
    return into


def with_moved_imports(text: str, file: Path) -> str:
    """Return the text of a module that imports the moved packages from where a wheel has them; lines keep their numbers.

    Raise `LayoutError` for `import schemas.x` without `as`, which binds the old name, and for a text that names a moved module.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(level=0, module=str(module)) if _is_moved(module):
                _move(lines, node, file)
            case ast.Import(names=names) if any(_is_moved(name.name) for name in names):
                if len(names) > 1 or names[0].asname is None:
                    _refuse(file, node, "write `from package import module`, or one `import package.module as name`")
                _move(lines, node, file)
            case ast.Constant(value=str(value)) if _NAME.fullmatch(value) and _is_module(value, file):
                _refuse(file, node, f"{value!r}: make the name of a module from `__name__` or `__package__`")
    return "".join(lines)


def _move(lines: list[str], node: ast.stmt, file: Path) -> None:
    # Columns of the syntax tree count bytes.
    line = lines[node.lineno - 1].encode()
    before, after = line[: node.col_offset].decode(), line[node.col_offset :].decode()
    found = _IMPORT.match(after)
    if found is None:
        _refuse(file, node, "write the name of the package on the line of `from` or `import`")
    lines[node.lineno - 1] = f"{before}{found[0]}{ROOT_PACKAGE}.{after[found.end():]}"


def _is_moved(module: str) -> bool:
    return module.partition(".")[0] in MOVED


def _is_module(name: str, file: Path) -> bool:
    root = next(parent.parent for parent in file.parents if parent.name in (ROOT_PACKAGE, *MOVED))
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _refuse(file: Path, node: ast.stmt | ast.expr, advice: str) -> NoReturn:
    message = f"{file}, line {node.lineno}: the wheel has {', '.join(MOVED)} below {ROOT_PACKAGE}; {advice}"
    raise LayoutError(message)
