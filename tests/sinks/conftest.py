"""Crash points of the sinks: each suite has those of its sink."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "crash_point" in metafunc.fixturenames:
        metafunc.parametrize("crash_point", metafunc.cls.crash_points)
