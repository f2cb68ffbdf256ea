"""The last line of a job that ended: it is kept where the views read it, until the job runs again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from devservers import Kafka, Registry
from producer.sign import LivenessWriter
from schemas.errors import SourceError
from schemas.json_codec import encode
from schemas.liveness import Sign, machine
from schemas.settings import from_mapping
from schemas.topics import state_topic
from tests.support.faulty_java import ENDS_FROM_FULL_DISK, java_that
from tests.support.servers import unique_name
from tidemark import cli
from tidemark.api.observe import Observer
from tidemark.api.sink_folder import sink_facts
from tidemark.status.job_standing import JobState, SinkFacts, Standing, merge_state, producer_state
from tidemark.status.lags import lags_of

AT_MS: Final = 1_800_000_000_000
AT: Final = "2027-01-15 08:00:00Z"
ON_A_SMALL_DISK: Final = ("unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs "$0"; exec "$@"')
FULL_DISK: Final = """
import json, sys
from pathlib import Path
from schemas.settings import from_mapping
from spark_jobs.jobs.liveness_file import LivenessFile
from tidemark.api.sink_folder import sink_facts
disk = Path(sys.argv[1])
service = disk / "_tidemark"
service.mkdir()
def seen():
    facts = sink_facts(from_mapping({"name": "shop", "source": {"tables": ["shop.*"]}, "sinks": [{"path": str(disk)}]}))
    sign = facts.sign
    return {"state": None if sign is None else sign.state, "reason": None if sign is None else sign.reason, "disk": facts.disk}
