"""Imported at the start of a process (`startup/sitecustomize.py`): one module is imported as the mutation `TIDEMARK_MUTATION` has it."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

from tests.mutations.mutation import Mutation
from tests.mutations.table import MUTATIONS


class _MutatedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = self.get_data(path).decode("utf-8")
        found = text.count(self._mutation.old)
        if found != 1:
            message = f"the mutation {self._mutation.name!r} fits {found} places of {fullname}, not one"
            raise AssertionError(message)
        mutated: CodeType = compile(
            text.replace(self._mutation.old, self._mutation.new), path, "exec", dont_inherit=True
        )
        return mutated


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _MutatedLoader(fullname, spec.origin, self._mutation)
        return spec


def _switch_off(wanted: str) -> None:
    """Called where this module is imported: before all else, which imports what is to be mutated."""
    (mutation,) = [one for one in MUTATIONS if one.name == wanted]
    if mutation.module in sys.modules:
        message = f"{mutation.module} was imported before it could be mutated"
        raise AssertionError(message)
    sys.meta_path.insert(0, _Finder(mutation))


_switch_off(os.environ["TIDEMARK_MUTATION"])
