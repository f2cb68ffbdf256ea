"""Spark's class archive: a merge job whose JVM maps it needs 15 s of CPU less to start.

Made once per cache folder, out of a merge job that ran over real topics (about a minute); used wherever it is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark

from devservers.class_archive import ClassArchive
from tidemark.runtime import java_home, spark_jars

_PATIENCE_S = 240
_BATCH_RECORDS, _BATCHES = 1_000, 3
"""Several batches, so that MERGE is among what is learned."""
_WRITERS = ("jvm", "auto")
"""A lake for each: the JVM's own way of merging is learned, too, where Python workers merge nearly everything."""


def archive(folder: Path, *, record: bool = False) -> ClassArchive:
    """The archive for this Java and these jars."""
    jars = sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    return ClassArchive(
        "spark", java_home(17) / "bin" / "java", [*jars, *spark_jars("delta")], folder, record=record
    )


def java_options() -> dict[str, str]:
    """For `spark.conf`: nothing where no archive has been made."""
    options = archive(Path()).options()
    return {"spark.driver.extraJavaOptions": " ".join(options)} if options else {}


def learn(config_path: Path, env: Mapping[str, str]) -> None:
    """Make the archive, if there is none, out of a merge of this pipeline's topics into a lake of its own."""
    folder = config_path.parent / "classes"
    learned = archive(folder, record=True)
    if "-XX:SharedArchiveFile" in learned.options()[0]:
        return
    folder.mkdir()
    document: dict[str, Any] = json.loads(config_path.read_text(encoding="utf-8"))
    document["sinks"][0]["path"] = str(folder / "lake")
    document["spark"]["max_batch_records"] = _BATCH_RECORDS
    document["spark"]["conf"]["spark.driver.extraJavaOptions"] = " ".join(learned.options())
    path = folder / "tidemark.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    command = [sys.executable, "-m", __name__, str(path)]
    with (folder / "log").open("wb") as log:
        subprocess.run(
            command, env=dict(env), cwd=folder, stdout=log, stderr=log, timeout=_PATIENCE_S, check=True
        )
    learned.adopt()


def main(config_path: str) -> None:
    """Merge a few batches, then let the JVM end by itself: it writes the archive at its end."""
    from pyspark import SparkContext

    from spark_jobs.jobs.merge_job import MergeJob
    from tidemark.commands.merge import with_java
    from tidemark.process import config

    def stop_soon(step: str, batch_id: int) -> None:
        if step == "published" and batch_id + 1 >= _BATCHES:
            job.stop()

    settings = with_java(config.load(Path(config_path), os.environ))
    for writer in _WRITERS:
        sink = replace(settings.sink, writer=writer, path=f"{settings.sink.path}-{writer}")
        job = MergeJob(replace(settings, sinks=(sink,)), on_step=stop_soon)
        job.run(until_caught_up=True)
    java: Any = SparkContext._gateway  # there is no other way to wait for it
    java.proc.stdin.close()
    java.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
