"""What is in quarantine, also where an earlier build has put it there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from schemas.errors import ConfigError
from schemas.settings import Settings, from_mapping
from spark_jobs.merge.retried_table import Retried
from tidemark.cli import main
from tidemark.commands.quarantine import as_text, listed, retried_text


def settings_of(sink: Path) -> Settings:
    return from_mapping({"name": "shop", "source": {"tables": [".*"]}, "sinks": [{"path": str(sink)}]})


def quarantine(settings: Settings, **columns: list[Any]) -> None:
    """Two records in the form that every build has written, and more columns."""
    document = {
        "topic": ["shop.db.t", "shop-snapshot.db.t"],
        "partition": pa.array([0, 1], pa.int32()),
        "offset": [7, 8],
        "reason": ["it is odd", "it is odd"],
    }
    write_deltalake(f"{settings.sink.service_path}/quarantine", pa.table({**document, **columns}))


def test_a_quarantine_of_an_earlier_build_is_listed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    quarantine(settings)
    found = listed(settings, [r"db\.t"])
    assert [(one["table"], one["first_offset"], one["first_ms"]) for one in found] == [("db.t", 8, None), ("db.t", 7, None)]
    assert "at an unknown time" in as_text(found)


def test_a_quarantine_with_records_of_both_builds_is_listed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    quarantine(settings, table=[None, "db.t"], timestamp=[None, datetime(2026, 1, 1, tzinfo=UTC)])
    found = listed(settings, [])
    assert [one["table"] for one in found] == ["db.t", "db.t"]
    assert {one["first_ms"] for one in found} == {None, 1767225600000}


def test_records_that_stay_have_their_reason_which_need_not_be_about_reading() -> None:
    said = retried_text(Retried("db.t", settled=3, reasons={"DIVIDE_BY_ZERO: Division by zero": 2}))
    assert said.splitlines()[:2] == ["db.t: 3 merged and out of quarantine, 2 still in it", "  2 stay: DIVIDE_BY_ZERO: Division by zero"]


def test_a_pattern_that_is_none_is_refused_with_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path)
    with pytest.raises(ConfigError, match="is no regular expression"):
        listed(settings, ["("])
    config = tmp_path / "tidemark.yaml"
    config.write_text(f"name: shop\nsource: {{tables: ['.*']}}\nsinks: [{{path: '{tmp_path}'}}]\n", "utf-8")
    assert main(["quarantine", "retry", "(", "--config", str(config)]) != 0
    assert "is no regular expression" in capsys.readouterr().err
