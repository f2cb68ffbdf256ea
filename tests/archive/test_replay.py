"""A source on a real server to files, and from there into MariaDB: the rows are the source's."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mysqlio.server_access import ServerAccess
from schemas.errors import SinkError
from schemas.settings import from_mapping
from schemas.settings.task_section import ApplySettings, TaskSettings
from spark_jobs.archive.archive_folder import ArchiveManifest
from spark_jobs.archive.segments import ROW, SegmentReader, segment_file
from spark_jobs.replicate import replaying, task_source
from spark_jobs.replicate.apply.applier import Applier
from spark_jobs.replicate.apply.apply_target import SourceState
from spark_jobs.replicate.apply.archiver import FileTarget
from spark_jobs.replicate.apply.ddl_statements import DdlStatements
from spark_jobs.replicate.loading import begun as begin
from spark_jobs.replicate.order.log_order import LogOrder
from spark_jobs.replicate.task import run_task
from tests.docs.doc_blocks import ROOT, page_of
from tests.integration.test_ordered_stream import mapping_of, written
from tests.replicate.task_scene import COLUMNS, rows_of, task_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, drop_database, new_database
from tidemark import cli

STATES: dict[Path, tuple[SourceState, TaskSettings]] = {}


@pytest.fixture(scope="module", params=["mysql80", "mariadb114"])
def kept(request, kafka, registry, tmp_path_factory) -> Iterator[tuple[Source, Path]]:
    """A source, and the files that a task made of its load, its changes under load, and its statements."""
    server = database(request.param)
    source = Source(server, new_database(server), kafka.bootstrap_servers)
    folder = tmp_path_factory.mktemp("kept")
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    source.execute(f"INSERT INTO a VALUES {','.join(f'({number}, 1, NULL)' for number in range(300))}")
    (page,) = map(yaml.safe_load, blocks("yaml"))
    task = task_of(source, registry.url, server, target={**page["target"], "path": str(folder), "segment_bytes": 20_000})
    states: list[SourceState] = []
    with running(settings) as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_source, "begun", lambda *args, **named: states.append(begin(*args, **named)) or states[-1])
        with written(source, keys=100):
            time.sleep(0.5)
            run_task(task, threading.Event(), until_caught_up=True)
            source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (1)")
            source.execute("UPDATE c SET id = 5", "CREATE TABLE e (id INT PRIMARY KEY)", "INSERT INTO e VALUES (1)", "TRUNCATE TABLE e")
        run.caught_up(source)
        run_task(task, threading.Event(), until_caught_up=True)
    STATES[folder] = states[0], task
    yield source, folder
    source.connection.close()
    drop_database(server, source.schema)


@pytest.fixture
def begun(kept) -> tuple[SourceState, TaskSettings]:
    """The first state of the task that made the files, and its settings."""
    return STATES[kept[1]]


@pytest.fixture
def target(kept) -> Iterator[Any]:
    mariadb = database("mariadb114")
    server = mariadb if kept[0].server is not mariadb else database("mysql80")
    yield server
    drop_database(server, kept[0].schema)


def blocks(language: str) -> list[str]:
    return [block.text for block in page_of(ROOT / "docs" / "archive.md").blocks if block.language == language]


def replay(folder: Path, server, capsys, *more: str) -> list[str]:
    secret = folder.parent / "password"
    secret.write_text(f"{server.password}\n", "utf-8")
    access = ["--host", server.host, "--port", str(server.port), "--user", server.user, "--password-file", str(secret)]
    assert cli.main(["replay", str(folder), "--dest", "mysql", *access, *more]) == 0
    return capsys.readouterr().out.splitlines()


def printed(folder: Path, capsys, *more: str) -> list[dict[str, Any]]:
    capsys.readouterr()  # log lines of a task
    assert cli.main(["replay", str(folder), *more]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_replayed_files_are_equal_to_the_source(kept, target, capsys):
    source, folder = kept
    for _ in range(2):
        assert "0 damaged parts skipped" in replay(folder, target, capsys)[-1]
        for table in ("a", "b", "c", "e"):
            assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM tidemark_meta.task WHERE name LIKE 'replay-%'")
            assert cursor.fetchone() == (0,)
        drop_database(target, source.schema)


def test_each_change_is_there_once_and_a_range_has_both_its_ends(kept, capsys):
    _, folder = kept
    *events, last = printed(folder, capsys)
    assert last == {"events": len(events), "skipped": 0}
    assert ArchiveManifest.read(folder).open.number > 2
    changes = [one for one in events if one.get("op") in {"c", "u", "d"}]
    assert len({one["position"] for one in changes}) == len(changes)
    for name in ("position", "time", "gtid"):
        ordered = [one for one in changes if one[name]]
        first, end = ordered[len(ordered) // 3], ordered[len(ordered) // 2]
        *part, _ = printed(folder, capsys, "--from", first[name], "--to", end[name])
        if name == "time":
            expected = [one for one in events if first["time"] <= one["time"] <= end["time"]]
        else:
            expected = [one for one in events if first["position"][:28] <= one["position"][:28] <= end["position"][:28]]
        assert part == expected, name
    *only, _ = printed(folder, capsys, "--tables", ".*\\.c")
    assert [one.get("op", one.get("statement", "")[:6]) for one in only] == ["CREATE", "c", "u"]
    assert only[-1]["before"] == {"id": 1}
    assert only[-1]["after"] == {"id": 5}


def test_an_interrupted_replay_continues_and_runs_no_statement_twice(kept, target, capsys, monkeypatch):
    source, folder = kept
    apply_events, run = Applier.apply_events, DdlStatements._execute
    batches, statements, limit = [0], Counter(), 0

    def dying(applier, name, events, behind):
        batches[0] += 1
        if batches[0] > limit:
            raise SinkError("interrupted")
        apply_events(applier, name, events, behind)

    def counted(ddl, event):
        statements[event.offset] += 1
        run(ddl, event)

    monkeypatch.setattr(replaying, "_BATCH", 50)
    monkeypatch.setattr(Applier, "apply_events", dying)
    monkeypatch.setattr(DdlStatements, "_execute", counted)
    for limit in (1, 2, 3, 5):  # noqa: B007 - `dying` reads it
        batches[0] = 0
        with pytest.raises(SinkError):
            apply_to(folder, target)
    batches[0], limit = 0, 10**6
    apply_to(folder, target)
    for table in ("a", "b", "c", "e"):
        assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table
    assert statements
    assert set(statements.values()) == {1}


class Died(BaseException):
    """The process is gone."""


def test_a_task_that_dies_at_any_step_of_a_commit_keeps_each_change_once(kept, begun, tmp_path, capsys, monkeypatch):
    source, folder = kept
    state, task = begun
    task = replace(task, target=replace(task.target, path=str(tmp_path / "again")), apply=ApplySettings(driver_rows=100))
    archive = FileTarget(task.target, task.task)
    archive.require_usable("", "")
    archive.take_over()
    with archive.transaction():
        archive.put_state(source.name, replace(state, asked_ms=1))
    archive.close()
    fsync, left, deaths, dice = os.fsync, [0], 0, random.Random(7)
    placed, slices = LogOrder.placed, []
    monkeypatch.setattr("spark_jobs.replicate.order.stream_reader.SLICE_BYTES", 3_000)
    monkeypatch.setattr("kafkaio.committed_reader._AT_ONCE", 10)
    monkeypatch.setattr(LogOrder, "placed", lambda order, one: slices.append(one.open) or placed(order, one))

    def dying(descriptor):
        left[0] -= 1
        if left[0] == 0:
            raise Died
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", dying)
    while True:
        left[0] = dice.randrange(1, 40)
        try:
            run_task(task, threading.Event(), until_caught_up=True)
            break
        except Died:
            deaths += 1
    assert deaths > 2
    assert any(slices), "Kafka transactions in slices"
    assert printed(tmp_path / "again", capsys) == printed(folder, capsys)


def apply_to(folder: Path, server) -> None:
    access = ServerAccess(host=server.host, port=server.port, user=server.user, password=server.password)
    replaying.apply(replaying.ArchiveReader(folder), access, None, None, lambda *_: True, "")


def test_a_damaged_record_ends_with_1_or_is_skipped_and_counted(kept, capsys):
    _, folder = kept
    whole = printed(folder, capsys)
    file = segment_file(folder, 2)
    data = file.read_bytes()
    at = [end for end, record in SegmentReader(file, 2).records() if record.kind == ROW][-2] - 1
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    try:
        assert cli.main(["replay", str(folder)]) == 1
        assert f"{file}, offset " in capsys.readouterr().err
        *events, last = printed(folder, capsys, "--skip-damaged")
    finally:
        file.write_bytes(data)
    assert last["skipped"] == 1
    assert len(whole) - len(events) == 2, "the last line, and the damaged record"


def test_the_commands_of_the_page_run(kept, target, tmp_path, capsys):
    _, folder = kept
    task = {"task": "copy", "sources": [{"name": "shop"}], "format": {"registry": "http://r"}, "target": {
        "type": "mysql", "host": target.host, "port": target.port, "user": target.user, "password": target.password}}  # fmt: skip
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task), "utf-8")
    (commands,) = blocks("shell")
    for line in commands.strip().splitlines():
        words = line.replace("/var/lib/tidemark/shop", str(folder)).replace("task.yaml", str(tmp_path / "task.yaml")).split()
        assert cli.main(words[1:]) == 0, line
    assert capsys.readouterr().out.splitlines()[-1].endswith("0 damaged parts skipped")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--from", "yesterday"], "--from: 'yesterday' is not a time such as"),
        (["--to", "9-9-9999999"], "has no change with the GTID 9-9-9999999"),
        (["--dest", "mysql"], "--dest mysql needs a server: give --task, or --host"),
        (["--tables", "("], "--tables: '(' is not a regular expression"),
    ],
)
def test_wrong_usage_ends_with_2(kept, capsys, more, problem):
    assert cli.main(["replay", str(kept[1]), *more]) == cli.USAGE
    assert problem in capsys.readouterr().err


def test_the_files_of_a_task_are_no_server_for_a_replay(kept, tmp_path, capsys):
    task = {"task": "keep", "sources": [{"name": "shop"}], "format": {"registry": "http://r"}, "target": {"type": "file", "path": "a"}}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task), "utf-8")
    assert cli.main(["replay", str(kept[1]), "--dest", "mysql", "--task", str(tmp_path / "task.yaml")]) == cli.USAGE
    assert "is of type file; name the file of a task with a server" in capsys.readouterr().err


def test_a_folder_without_files_of_a_task_is_named(tmp_path, capsys):
    assert cli.main(["replay", str(tmp_path)]) == cli.USAGE
    assert "is not the folder of a task with target.type: file" in capsys.readouterr().err
