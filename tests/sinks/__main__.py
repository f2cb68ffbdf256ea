"""`python -m tests.sinks [PYTEST OPTION ...]`: every sink by the behaviour suites, on real servers, with all crash points.

Its last line says how many sinks, crash points and batches there were; 0 if no test failed and none was left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sinks import behaviour
from tests.sinks.behaviour import Lab

_FOLDER = Path(__file__).parent
_TWIN = "Memory"
"""The end of the names of suites of the twins, which are no sinks."""


class Counting:
    """A plugin of pytest that counts what ran."""

    def __init__(self) -> None:
        self.sinks: set[str] = set()
        self.crash_points: set[tuple[str, str]] = set()
        self.batches = 0
        self.failed = 0
        self.left_out = 0
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed += report.failed
        self.left_out += report.skipped
        self.passed += report.passed and report.when == "call"

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        suite = getattr(item, "cls", None)
        if suite is not None and issubclass(suite, behaviour.SinkBehaviour) and not suite.__name__.endswith(_TWIN):
            self.sinks.add(suite.__name__)
            point = getattr(item, "callspec", None) and item.callspec.params.get("crash_point")  # type: ignore[attr-defined]
            if point:
                self.crash_points.add((suite.__name__, str(point)))


def main(options: list[str]) -> int:
    """Run the suites in this process."""
    os.environ["TIDEMARK_TEST_SERVERS"] = "all"
    counting, play = Counting(), Lab.play

    def counted(lab: Lab, *arguments: Any, **named: Any) -> Any:
        counting.batches += 1
        return play(lab, *arguments, **named)

    Lab.play = counted  # type: ignore[method-assign]
    code = pytest.main([str(_FOLDER), "-q", "-p", "no:cacheprovider", *options], plugins=[counting])
    if code != 0 or counting.left_out or not counting.batches:
        print(f"sinks: {counting.failed} tests failed, {counting.left_out} were left out, {counting.passed} passed")
        return int(code) or 1
    print(
        f"sinks: {len(counting.sinks)} sinks, {len(counting.crash_points)} crash points, {counting.batches} batches, "
        "0 differing rows"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
