"""Each server starts for real, answers, survives a kill and leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from devservers import (
    Database,
    DevServerError,
    Kafka,
    Registry,
    ServerStartError,
    start_database,
    start_kafka,
    start_registry,
)
from devservers.__main__ import main
from devservers.processes import GUARD, GuardedProcess
from kafkaio.topic_admin import TopicAdmin
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, kafka_server, registry_server, unique_name
from tests.support.topics import read_topic
from tidemark.runtime.class_archive import ClassArchive

ROOT = Path(__file__).resolve().parents[2]
DATABASES = ["mysql80", pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114"]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone_within(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def ask(server: Database, sql: str) -> tuple[tuple[Any, ...], ...]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return tuple(cursor.fetchall())


@pytest.fixture(scope="module", params=DATABASES)
def own_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with start_database(request.param, tmp_path_factory.mktemp("own"), {"max-connections": "33", "server_id": "7"}) as server:
        yield server


def test_database_has_the_promised_settings(own_database: Database) -> None:
    names = "binlog_format", "binlog_row_image", "binlog_row_metadata", "character_set_server", "time_zone"
    (row,) = ask(own_database, "SELECT " + ", ".join(f"@@global.{name}" for name in names))
    assert row == ("ROW", "FULL", "FULL", "utf8mb4", "+00:00")
    assert ask(own_database, "SELECT @@max_connections, @@server_id, @@performance_schema") == ((33, 7, 0),)
    gtid = "@@gtid_mode" if own_database.flavour == "mysql" else "@@gtid_strict_mode"
    assert ask(own_database, f"SELECT {gtid}") in {(("ON",),), ((1,),)}


def test_nothing_of_our_own_is_in_a_new_log(own_database: Database) -> None:
    events = ask(own_database, "SHOW BINLOG EVENTS")
    assert not [event for event in events if "tidemark" in str(event[-1])]


def test_database_keeps_commits_over_a_kill_and_a_stop(own_database: Database) -> None:
    server, port = own_database, own_database.port
    ask(server, "CREATE DATABASE d")
    ask(server, "CREATE TABLE d.t (a INT PRIMARY KEY)")
    ask(server, "INSERT INTO d.t VALUES (1)")
    first = server.pid
    server.kill()
    assert not alive(first)
    assert not server.running
    server.restart()
    assert server.port == port
    ask(server, "INSERT INTO d.t VALUES (2)")
    server.stop()
    server.restart()
    assert ask(server, "SELECT a FROM d.t ORDER BY a") == ((1,), (2,))


def test_two_databases_of_one_kind_are_distinguished(tmp_path: Path, mysql80: Database) -> None:
    with start_database("mysql80", tmp_path) as other:
        assert other.port != mysql80.port
        assert ask(other, "SELECT @@server_uuid") != ask(mysql80, "SELECT @@server_uuid")
        with pytest.raises(DevServerError, match="used by another running mysql80"):
            start_database("mysql80", tmp_path)
    assert not other.running


def test_fresh_database_is_empty(mysql80: Database, fresh_database: Callable[[Database], str]) -> None:
    name = fresh_database(mysql80)
    with mysql80.connect(database=name) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == ()


def test_a_wrong_option_reports_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(
        ServerStartError, match=r"(?s)mysql80 ended with status.*unknown variable 'no-such-option"
    ):
        start_database("mysql80", tmp_path, {"no_such_option": "1"})


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DevServerError, match="mysql80"):
        start_database("oracle", tmp_path)


def produce(kafka: Kafka, topic: str, *values: bytes) -> None:
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(60)


def test_kafka_keeps_a_transaction_over_a_kill(tmp_path: Path) -> None:
    with start_kafka(tmp_path) as kafka:
        topic = unique_name("kept")
        TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
        produce(kafka, topic, b"1", b"2")
        address, pid = kafka.bootstrap_servers, kafka.pid
        kafka.kill()
        assert not alive(pid)
        kafka.restart()
        assert kafka.bootstrap_servers == address
        produce(kafka, topic, b"3")
        assert [one.value for one in read_topic(kafka.bootstrap_servers, topic, raw=True)] == [b"1", b"2", b"3"]


def test_kafka_makes_no_topic_by_itself(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topic = unique_name("absent")
    admin.list_topics(topic, timeout=10)
    assert topic not in admin.list_topics(timeout=10).topics


def call(url: str, method: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310
        url, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        return json.load(answer)


def test_registry_speaks_confluents_api_and_keeps_schemas(tmp_path: Path) -> None:
    fields = [{"name": "a", "type": "int"}]
    one = {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}
    wider = [*fields, {"name": "b", "type": ["null", "int"], "default": None}]
    two = {"schema": json.dumps({"type": "record", "name": "R", "fields": wider})}
    bad = {"schema": json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})}
    with start_registry(tmp_path) as registry:
        subject = f"{registry.url}/subjects/s-value"
        first = call(f"{subject}/versions", "POST", one)["id"]
        call(f"{registry.url}/config/s-value", "PUT", {"compatibility": "BACKWARD"})
        second = call(f"{subject}/versions", "POST", two)["id"]
        assert first != second
        assert call(f"{subject}/versions", "POST", one)["id"] == first
        assert call(f"{subject}/versions") == [1, 2]
        latest = f"{registry.url}/compatibility/subjects/s-value/versions/latest"
        assert call(latest, "POST", bad)["is_compatible"] is False
        registry.kill()
        registry.restart()
        assert json.loads(call(f"{registry.url}/schemas/ids/{second}")["schema"])["name"] == "R"
        assert call(subject, "POST", two)["version"] == 2


PARENT = """
import signal, sys, time, threading
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and we inherit that
from devservers import start_database
made = []
def start():
    made.append(start_database("mysql80", Path(sys.argv[1])))
