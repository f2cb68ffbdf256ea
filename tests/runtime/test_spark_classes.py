"""Which Spark is started, and when its archive of classes is used."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.settings import SparkSettings
from tidemark.runtime import java_home, spark_classes, spark_jars
from tidemark.runtime.jars import SINK_BUNDLES

ROOT = Path(__file__).parents[2]
LOCAL = SparkSettings(master="local[2]")
OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(17)))
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "restored at the end")
    monkeypatch.delenv("SPARK_HOME")


def _put_archive(settings: SparkSettings) -> Path:
    """Put a file where the archive of these settings would be, and return its path."""
    recorded = spark_classes.archive(settings, Path("/nowhere"), record=True)
    recorded.location.parent.mkdir(exist_ok=True)
    recorded.location.touch()
    return recorded.location


def test_without_an_archive_nothing_is_changed() -> None:
    assert spark_classes.with_archive(LOCAL) == LOCAL
    assert "SPARK_HOME" not in os.environ


def test_a_local_job_maps_the_archive_and_keeps_its_own_options() -> None:
    path = _put_archive(LOCAL)

    own = replace(LOCAL, conf={OPTIONS: "-Dx=y", "spark.ui.enabled": "true"})
    found = spark_classes.with_archive(own)

    assert found.conf[OPTIONS].startswith(f"-XX:SharedArchiveFile={path} ")
    assert found.conf[OPTIONS].endswith(" -Dx=y")
    assert found.conf["spark.ui.enabled"] == "true"
    assert (Path(os.environ["SPARK_HOME"]) / "jars").is_dir()


def test_a_job_on_a_cluster_maps_none() -> None:
    _put_archive(LOCAL)

    assert spark_classes.with_archive(replace(LOCAL, master="spark://here:7077")).conf == {}


def test_an_archive_is_of_the_jars_it_was_made_with(tmp_path: Path) -> None:
    _put_archive(LOCAL)
    (tmp_path / "other.jar").touch()

    assert spark_classes.with_archive(replace(LOCAL, jars=(str(tmp_path / "other.jar"),))).conf == {}


def test_a_job_without_an_archive_of_its_own_takes_the_jars_and_the_archive_of_every_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_CACHE")
    of_delta, of_every = (tuple(map(str, spark_jars(types))) for types in (("delta",), SINK_BUNDLES))
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path))
    store = tmp_path / "artifacts"
    store.mkdir()
    for jar in of_delta:
        (store / Path(jar).name).symlink_to(jar)
    every = replace(LOCAL, jars=tuple(str(store / Path(jar).name) for jar in of_every))
    assert len(spark_classes.with_jars(LOCAL, ("delta",)).jars) == len(of_delta)

    for jar in of_every:
        if jar not in of_delta:
            (store / Path(jar).name).symlink_to(jar)
    assert len(spark_classes.with_jars(LOCAL, ("delta",)).jars) == len(of_delta)
    path = _put_archive(every)
    found = spark_classes.with_jars(LOCAL, ("postgresql", "iceberg"))
    assert found.jars == every.jars
    assert str(path) in found.conf[OPTIONS]
    assert len(spark_classes.with_jars(replace(LOCAL, master="spark://here:7077"), ("delta",)).jars) == len(of_delta)

    _put_archive(replace(LOCAL, jars=every.jars[: len(of_delta)]))
    assert len(spark_classes.with_jars(LOCAL, ("delta",)).jars) == len(of_delta)


def test_the_spark_of_the_environment_is_started_before_the_shared_one_and_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = spark_classes.spark_home()
    assert (package / "bin" / "spark-submit").is_file()

    shared = spark_classes.share()
    assert spark_classes.spark_home() == shared
    assert shared.is_relative_to(tmp_path)
    assert {path.name for path in (shared / "jars").iterdir()} == {path.name for path in (package / "jars").iterdir()}

    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert spark_classes.spark_home() == Path("/opt/spark")


def test_a_process_can_train_for_one_archive_after_the_other() -> None:
    """Each training ends its JVM; the next one needs a JVM of its own."""
    command = [sys.executable, "-c", _TWICE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1"]), done.stderr[-2000:]


_TWICE = """
from types import SimpleNamespace

from pyspark import SparkContext

from schemas.settings import SparkSettings
from spark_jobs.jobs import class_training


def java(*_):
    SparkContext._ensure_initialized()
    SparkContext._jvm.java.lang.System.nanoTime()
    return SimpleNamespace(stop=lambda: None)


class_training.build_session = java  # a JVM without Spark's session: a tenth of the CPU
for step in ("_stream", "_kafka", "_delta", "_iceberg"):
    setattr(class_training, step, lambda *_: None)
for number in range(2):
    class_training.train(SparkSettings())
    print(number)
"""
