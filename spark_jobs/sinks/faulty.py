"""A fault-injecting wrapper of any sink: an error is raised before or after the steps that a test names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, TypeVar, cast

from schemas.overriding import override
from spark_jobs.sinks.contract import (
    ChangelogWriter,
    MirrorWriter,
    OldFilesSink,
    Quarantine,
    Sink,
    SinkTarget,
    StateStore,
)
from spark_jobs.sinks.worker_writes import WorkerLoad, WorkerPuts

_T = TypeVar("_T")
_POINTS: Final[Mapping[type, Mapping[str, str]]] = {
    OldFilesSink: {"remove_old_files": "remove_old_files"},
    StateStore: {"save": "save"},
    Quarantine: {"append": "quarantine", "remove": "remove"},
    SinkTarget: {"trust": "trust", "evolve": "evolve", "commit": "commit", "compact": "compact"},
    WorkerPuts: {"note_put": "put"},
    WorkerLoad: {"run": "load", "replace_older": "replace_older"},
    MirrorWriter: {"put": "put", "delete_between": "delete_between", "sweep": "sweep"},
    ChangelogWriter: {"append": "append"},
}
"""The calls that pass points, by interface, with the name of the step. A crash can come before and after each."""

_WRAPPED: Final = (Sink, StateStore, Quarantine, SinkTarget, WorkerLoad, MirrorWriter, ChangelogWriter)


class InjectedCrashError(Exception):
    """The process ends here: what was done stays done, nothing else happens. No code of the merge handles it."""


@dataclass(slots=True)
class Faults:
    """Which points raise an error: `before put`, `after put` ..."""

    armed: dict[str, Exception] = field(default_factory=dict)

    def crash_at(self, point: str) -> None:
        """Have the next pass of a point raise `InjectedCrashError`."""
        self.fail_at(point, InjectedCrashError(point))

    def fail_at(self, point: str, error: Exception) -> None:
        """Have the next pass of a point raise this error."""
        self.armed[point] = error

    @contextmanager
    def around(self, step: str) -> Iterator[None]:
        """Pass the points before and after a step."""
        self._pass(f"before {step}")
        yield
        self._pass(f"after {step}")

    def _pass(self, point: str) -> None:
        error = self.armed.pop(point, None)
        if error is not None:
            raise error


def faulty(inner: _T, faults: Faults) -> _T:
    """Return a sink, or a part of one, whose calls and whose results' calls pass the points of `faults`, in this process."""
    return cast("_T", _Faulty(inner, faults))  # it counts as an instance of the classes of `inner`


class _Faulty:
    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property  # type: ignore[misc]
    @override
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        steps = (points[name] for kind, points in _POINTS.items() if name in points and isinstance(self._inner, kind))
        return self._called(found, next(steps, None))

    def _called(self, call: Callable[..., Any], step: str | None) -> Callable[..., Any]:
        faults = self._faults

        @wraps(call)
        def run(*values: Any, **named: Any) -> Any:
            if step == "commit":
                return _committing(call(*values, **named), faults)
            if step is None:
                found = call(*values, **named)
            else:
                with faults.around(step):
                    found = call(*values, **named)
            return faulty(found, faults) if isinstance(found, _WRAPPED) else found

        return run


@contextmanager
def _committing(commit: AbstractContextManager[_T], faults: Faults) -> Iterator[_T]:
    """Pass the points before and after a commit, and those of its writer."""
    with faults.around("commit"), commit as writer:
        yield faulty(writer, faults)
