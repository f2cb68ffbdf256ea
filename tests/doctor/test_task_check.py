"""`tidemark task check` on real servers: each fault of a task's set-up is found, its fix mends it, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkaio.cluster_admin import ClusterAdmin
from kafkaio.topic_admin import TopicAdmin
from schemas.settings import from_mapping
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.conftest import source  # noqa: F401 - a fixture
from tests.support.producers import SIGNAL, running
from tests.support.servers import database, unique_name
from tidemark import cli


def executed(server, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_each_fault_is_found_and_its_fix_mends_it(source, registry, tmp_path: Path, capsys, monkeypatch):  # noqa: F811
    target, user = database("mariadb114"), unique_name("check").replace("-", "_")
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    document = {
        "task": user,
        "sources": [{"name": source.name, "exclude_tables": [".*tidemark_signal", r".*\.b"]}],
        "kafka": {"bootstrap_servers": source.bootstrap_servers},
        "format": {"registry": registry.url},
        "target": {"type": "mariadb", "host": target.host, "port": target.port, "user": user, "password": "Check-1-check"},
    }

    def codes(**changes) -> dict[str, str]:
        """The findings, with their fixes."""
        (tmp_path / "task.yaml").write_text(json.dumps({**document, **changes}), "utf-8")
        capsys.readouterr()
        code = cli.main(["task", "check", str(tmp_path / "task.yaml"), "--output", "json"])
        listed = json.loads(capsys.readouterr().out)["findings"]
        assert code == int(any(one["severity"] == "error" for one in listed))
        return {one["code"]: one["fix"] or one["advice"] for one in listed}

    assert list(codes(target={**document["target"], "password": "wrong"}, sources=[{"name": "nowhere"}])) == ["task.no_commits", "target.unknown"]
    with running(from_mapping(mapping_of(source, registry.url))) as producer:
        producer.caught_up(source)
    schema = source.schema
    try:
        executed(
            target,
            f"CREATE DATABASE {schema}",
            f"CREATE TABLE {schema}.a (id INT PRIMARY KEY) ENGINE=MyISAM",
            f"CREATE TABLE {schema}.b (id INT PRIMARY KEY) ENGINE=MyISAM",
            f"CREATE TRIGGER {schema}.noted AFTER INSERT ON {schema}.a FOR EACH ROW SET @x = 1",
            f"CREATE USER {user} IDENTIFIED BY 'Check-1-check'",
            f"GRANT SELECT, TRIGGER ON {schema}.* TO {user}",
        )
        fixes = codes()
        assert set(fixes) == {"task.privilege", "task.engine", "task.trigger"}
        for _ in range(2):  # of tidemark_meta, and of the tables
            executed(target, codes()["task.privilege"])
        executed(target, fixes["task.engine"], f"DROP TRIGGER {schema}.noted")
        assert codes() == {}
        marked = codes(target={**document["target"], "channel": "east"})
        assert marked.pop("task.privilege").startswith("GRANT DROP ON `tidemark_meta`.* TO ")
        assert not marked
        rows = ApplyTarget.rows
        with monkeypatch.context() as patch:
            patch.setattr(ApplyTarget, "rows", lambda one, sql, *values: [(1,)] if "read_only" in sql else rows(one, sql, *values))
            patch.setattr(ClusterAdmin, "missing_operations", lambda _, topics, __: dict.fromkeys(topics, frozenset({"WRITE"})))
            configs = TopicAdmin.configs
            short = {"cleanup.policy": "delete", "retention.ms": "3600000"}
            patch.setattr(TopicAdmin, "configs", lambda admin, topics: dict.fromkeys(configs(admin, topics), short))
            assert set(codes(order="global", group="shop")) == {"task.read_only", "task.rights.members", "task.retention"}
    finally:
        executed(target, f"DROP DATABASE IF EXISTS {schema}", f"DROP USER IF EXISTS {user}")
    own = {"type": "mysql", "host": source.server.host, "port": source.server.port, "user": source.server.user, "password": source.server.password}
    assert "task.own_source" in codes(target=own)
    assert codes(target={"type": "file", "path": str(tmp_path / "files")}) == {}
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("word", ["check", "run"])
def test_a_wrong_key_ends_with_2(word, tmp_path, capsys):
    (tmp_path / "task.yaml").write_text("taks: a", "utf-8")
    assert cli.main(["task", word, str(tmp_path / "task.yaml")]) == cli.USAGE
    assert "taks" in capsys.readouterr().err
