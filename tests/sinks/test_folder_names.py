"""A sink's folder may have any name that the settings take."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from devservers import Kafka, Postgres
from schemas.sink_paths import local_path
from tests.sinks.append_behaviour import ONE
from tests.sinks.behaviour import AFTER_WHOLE, FIRST, WHOLE, Lab
from tests.sinks.test_changelog_sinks import FilesLab
from tests.sinks.test_delta_sink import DeltaLab
from tests.sinks.test_iceberg_sink import IcebergLab
from tests.sinks.test_kafka_mirror import MirrorLab
from tests.sinks.test_relational_sinks import RelationalLab

NAMES: Final = ("a b", "ü日", "a#b", "a:b", "a,b;c", "a'b\"c`d", "a+b=c&d@e", "~a<b>$c!(d)", "100%", "a%zz")
KINDS: Final = ("jvm", "arrow", "iceberg", "postgresql", "kafka", "files")


@pytest.fixture
def folder(tmp_path: Path, name: str) -> Path:
    return Path(local_path(str(tmp_path / name / "lake")))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_any_name_that_is_taken_has_the_rows(
    spark: SparkSession, kafka: Kafka, postgres17: Postgres, folder: Path, kind: str
) -> None:
    if kind == "files":
        files = FilesLab(spark, folder)
        files.play(0, files.events(ONE, 5, ("c", 100, None, (1, 1))))
        assert len(files.ops()) == 1
        return
    lab = _lab(kind, spark, kafka, postgres17, folder)
    lab.play(WHOLE, lab.play(FIRST))
    assert lab.values() == AFTER_WHOLE
    assert sorted(lab.quarantined()) == [7, 8]


def _lab(kind: str, spark: SparkSession, kafka: Kafka, postgres: Postgres, folder: Path) -> Lab:
    if kind == "iceberg":
        return IcebergLab(spark, folder)
    if kind == "postgresql":
        return RelationalLab(spark, folder, postgres)
    if kind == "kafka":
        return MirrorLab(spark, folder, kafka)
    return DeltaLab(spark, folder, "arrow" if kind == "arrow" else "jvm")
