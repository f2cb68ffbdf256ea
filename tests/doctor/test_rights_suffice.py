"""The rights that `tidemark doctor` has granted are enough: a producer and merge jobs run with these and no others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from devservers import Database, Registry
from kafkaio.topic_admin import TopicAdmin
from schemas.findings import Finding
from schemas.settings import KafkaSettings
from schemas.topics import members_topic
from tests.doctor.doctored_site import paste_in_shell
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support import guarded_kafka
from tests.support.servers import unique_name
from tidemark.doctor.area_findings import UncheckedError
from tidemark.doctor.kafka_checks import kafka_findings
from tidemark.process import config


def rights(path: Path, *, of_producer: bool) -> list[Finding]:
    """The findings on rights for the settings in a file."""
    found: list[Finding] = []
    with suppress(UncheckedError):  # the settings of brokers and topics are not shown to this user
        found.extend(kafka_findings(config.load(path, {}), of_producer=of_producer))
    return [one for one in found if one.code.startswith("kafka.rights")]


@pytest.mark.parametrize("exists", [True, False])
def test_rights_on_the_members_of_a_group_are_named_and_granted(exists: bool, tmp_path: Path) -> None:
    broker, group = guarded_kafka.guarded_kafka(), unique_name("group")
    administrator = TopicAdmin(KafkaSettings(bootstrap_servers=broker.bootstrap_servers))
    if exists:
        administrator.ensure({members_topic(group): 1})
    path = tmp_path / "tidemark.yaml"
    document = {
        "name": unique_name("member"),
        "source": {"host": "nowhere", "tables": ["a\\.b"], "signal_table": "a.tidemark_signal"},
        "kafka": guarded_kafka.section("sailor"),
        "format": {"type": "avro", "registry": "http://127.0.0.1:1"},
        "order": {"group": group},
    }
    path.write_text(json.dumps(document))

    def missing() -> list[Finding]:
        return [one for one in rights(path, of_producer=True) if one.code == "kafka.rights.members"]

    (finding,) = missing()
    assert members_topic(group) in finding.evidence
    deadline = time.monotonic() + 60
    while missing():  # a topic that may not be described may exist; and the broker follows its controller
        assert time.monotonic() < deadline
        paste_in_shell(finding.fix, tmp_path, broker.bootstrap_servers)
        time.sleep(0.5)
        finding = next(iter(missing()), finding)


@pytest.mark.slow
def test_a_producer_and_merge_jobs_run_with_what_the_fixes_grant(
    mysql80: Database, registry: Registry, fresh_database: Callable[[Database], str], tmp_path: Path
) -> None:
    broker, database = guarded_kafka.guarded_kafka(), fresh_database(mysql80)
    more = {"kafka": guarded_kafka.section("captain"), "snapshot": {"mode": "initial", "readers": 1}}
    with Pipeline(unique_name("rights"), tmp_path / "p", mysql80, database, broker, registry, more) as pipeline:
        with mysql80.connect(database=database) as connection:
            create_signal_table(connection)
        pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
        with guarded_kafka.asking_for_ids("captain"):
            for finding in rights(pipeline.config_path, of_producer=True):
                paste_in_shell(finding.fix, tmp_path, broker.bootstrap_servers)
            time.sleep(0.5)  # the broker follows its controller
            assert rights(pipeline.config_path, of_producer=True) == []
        pipeline.start("run", "merge")
        pipeline.wait_for_snapshot("t")
        pipeline.wait_for_sink("t")
        pipeline.assert_equal("t")
        assert rights(pipeline.config_path, of_producer=True) == [], "also while it runs"
        assert pipeline.stop("merge") == 0

        document = json.loads(pipeline.config_path.read_text())
        document |= {"kafka": guarded_kafka.section("sailor"), "sinks": [{"name": "lake", "path": str(tmp_path / "other")}]}
        alone = tmp_path / "alone.yaml"
        alone.write_text(json.dumps(document))
        pipeline.config_path = alone
        child = pipeline.spawn("merge", tmp_path / "refused.log", "--until-caught-up")
        assert child.wait(120)
        (line,) = [line for line in (tmp_path / "refused.log").read_text().splitlines() if not line.startswith("{")]
        assert child.status == 1
        assert line.startswith("tidemark: Kafka allows User:sailor no Describe, Read on the topics ")
        (finding,) = rights(alone, of_producer=False)
        paste_in_shell(finding.fix, tmp_path, broker.bootstrap_servers)
        time.sleep(0.5)
        child = pipeline.spawn("merge", tmp_path / "merge.log", "--until-caught-up")
        assert child.wait(240)
        assert child.status == 0, (tmp_path / "merge.log").read_text()[-3000:]
        assert "merge.workers_" not in (tmp_path / "merge.log").read_text()
        assert (tmp_path / "other" / database / "t" / "_delta_log").is_dir()
        assert pipeline.stop("run") == 0
