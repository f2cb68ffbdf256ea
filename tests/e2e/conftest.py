"""Pipelines for the end-to-end tests, on the session's servers; every one has its own name and database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, Kafka, Registry
from tests.e2e.pipeline import Pipeline
from tests.support.servers import unique_name

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def make_pipeline(tmp_path: Path, kafka: Kafka, registry: Registry) -> Iterator[MakePipeline]:
    """`make_pipeline(server, database, **settings)`: processes end with the test."""
    with ExitStack() as stack:

        def make(server: Database, database: str, **more: Any) -> Pipeline:
            name = unique_name("e2e")
            return stack.enter_context(
                Pipeline(name, tmp_path / name, server, database, kafka, registry, more)
            )

        yield make
