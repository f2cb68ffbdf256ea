"""One Spark session for all tests of the merge job: starting one takes as long as a dozen of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.settings import Settings, SparkSettings, from_mapping
from spark_jobs.session import build_session
from tests.support.servers import unique_name
from tidemark.embedded import Kafka, Registry, spark_jars


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves the sockets of its threads to the garbage collector."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session, as the job builds it, tuned to start fast."""
    conf = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    jars = tuple(str(path) for path in spark_jars())
    session = build_session(
        SparkSettings(master="local[2]", driver_memory="1g", jars=jars, conf=conf), "tests"
    )
    yield session
    session.stop()


SinkFactory = Callable[..., Settings]


@pytest.fixture
def merge_settings(kafka: Kafka, registry: Registry, tmp_path: Path) -> SinkFactory:
    """Settings of a merge job with a prefix and a sink of its own; keyword arguments go into `spark`."""

    def make(**spark: Any) -> Settings:
        mapping: Mapping[str, Any] = {
            "name": unique_name("merge"),
            "source": {"tables": [".*"], "signal_table": "shop.signals"},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 2},
            "format": {"registry": registry.url},
            "sinks": [{"path": str(tmp_path / "lake")}],
            "spark": spark,
        }
        return from_mapping(mapping)

    return make