def fill():
    with (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            try:
                filler.write(b"x" * 4096)
            except OSError:
                return
found = []
writer = LivenessFile(service / "alive.json")
try:
    with writer:
        found.append(seen())
        fill()
        raise OSError(28, "No space left on device")
except OSError:
    found.append(seen())
with writer.waiting("it is retried in up to 2 s: No space left on device", 1):
    found.append(seen())
(service / "alive.json").unlink()
(disk / "more").write_bytes(b"")
with (disk / "filler").open("ab", buffering=0) as filler:
    try:
        filler.write(b"x" * 8192)
    except OSError:
        pass
with writer:
    found.append(seen())
print(json.dumps(found))
"""


def killed_merge(**facts: Any) -> Standing:
    sign = Sign(at_ms=AT_MS, state="running", machine=machine())
    return merge_state(AT_MS + 3_600_000, SinkFacts(sign=sign, **facts), merged=True, behind={})


def test_a_merge_job_that_was_killed_has_ended_without_a_word_and_the_time_is_known() -> None:
    killed = killed_merge(locked=False)
    assert (killed.state, killed.alive) == (JobState.NOT_RUNNING, False)
    assert f"it ended without a word after {AT}" in killed.reason
    elsewhere = killed_merge(locked=None)
    assert elsewhere.state is JobState.SILENT
    assert AT in elsewhere.reason


def test_a_job_that_was_stopped_has_no_last_line() -> None:
    stopped = merge_state(AT_MS, SinkFacts(sign=Sign(at_ms=AT_MS, state="ended"), locked=False), merged=True, behind={})
    assert stopped.reason == "start `tidemark merge`"


def test_a_merge_job_whose_disk_is_full_says_so_whatever_else_is_known() -> None:
    assert "the disk of /lake is full" in killed_merge(locked=False, disk="the disk of /lake is full").reason
    nothing = merge_state(AT_MS, SinkFacts(disk="the disk of /lake is full"), merged=False)
    assert nothing.state is JobState.UNKNOWN
    assert "the disk of /lake is full" in nothing.reason


def test_a_producer_that_was_killed_is_silent_since_a_time_that_is_known() -> None:
    sign = Sign(at_ms=AT_MS, state="reading")
    killed = producer_state(AT_MS + 3_600_000, sign, started=True)
    assert killed.state is JobState.SILENT
    assert f"the last one is of {AT}" in killed.reason


def test_the_last_line_of_a_merge_job_survives_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [*ON_A_SMALL_DISK, str(tmp_path), sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs, ended, waits, first = json.loads(done.stdout.splitlines()[-1])
    assert (runs["state"], runs["disk"]) == ("running", "")
    assert (ended["state"], ended["reason"]) == ("ended", "[Errno 28] No space left on device")
    assert f"the disk of {tmp_path} is full" in ended["disk"]
    assert (waits["state"], waits["reason"]) == ("waiting", "it is retried in up to 2 s: No space left on device")
    assert (first["state"], first["disk"]) == (None, ended["disk"]), "what cannot be known is unknown"


def test_a_merge_job_that_ends_before_it_begins_leaves_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Kafka
) -> None:
    """And it leaves the record of a job alone that runs."""
    settings = settings_of(kafka, tmp_path, spark={"jars": [str(tmp_path / "none.jar")]})
    file, service = tmp_path / "tidemark.yaml", tmp_path / "lake" / "_tidemark"
    file.write_text(yaml.safe_dump(settings), "utf-8")
    service.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    begun_ms = time.time_ns() // 1_000_000
    assert cli.main(["merge", "--config", str(file)]) != 0
    sign = sink_facts(from_mapping(settings)).sign
    assert sign is not None
    assert (sign.state, sign.at_ms >= begun_ms) == ("ended", True)
    assert "no-java" in sign.reason

    running = Sign(at_ms=time.time_ns() // 1_000_000, state="running", machine="another")
    (service / "alive.json").write_text(json.dumps(encode(running)), "utf-8")
    assert cli.main(["merge", "--config", str(file)]) != 0
    assert sink_facts(from_mapping(settings)).sign == running


def test_a_merge_job_whose_jvm_does_not_come_up_ends_and_leaves_its_last_line(
    tmp_path: Path, kafka: Kafka, registry: Registry
) -> None:
    """The JVM of a full disk stays, without its main thread."""
    settings = settings_of(kafka, tmp_path, format={"registry": registry.url})
    file = tmp_path / "tidemark.yaml"
    file.write_text(yaml.safe_dump(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tidemark", "merge", "--config", str(file)],
        capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "JAVA_HOME": java_that(ENDS_FROM_FULL_DISK, tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    sign = sink_facts(from_mapping(settings)).sign
    assert sign is not None
    assert sign.state == "ended"
    for text in (sign.reason, done.stderr.splitlines()[-1]):
        assert "Spark's JVM failed while it started" in text
        assert "java.io.IOException: File too large" in text


def test_a_producer_that_ends_at_once_leaves_its_last_line_and_a_start_removes_it(kafka: Kafka, tmp_path: Path) -> None:
    settings = from_mapping(settings_of(kafka, tmp_path))
    make_state_topic(kafka, settings.name)
    with pytest.raises(SourceError), LivenessWriter(settings):
        raise SourceError("binlog.000001, where reading continues, is purged")
    with Observer(settings) as observer:
        ended = observer.read().producer()
        assert ended.state is JobState.NOT_RUNNING
        assert ended.reason.endswith("Z: binlog.000001, where reading continues, is purged")
        lags = lags_of(observer.read())
        assert any("is purged" in reason for reason in lags.verdict.reasons)
        with LivenessWriter(settings):
            deadline = time.monotonic() + 60
            while (now := observer.read().producer()).state is not JobState.STARTING:
                assert time.monotonic() < deadline, now
                time.sleep(0.1)
            assert "purged" not in now.text


def settings_of(kafka: Kafka, folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": unique_name("ends"),
        "source": {"tables": ["shop\\..*"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "format": {"registry": "http://127.0.0.1:1"},
        "sinks": [{"path": str(folder / "lake")}],
        **more,
    }


def make_state_topic(kafka: Kafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(state_topic(name), 2)])[state_topic(name)].result(120)
