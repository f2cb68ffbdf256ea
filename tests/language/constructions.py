"""Constructions that STYLE.md wants to go: what each is, and how often the repository has it (pure).

`python -m tests.language --constructions [path ...]` prints each occurrence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.language.forbidden import prose_of_module, prose_of_text

IN_PROSE: Final = {
    "where": r"\bwhere\b",  # for a condition: if, unless; for a place "in which" or a noun
    "what": r"\bwhat (?:is|was|are|were|has|had|it|its|a|an|the|they|there|no|each|one|to)\b",  # the noun of the thing
    "is none": r"\b(?:is|are|was|were) (?:none|no)\b",  # one negation a sentence
    "that of": r"\b(?:that|those) of\b",  # the noun again
    "Return what": r"^\s*Return (?:what|where)\b",
}
IN_NAMES: Final = {"found": r"found|known", "look": r"look|looks|looked|told|take|takes"}

_PROSE: Final = {name: re.compile(pattern) for name, pattern in IN_PROSE.items()}
_NAMES: Final = {name: re.compile(pattern) for name, pattern in IN_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Construction:
    """One occurrence: what it is, in which file and line, and the text."""

    name: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.text}"


def constructions_of(path: str, text: str) -> Iterator[Construction]:
    """Yield the constructions in the prose and in the names of a file."""
    if not path.endswith(".py"):
        yield from _in_prose(path, prose_of_text(text))
        return
    tree = ast.parse(text)
    yield from _in_prose(path, prose_of_module(text, tree))
    yield from _in_names(path, tree)


def _in_prose(path: str, prose: Iterator[tuple[str, int]]) -> Iterator[Construction]:
    for sentence, first_line in prose:
        for name, pattern in _PROSE.items():
            for match in pattern.finditer(sentence):
                around = " ".join(sentence[max(0, match.start() - 30) : match.end() + 40].split())
                yield Construction(name, path, first_line + sentence.count("\n", 0, match.start()), around)


def _in_names(path: str, tree: ast.AST) -> Iterator[Construction]:
    """Yield variables and functions whose whole name is one of the words; a name in a function counts once."""
    seen = set[tuple[int, str]]()
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = [(scope.name.lstrip("_"), scope.lineno)]
        names += [
            (node.id, node.lineno) for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        for word, line in names:
            for name, pattern in _NAMES.items():
                if pattern.fullmatch(word) and (scope.lineno, word) not in seen:
                    seen.add((scope.lineno, word))
                    yield Construction(name, path, line, word)

