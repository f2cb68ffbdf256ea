"""A failing area becomes a finding of that area: the others are asked, and a merge job that can run starts. No server is needed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from schemas.findings import Finding, Severity
from schemas.settings import Settings, from_mapping
from tests.support.area_logs import of_area
from tidemark.doctor import merge_start
from tidemark.doctor.examination import asked, gathered
from tidemark.doctor.merge_start import MergeStart, exit_code
from tidemark.doctor.sink_checks import sink_findings

DENIED: Final = PermissionError(13, "Permission denied")
STALE: Final = OSError(116, "Stale file handle")


def settings_of(*folders: Path) -> Settings:
    sinks = [{"name": folder.name, "path": str(folder)} for folder in folders]
    return from_mapping({"name": "shop", "source": {"tables": ["a"]}, "format": {"type": "json"}, "sinks": sinks})


def fails(_settings: Settings) -> Iterator[Finding]:
    yield Finding("kafka.one_copy", Severity.WARNING, "one copy", "lost with its broker")
    int("None")


def nothing(_settings: Settings) -> Iterator[Finding]:
    yield from ()


def test_an_exception_in_one_area_is_a_finding_of_that_area(tmp_path: Path) -> None:
    with capture_logs() as logged:
        found = gathered(asked({"kafka": fails, "registry": nothing}, settings_of(tmp_path)), time.monotonic() + 10)
    assert [one.code for one in found.findings] == ["kafka.unknown", "kafka.one_copy"]
    assert "ValueError" in found.findings[0].evidence
    assert found.checked == ("registry",)
    assert "ValueError" in found.unchecked["kafka"]
    assert [(one["event"], one["area"], one["exc_info"]) for one in of_area(logged, "doctor")] == [("doctor.area_failed", "kafka", True)]


@pytest.mark.parametrize(("error", "code"), [(DENIED, "sink.folder_rights"), (STALE, "sink.unknown")])
def test_a_folder_that_the_system_refuses_to_show_is_a_finding(
    error: OSError, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path / "lake")
    stat = os.stat

    def refuse(path: Any, *more: Any, **named: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "lake")):
            raise error
        return stat(path, *more, **named)

    monkeypatch.setattr(os, "stat", refuse)
    (found,) = sink_findings(settings.sinks[0])(settings)
    assert (found.code, found.severity) == (code, Severity.ERROR)
    assert str(error.strerror) in found.evidence
    assert str(tmp_path / "lake") in found.evidence


def started(monkeypatch: pytest.MonkeyPatch, settings: Settings, kafka: Any = nothing, spark: Any = nothing) -> list[Finding]:
    """What keeps a merge job from running whose brokers and Spark answer like this."""
    monkeypatch.setattr(merge_start, "kafka_of_merge_job", kafka)
    monkeypatch.setattr(merge_start, "spark_findings", spark)
    return MergeStart(settings, []).errors(settings, threading.Event())


def test_a_merge_job_starts_although_checks_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, settings_of(tmp_path / "lake"), kafka=fails, spark=fails) == []


def test_a_file_where_one_of_several_sinks_belongs_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").write_text("a file")
    assert started(monkeypatch, settings_of(tmp_path / "lake", tmp_path / "shop")) == []
    errors = started(monkeypatch, settings_of(tmp_path / "lake"))
    assert ([one.code for one in errors], exit_code(errors)) == (["sink.folder_is_file"], 2)
    (tmp_path / "shop").write_text("a file")
    assert len(started(monkeypatch, settings_of(tmp_path / "lake", tmp_path / "shop"))) == 2


def test_a_start_waits_once_for_a_silent_area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def silent(_settings: Settings) -> Iterator[Finding]:
        end.wait(30)
        yield from ()

    monkeypatch.setattr("tidemark.doctor.examination.AREA_S", 20.0)
    monkeypatch.setattr(merge_start, "AREA_S", 0.3)
    begun = time.monotonic()
    try:
        assert started(monkeypatch, settings_of(tmp_path / "lake"), spark=silent) == []
    finally:
        end.set()
    assert time.monotonic() - begun < 10
