"""Nothing is used that is not exactly what the lock says."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from devservers.bundles import LOCK_FILE as DEVSERVERS_LOCK
from devservers.bundles import bundle_entries
from tidemark.runtime import ArtifactError, UnavailableError, artifacts, java, spark_jars
from tidemark.runtime.artifacts import Artifact

CONTENT = b"a jar"
GOOD = Artifact("b", "org.x:name:1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(artifacts, "lock_entries", lambda _lock: (GOOD,))
    return tmp_path / "cache"


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[str]:
    """Stands for pip: writes what the index would answer."""
    asked: list[str] = []

    def download(missing: list[Artifact], folder: Path) -> None:
        for entry in missing:
            asked.append(entry.coordinate)
            (folder / entry.file_name).write_bytes(content)

    monkeypatch.setattr(artifacts, "pip_download", download)
    return asked


def test_the_locks_are_complete_and_unique() -> None:
    production, devservers = artifacts.lock_entries(), artifacts.lock_entries(DEVSERVERS_LOCK)
    assert {e.bundle for e in production} == {"spark-delta", "spark-iceberg", "jdk4py17", "jdk4py21"}
    assert {e.bundle for e in devservers} >= {"mysql80", "mysql57", "mariadb114", "kafka", "registry"}
    entries = (*production, *devservers)
    assert all(len(e.sha256) == 64 and e.size > 0 for e in entries)
    assert len({(e.bundle, e.file_name) for e in entries}) == len(entries)
    assert len({e.file_name for e in entries}) == len({(e.file_name, e.sha256) for e in entries})


def test_a_file_is_fetched_once(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serve(monkeypatch, CONTENT)
    (path,) = artifacts.bundle_files("b")
    assert path == empty_cache / "artifacts" / "org.x__name__1.0.jar"
    assert artifacts.bundle_files("b") == [path]
    assert asked == ["org.x:name:1.0"]
    assert list((empty_cache / "staging").iterdir()) == []


def test_a_bundle_may_have_a_fetcher_of_its_own(empty_cache: Path) -> None:
    scoped = Artifact("b", "npm:@x/name:1.0:tgz", GOOD.sha256, GOOD.size)
    assert scoped.file_name == "npm__@x+name__1.0.tgz"
    (path,) = artifacts.bundle_files("b", fetcher=lambda missing, folder: (folder / missing[0].file_name).write_bytes(CONTENT) and None)
    assert path.read_bytes() == CONTENT


def test_a_corrupted_download_is_refused_and_not_kept(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, b"another jar")
    with pytest.raises(ArtifactError, match=rf"org\.x__name__1\.0\.jar.*expected sha256 {GOOD.sha256}"):
        artifacts.bundle_files("b")
    assert list((empty_cache / "artifacts").iterdir()) == []
    assert list((empty_cache / "staging").iterdir()) == []


def test_a_corrupted_cache_is_refused(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, CONTENT)
    (path,) = artifacts.bundle_files("b")
    path.write_bytes(b"flipped")
    with pytest.raises(ArtifactError, match=rf"org\.x__name__1\.0\.jar.*{GOOD.sha256}.*Delete"):
        artifacts.bundle_files("b")


def test_an_unfinished_tree_is_not_seen(empty_cache: Path) -> None:
    folder = empty_cache / "trees" / "t"

    def fail(target: Path) -> None:
        (target / "half").touch()
        msg = "stop"
        raise UnavailableError(msg)

    with pytest.raises(UnavailableError, match="stop"):
        artifacts.build_once(folder, fail)
    assert not folder.exists()
    artifacts.build_once(folder, lambda target: (target / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_an_unknown_bundle_lists_the_known_ones() -> None:
    with pytest.raises(ArtifactError, match="spark-delta"):
        artifacts.bundle_entries("nothing")
    with pytest.raises(ArtifactError, match="mysql80"):
        bundle_entries("nothing")
    with pytest.raises(UnavailableError, match="delta"):
        spark_jars(["paimon"])


def test_spark_jars_exist() -> None:
    names = [path.name for path in spark_jars()]
    wanted = (
        "spark-sql-kafka",
        "token-provider",
        "kafka-clients",
        "commons-pool2",
        "avro",
        "delta-spark",
        "delta-storage",
    )
    assert len(names) == len(wanted)
    for part in wanted:
        assert any(part in name for name in names), part


def test_a_failing_tool_reports_what_it_said() -> None:
    with pytest.raises(ArtifactError, match=r"(?s)tool ended with status 3.*no such host"):
        artifacts.run_fetcher(["/bin/sh", "-c", "echo no such host >&2; exit 3"], "tool", [])
    with pytest.raises(ArtifactError, match="cannot be started"):
        artifacts.run_fetcher(["/nonexistent/tool"], "tool", [])


def test_the_machines_java_is_taken_when_it_suits() -> None:
    home = java.java_home(17)
    assert java.java_version(home) in range(17, 22)


def test_java_from_the_wheel_drops_the_module_it_lacks() -> None:
    home = java.wheel_java_home(17)
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'version "17.' in done.stderr


def test_no_java_that_new() -> None:
    with pytest.raises(UnavailableError, match="JAVA_HOME"):
        java.wheel_java_home(99)
