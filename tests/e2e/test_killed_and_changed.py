"""`tidemark merge` killed inside a batch, and started again in a world that has changed: real processes, a Delta lake."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from devservers import Kafka, Registry
from devservers.processes import GuardedProcess
from schemas.columns import Column, ColumnType, TableSchema
from tests.chaos.hidden_versions import HiddenVersions
from tests.e2e.child_processes import environment
from tests.e2e.pipeline import spark_section
from tests.merge.lake import at
from tests.merge.topics import TableTopics
from tests.support.servers import unique_name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS: Final = 500
NUMBERS: Final = TableSchema(
    "shop",
    "numbers",
    (Column("id", ColumnType.INT, nullable=False), Column("a", ColumnType.INT, nullable=True)),
    ("id",),
)


class KilledMerge:
    """A merge job over one table with topics of its own, run as a user runs it."""

    def __init__(self, kafka: Kafka, registry: Registry, folder: Path) -> None:
        self._kafka, self._registry, self._folder = kafka, registry, folder
        self._name, self._runs = unique_name("repeat"), 0
        self.config, self.lake = folder / "tidemark.yaml", folder / "lake"
        self.topics = TableTopics(kafka.bootstrap_servers, registry.url, self._name, NUMBERS)
        self.topics.register()
        for number in range(ROWS):
            self.topics.change("c", {"id": number, "a": number % 7}, at(100 + number, 1).text, number % 2)
        self.topics.flush()

    def configure(self, registry: str = "", **transform: Any) -> None:
        """Write the settings, with one transform of the table if there is something in it."""
        transforms = [{"tables": r"shop\.numbers", **transform}] if transform else []
        sink = {"name": "lake", "type": "delta", "path": str(self.lake), "transforms": transforms}
        document: Mapping[str, Any] = {
            "name": self._name,
            "source": {"tables": [".*"], "signal_table": "shop.signals"},
            "kafka": {"bootstrap_servers": self._kafka.bootstrap_servers},
            "format": {"type": "avro", "registry": registry or self._registry.url},
            "sinks": [sink],
            "spark": spark_section(),
        }
        self.config.write_text(json.dumps(document), encoding="utf-8")

    def start(self, *arguments: str) -> GuardedProcess:
        self._runs += 1
        command = [sys.executable, "-m", "tidemark", *arguments, "--config", str(self.config)]
        return GuardedProcess.spawn(command, self.log, cwd=self._folder, env=environment())

    @property
    def log(self) -> Path:
        return self._folder / f"{self._runs}.log"

    def run(self, *arguments: str) -> tuple[int | None, str]:
        """Run a command to its end: its status and all that it has said."""
        child = self.start(*arguments)
        assert child.wait(300)
        child.kill()
        return child.status, self.log.read_text(encoding="utf-8", errors="replace")

    def merge(self) -> tuple[int | None, str]:
        return self.run("merge", "--until-caught-up")

    def die(self) -> None:
        """kill -9 as soon as there is a commit with rows, before the batch has ended."""
        child = self.start("merge", "--until-caught-up")
        deadline = time.monotonic() + 300
        while not self._has_rows():
            assert child.status is None, self.log.read_text(encoding="utf-8", errors="replace")
            assert time.monotonic() < deadline
            time.sleep(0.003)
        child.signal(signal.SIGKILL)
        assert child.wait(120)
        assert not list((self.lake / "_tidemark" / "checkpoint" / "commits").glob("[0-9]*")), "killed too late"

    def _has_rows(self) -> bool:
        log = self.lake / "shop" / "numbers" / "_delta_log"
        return any('"add"' in file.read_text(encoding="utf-8") for file in log.glob("*.json"))

    @property
    def ids(self) -> set[int]:
        return set(DeltaTable(str(self.lake / "shop" / "numbers")).to_pyarrow_table()["id"].to_pylist())


def test_a_filter_that_changed_after_a_kill_is_refused_and_the_target_can_be_made_again(
    kafka: Kafka, registry: Registry, tmp_path: Path
) -> None:
    job = KilledMerge(kafka, registry, tmp_path)
    job.configure(where="a < 3")
    job.die()
    job.configure(where="a >= 3")
    status, said = job.merge()
    assert status != 0, said
    assert "shop.numbers has rows of shop.numbers by another rule" in said
    assert "tidemark rebuild" in said
    status, said = job.run("rebuild", "shop.numbers", "--yes")
    assert status == 0, said
    status, said = job.merge()
    assert status == 0, said
    assert job.ids == {number for number in range(ROWS) if number % 7 >= 3}


def test_an_expression_that_changed_after_a_kill_is_refused_until_it_is_changed_back(
    kafka: Kafka, registry: Registry, tmp_path: Path
) -> None:
    job = KilledMerge(kafka, registry, tmp_path)
    divided, tried = (["*", f"{text} AS share"] for text in ("100 / a", "try_divide(100, a)"))
    job.configure(select=divided)
    job.die()
    job.configure(select=tried)
    status, said = job.merge()
    assert status != 0, said
    assert "by another rule" in said
    job.configure(select=divided)
    status, said = job.merge()
    assert status == 0, said
    assert job.ids == {number for number in range(ROWS) if number % 7}
    _, listed = job.run("quarantine", "list")
    assert "DIVIDE_BY_ZERO" in listed


def test_schemas_that_the_registry_did_not_show_at_first_change_no_row_of_a_batch_that_has_written(
    kafka: Kafka, registry: Registry, tmp_path: Path
) -> None:
    job = KilledMerge(kafka, registry, tmp_path)
    job.topics.alter(replace(NUMBERS, columns=(*NUMBERS.columns, Column("b", ColumnType.INT, nullable=True))))
    for number in range(ROWS, ROWS + 78):
        job.topics.change("c", {"id": number, "a": 1, "b": 2}, at(100 + number, 1).text, number % 2)
    job.topics.flush()
    with HiddenVersions(registry.url) as hidden:
        job.configure(hidden.url)
        job.die()
    job.configure()
    status, said = job.merge()
    assert status == 0, said
    assert job.ids == set(range(ROWS)), "what the first attempt could not read"
    _, listed = job.run("quarantine", "list")
    assert "78" in listed
    status, said = job.run("quarantine", "retry")
    assert status == 0, said
    assert job.ids == set(range(ROWS + 78))
