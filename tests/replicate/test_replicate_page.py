"""`docs/replicate.md`: its settings, its statements and its command lead to a replica."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from devservers import Database
from schemas.settings import from_mapping
from schemas.settings.task_section import task_from_mapping
from tests.docs.doc_blocks import ROOT, page_of
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.test_task_processes import source  # noqa: F401 - a fixture
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, unique_name

PASSWORD = "Page-1-page"


def blocks(language: str) -> list[str]:
    return [block.text for block in page_of(ROOT / "docs" / "replicate.md").blocks if block.language == language]


def rows(server: Database, schema: str, table: str) -> list[tuple[Any, ...]]:
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        return list(cursor.fetchall())


def shown(begin: str) -> list[dict[str, Any]]:
    """The settings in tables of the page that begin so."""
    lines = [line for line in (ROOT / "docs" / "replicate.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    return [yaml.safe_load(one) for line in lines for one in re.findall(r"`([^`]*)`", line) if re.match(begin, one)]


@pytest.mark.parametrize("name", ["mysql97", "mariadb114"])
def test_the_page_leads_to_a_replica_with_the_rights_that_it_names(
    name: str, source: Source, registry: Any, tmp_path: Path  # noqa: F811
) -> None:
    target, user = database(name), unique_name("page").replace("-", "_")
    order, task, begin, several = map(yaml.safe_load, blocks("yaml"))
    (sql,), (command, last, control) = blocks("sql"), blocks("shell")
    sql = re.sub(r"(USER|TO) tidemark", rf"\1 {user}", sql).replace("'...'", f"'{PASSWORD}'").replace("shop.", f"{source.schema}.")
    with target.connect() as connection, connection.cursor() as cursor:
        for statement in filter(None, map(str.strip, sql.split(";"))):
            cursor.execute(statement)
    (tmp_path / "password").write_text(PASSWORD, "utf-8")
    named = {**task, "target": {**task["target"], "password_file": __file__}}
    assert len(task_from_mapping({**named, **several}).sources) == 2
    starts = [{**named, **begin}, *({**named, "mode": "incremental", "sources": [{"name": "shop", "start": one}]} for one in shown(r"(gtid|position|time): '"))]
    assert [task_from_mapping({**one, "target": named["target"]}).sources[0].start.given for one in starts] == [["gtid"], ["gtid"], ["position"], ["time"]]
    producers, tasks = shown(r"source: {ignore"), shown(r"target: {channel")
    channels = [task_from_mapping({**named, "target": {**named["target"], **one["target"]}}).target.channel for one in tasks]
    mapping = mapping_of(source, registry.url)
    ignored = [from_mapping({**mapping, "source": {**mapping["source"], **one["source"]}}).source.ignore_channels for one in producers]
    assert [(channel,) for channel in channels] == ignored[::-1]
    task["sources"][0]["name"] = source.name
    task["kafka"]["bootstrap_servers"] = source.bootstrap_servers
    task["format"]["registry"] = registry.url
    task["target"] |= {"host": target.host, "port": target.port, "user": user, "password_file": "password"}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump({**task, "task": user}), "utf-8")
    source.execute(SIGNAL, "CREATE TABLE parent (id INT PRIMARY KEY, v INT)", "INSERT INTO parent VALUES (1, 1), (2, 2)")
    check, run = ([sys.executable, "-m", *shlex.split(one.replace("task.yaml", str(tmp_path / "task.yaml")))] for one in command.splitlines())
    run.append("--until-caught-up")
    with running(from_mapping({**mapping_of(source, registry.url), **order})) as producer:
        producer.caught_up(source)
        subprocess.run(check, cwd=ROOT, check=True, timeout=60)
        subprocess.run(run, cwd=ROOT, check=True, timeout=240)
        source.execute(
            "UPDATE parent SET v = 3 WHERE id = 1",
            "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))",
            "INSERT INTO child VALUES (7, 1)",
            "ALTER TABLE child ADD COLUMN w VARCHAR(10), ADD INDEX (w)",
            "RENAME TABLE child TO children",
            "CREATE TABLE gone (id INT PRIMARY KEY)",
            "TRUNCATE TABLE gone",
            "DROP TABLE gone",
        )
        producer.caught_up(source)
        for line in control.splitlines():
            words = shlex.split(line.replace("task.yaml", str(tmp_path / "task.yaml")))
            subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, timeout=60)
        subprocess.run(run, cwd=ROOT, check=True, timeout=240)
    words = shlex.split(last.replace("task.yaml", str(tmp_path / "task.yaml")))
    ended = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, timeout=240, capture_output=True, text=True)
    assert ended.stdout.startswith(f"finished: {source.name} at 0000.")
    for table in ("parent", "children"):
        assert rows(target, source.schema, table) == rows(source.server, source.schema, table)
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {source.schema}")
        cursor.execute(f"DROP USER {user}")
