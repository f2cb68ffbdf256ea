"""Crash points of the sinks: each suite has those of its sink. A suite may have more of them that only `make test-all` passes."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "crash_point" in metafunc.fixturenames:
        more = [pytest.param(point, marks=pytest.mark.slow) for point in getattr(metafunc.cls, "slow_crash_points", ())]
        metafunc.parametrize("crash_point", [*metafunc.cls.crash_points, *more])
