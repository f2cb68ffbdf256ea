"""Marks for kernels: which functions are compiled together, which of them Python calls, and of which types they are.

`NUMBA_DISABLE_JIT=1` runs all of them as Python.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import numpy as np

from kernels.object_files import ObjectFiles
from kernels.python_calls import Type

if TYPE_CHECKING:
    from kernels.loader import Library

Function = TypeVar("Function", bound=Callable[..., Any])

IS_DISABLED: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


Mark: TypeAlias = Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True, slots=True)
class Compilation:
    """A group, by name, that this process compiles, and the marks of Numba, which `kernels.compiler` gives."""

    group: str
    dispatcher_of: Mark
    inlined: Mark


_compilations: Final[list[Compilation]] = []  # at most one, and none but in a process of `kernels.compiler`


def compile_here(compilation: Compilation) -> None:
    """Let this process compile a group: called before the modules of the group are imported."""
    _compilations.append(compilation)


class KernelEntry:
    """A kernel that Python calls. The object file of its group is loaded at the first call, or by `KernelGroup.load`."""

    def __init__(self, group: KernelGroup, function: Callable[..., Any]) -> None:
        self._group = group
        self.native: Callable[..., Any] | None = None
        self.symbol = symbol_of(function)
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled code, without the GIL. Raises `TypeError` for an array or a number that is none of its types."""
        native = self.native
        if native is None:
            native = self.native = self._group.function(self.symbol)
        return native(*arguments)


class KernelGroup:
    """Kernels that are compiled together into one object file.

    `home` is the module that has the group as `GROUP`, and `modules` are those with its kernels. `sources` are the files, and the
    folders of files, that its code is made of. `types` gives the types of annotations. With `are_typed` all kernels have
    annotations, and are compiled for these only; else Numba compiles one for each combination of types that it is called with.
    """

    def __init__(
        self,
        home: str,
        modules: Sequence[str],
        sources: Sequence[Path],
        types: Mapping[str, Type],
        *,
        are_typed: bool,
    ) -> None:
        self.home = home
        self.modules = tuple(modules)
        self.types = dict(types)
        self.are_typed = are_typed
        # While the group is compiled, in the order of definition.
        self.typed: list[Any] = []
        self.entries: list[Any] = []
        self._files = ObjectFiles(home, sources)
        self._lock = threading.Lock()
        self._library: Library | None = None

    @property
    def is_compiling(self) -> bool:
        """Whether this process compiles the group: only then has a module to import what Numba needs."""
        return self._compilation is not None

    @property
    def _compilation(self) -> Compilation | None:
        return next((one for one in _compilations if one.group == self.home and not IS_DISABLED), None)

    def kernel(self, function: Function) -> Function:
        """Mark a function that only kernels call."""
        if self._compilation is None:
            return function
        dispatcher = self._compilation.dispatcher_of(function)
        if self.are_typed:
            self.typed.append(dispatcher)
        return cast("Function", dispatcher)

    def inlined(self, function: Function) -> Function:
        """Mark a part of one kernel that is a function only for readability."""
        return function if self._compilation is None else cast("Function", self._compilation.inlined(function))

    def entry(self, function: Function) -> Function:
        """Mark a kernel that Python calls. Kernels can call it, too."""
        if self._compilation is not None:
            dispatcher = self._compilation.dispatcher_of(function)
            self.typed.append(dispatcher)
            self.entries.append(dispatcher)
            return cast("Function", dispatcher)
        if IS_DISABLED:
            # Machine integers wrap silently, NumPy's warn.
            return np.errstate(over="ignore")(function)
        return cast("Function", KernelEntry(self, function))

    def load(self) -> None:
        """Load the object file, compiled first where there is none for this processor and these sources; idempotent.

        Raises `KernelError` where it can neither be compiled nor loaded.
        """
        if not IS_DISABLED:
            self._opened()

    def function(self, symbol: str) -> Callable[..., Any]:
        """Return a function of the object file. Raises as `load` does."""
        return self._opened().function(symbol)

    def _opened(self) -> Library:
        with self._lock:
            if self._library is None:
                from kernels.loader import Library

                self._library = Library(*self._files.code())
            return self._library


def symbol_of(function: Callable[..., Any]) -> str:
    """Return the name in the object file of the function that Python calls, without the packages of an installation."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
