"""What keeps a thread that serves a process as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def logged_errors(log: Callable[[str], object], event: str) -> Iterator[None]:
    """Log an error that nobody foresaw, as that event with its trace: the thread that it would end has to serve again."""
    try:
        yield
    except Exception:  # noqa: BLE001 - it is logged, and the thread is needed
        log(event)
