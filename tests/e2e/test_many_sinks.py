"""Two sinks of one producer, merged by one command: both equal the source after a kill, and one that has to end ends alone."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.support.servers import new_database
from tidemark import cli

NAMES = ("lake", "mart")


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    sinks = [{"name": name, "type": "delta", "path": str(tmp_path / name)} for name in NAMES]
    made = make_pipeline(mysql80, database, snapshot={"mode": "initial", "chunk_rows": 100}, sinks=sinks)
    with made.connect() as connection:
        create_signal_table(connection)
    made.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount INT)",
        f"INSERT INTO orders (id, amount) VALUES {', '.join(f'({number}, {number})' for number in range(500))}",
    )
    return made


def answer_of(pipeline: Pipeline, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """What a command returns and prints."""
    capsys.readouterr()
    code = cli.main([*arguments, "--config", str(pipeline.config_path)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def wait_for(pipeline: Pipeline, capsys: pytest.CaptureFixture[str], what: str, *names: str) -> dict[str, Any]:
    """The status, once all has arrived in these sinks."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        _, out, _ = answer_of(pipeline, capsys, "status", "--output", "json")
        found: dict[str, Any] = json.loads(out)["sinks"]
        states = [found[name]["sink"]["state"] for name in names]
        if all(state == "caught_up" for state in states):
            return found
        assert time.monotonic() < deadline, f"{what}: {out}"
        time.sleep(1)


def test_both_equal_the_source_after_a_kill_and_one_that_lost_its_state_ends_alone(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pipeline.start("run", "merge")
    wait_for(pipeline, capsys, "the snapshot", *NAMES)
    pipeline.sql("UPDATE orders SET amount = amount + 1", "DELETE FROM orders WHERE id % 7 = 0")
    time.sleep(1.0)
    pipeline.kill("merge")
    pipeline.wait_for_killed()
    pipeline.sql("INSERT INTO orders VALUES (1000, 1), (1001, 2)")
    pipeline.start("merge")
    found = wait_for(pipeline, capsys, "the changes", *NAMES)
    assert {name: one["sink"]["alive"] for name, one in found.items()} == {"lake": True, "mart": True}
    for name in NAMES:
        code, out, _ = answer_of(pipeline, capsys, "verify", "--sink", name)
        assert code == 0, out
    code, _, err = answer_of(pipeline, capsys, "verify")
    assert code == 2
    assert "sinks: there are 2 (lake, mart): choose one with --sink" in err

    assert pipeline.stop("merge") == 0
    service = tmp_path / "mart" / "_tidemark"  # all of it but the checkpoint is lost
    (service / "progress.json").unlink()
    shutil.rmtree(service / "state")
    pipeline.sql("UPDATE orders SET amount = 7 WHERE id = 1000")
    pipeline.start("merge")
    found = wait_for(pipeline, capsys, "the sink that was left alone", "lake")
    assert pipeline.running("merge")
    assert "merge.sink_ended" in pipeline.log_path("merge").read_text(encoding="utf-8")
    assert found["mart"]["sink"]["state"] != "caught_up"
    code, out, _ = answer_of(pipeline, capsys, "verify", "--sink", "lake")
    assert code == 0, out
    _, out, _ = answer_of(pipeline, capsys, "status")
    assert "sink lake: " in out
    assert "sink mart: " in out
    assert pipeline.stop("merge") == 0
