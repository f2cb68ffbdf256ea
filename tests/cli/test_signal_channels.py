"""`tidemark signal` over every channel: heard and answered by a producer that runs, refused with a clear error where nobody would."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devservers.processes import free_port
from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tests.support.producers import Source, running
from tests.support.topics import read_topic
from tidemark import cli
from tidemark.api.service import Service
from tidemark.commands import run
from tidemark.process import logs

TOKEN = "let me in"
CHANNELS = ("source", "kafka", "file", "http")


@pytest.fixture(autouse=True)
def _logs_go_to_standard_error() -> None:
    """As the command has it from its first call in this process on: the output holds what the command prints alone."""
    logs.configure()


@pytest.fixture
def source(kafka, mysql80, fresh_database) -> Iterator[Source]:
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def document(source: Source, tmp_path: Path) -> dict[str, Any]:
    return {
        "name": source.name,
        "source": {
            "host": source.server.host,
            "port": source.server.port,
            "user": source.server.user,
            "password": source.server.password,
            "tables": [f"{source.schema}\\..*"],
            "signal_table": f"{source.schema}.tidemark_signal",
        },
        "kafka": {"bootstrap_servers": source.bootstrap_servers, "partitions": 1},
        "format": {"type": "json"},
        "snapshot": {"mode": "no_data", "readers": 1, "chunk_rows": 10},
        "signal": {
            "channels": ["source", "kafka", "file"],
            "file": str(tmp_path / "signals"),
            "poll_interval_ms": 50,
        },
        "service": {"port": free_port(), "token": TOKEN},
    }


def configuration(tmp_path: Path, **settings: Any) -> str:
    """A file with these settings; nothing in it is there to be reached."""
    path = tmp_path / "tidemark.yaml"
    minimal = {
        "name": "nowhere",
        "source": {"host": "127.0.0.1", "port": 1, "user": "u", "tables": [".*"]},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "format": {"type": "json"},
    }
    path.write_text(json.dumps(minimal | settings), "utf-8")
    return str(path)


def test_a_snapshot_with_its_options_is_asked_for_over_every_channel(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, s INT, INDEX (s))")
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(number, number % 3) for number in range(30)])
    sections = document(source, tmp_path)
    settings, config = from_mapping(sections), configuration(tmp_path, **sections)
    with ExitStack() as stack:
        producer = stack.enter_context(running(settings))
        run._serve(settings, stack)
        producer.until(lambda: producer.producer.reader is not None, "it reads the log")
        coordinator = producer.producer.coordinator
        assert coordinator is not None
        for channel in CHANNELS:
            arguments = ["--merge", "producer", "--surrogate-key", "s", "--channel", channel, "--id", channel]
            code = cli.main(
                ["signal", "execute-snapshot", rf"{source.schema}\.t", *arguments, "--wait", "120", "--config", config]
            )
            assert (code, capsys.readouterr().out) == (0, f"{channel}: accepted\n")
            producer.until(lambda: all(table.state == "done" for table in coordinator.progress()), "it is done")
            code = cli.main(
                ["signal", "resume-snapshot", "--channel", channel, "--id", f"{channel}-2", "--wait", "120", "--config", config]
            )
            assert (code, capsys.readouterr().out) == (1, f"{channel}-2: rejected: no snapshot is paused\n")
        producer.caught_up(source)
        asked = [(table.request, table.rows, table.chunks_done > 1) for table in coordinator.progress()]
    assert asked == [(channel, 30, True) for channel in CHANNELS]
    reported = [record.value for record in read_topic(source.bootstrap_servers, f"{source.name}.{source.schema}.t")]
    assert [value["op"] for value in reported] == ["r"] * 30 * len(CHANNELS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pause-snapshot", "--merge", "spark"], "--merge: does not go with pause-snapshot"),
        (["stop-snapshot", "--surrogate-key", "x"], "--surrogate-key: does not go with stop-snapshot"),
        (["resume-snapshot", "shop.t"], "TABLE: does not go with resume-snapshot"),
        (["execute-snapshot", "shop.t", "--message", "x"], "--message: does not go with execute-snapshot"),
        (["log", "--data", "{}", "--message", "x"], "--message: does not go with --data"),
        (["pause-snapshot", "--url", "http://x:1"], "--url: does not go with --channel source"),
        (["pause-snapshot", "--id", "x" * 43], "--id: has 43 characters"),
        (["pause-snapshot", "--channel", "kafka"], "signal.channels: kafka is not among them"),
        (["pause-snapshot", "--channel", "file"], "signal.channels: file is not among them"),
        (["pause-snapshot", "--channel", "http"], "service.port: is not set"),
        (["pause-snapshot", "--channel", "http", "--url", "ftp://x"], "expected http://host:port"),
        (["pause-snapshot"], "source.signal_table: is not set"),
    ],
)
def test_what_nobody_would_hear_or_heed_is_refused_with_a_clear_error(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["signal", *arguments, "--config", configuration(tmp_path)]) == 2
    assert words in capsys.readouterr().err


def test_a_line_goes_behind_one_that_was_left_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_text('{"type": "log"')
    config = configuration(tmp_path, signal={"channels": ["source", "file"], "file": str(path)})
    command = ["signal", "log", "--message", "grüße", "--id", "l", "--channel", "file", "--config", config]
    assert [cli.main(command), cli.main(command)] == [0, 0]
    signal = {"id": "l", "type": "log", "data": {"message": "grüße"}}
    assert path.read_text("utf-8").split("\n")[1:] == [json.dumps(signal, ensure_ascii=False)] * 2 + [""]


def test_a_file_that_cannot_be_written_and_unreachable_brokers_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    channels = {"channels": ["source", "file", "kafka"], "file": str(tmp_path / "none" / "signals")}
    config = configuration(tmp_path, signal=channels)
    monkeypatch.setattr("tidemark.api.sending._DELIVERY_S", 0.5)
    assert cli.main(["signal", "pause-snapshot", "--channel", "file", "--config", config]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err
    assert cli.main(["signal", "pause-snapshot", "--channel", "kafka", "--config", config]) == 1
    assert "topic nowhere-signal did not take the signal" in capsys.readouterr().err


def test_the_endpoint_is_given_the_token_and_its_refusals_are_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[tuple[str, str, str | None]] = []

    def insert(signal_id: str, kind: str, data: str | None) -> None:
        if taken:
            raise ConfigError("there is no table")
        taken.append((signal_id, kind, data))

    service = from_mapping(
        json.loads(Path(configuration(tmp_path)).read_text()) | {"service": {"token": TOKEN}}
    ).service
    with Service(service, insert, lambda: "{}") as listening:
        url = f"http://127.0.0.1:{listening.port}"
        command = ["signal", "log", "--message", "x", "--id", "mine", "--channel", "http"]

        def ask(**section: Any) -> tuple[int, str]:
            config = configuration(tmp_path, service=section)
            code = cli.main([*command, "--url", url, "--config", config])
            return code, capsys.readouterr().err

        capsys.readouterr()  # what the endpoint logs when it listens
        code, said = ask()
        assert code == 1
        assert said.startswith(f"tidemark: {url} refused the signal: the header Authorization")
        assert ask(token=TOKEN) == (0, "")
        assert taken == [("mine", "log", '{"message": "x"}')]
        code, said = ask(token=TOKEN)
        assert (code, said) == (1, f"tidemark: {url} refused the signal: there is no table\n")
    code, said = ask(token=TOKEN)
    assert code == 1
    assert "cannot be reached" in said


def test_what_is_no_endpoint_is_reported_with_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        command = ["signal", "log", "--message", "x", "--channel", "http", "--config", configuration(tmp_path)]
        assert cli.main([*command, "--url", f"http://127.0.0.1:{listening.getsockname()[1]}"]) == 1
        thread.join(120)
    assert "cannot be reached" in capsys.readouterr().err
    assert cli.main([*command, "--url", "http://producer:80a"]) == 1
    assert "http://producer:80a cannot be reached" in capsys.readouterr().err


def test_what_the_signal_table_does_not_take_is_reported_with_a_clear_error(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = document(source, tmp_path)
    config = configuration(tmp_path, **sections)
    command = ["signal", "log", "--message", "x", "--id", "twice", "--config", config]
    assert cli.main(command) == 1
    assert "tidemark_signal' doesn't exist" in capsys.readouterr().err
    source.execute("CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
    assert [cli.main(command), cli.main(command)] == [0, 2]
    assert "id: 'twice' is in the signal table" in capsys.readouterr().err
    with ExitStack() as stack:
        run._serve(from_mapping(sections), stack)
        assert cli.main([*command, "--channel", "http"]) == 1
    assert "id: 'twice' is in the signal table" in capsys.readouterr().err


def test_a_source_that_is_only_read_gets_no_signal_and_http_takes_another_way(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
    sections = document(source, tmp_path)
    sections["source"]["read_only"] = True
    sections["signal"]["channels"] = ["source", "file"]
    command = ["signal", "log", "--message", "x", "--id", "i", "--config", configuration(tmp_path, **sections)]
    assert cli.main(command) == 2
    assert "source.read_only" in capsys.readouterr().err
    with ExitStack() as stack:
        run._serve(from_mapping(sections), stack)
        assert cli.main([*command, "--channel", "http"]) == 0
    assert json.loads((tmp_path / "signals").read_text("utf-8")) == {"id": "i", "type": "log", "data": {"message": "x"}}
    with source.connection.cursor() as cursor:
        assert cursor.execute("SELECT * FROM tidemark_signal") == 0
