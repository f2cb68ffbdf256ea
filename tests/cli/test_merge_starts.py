"""What keeps `tidemark merge` from starting is one line that names it, soon, and with the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidemark.runtime import java_home

PATIENCE_S = 90
MOUNTED = 'mount -t tmpfs -o "$0" tmpfs "$1"; shift; exec "$@"'


def start(
    folder: Path, spark: Mapping[str, Any], environment: Mapping[str, str], mount: str | None = None, verb: Sequence[str] = ("merge",)
) -> tuple[int, str]:
    """Exit code and standard error of the verb, with a sink `lake` that is mounted with these options, if any."""
    lake = folder / "lake"
    document = {
        "name": "shop",
        "source": {"tables": [".*"]},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "format": {"registry": "http://127.0.0.1:1"},
        "sinks": [{"path": str(lake)}],
        "spark": spark,
    }
    config = folder / "tidemark.yaml"
    config.write_text(json.dumps(document), "utf-8")
    command = [sys.executable, "-m", "tidemark", *verb, "--config", str(config)]
    if mount is not None:
        lake.mkdir()
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED, mount, str(lake), *command]
    done = subprocess.run(
        command, env={**os.environ, "JAVA_HOME": str(java_home(17)), **environment}, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("code", "words", "spark", "environment", "mount"),
    [
        pytest.param(2, "JAVA_HOME: /nowhere: ", {}, {"JAVA_HOME": "/nowhere"}, None, id="java_home"),
        pytest.param(2, "spark.driver_memory: 'plenty' is not", {"driver_memory": "plenty"}, {}, None, id="memory_no_number"),
        pytest.param(2, "spark.driver_memory: 100m is too little", {"driver_memory": "100m"}, {}, None, id="memory_too_little"),
        pytest.param(2, "spark.jars: there is no file /nowhere.jar", {"jars": ["/nowhere.jar"]}, {}, None, id="jar_missing"),
        pytest.param(2, f"spark.jars: {__file__} is no jar", {"jars": [__file__]}, {}, None, id="jar_no_jar"),
        pytest.param(2, "spark.master: 'lokal' is none of", {"master": "lokal"}, {}, None, id="master_unknown"),
        pytest.param(1, "spark.master: no server answers", {"master": "spark://127.0.0.1:1"}, {}, None, id="master_dead"),
        pytest.param(1, "cannot be written to: Read-only file system", {}, {}, "ro", id="sink_read_only"),
        pytest.param(1, "cannot be written to: No space left on device", {}, {}, "size=64k", id="sink_full"),
        pytest.param(1, "kafka.bootstrap_servers: no server answers", {}, {}, None, id="broker_dead"),
    ],
)
def test_a_merge_job_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, code: int, words: str, spark: dict[str, Any], environment: dict[str, str], mount: str | None
) -> None:
    found, reported = start(tmp_path, spark, environment, mount)
    *news, last = reported.splitlines()
    assert words in last
    assert last.startswith("tidemark: ")
    assert all("merge.waiting_for_server" in line for line in news), reported
    assert found == code


def test_a_sink_that_is_a_file_is_refused_by_all_that_write_to_it(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    code, reported = start(tmp_path, {}, {})
    assert reported.startswith(f"tidemark: sinks: lake: path: {tmp_path / 'lake'} is a file, not a folder")
    assert (code, len(reported.splitlines())) == (2, 1)
    for verb in (("quarantine", "retry"), ("quarantine", "list"), ("verify",)):
        code, reported = start(tmp_path, {}, {}, verb=verb)
        assert "Traceback" not in reported
        assert (code in (1, 2), len(reported.splitlines())) == (True, 1), (verb, reported)
