"""`tidemark init --local` and `tidemark up`: two commands from a database of one's own to rows in Delta, and a second start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from devservers import Database
from devservers.processes import GuardedProcess, free_port
from schemas.errors import ConfigError
from schemas.settings import Settings, from_mapping
from tests.support.page_client import page_of_log
from tests.support.servers import new_database
from tidemark.local.local_servers import kafka_port, registry_port


def settings_of(kafka: str, registry: str, **more: object) -> Settings:
    section = {"bootstrap_servers": kafka, **more}
    return from_mapping({"name": "a", "source": {"tables": ["a\\..*"]}, "kafka": section, "format": {"registry": registry}})


def test_only_servers_of_this_machine_that_are_not_there_are_started() -> None:
    port = free_port()
    api = f"http://localhost:{port}/apis/ccompat/v7"

    here = settings_of(f"127.0.0.1:{port}", api)
    assert (kafka_port(here), registry_port(here)) == (port, port)
    there = settings_of("kafka:9092", "http://registry:8081")
    assert (kafka_port(there), registry_port(there)) == (None, None)
    assert kafka_port(settings_of(f"127.0.0.1:{port},kafka:9092", api)) is None
    with pytest.raises(ConfigError, match=re.escape(api)):
        registry_port(settings_of("kafka:9092", f"http://localhost:{port}"))
    with pytest.raises(ConfigError, match=r"kafka\.security_protocol: nothing listens"):
        kafka_port(settings_of(f"localhost:{port}", api, security_protocol="SSL"))


def rows_in(folder: Path, database: str) -> int:
    try:
        return len(DeltaTable(str(folder / "lake" / database / "items")).to_pyarrow_table())
    except Exception:  # noqa: BLE001 - it is not there yet
        return -1


@contextmanager
def up(folder: Path, environment: dict[str, str], log: str) -> Iterator[GuardedProcess]:
    command = [sys.executable, "-m", "tidemark", "up"]
    child = GuardedProcess.spawn(command, folder / log, cwd=folder, env=environment)
    try:
        yield child
    finally:
        child.kill()


def end(child: GuardedProcess, number: signal.Signals) -> float:
    """Signal it; the seconds until it has ended."""
    began = time.monotonic()
    child.signal(number)
    assert child.wait(10)
    assert child.status == 0
    return time.monotonic() - began


def wait_for_rows(child: GuardedProcess, folder: Path, database: str, rows: int, log: str) -> float:
    began = time.monotonic()
    while rows_in(folder, database) != rows:
        assert child.status is None, (folder / log).read_text("utf-8")
        assert time.monotonic() - began < 240, (folder / log).read_text("utf-8")
        time.sleep(0.2)
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_commands_lead_from_a_database_to_delta_and_a_second_start_continues(mysql80: Database, tmp_path: Path) -> None:
    database = new_database(mysql80)
    with mysql80.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
        cursor.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    (tmp_path / "password").write_text(f"{mysql80.password}\n")
    environment = {**os.environ, "TIDEMARK_SERVICE__PAGE_PORT": "0"}
    source = ["--host", mysql80.host, "--port", str(mysql80.port), "--user", mysql80.user, "--password-file", "password"]
    servers = ["--kafka", f"127.0.0.1:{free_port()}", "--registry", f"http://127.0.0.1:{free_port()}/apis/ccompat/v7"]
    command = [sys.executable, "-m", "tidemark", "init", "--local", *source, *servers, "--tables", rf"{database}\..*"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

    with up(tmp_path, environment, "first.log") as child:
        first_s = wait_for_rows(child, tmp_path, database, 2, "first.log")
        deadline = time.monotonic() + 30
        while "the first rows are in the sink" not in (said := (tmp_path / "first.log").read_text("utf-8")):
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        page = page_of_log(tmp_path / "first.log")
        assert page.sign_in().status == 303
        ended_s = end(child, signal.SIGTERM)
    with mysql80.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO items VALUES (3, 'c')")  # while nothing runs
    with up(tmp_path, environment, "second.log") as child:
        again_s = wait_for_rows(child, tmp_path, database, 3, "second.log")
        again = page_of_log(tmp_path / "second.log")
        assert again.token != page.token
        assert again.sign_in().status == 303
        ended_again_s = end(child, signal.SIGINT)
    sys.stdout.write(f"the first rows after {first_s:.1f} s, after a second start {again_s:.1f} s\n")
    sys.stdout.write(f"the end {ended_s:.1f} s after SIGTERM, {ended_again_s:.1f} s after SIGINT\n")
    said = (tmp_path / "second.log").read_text("utf-8")
    sys.stdout.write(said[-1500:])
