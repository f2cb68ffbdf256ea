"""Pipelines for the end-to-end tests, on the session's servers; every one has its own name and database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, Kafka, Registry
from tests.e2e.learning import learn_once
from tests.e2e.pipeline import Pipeline
from tests.support.servers import unique_name

MakePipeline = Callable[..., Pipeline]


@pytest.fixture(scope="session", autouse=True)
def _classes_are_learned(
    mysql80: Database, kafka: Kafka, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every merge job of these tests starts a JVM: with an archive of its classes that costs half."""
    learn_once(mysql80, kafka, registry, tmp_path_factory.mktemp("learning"))


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
