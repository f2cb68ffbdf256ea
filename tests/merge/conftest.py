"""Settings of merge jobs; the Spark session is that of `tests.support.spark`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from devservers import Kafka, Registry
from schemas.settings import Settings, from_mapping
from spark_jobs.merge import schema_sources
from tests.merge.shared_job import PLAIN, Outcomes
from tests.support.servers import unique_name

SinkFactory = Callable[..., Settings]


@pytest.fixture
def merge_settings(kafka: Kafka, registry: Registry, tmp_path: Path) -> SinkFactory:
    """Settings of a merge job with a prefix and a sink of its own; `writer` goes into the sink, what else is given into `spark`."""
    return _factory(kafka, registry, tmp_path)


@pytest.fixture(scope="module")
def shared_settings(kafka: Kafka, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of the merge job that the cases of a module share."""
    return _factory(kafka, registry, tmp_path_factory.mktemp("shared"))()


@pytest.fixture(scope="package")
def one_job(
    request: pytest.FixtureRequest, spark: SparkSession, kafka: Kafka, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Outcomes:
    """Play the tests of `PLAIN`; modules whose tests share a job with other settings have a fixture of this name."""
    return PLAIN.play_tables(request, spark, _factory(kafka, registry, tmp_path_factory.mktemp("plain"))())


def _factory(kafka: Kafka, registry: Registry, folder: Path) -> SinkFactory:
    def make(writer: str = "auto", **spark: Any) -> Settings:
        mapping: Mapping[str, Any] = {
            "name": unique_name("merge"),
            "source": {"tables": [".*"], "signal_table": "shop.signals"},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 2},
            "format": {"registry": registry.url},
            "sinks": [{"path": str(folder / "lake"), "writer": writer}],
            "spark": spark,
        }
        return from_mapping(mapping)

    return make


@pytest.fixture(autouse=True, scope="module")
def short_patience() -> Iterator[None]:
    """What the registry lost in a test it has not again a moment later."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schema_sources, "LOST_WAIT_S", 1.0)
        yield
