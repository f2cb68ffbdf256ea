"""Fixtures for all tests (`tests.support`: servers, spark, flink), and a run that ends cleanly when it is terminated."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support.bytecode import keep_bytecode

pytest_plugins = [
    "tests.support.cpu_time", "tests.support.distribution", "tests.support.variants", "tests.support.servers", "tests.support.spark",
    "tests.support.flink",
]  # fmt: skip

keep_bytecode()

# A machine with all these servers stands still now and then: that an example took long says nothing.
settings.register_profile("tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

_configure = structlog.configure


def _configure_for_now(*arguments: Any, **more: Any) -> None:
    _configure(*arguments, **{**more, "cache_logger_on_first_use": False})


# A command that a test runs in this process has loggers keep what it sets for ever: whose logs a later test sees then
# would depend on what this worker has run before.
structlog.configure = _configure_for_now


def pytest_configure() -> None:
    """SIGTERM ends a run as Ctrl-C does: servers are stopped and their folders removed.

    A shell starts what it runs in the background with SIGINT ignored; the commands that tests interrupt would inherit that.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what the collection made out of garbage collections: one of the oldest generation took 0.4 s and stopped all threads."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _logs_as_in_a_new_process() -> Iterator[None]:
    """What one file's commands set of logs ends with the file."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
