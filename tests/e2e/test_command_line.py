"""The command line on a database of one's own: init, run, merge, snapshots, tables, schema, offsets; what is printed is what is so."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, Kafka, Registry
from tests.e2e.child_processes import environment
from tests.e2e.pipeline import Pipeline, spark_section
from tests.support.servers import new_database, unique_name
from tidemark.process import config

LONG, SHORT, BIG = 3_000, 40, 18_000
ROWS_PER_S = 600
"""A table of `LONG` rows takes five seconds: time for what is done to its snapshot meanwhile."""
PASSWORD = "of this test alone"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(mysql80: Database, kafka: Kafka, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline whose file is what `tidemark init` wrote, and whose user has the grants that it names; the password is a variable."""
    name, folder, database = unique_name("cli"), tmp_path_factory.mktemp("cli"), new_database(mysql80)
    with Pipeline(name, folder, mysql80, database, kafka, registry) as pipeline:
        for table, rows in (("orders", LONG), ("items", SHORT)):
            values = ",".join(f"({number}, {number})" for number in range(rows))
            pipeline.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {values}")
        pipeline.env = {
            "TIDEMARK_SOURCE__PASSWORD": PASSWORD,
            "TIDEMARK_SNAPSHOT__MAX_ROWS_PER_S": str(ROWS_PER_S),
            "TIDEMARK_SNAPSHOT__CHUNK_ROWS": "100",
            **{f"TIDEMARK_SPARK__{key.upper()}": _text(value) for key, value in spark_section().items()},
        }
        user = name.replace("-", "_")
        pipeline.sql(f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'", f"GRANT SELECT ON {database}.* TO {user}")
        written = folder / "init.yaml"
        servers = ["--kafka", kafka.bootstrap_servers, "--registry", registry.url, "--name", name, "--lake", "lake-of-init"]
        source = ["--host", mysql80.host, "--port", str(mysql80.port), "--user", user, "--tables", rf"{database}\..*"]
        done = run(pipeline, "init", *source, *servers, "--file", str(written))
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr + written.read_text("utf-8")
        pipeline.sql(*statements(done.stdout))
        pipeline.config_path = written
        pipeline.settings = config.load(written, pipeline.env)
        pipeline.init_said = done.stdout  # type: ignore[attr-defined]
        pipeline.start("merge", "run")
        pipeline.wait_for_snapshot("orders", "items")
        pipeline.wait_for_sink("orders", "items")
        yield pipeline
        pipeline.sql(f"DROP USER {user}")


def statements(said: str) -> list[str]:
    """What an administrator is to paste."""
    return [line.strip().removesuffix(";") for line in said.splitlines() if line.endswith(";")]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def run(pipeline: Pipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemark", *arguments]
    env = {**environment(), **pipeline.env}
    return subprocess.run(command, cwd=pipeline.folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def on(pipeline: Pipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with the pipeline's file."""
    return run(pipeline, *arguments, "--config", str(pipeline.config_path))


def facts(pipeline: Pipeline, *arguments: str, code: int = 0) -> Any:
    """What a command prints as JSON."""
    done = on(pipeline, *arguments, "--output", "json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def count(pipeline: Pipeline, table: str) -> int:
    with pipeline.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int((cursor.fetchone() or (0,))[0])


def request(pipeline: Pipeline, ident: str) -> Any:
    (found,) = [one for one in facts(pipeline, "snapshot", "list")["requests"] if one["id"] == ident]
    return found


def test_init_names_the_tables_and_the_next_two_commands_and_overwrites_nothing(running: Pipeline) -> None:
    said: str = running.init_said  # type: ignore[attr-defined]
    assert "2 tables of MySQL 8.0" in said
    assert "GRANT REPLICATION SLAVE" in "\n".join(statements(said))
    assert [line.split()[:2] for line in said.splitlines()[-2:]] == [["tidemark", "run"], ["tidemark", "merge"]]
    text = running.config_path.read_text("utf-8")
    assert f"#   {running.database}.orders" in text
    again = run(running, "init", "--file", str(running.config_path), "--host", running.server.host)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert running.config_path.read_text("utf-8") == text


def test_a_snapshot_that_is_waited_for_ends_with_all_its_rows(running: Pipeline) -> None:
    pattern = rf"{running.database}\.orders"
    done = on(running, "snapshot", "start", pattern, "--where", f"{pattern}: id >= 500", "--wait", "--id", "half", "--output", "json")
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)["request"]
    assert (ended["state"], ended["rows_read"]) == ("done", LONG - 500)
    assert re.search(r"half: (queued|running), 0 of 1 tables ended \| \S+orders \1, [\d,]+ .*rows", done.stderr), done.stderr
    listed = request(running, "half")
    assert listed["origin"] == "signal"
    (table,) = listed["tables"]
    assert (table["table"], table["rows_read"], table["condition"], table["via"]) == (
        f"{running.database}.orders", LONG - 500, "id >= 500", "kafka",
    )  # fmt: skip
    text = on(running, "snapshot", "list").stdout
    assert re.search(r"^half  done  asked for by a signal .*, ended ", text, re.MULTILINE), text
    assert f"{LONG - 500:,}" in text


def test_a_terminal_shows_a_bar_for_each_table(running: Pipeline) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "tidemark", "snapshot", "start", rf"{running.database}\.(orders|items)", "--wait", "--id", "bars"]
    env = {**environment(), **running.env, "TERM": "xterm", "COLUMNS": "160"}
    child = subprocess.Popen(
        [*command, "--config", str(running.config_path)], cwd=running.folder, env=env, stdout=subprocess.PIPE, stderr=slave, text=True
    )
    os.close(slave)
    shown = bytearray()

    def read() -> None:
        try:
            while part := os.read(master, 4096):
                shown.extend(part)
        except OSError:  # the terminal is gone with the command
            return

    reader = threading.Thread(target=read)
    reader.start()
    said, _ = child.communicate(timeout=300)
    reader.join(60)
    os.close(master)
    text = shown.decode("utf-8", "replace")
    assert child.returncode == 0, (said, text)
    assert said.startswith(f"bars: done, {LONG + SHORT:,} rows read of 2 tables in "), said
    assert "━" in text
    assert re.search(r"orders .*rows/s, \d+ s left", text), text[-2000:]
    assert "items" in text


def test_a_snapshot_is_paused_resumed_and_stopped(running: Pipeline) -> None:
    values = ",".join(f"({number}, {number})" for number in range(BIG))
    running.sql("CREATE TABLE big (id INT PRIMARY KEY, v INT)", f"INSERT INTO big VALUES {values}")
    assert facts(running, "snapshot", "start", rf"{running.database}\.big", "--id", "stopped") == {"id": "stopped"}
    paused = facts(running, "snapshot", "pause", "--wait")
    assert paused["answer"] == "ACCEPTED"
    running.wait("the pause", lambda status: status.paused)
    at_rest = request(running, "stopped")
    assert at_rest["state"] == "paused"
    assert at_rest["rows_read"] < BIG
    assert at_rest["tables"][0]["eta_s"] is None
    only = facts(running, "snapshot", "list", "--running")["requests"]
    assert [one["id"] for one in only] == ["stopped"]
    assert facts(running, "snapshot", "resume", "--wait")["answer"] == "ACCEPTED"
    running.wait("its rows", lambda status: any(table.rows_read > at_rest["rows_read"] for table in status.tables if table.snapshot == "running"))
    assert facts(running, "snapshot", "stop", rf"{running.database}\.big", "--wait")["answer"] == "ACCEPTED"
    running.wait("its end", lambda status: not status.snapshot_running)
    ended = request(running, "stopped")
    assert ended["state"] == "cancelled"
    assert at_rest["rows_read"] < ended["rows_read"] < BIG
    running.sql("DROP TABLE big")


def test_a_snapshot_continues_when_nobody_waits_for_it_any_more(running: Pipeline) -> None:
    command = [sys.executable, "-m", "tidemark", "snapshot", "start", rf"{running.database}\.orders", "--wait", "--id", "left"]
    env = {**environment(), **running.env}
    child = subprocess.Popen([*command, "--config", str(running.config_path)], cwd=running.folder, env=env, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert child.stderr.readline().startswith("left: ")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    running.wait("its end", lambda status: not status.snapshot_running)
    ended = request(running, "left")
    assert (ended["state"], ended["rows_read"]) == ("done", LONG)


def test_a_snapshot_that_matches_nothing_is_refused_with_the_reason(running: Pipeline) -> None:
    done = on(running, "snapshot", "start", "no.such_table", "--wait")
    assert done.returncode == 1
    assert "rejected: " in done.stdout
    assert "no.such_table" in done.stdout


def test_tables_are_shown_as_they_are_in_the_sink(running: Pipeline) -> None:
    running.sql("DELETE FROM items WHERE id < 3")
    running.wait_for_sink("orders", "items")
    wanted = [f"{running.database}.{table}" for table in ("items", "orders")]
    found = {one["table"]: one for one in facts(running, "tables", *wanted, "--count")["tables"]}
    assert sorted(found) == wanted
    for table in ("items", "orders"):
        one = found[f"{running.database}.{table}"]
        (sink,) = one["sinks"].values()
        assert list(one["sinks"]) == ["lake"]
        assert sink["rows"] == {f"{running.database}.{table}": count(running, table)}
        assert (sink["consistent"], sink["why_not"], sink["lag"]["lag_s"]) == (True, None, 0.0), sink
        assert one["schema_version"] == 1
    assert found[f"{running.database}.orders"]["last_record_ms"] is None, "nothing was written to it since the snapshot"
    assert found[f"{running.database}.items"]["last_record_ms"] is not None
    text = on(running, "tables", ".*orders").stdout
    assert re.search(r"orders  version 1  (done|cancelled) ", text), text
    assert "items" not in text


def test_an_alter_is_in_the_history_and_in_the_difference_of_two_versions(running: Pipeline) -> None:
    table = f"{running.database}.items"
    alter = "ALTER TABLE items ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'x' AFTER id, MODIFY v BIGINT"
    running.sql(alter, "INSERT INTO items (id, v, note) VALUES (100, 1, 'y')")
    running.wait_for_log()
    history = facts(running, "schema", "history", table)
    assert [(one["kind"], one["version"]) for one in history["events"]] == [("FOUND", 1), ("ALTER", 2)]
    assert history["complete"]
    assert history["events"][1]["ddl"] == alter
    difference = facts(running, "schema", "diff", table, code=1)
    assert [one["name"] for one in difference["added"]] == ["note"]
    assert [(one["column"], one["what"]) for one in difference["changed"]] == [("v", ["type"])]
    assert difference["dropped"] == []
    shown = facts(running, "schema", "show", table)
    with running.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW COLUMNS FROM items")
        columns = [(name, kind.upper().split("(")[0], null == "YES") for name, kind, null, *_ in cursor.fetchall()]
    assert [(one["name"], one["type"].split("(")[0], one["nullable"]) for one in shown["columns"]] == columns
    assert shown["columns"][1]["type"] == "VARCHAR(20)"
    assert shown["key"] == ["id"]
    text = on(running, "schema", "history", table).stdout
    assert f"    {alter}\n  + note VARCHAR(20) NOT NULL default" in text, text
    assert facts(running, "schema", "diff", table, "--from", "1", "--to", "1")["added"] == []
    missing = on(running, "schema", "history", f"{running.database}.item")
    assert missing.returncode == 2
    assert f"did you mean {table}?" in missing.stderr


def test_offsets_are_those_of_the_log(running: Pipeline) -> None:
    before = running.end_of_log()
    running.wait_for_log()
    shown = facts(running, "offsets", "show")
    after = running.end_of_log()
    where = int(shown["offset"]["file"].rpartition(".")[2]), shown["offset"]["pos"]
    assert before <= where <= after
    restart = shown["restart"]
    assert (restart["file"], restart["pos"], restart["skips_rows"]) == (shown["offset"]["file"], shown["offset"]["pos"], 0)
    assert shown["problem"] is None
    text = on(running, "offsets", "show").stdout
    assert re.search(r"^a restart:    reads from \S+:\d+ on$", text, re.MULTILINE), text


def test_a_status_that_is_watched_redraws_a_terminal(running: Pipeline) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "tidemark", "status", "--watch", "0.2", "--config", str(running.config_path)]
    env = {**environment(), **running.env, "TERM": "xterm", "COLUMNS": "200", "LINES": "60"}
    child = subprocess.Popen(command, cwd=running.folder, env=env, stdout=slave, stderr=subprocess.STDOUT)
    os.close(slave)
    shown = b""
    try:
        while shown.count(b"every 0.2 s") < 3:
            shown += os.read(master, 4096)
    finally:
        child.terminate()
        ended = child.wait(60)
        os.close(master)
    assert ended == 130
    assert shown.count(b"\x1b[2K") > 10, "lines are cleared before they are drawn again"
    assert b"log:   " in shown


def test_the_file_of_init_is_valid(running: Pipeline, tmp_path: Path) -> None:
    assert facts(running, "config", "validate")["problems"] == []
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(running.config_path.read_text("utf-8").replace("port: ", "prot: ").replace("mode: initial", "mode: often"), "utf-8")
    found = json.loads(run(running, "config", "validate", "--config", str(wrong), "--output", "json").stdout)
    assert len(found["problems"]) == 2, found
