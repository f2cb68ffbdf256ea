"""What keeps `tidemark merge` from starting is one line that names it, soon, and with the right exit code."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest

from devservers import Kafka, Registry
from tests.support import guarded_kafka
from tests.support.servers import unique_name
from tidemark import cli
from tidemark.runtime import java_home

PATIENCE_S = 90
MOUNTED = 'mount -t tmpfs -o "$0" tmpfs "$1"; shift; exec "$@"'
WITHOUT_ROOT: Final = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.getuid() == 0 else ()
"""A command before another, which then may not write where rights forbid it: root may."""
UNREACHABLE: Final = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}


def document(folder: Path, servers: str, registry: str, **more: Any) -> dict[str, Any]:
    """Settings that nothing is wrong with, and `more` sections in the place of those."""
    return {
        "name": unique_name("starts"),  # tests of the same broker may have topics of the same name
        "source": {"tables": [".*"]},
        "kafka": {"bootstrap_servers": servers},
        "format": {"registry": registry},
        "sinks": [{"path": str(folder / "lake")}],
        "spark": {"driver_memory": "1g"},
    } | more


def start(
    folder: Path, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None, verb: Sequence[str] = ("merge",)
) -> tuple[int, str]:
    """Exit code and standard error of the verb, which ends before it starts a JVM: in this process."""
    printed, reported = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(reported):
        for name, value in {"JAVA_HOME": str(java_home(17)), **(environment or {})}.items():
            patch.setenv(name, value)
        code = cli.main([*verb, "--config", str(written(folder, settings))])
    assert printed.getvalue() == ""
    return code, reported.getvalue()


def written(folder: Path, settings: Mapping[str, Any]) -> Path:
    config = folder / "tidemark.yaml"
    config.write_text(json.dumps(settings), "utf-8")
    return config


def start_process(
    folder: Path,
    settings: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    mount: str | None = None,
    verb: Sequence[str] = ("merge",),
    within: Sequence[str] = (),
) -> tuple[int, str]:
    """The same of a process, with a sink `lake` that is mounted with these options, if any."""
    config = written(folder, settings)
    command = [*within, sys.executable, "-m", "tidemark", *verb, "--config", str(config)]
    if mount is not None:
        (folder / "lake").mkdir()
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED, mount, str(folder / "lake"), *command]
    env = {**os.environ, "JAVA_HOME": str(java_home(17)), **(environment or {})}
    done = subprocess.run(command, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


def lines_of(reported: str) -> list[str]:
    """The lines of the errors; the others are log events, which a program reads."""
    lines = [line for line in reported.splitlines() if not line.startswith("{")]
    assert "Traceback" not in reported
    assert all(line.startswith("tidemark: ") for line in lines), reported
    return lines


def old_java(folder: Path) -> dict[str, str]:
    """A Java that is too old: what one of version 11 prints."""
    java = folder / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n", "utf-8")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder / "old")}


CASES: Final[Sequence[Any]] = [
    pytest.param(2, "JAVA_HOME: /nowhere: ", {}, {"JAVA_HOME": "/nowhere"}, None, id="java_home"),
    pytest.param(2, "is version 11: Spark needs a Java of version 17", {}, old_java, None, id="java_too_old"),
    pytest.param(2, "spark.driver_memory: 'plenty' is not", {"driver_memory": "plenty"}, {}, None, id="memory_no_number"),
    pytest.param(2, "spark.driver_memory: 100m is too little", {"driver_memory": "100m"}, {}, None, id="memory_too_little"),
    pytest.param(2, "spark.jars: there is no file /nowhere.jar", {"jars": ["/nowhere.jar"]}, {}, None, id="jar_missing"),
    pytest.param(2, f"spark.jars: {__file__} is no jar", {"jars": [__file__]}, {}, None, id="jar_no_jar"),
    pytest.param(2, "spark.master: 'lokal' is none of", {"master": "lokal"}, {}, None, id="master_unknown"),
    pytest.param(1, "spark.master: no server answers", {"master": "spark://127.0.0.1:1"}, {}, None, id="master_dead"),
    pytest.param(1, "/lake is read-only: the merge job cannot write", {}, {}, "ro", id="sink_read_only"),
    pytest.param(1, "No space left on device; make room there, or give another folder (sinks.path, of a database sinks.work)", {}, {}, "size=64k", id="sink_full"),
]


@pytest.mark.parametrize(("code", "words", "spark", "environment", "mount"), CASES)
def test_a_merge_job_that_cannot_start_says_why_in_one_line(
    tmp_path: Path,
    kafka: Kafka,
    registry: Registry,
    code: int,
    words: str,
    spark: dict[str, Any],
    environment: dict[str, str] | Callable[[Path], dict[str, str]],
    mount: str | None,
) -> None:
    settings = document(tmp_path, kafka.bootstrap_servers, registry.url, spark={"driver_memory": "1g", **spark})
    given = environment(tmp_path) if callable(environment) else environment
    found, reported = start_process(tmp_path, settings, given, mount) if mount else start(tmp_path, settings, given)
    (line,) = lines_of(reported)
    assert words in line
    assert found == code


def test_a_broker_that_does_not_answer_is_named_in_one_line(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.doctor.kafka_checks._ANSWER_S", 2.0)
    code, reported = start(tmp_path, document(tmp_path, "127.0.0.1:1", registry.url))
    (line,) = lines_of(reported)
    assert line.startswith("tidemark: no broker of 127.0.0.1:1 answers within 2 s: ")
    assert code == 1


def test_a_user_whom_kafka_refuses_is_named_in_one_line(tmp_path: Path, registry: Registry) -> None:
    settings = document(tmp_path, "", registry.url, kafka=guarded_kafka.section("sailor", "not it"))
    code, reported = start(tmp_path, settings)
    (line,) = lines_of(reported)
    assert line.startswith("tidemark: Kafka refuses us: ")
    assert "Check kafka.security_protocol, kafka.sasl" in line
    assert code == 1


def test_a_wrong_path_of_the_registry_is_named_in_one_line_with_the_right_one(
    tmp_path: Path, kafka: Kafka, registry: Registry
) -> None:
    settings = document(tmp_path, kafka.bootstrap_servers, f"{registry.url}/subject")
    code, reported = start(tmp_path, settings)
    (line,) = lines_of(reported)
    assert line.endswith(f"export TIDEMARK_FORMAT__REGISTRY={registry.url}")
    assert code == 1


def test_a_folder_without_rights_is_named_in_one_line_with_the_command(tmp_path: Path, kafka: Kafka, registry: Registry) -> None:
    lake = tmp_path / "lake"
    lake.mkdir(mode=0o555)
    code, reported = start_process(tmp_path, document(tmp_path, kafka.bootstrap_servers, registry.url), within=WITHOUT_ROOT)
    (line,) = lines_of(reported)
    assert line == f"tidemark: sink lake: this user may not write to {lake}: the merge job cannot write. chmod u+rwx {lake}"
    assert code == 1


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path, kafka: Kafka, registry: Registry) -> None:
    spark = {"driver_memory": "100m", "jars": ["/nowhere.jar"]}
    (tmp_path / "lake").write_text("a file")
    settings = document(tmp_path, kafka.bootstrap_servers, f"{registry.url}/subject", spark=spark)
    code, reported = start(tmp_path, settings)
    found = [re.sub(r" .*", "", line.removeprefix("tidemark: ")) for line in lines_of(reported)]
    assert sorted(found) == ["Confluent's", "sink", "spark.driver_memory:", "spark.jars:"], reported
    assert code == 2


def test_the_lines_have_commands_that_mend_it_and_spark_logs_to_a_file_that_the_log_names(
    tmp_path: Path, kafka: Kafka, registry: Registry
) -> None:
    settings = document(tmp_path, kafka.bootstrap_servers, registry.url, spark={"driver_memory": "100m", "jars": ["/nowhere.jar"]})
    _, reported = start(tmp_path, settings)
    exports = [re.findall(r"export (\w+)=(\S*?)(?:;|$)", line) for line in lines_of(reported)]
    given = {name: shlex.split(value)[0] if value else "" for ((name, value),) in exports}
    code, reported = start_process(tmp_path, settings, given, verb=("merge", "--until-caught-up"))
    assert code == 0, reported
    named = next(json.loads(line) for line in reported.splitlines() if "merge.spark_starts" in line)["log_of_spark"]
    assert Path(named) == tmp_path / "lake" / "_tidemark" / "spark.log"
    assert Path(named).is_file()


def test_a_sink_that_is_a_file_is_refused_by_all_that_write_to_it(tmp_path: Path, kafka: Kafka, registry: Registry) -> None:
    (tmp_path / "lake").write_text("a file")
    settings = document(tmp_path, kafka.bootstrap_servers, registry.url)
    code, reported = start(tmp_path, settings)
    assert reported.startswith(f"tidemark: sink lake: {tmp_path / 'lake'} is a file: ")
    assert (code, len(reported.splitlines())) == (2, 1)
    for verb in (("quarantine", "retry"), ("quarantine", "list"), ("verify",)):
        code, reported = start(tmp_path, settings | UNREACHABLE, verb=verb)
        assert "Traceback" not in reported
        assert (code in (1, 2), len(reported.splitlines())) == (True, 1), (verb, reported)