thread = threading.Thread(target=start)
thread.start(); thread.join()
time.sleep(1)  # the thread that spawned them is gone; they must still run
assert all(server.running for server in made)
print(made[0].pid, flush=True)
if sys.argv[2] == "end":
    sys.exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "end"])
def test_no_server_survives_its_parent(tmp_path: Path, how: str) -> None:
    """Nor does one of Kafka or of the registry: `tests/demo/test_interrupt.py` has all three."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), how], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    guards = [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])] if alive(pid) else []
    if how != "end":
        os.kill(parent.pid, getattr(signal, how))
    parent.wait(60)
    parent.stdout.close()
    assert all(gone_within(one, 10) for one in [pid, *guards])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_addresses_and_stops_on_a_signal(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "devservers", "up", "mysql80", "--run-dir", str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        name, _, address = shell.stdout.readline().strip().partition("=")
        assert name == "export TIDEMARK_MYSQL80"
        assert address.startswith("mysql://tidemark:tidemark@127.0.0.1:")
        pid = int((tmp_path / "mysql80" / "data" / "mysqld.pid").read_text())
        assert alive(pid)
        shell.send_signal(how)
        assert shell.wait(30) == 0
        assert not alive(pid)


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mysql80").mkdir()
    with (tmp_path / "mysql80" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["up", "mysql80", "--run-dir", str(tmp_path)]) == 1
    assert "used by another running mysql80" in capsys.readouterr().err


def test_a_log_is_there_before_its_process_writes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = tmp_path / "late.py"
    late.write_text("import time; print(1, flush=True); time.sleep(600)")
    monkeypatch.setattr("devservers.processes.GUARD", late)
    process = GuardedProcess.spawn(["none"], tmp_path / "log", cwd=tmp_path, env=dict(os.environ))
    try:
        assert (tmp_path / "log").read_text() == ""
    finally:
        process._guard.kill()
        process._guard.wait()


def test_what_a_process_leaves_behind_ends_with_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's JVM, which its Python does not take along when it is killed."""
    monkeypatch.setattr("devservers.processes.GUARD", _impatient_guard(tmp_path))
    noted = tmp_path / "child"
    script = f"sleep 60 & echo $! > {noted}.new; mv {noted}.new {noted}; wait"
    process = GuardedProcess.spawn(["sh", "-c", script], tmp_path / "log", cwd=tmp_path, env=dict(os.environ))
    while not noted.exists():
        time.sleep(0.01)
    child = int(noted.read_text())
    assert alive(child)
    process.kill()
    assert not alive(child)


def _impatient_guard(folder: Path) -> Path:
    text = GUARD.read_text(encoding="utf-8")
    changed = text.replace("ORPHANS_SECONDS = 5.0", "ORPHANS_SECONDS = 0.2")
    assert changed != text
    path = folder / "guard.py"
    path.write_text(changed, encoding="utf-8")
    return path


def test_a_killed_guard_takes_its_server_along(tmp_path: Path) -> None:
    with start_database("mysql80", tmp_path) as server:
        pid = server.pid
        guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        assert gone_within(pid, 5)


def test_servers_start_side_by_side_from_threads(tmp_path: Path) -> None:
    made: list[Database] = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(start_database("mysql80", tmp_path / str(n))))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.port for server in made}) == 3
    for server in made:
        server.close()


def test_a_lost_port_is_replaced(tmp_path: Path, mysql80: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = iter([mysql80.port])
    from devservers import apicurio, broker, databases, processes

    def lost_once() -> int:
        return next(ports, 0) or processes.free_port()

    for module, start in (
        (databases, lambda: start_database("mysql80", tmp_path)),
        (broker, lambda: start_kafka(tmp_path)),
        (apicurio, lambda: start_registry(tmp_path)),
    ):
        ports = iter([mysql80.port])
        monkeypatch.setattr(module, "free_port", lost_once)
        with start() as server:
            assert server.port != mysql80.port
            assert server.running


def test_session_servers_are_shared(kafka: Kafka, registry: Registry) -> None:
    assert kafka_server() is kafka
    assert registry_server() is registry


def test_recorded_classes_are_kept_after_a_stop_and_not_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path / "cache"))
    archive = ClassArchive("s", Path("/bin/sh"), [], tmp_path, record=True)
    written = tmp_path / "classes.jsa"
    assert archive.options()[0] == f"-XX:ArchiveClassesAtExit={written}"
    written.write_bytes(b"half")
    archive.discard()
    archive.adopt()
    assert archive.options()[0] == f"-XX:ArchiveClassesAtExit={written}"
    written.write_bytes(b"whole")
    archive.adopt()
    assert not written.exists()
    later = ClassArchive("s", Path("/bin/sh"), [], tmp_path, record=False)
    assert later.options()[0].startswith("-XX:SharedArchiveFile=")
    assert Path(later.options()[0].partition("=")[2]).read_bytes() == b"whole"
