"""Who has the lock of a sink, by its number on this machine, and what is said of one that has none here. No server is needed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from schemas.findings import Finding, Remedy, Severity
from schemas.json_codec import encode
from schemas.liveness import Sign, machine
from schemas.settings import from_mapping
from tidemark.doctor.merge_start import keeps_from_running
from tidemark.doctor.other_writers import sink_writer_findings

HERE, THERE = machine(), "of another kernel"


def found_with(
    holder: int | None, sign_of: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_start: bool
) -> list[Finding]:
    """What is found where a process of this number has the lock, and a job on a machine, if any, writes liveness records."""
    monkeypatch.setattr("tidemark.api.sink_folder.lock_holder", lambda _path: holder)
    sink = from_mapping({"name": "shop", "source": {"tables": ["a"]}, "sinks": [{"name": "lake", "path": str(folder)}]}).sinks[0]
    service = Path(sink.service_path)
    service.mkdir(parents=True, exist_ok=True)
    if sign_of is not None:
        written = Sign(at_ms=time.time_ns() // 1_000_000, machine=sign_of)
        (service / "alive.json").write_text(json.dumps(encode(written)), "utf-8")
    return list(sink_writer_findings(sink, is_start=is_start))


@pytest.mark.parametrize("is_start", [True, False])
@pytest.mark.parametrize("sign_of", [None, HERE, THERE], ids=["no_sign", "here", "there"])
@pytest.mark.parametrize("holder", [0, -1, -4711])
def test_a_holder_without_a_number_here_gets_no_command(
    holder: int, sign_of: str | None, is_start: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_with(holder, sign_of, tmp_path, monkeypatch, is_start=is_start)
    assert len(found) == (1 if is_start or sign_of is None else 0)
    for one in found:
        assert (one.severity, one.fix, one.remedy) == (Severity.WARNING, "", Remedy.NONE)
        assert "a process in another container or on another machine has its lock" in one.evidence
        assert "kill" not in one.text


def test_two_writers_are_an_error_and_end_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = found_with(4711, THERE, tmp_path, monkeypatch, is_start=False)
    assert (found.severity, found.fix) == (Severity.ERROR, "kill 4711")
    (found,) = found_with(4711, THERE, tmp_path, monkeypatch, is_start=True)
    assert (found.severity, found.fix) == (Severity.WARNING, "kill 4711")
    assert not keeps_from_running(found)


def test_a_process_of_this_machine_is_named_with_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = found_with(4711, None, tmp_path, monkeypatch, is_start=False)
    assert (found.severity, found.fix) == (Severity.WARNING, "kill 4711")
    assert found_with(4711, HERE, tmp_path, monkeypatch, is_start=False) == []
    assert found_with(None, HERE, tmp_path, monkeypatch, is_start=True) == []
