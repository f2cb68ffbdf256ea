"""A schema registry: Apicurio, which speaks Confluent's API.

Version 2.6.13.Final and not 3.x: it runs on Java 17, the one Spark and Kafka want here, where 3.x needs a
Java 21 runtime besides (34 MB more to fetch); it is smaller (142 against 158 MB) and is ready sooner. The
calls we make (register, by id, versions, lookup, compatibility, delete) answer the same. Unlike Confluent's,
ids are global and start at 1, and the compatibility level is NONE until it is set.
"""

from __future__ import annotations

import logging
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from devservers.bundles import bundle_entries, bundle_files
from devservers.processes import Server, free_port
from schemas.overriding import override
from tidemark.runtime.artifacts import build_once, cache_folder, unpack
from tidemark.runtime.class_archive import ClassArchive
from tidemark.runtime.java import java_home

log = logging.getLogger(__name__)


class Registry(Server):
    """A registry whose schemas are kept in its folder. `url` is the address for a Confluent client, `port` 0 for a free one."""

    def __init__(self, run_dir: Path, *, record_classes: bool = False, port: int = 0) -> None:
        super().__init__("registry", run_dir)
        self.port = self._wanted_port = port
        self._java = java_home(17) / "bin" / "java"
        self._program = program(log.info)
        self._archive = ClassArchive(
            "registry", self._java, [self._program], self.folder, record=record_classes
        )

    @property
    def url(self) -> str:
        """Base of the Confluent API."""
        return f"http://{self.host}:{self.port}/apis/ccompat/v7"

    @override
    def _choose_ports(self) -> None:
        self.port = self._wanted_port or free_port()

    @override
    def _command(self) -> list[str]:
        storage = self.folder / "data" / "registry"  # written at each commit, so that a kill loses no schema
        return [
            str(self._java), *self._archive.options(),
            "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dquarkus.http.host={self.host}", f"-Dquarkus.http.port={self.port}",
            f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{storage};DB_CLOSE_ON_EXIT=FALSE;WRITE_DELAY=0",
            "-Dquarkus.datasource.jdbc.initial-size=2", "-Dquarkus.datasource.jdbc.min-size=2",
            "-jar", str(self._program),
        ]  # fmt: skip

    @override
    def _ended(self, *, graceful: bool) -> None:
        (self._archive.adopt if graceful else self._archive.discard)()

    @override
    def _ready(self) -> bool:
        if "Listening on" not in self._log_since(self._log_begin):
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - http
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def program(say: Callable[[str], None]) -> Path:
    """Return the jar to run, in its unpacked distribution; fetch it when it is missing."""
    identity = bundle_entries("registry")[0].sha256[:12]

    def build(target: Path) -> None:
        (archive,) = bundle_files("registry", say)
        say("registry: unpacking")
        with tarfile.open(archive) as tar:
            unpack(tar, target)

    root = build_once(cache_folder() / "trees" / f"registry-{identity}", build)
    return next(iter([*root.glob("quarkus-run.jar"), *root.glob("*runner.jar")]))


def start_registry(run_dir: Path, *, record_classes: bool = False) -> Registry:
    """Start a registry with its files under `run_dir/registry`; `record_classes` as in `tidemark.runtime.class_archive`.

    Raises ArtifactError when its files are unavailable, ServerStartError with the end of the log otherwise.
    """
    return Registry(Path(run_dir), record_classes=record_classes).start()
