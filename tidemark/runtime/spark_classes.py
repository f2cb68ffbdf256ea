"""Spark's class archive: a merge job whose JVM maps it starts with half the work. Made once per version, by a run without data.

An archive fits the jars that it was made with, by path and time. So that all checkouts of a machine share one, `share` keeps
Spark's jars in the cache folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.runtime.artifacts import build_once, cache_folder, exclusive
from tidemark.runtime.class_archive import ClassArchive
from tidemark.runtime.jars import SINK_BUNDLES, are_jars_here, spark_jars
from tidemark.runtime.java import java_home

if TYPE_CHECKING:
    from schemas.settings import SparkSettings

_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PARTS: Final = ("bin", "jars")


def spark_home() -> Path:
    """Return the Spark to start: `$SPARK_HOME`, else the shared one of the cache folder, else the one of the package."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    shared = _shared()
    return shared if shared.is_dir() else _package()


def share() -> Path:
    """Keep the package's Spark in the cache folder, by links where that is possible, and return where."""
    package = _package()

    def build(target: Path) -> None:
        for part in _PARTS:
            shutil.copytree(package / part, target / part, copy_function=_linked)

    return build_once(_shared(), build)


def with_jars(settings: SparkSettings, types: Iterable[str]) -> SparkSettings:
    """Return settings with the jars of sinks of these types, unless they name jars, and with the archive of a local JVM.

    Java maps an archive only for the class path that it was made with. Where there is none for just these jars, and those of every
    type are in the cache with an archive, all of them are taken.
    """
    if settings.jars:
        return with_archive(settings)
    own = with_archive(_with_jars_of(settings, types))
    if own.conf != settings.conf or not settings.master.startswith("local") or not are_jars_here(SINK_BUNDLES):
        return own
    every = with_archive(_with_jars_of(settings, SINK_BUNDLES))
    return own if every.conf == settings.conf else every


def with_archive(settings: SparkSettings) -> SparkSettings:
    """Return settings with which a local JVM maps the archive, if there is one; sets SPARK_HOME to what it was made with."""
    if not settings.master.startswith("local"):
        return settings
    try:
        options = archive(settings, Path()).options()
    except OSError:  # a cache folder that cannot be made
        return settings
    if options:
        os.environ["SPARK_HOME"] = str(spark_home())
    return _with(settings, options)


def archive(settings: SparkSettings, folder: Path, *, record: bool = False) -> ClassArchive:
    """Return the archive for this Java, this Spark and these jars; `folder` is for one that is recorded."""
    jars = [*sorted((spark_home() / "jars").glob("*.jar")), *(Path(jar) for jar in settings.jars)]
    home = Path(os.environ.get("JAVA_HOME") or java_home(17))
    return ClassArchive("spark", home / "bin" / "java", jars, folder, record=record)


def learn(settings: SparkSettings) -> None:
    """Make the archive, if there is none."""
    from spark_jobs.jobs.class_training import train

    os.environ["SPARK_HOME"] = str(spark_home())
    with exclusive("spark-classes"), tempfile.TemporaryDirectory(prefix="tidemark-classes-") as folder:
        recorded = archive(settings, Path(folder), record=True)
        if not recorded.is_there:
            train(_with(settings, recorded.options()))
            recorded.adopt()


def main() -> int:
    """Make the archive for the Spark that `tidemark merge` starts: for a checkout and for an image.

    With `--all` also that of a Spark with the jars of every type of sink, as the tests start it. With `--every` that one alone: it
    serves jobs with any sinks where all jars are in the cache.
    """
    from schemas.settings import SparkSettings

    os.environ.setdefault("JAVA_HOME", str(java_home(17)))
    if "--share" in sys.argv[1:]:
        share()
    if "--every" not in sys.argv[1:]:
        learn(_with_jars_of(SparkSettings(), ("delta",)))
    if {"--all", "--every"}.intersection(sys.argv[1:]):
        learn(_with_jars_of(SparkSettings(), SINK_BUNDLES))
    return 0


def _with_jars_of(settings: SparkSettings, types: Iterable[str]) -> SparkSettings:
    return replace(settings, jars=tuple(str(path) for path in spark_jars(types)))


def _with(settings: SparkSettings, options: list[str]) -> SparkSettings:
    if not options:
        return settings
    given = settings.conf.get(_OPTIONS, "")
    return replace(settings, conf={**settings.conf, _OPTIONS: " ".join((*options, given)).strip()})


def _shared() -> Path:
    return cache_folder() / "trees" / f"spark-{version('pyspark')}"


def _package() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pyspark is not installed: install Tidemark with the extra `spark`")
    return Path(found.origin).parent


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


if __name__ == "__main__":
    sys.exit(main())
