"""The alert rules and the board on a real Prometheus: every expression has data, and each alert is fired by its cause."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidemark
from devservers import Database
from devservers.processes import free_port
from devservers.prometheus_server import Prometheus, start_prometheus
from schemas import signals, topics
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.support.record_producer import RecordProducer
from tests.support.servers import new_database

ROOT = Path(tidemark.__file__).parents[1]
FOLDER = ROOT / "docker" / "observability"
RULES_FILE = ROOT / "docker" / "helm" / "tidemark" / "alerts.yml"
GROUPS = yaml.safe_load(RULES_FILE.read_text("utf-8"))["groups"]
BY_METRICS = ("TidemarkClockSkew", *(rule["alert"] for rule in GROUPS[1]["rules"]))
"""Alerts that are fired by samples of their metrics."""
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule["alert"] for rule in RULES]
BOARD = json.loads((FOLDER / "grafana" / "boards" / "tidemark.json").read_text("utf-8"))
FAST = {"for": "3s"}


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text("utf-8"), re.MULTILINE)
    assert sections == ALERTS
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")


_US = "4000000+15000000x60"
"""A time in microseconds that is 4 s at the beginning, and advances with time, in steps of 15 s."""


@pytest.mark.parametrize(
    ("alert", "good", "bad"),
    [
        ("TidemarkClockSkew", {"tidemark_clock_skew_ms": "-900x60"}, {"tidemark_clock_skew_ms": "-1100x60"}),
        (
            "TidemarkTaskDown",
            {'tidemark_task_ready{job="t",instance="a"}': "1x60", 'tidemark_task_ready{job="t",instance="b"}': "0x60"},
            {'tidemark_task_ready{job="t",instance="a"}': "1x8", 'tidemark_task_ready{job="t",instance="b"}': "0x60", "tidemark_task_paused": "0x60"},
        ),
        ("TidemarkTaskDown", {"tidemark_task_ready": "0x60", "tidemark_task_paused": "1x60"}, {"tidemark_task_ready": "1x8", "tidemark_task_paused": "0x8"}),
        ("TidemarkTaskPaused", {"tidemark_task_paused": "0x60"}, {"tidemark_task_paused": "1x60"}),
        ("TidemarkHeartbeatOld", {'tidemark_heartbeat_age_seconds{source="s"}': "2x60"}, {'tidemark_heartbeat_age_seconds{source="s"}': "61x60"}),
        ("TidemarkCheckpointLag", {'tidemark_checkpoint_lag_seconds{source="s"}': "200x60"}, {'tidemark_checkpoint_lag_seconds{source="s"}': "301x60"}),
        (
            "TidemarkMergeBlocked",
            {'tidemark_merge_blocked_by{source="s"}': "1x60", 'tidemark_merge_blocked_by{source="t"}': "0x60", "tidemark_frontier_us": _US},
            {'tidemark_merge_blocked_by{source="s"}': "1x60", 'tidemark_merge_blocked_by{source="t"}': "0x60", "tidemark_frontier_us": "4000000x60"},
        ),
        (
            "TidemarkRetentionNear",
            {'tidemark_retention_head_room_seconds{reader="r",source="s"}': "30000x60"},
            {'tidemark_retention_head_room_seconds{reader="r",source="s"}': "20000x60"},
        ),
    ],
)  # fmt: skip
def test_alerts_of_tasks_and_clocks_are_fired_by_their_metrics(
    alert: str, good: dict[str, str], bad: dict[str, str], tmp_path: Path
) -> None:
    assert {name.partition("{")[0] for name in bad} == set(re.findall(r"tidemark_[a-z_]+", next(one["expr"] for one in RULES if one["alert"] == alert)))
    promtool = Prometheus(tmp_path, tmp_path / "prometheus.yml").promtool
    for series, fires in ((good, False), (bad, True)):
        samples = [{"series": name, "values": values} for name, values in series.items()]
        rule = {"eval_time": "12m", "alertname": alert}
        test = {"interval": "15s", "input_series": samples, "alert_rule_test": [{**rule, "exp_alerts": []}]}
        file = tmp_path / "test.yml"
        file.write_text(yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": "15s", "tests": [test]}), "utf-8")
        done = subprocess.run([str(promtool), "test", "rules", str(file)], capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fires, said
        assert (f'alertname="{alert}"' in said) == fires, said
        assert not fires or ('source="s"' in said) == ("source" in str(series)), said


def expressions() -> list[str]:
    """Those of the board."""
    return [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]


@contextmanager
def prometheus(folder: Path, ports: dict[str, int]) -> Iterator[Prometheus]:
    """A server with our configuration; it looks each second, and no alert waits for minutes."""
    settings: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in settings["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{ports[job['job_name']]}"]}]
    rules = [{**rule, **(FAST if "for" in rule else {})} for rule in RULES]
    (folder / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "tidemark", "rules": rules}]}), "utf-8")
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    with start_prometheus(folder, folder / "prometheus.yml") as server:
        for rules_file in (RULES_FILE, folder / "alerts.yml"):
            subprocess.run([str(server.promtool), "check", "rules", str(rules_file)], check=True, capture_output=True)
        yield server


class Scene:
    def __init__(self, pipeline: Pipeline, server: Prometheus) -> None:
        self.pipeline = pipeline
        self.server = server
        self.fired: set[str] = set()

    def wait(self, what: str, until: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"{what}: {self.server.alerts()}"
            time.sleep(0.5)

    def fires(self, alert: str) -> None:
        """Wait until an alert is fired."""
        self.wait(f"{alert} to fire", lambda: self.server.alerts().get(alert) == "firing")
        self.fired.add(alert)

    def ends(self, *alerts: str) -> None:
        """Wait until none of these is pending or firing."""
        self.wait(f"{alerts} to end", lambda: not set(alerts) & set(self.server.alerts()))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_expression_has_data_and_each_alert_is_fired_by_its_cause(
    mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    ports = {"tidemark-producer": free_port(), "tidemark-merge": free_port()}
    service = {"port": ports["tidemark-producer"], "merge_port": ports["tidemark-merge"]}
    pipeline = make_pipeline(mysql80, new_database(mysql80), service=service, snapshot={"mode": "initial"})
    with pipeline.connect() as connection:
        create_signal_table(connection)
    pipeline.sql("CREATE TABLE items (id INT PRIMARY KEY, n INT)", "CREATE TABLE odd (id INT PRIMARY KEY, n INT)")
    pipeline.sql("INSERT INTO items VALUES (1, 1)", "INSERT INTO odd VALUES (1, 1)")
    with prometheus(tmp_path, ports) as server:
        scene = Scene(pipeline, server)
        scene.fires("TidemarkProducerDown")  # nothing was started
        scene.fires("TidemarkMergeDown")
        pipeline.start("run", "merge")
        pipeline.wait_for_sink("items", "odd")
        _every_expression_has_data(scene)
        scene.ends(*ALERTS)
        _faults_of_tables(scene)
        _faults_of_processes(scene, mysql80)
        assert scene.fired == set(ALERTS) - set(BY_METRICS)


def _every_expression_has_data(scene: Scene) -> None:
    left = expressions()
    assert len(left) > 15
    deadline = time.monotonic() + PATIENCE_S
    number = 10
    while left:
        number += 1
        scene.pipeline.sql(f"INSERT INTO items VALUES ({number}, 1)")
        time.sleep(1)
        left = [one for one in left if not scene.server.query(one)]
        assert time.monotonic() < deadline, f"no data: {left}"


def _faults_of_tables(scene: Scene) -> None:
    """A table that cannot be published, a record that cannot be read, a snapshot that cannot be made: the others continue."""
    pipeline = scene.pipeline
    pipeline.sql("ALTER TABLE odd ADD COLUMN `a b` INT, ADD COLUMN a_b INT", "INSERT INTO odd VALUES (2, 2, 2, 2)")
    scene.fires("TidemarkTableSetAside")
    pipeline.sql("ALTER TABLE odd DROP COLUMN a_b")
    scene.ends("TidemarkTableSetAside")

    pipeline.send(
        signals.EXECUTE_SNAPSHOT,
        {
            "data-collections": [rf"{pipeline.database}\.items"],
            "type": "INCREMENTAL",
            "additional-conditions": [{"data-collection": f"{pipeline.database}.items", "filter": "there_is_no_such_column = 1"}],
        },
    )
    scene.fires("TidemarkSnapshotFailed")

    client = RecordProducer({"bootstrap.servers": pipeline.kafka.bootstrap_servers})
    client.produce(topics.change_topic(pipeline.name, pipeline.database, "items"), b"no record of ours", b"no key")
    client.flush(30)
    scene.fires("TidemarkQuarantine")
    scene.fires("TidemarkNeedsAPerson")


def _faults_of_processes(scene: Scene, server: Database) -> None:
    """A merge job that is dead for two minutes, a source that says nothing for one, and keeps its log for an hour only."""
    pipeline = scene.pipeline
    pipeline.sql("SET GLOBAL binlog_expire_logs_seconds = 3600")
    try:
        pipeline.kill("merge")
        pipeline.sql("INSERT INTO items VALUES (1000, 1)")
        scene.fires("TidemarkMergeDown")
        scene.fires("TidemarkLogMayBePurged")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            scene.fires("TidemarkLogLag")
            scene.fires("TidemarkFailures")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        scene.fires("TidemarkSinkLag")
        pipeline.start("merge")
        scene.ends("TidemarkSinkLag", "TidemarkLogLag", "TidemarkMergeDown", "TidemarkProducerDown")
    finally:
        pipeline.sql("SET GLOBAL binlog_expire_logs_seconds = DEFAULT")
