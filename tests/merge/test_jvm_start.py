"""A JVM of Spark that does not come up: the process ends within a time, says why, and leaves no JVM behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.faulty_java import ENDS_FROM_FULL_DISK, java_that

PATIENCE_S = 240
SCRIPT = """
import json, sys
from pathlib import Path
from schemas.errors import SinkError
from schemas.settings import SparkSettings
from spark_jobs.jobs.session import build_session

log_file = Path("spark.log")
log_file.touch()
problem = ""
try:
    build_session(SparkSettings(driver_memory="512m", **json.load(sys.stdin)), "test", log_file)
except SinkError as error:
    problem = str(error)
print(json.dumps(problem))
"""
STAYS_SILENT = 'case "$*" in *launcher.Main*) ;; *) echo it waits for a lock >&2; exec sleep 1000;; esac'
KILLED = 'case "$*" in *launcher.Main*) ;; *) echo it is out of memory >&2; kill -9 $$;; esac'


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process that was to start Spark ended."""

    problem: str
    seconds: float
    stderr: str


def started(folder: Path, spark: Mapping[str, object], **environment: str) -> Ended:
    """Start Spark in a process of its own, in that folder; no process of it is left behind."""
    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=folder, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )  # fmt: skip
    try:
        stdout, stderr = child.communicate(json.dumps({"master": "local[1]", **spark}), timeout=PATIENCE_S)
        seconds = time.monotonic() - begun
        assert child.returncode == 0, stderr
        return Ended(json.loads(stdout), seconds, stderr)
    finally:
        left = _group(child.pid)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert not left


def _group(leader: int) -> list[str]:
    """The commands of the processes of a group that run, without its leader."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != leader:
            with suppress(OSError):
                state, _, group = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()[:3]
                if int(group) == leader and state != "Z":
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_a_jvm_that_cannot_write_its_port_down_is_an_error_at_once(tmp_path: Path) -> None:
    """Its main thread ends by an exception, and the threads that wait for a client keep the process."""
    ended = started(tmp_path, {}, JAVA_HOME=java_that(ENDS_FROM_FULL_DISK, tmp_path))
    assert "Spark's JVM failed while it started" in ended.problem
    assert "java.io.IOException: File too large" in ended.problem
    assert "disk" in ended.problem
    assert "spark.log" in ended.problem
    assert ended.seconds < 120


def test_a_jvm_that_ends_without_an_error_is_one(tmp_path: Path) -> None:
    ended = started(tmp_path, {}, PYSPARK_SUBMIT_ARGS="--version pyspark-shell")
    assert "Spark's JVM ended with status 0 while it started" in ended.problem


def test_a_jvm_that_is_killed_while_it_starts_is_named_with_its_last_lines(tmp_path: Path) -> None:
    ended = started(tmp_path, {}, JAVA_HOME=java_that(KILLED, tmp_path))
    assert "Spark's JVM ended with status -9 while it started" in ended.problem
    assert "it is out of memory" in ended.problem
    assert "it is out of memory" in ended.stderr


def test_a_jvm_that_never_comes_up_is_ended_after_a_time(tmp_path: Path) -> None:
    ended = started(tmp_path, {"start_timeout_s": 3}, JAVA_HOME=java_that(STAYS_SILENT, tmp_path))
    assert "Spark has not started within 3 s (spark.start_timeout_s)" in ended.problem
    assert "it waits for a lock" in ended.problem
    assert 3 <= ended.seconds < 60


def test_a_cluster_that_does_not_answer_is_ended_after_a_time(tmp_path: Path) -> None:
    """The JVM is up, and waits for the cluster inside the first call."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        ended = started(tmp_path, {"master": master, "start_timeout_s": 20})
    assert "Spark has not started within 20 s (spark.start_timeout_s)" in ended.problem
    assert ended.seconds < 55  # Spark itself gives up after 60 s


def test_a_disk_that_is_full_before_the_jvm_is_started_is_an_error_of_ours(tmp_path: Path) -> None:
    """There is no folder for the file with its settings."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))\n"
    (tmp_path / "sitecustomize.py").write_text(limited, "utf-8")
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    ended = started(tmp_path, {"conf": {"spark.ui.enabled": "false"}}, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    assert ended.problem.startswith("Spark cannot be started: [Errno 2] No usable temporary directory")


def test_a_jvm_that_ends_itself_in_the_first_call_is_named(tmp_path: Path) -> None:
    """Spark ends it with this status if it can make no folder of its own."""
    blocked = tmp_path / "file"
    blocked.touch()
    ended = started(tmp_path, {"conf": {"spark.local.dir": str(blocked)}}, SPARK_LOCAL_DIRS=str(blocked))
    assert "Spark's JVM ended with status 53 while it started" in ended.problem
