"""`tidemark up` at its edges: logs of an earlier start, a second one beside it, taken ports, and its end in every phase."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from devservers.processes import GuardedProcess, free_port
from tests.support.silent import SilentPeer
from tidemark import cli
from tidemark.local.local_jobs import JobEndedError, LocalJobs

ENDS_S = 5.5
UNASKED = """
import sys, time
from tidemark.local import local_servers
local_servers.require_ready = lambda settings, stop: None
"""
RUNS = """
from tidemark.cli import main
sys.argv = ["tidemark", "up"]
sys.exit(main())
"""
ASKS_NOBODY = UNASKED + RUNS
"""`tidemark up` that starts its servers, whatever source and registry are like."""
FETCHES_FOR_EVER = f"""{UNASKED}
from tidemark.process import shutdown
shutdown.FORCED_S = 2.0
local_servers.fetch = lambda names, say: (say("fetching"), time.sleep(60))
{RUNS}"""


def write_settings(folder: Path, source_port: int, kafka_port: int, **service: object) -> Path:
    """Settings with Kafka on this machine, and a registry on another one."""
    path = folder / "tidemark.yaml"
    document = {
        "name": "up",
        "source": {"host": "127.0.0.1", "port": source_port, "user": "u", "password": "p", "tables": ["a\\..*"]},
        "kafka": {"bootstrap_servers": f"127.0.0.1:{kafka_port}"},
        "format": {"type": "avro", "registry": "http://registry.invalid:8081"},
        "sinks": [{"name": "lake", "type": "delta", "path": "lake"}],
        "service": {"page_port": 0, **service},
    }
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    found = [pid]
    for parent in found:
        with suppress(OSError):  # one that ends meanwhile
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text("ascii").split())
    return found[1:]


@contextmanager
def up(folder: Path, *command: str) -> Iterator[GuardedProcess]:
    child = GuardedProcess.spawn(
        [sys.executable, *(command or ("-m", "tidemark", "up"))], folder / "up.log", cwd=folder, env=os.environ
    )
    try:
        yield child
    finally:
        child.kill()


def wait_until(child: GuardedProcess, folder: Path, what: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + 40
    while not what(said := (folder / "up.log").read_text("utf-8")):
        assert child.status is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def assert_ends(child: GuardedProcess, folder: Path, signals: int = 1) -> None:
    """It ends in time, and what it started has ended, too."""
    started = descendants(child.pid)
    for _ in range(signals):
        child.signal(signal.SIGTERM)
        time.sleep(0.1)
    assert child.wait(ENDS_S), (folder / "up.log").read_text("utf-8")
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()], (folder / "up.log").read_text("utf-8")
    assert child.status in ((0,) if signals == 1 else (0, 130)), (folder / "up.log").read_text("utf-8")


def check_until_it_ends(jobs: LocalJobs) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        jobs.check()
        time.sleep(0.05)


def test_the_log_of_an_earlier_start_is_not_taken_for_that_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "version.log"
    log.write_text("page: the token of an earlier start\n", "utf-8")
    with LocalJobs(["version"], "none.yaml", tmp_path) as jobs:  # it takes no --config, and ends with 2
        with pytest.raises(JobEndedError, match="ended with status 2") as error:
            check_until_it_ends(jobs)
        said = jobs.said("version")
    assert "--config" in said
    assert "earlier start" not in f"{error.value}{said}"
    assert log.read_text("utf-8").startswith("page: the token of an earlier start\n")


def test_a_second_one_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_settings(tmp_path, free_port(), free_port())
    folder = tmp_path / "tidemark-data"  # beside the file, not in the working folder
    folder.mkdir()
    with (folder / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.main(["up", "--config", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"tidemark: --folder: another `tidemark up` runs with {folder}: end it, or give this one another folder\n"
    )


@pytest.mark.parametrize("key", ["page_port", "port", "merge_port"])
def test_a_port_that_is_taken_is_said_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = write_settings(tmp_path, free_port(), free_port(), **{key: port})
        assert cli.main(["up", "--config", str(path)]) == 2
    said = capsys.readouterr()
    assert f"service.{key}: cannot listen on 127.0.0.1:{port}: Address already in use" in said.err
    assert said.out == ""
    assert [one.name for one in (tmp_path / "tidemark-data").iterdir()] == ["up.lock"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_settings(tmp_path, free_port(), free_port())
    assert cli.main(["up", "--config", str(path), "--folder", str(path / "below")]) == 2
    assert f"--folder: {path / 'below'} cannot be used: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_ends_it_while_files_are_fetched(tmp_path: Path, signals: int) -> None:
    write_settings(tmp_path, free_port(), free_port())
    with up(tmp_path, "-c", FETCHES_FOR_EVER) as child:
        wait_until(child, tmp_path, lambda said: "fetching" in said)
        assert_ends(child, tmp_path, signals)


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_ends_it_while_the_broker_starts(tmp_path: Path, signals: int) -> None:
    write_settings(tmp_path, free_port(), free_port())
    with up(tmp_path, "-c", ASKS_NOBODY) as child:
        wait_until(child, tmp_path, lambda _: (tmp_path / "tidemark-data/kafka/kafka.log").exists())
        assert_ends(child, tmp_path, signals)


def test_a_signal_ends_it_while_a_silent_source_is_asked(tmp_path: Path) -> None:
    with SilentPeer() as peer:
        write_settings(tmp_path, peer.port, free_port())
        with up(tmp_path) as child:
            wait_until(child, tmp_path, lambda _: (tmp_path / "tidemark-data/up.lock").exists())
            time.sleep(1.5)
            assert_ends(child, tmp_path)


def test_what_is_wrong_with_its_servers_is_said_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_kafka() as port:
        path = write_settings(tmp_path, free_port(), port)
        assert cli.main(["up", "--config", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tidemark: nothing was started:\n")
    for part in ("nothing can be read from the source", "something listens there: is it Kafka?", "registry.invalid"):
        assert part in said.err
    assert {one.name for one in (tmp_path / "tidemark-data").iterdir()} <= {"compiler.log", "up.lock"}


class Unlogged(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_of_a_broker_elsewhere_nothing_is_said_to_listen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_settings(tmp_path, free_port(), free_port())
    document = yaml.safe_load(path.read_text("utf-8"))
    document["kafka"]["bootstrap_servers"] = "kafka.invalid:9092"
    path.write_text(yaml.safe_dump(document), "utf-8")
    assert cli.main(["up", "--config", str(path)]) == 1
    said = capsys.readouterr().err
    assert "no broker of kafka.invalid:9092 answers" in said
    assert "something listens" not in said


@contextmanager
def no_kafka() -> Iterator[int]:
    """A web server, by its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Unlogged) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


def test_a_signal_ends_it_while_broker_and_source_are_silent(tmp_path: Path) -> None:
    with SilentPeer() as peer:
        write_settings(tmp_path, peer.port, peer.port)
        with up(tmp_path, "-c", ASKS_NOBODY) as child:
            wait_until(child, tmp_path, lambda said: "page: http://" in said)
            time.sleep(1.5)  # the first look at the broker has begun
            assert_ends(child, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_broker_that_ends_by_itself_is_exit_code_1(tmp_path: Path) -> None:
    with SilentPeer() as peer:
        write_settings(tmp_path, peer.port, free_port())
        with up(tmp_path, "-c", ASKS_NOBODY) as child:
            wait_until(child, tmp_path, lambda said: "run, merge, page: started" in said)
            java = [pid for pid in descendants(child.pid) if b"kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(next(pid for pid in java if b"_guard.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()), signal.SIGKILL)
            assert child.wait(20), (tmp_path / "up.log").read_text("utf-8")
            assert child.status == 1
    assert "tidemark: kafka has ended by itself: see" in (tmp_path / "up.log").read_text("utf-8")
