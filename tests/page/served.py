"""`python -m tests.page.served page|producer`: one of the two services in a process of its own; prints its port, ends with its input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import structlog

from schemas.settings import ServiceSettings
from tests.page.test_page_access import TOKEN, page_of
from tidemark.api.service import Service


def _page(stack: ExitStack) -> int:
    return page_of(stack, token=TOKEN).port


def _producer(stack: ExitStack) -> int:
    def insert(signal_id: str, kind: str, data: str | None) -> None:
        raise AssertionError(kind)

    return stack.enter_context(Service(ServiceSettings(token=TOKEN), insert, lambda: "{}")).port


SERVICES: dict[str, Callable[[ExitStack], int]] = {"page": _page, "producer": _producer}


@contextmanager
def served(name: str) -> Iterator[int]:
    """Serve one of `SERVICES` in another process while it is entered; the port."""
    command = [sys.executable, "-m", __name__, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline()
            assert port.strip().isdigit(), f"the service of {name} did not start: {port!r}"
            yield int(port)
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with ExitStack() as services:
        sys.stdout.write(f"{SERVICES[sys.argv[1]](services)}\n")
        sys.stdout.flush()
        sys.stdin.read()
