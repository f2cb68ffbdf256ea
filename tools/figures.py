"""Figures of the code's shape: long files, classes and functions, wide constructors, cycles between packages.

`python tools/figures.py [ROOT]` prints them for a checkout; `tests/language/test_figures.py` checks them against the limits.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCES: Final = ("devservers", "kafkaio", "kernels", "mysqlio", "producer", "rowcodec", "schemas", "spark_jobs", "tidemark")
FILE_LINES: Final = 500
CLASS_LINES: Final = 400
FUNCTION_LINES: Final = 60
PARAMETERS: Final = 8
NAMES_OF_A_PROTOCOL: Final = frozenset({"__init__", "__main__", "conftest"})


@dataclass
class Figures:
    """What was found; each entry is `path` or `path:name`, with its size."""

    files: dict[str, int] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    constructors: dict[str, int] = field(default_factory=dict)
    cycles: list[tuple[str, ...]] = field(default_factory=list)
    shared_names: dict[str, list[str]] = field(default_factory=dict)
    shared_classes: dict[str, list[str]] = field(default_factory=dict)
    broad_excepts: dict[str, int] = field(default_factory=dict)
    source_lines: int = 0
    test_lines: int = 0


def measure(root: Path) -> Figures:
    """Return the figures of the checkout at `root`; files that git ignores are left out."""
    return measure_files(root, _modules(root))


def measure_files(root: Path, paths: Iterable[Path]) -> Figures:
    """Return the figures of some files below `root`."""
    found = Figures()
    imports: dict[str, set[str]] = defaultdict(set)
    by_name: dict[str, list[str]] = defaultdict(list)
    by_class: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        text = path.read_text("utf-8")
        name = path.relative_to(root).as_posix()
        lines = text.count("\n")
        is_test = name.startswith("tests/")
        if is_test:
            found.test_lines += lines
        elif name.startswith(SOURCES):
            found.source_lines += lines
            by_name[path.stem].append(name)
            _classes_and_excepts(name, ast.parse(text), by_class, found)
        if lines > FILE_LINES:
            found.files[name] = lines
        nodes = list(ast.walk(ast.parse(text)))
        _sizes(name, nodes, found)
        if not is_test:
            imports[_package(name)] |= set(_imported(root, nodes))
    found.cycles = _cycles({package: targets - {package} for package, targets in imports.items()})
    found.shared_classes = {title: names for title, names in by_class.items() if len(names) > 1}
    found.shared_names = {
        stem: names for stem, names in by_name.items() if len(names) > 1 and stem not in NAMES_OF_A_PROTOCOL
    }
    return found


def _modules(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [path for path in (root / line for line in listed.stdout.splitlines()) if path.is_file()]


def _sizes(name: str, nodes: Iterable[ast.AST], found: Figures) -> None:
    for node in nodes:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if isinstance(node, ast.ClassDef):
            if lines > CLASS_LINES:
                found.classes[f"{name}:{node.name}"] = lines
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    count = len(inner.args.posonlyargs) + len(inner.args.args) + len(inner.args.kwonlyargs) - 1
                    if count > PARAMETERS:
                        found.constructors[f"{name}:{node.name}"] = count
        elif lines > FUNCTION_LINES and not name.startswith("tests/"):
            found.functions[f"{name}:{node.name}"] = lines


def _classes_and_excepts(name: str, tree: ast.Module, by_class: dict[str, list[str]], found: Figures) -> None:
    """Note the public classes of a module, and its handlers of every exception."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            by_class[node.name].append(name)
    broad = sum(
        isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception"
        for node in ast.walk(tree)
    )
    if broad:
        found.broad_excepts[name] = broad


def _package(name: str) -> str:
    return name.rpartition("/")[0].replace("/", ".")


def _imported(root: Path, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Return the packages of ours that a module imports, also inside functions and for types only."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in SOURCES:
            for alias in node.names:
                yield _owner(root, f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in SOURCES:
                    yield _owner(root, alias.name)


def _owner(root: Path, dotted: str) -> str:
    """Return the package of what is imported: the longest prefix that is a folder."""
    parts = dotted.split(".")
    while len(parts) > 1 and not root.joinpath(*parts, "__init__.py").is_file():
        parts.pop()
    return ".".join(parts)


def _cycles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected parts of more than one package."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in graph.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    reached = {package: reach(package) for package in graph}
    parts = {
        tuple(sorted(other for other in graph if other in reached[package] and package in reached[other]))
        for package in graph
    }
    return sorted(part for part in parts if len(part) > 1)


def main(root: Path) -> None:
    """Print the figures of a checkout."""
    found = measure(root)
    for title, entries in (
        (f"files over {FILE_LINES} lines", found.files),
        (f"classes over {CLASS_LINES} lines", found.classes),
        (f"functions over {FUNCTION_LINES} lines", found.functions),
        (f"constructors over {PARAMETERS} parameters", found.constructors),
    ):
        print(f"{title}: {len(entries)}")
        for name, size in sorted(entries.items(), key=lambda entry: -entry[1]):
            print(f"  {size:5d} {name}")
    print(f"import cycles between packages: {len(found.cycles)}")
    for cycle in found.cycles:
        print("  " + " ".join(cycle))
    print(f"file names of several modules: {len(found.shared_names)}: {', '.join(sorted(found.shared_names))}")
    print(f"public class names of several modules: {len(found.shared_classes)}")
    for title, names in sorted(found.shared_classes.items()):
        print(f"  {title}: {' '.join(names)}")
    print(f"`except Exception`: {sum(found.broad_excepts.values())}")
    for name, count in sorted(found.broad_excepts.items()):
        print(f"  {count:5d} {name}")
    ratio = found.test_lines / max(found.source_lines, 1)
    print(f"lines: source {found.source_lines}, tests {found.test_lines} ({ratio:.2f} per line)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
