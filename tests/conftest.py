"""Fixtures for all tests (`tests.support`: servers, spark, flink), and a run that ends cleanly when it is terminated."""

from __future__ import annotations

import signal
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.servers", "tests.support.spark", "tests.support.flink"]

# A machine with all these servers stands still now and then: that an example took long says nothing.
settings.register_profile("tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_configure() -> None:
    """SIGTERM ends a run as Ctrl-C does: servers are stopped and their folders removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker has them alone at the end."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
