"""Fixtures for all tests (`tests.support`: servers, spark, flink), and a run that ends cleanly when it is terminated."""

from __future__ import annotations

import signal
from types import FrameType

pytest_plugins = ["tests.support.servers", "tests.support.spark", "tests.support.flink"]


def pytest_configure() -> None:
    """SIGTERM ends a run as Ctrl-C does: servers are stopped and their folders removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
