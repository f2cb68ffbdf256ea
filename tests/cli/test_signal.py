from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devservers import Database, Kafka
from schemas.notifications import Notification, signal_accepted, signal_rejected
from schemas.topics import notifications_topic
from tests.support.encoded_notifications import as_json
from tests.support.record_producer import RecordProducer
from tests.support.servers import unique_name
from tidemark import cli
from tidemark.commands import signal

TABLE = "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"


@pytest.fixture
def notifications(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name whose notification topic exists; brokers may need a while to report it."""
    monkeypatch.setattr("tidemark.api.notification_reader._MADE_S", 120.0)
    name = unique_name("signal")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(notifications_topic(name), 1)])[notifications_topic(name)].result(120)
    return name


@pytest.fixture
def shop(mysql80: Database, fresh_database: Callable[[Database], str]) -> str:
    name = fresh_database(mysql80)
    with mysql80.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name}.`my signals` {TABLE}")
    return name


def configuration(tmp_path: Path, server: Database, shop: str, kafka: str, name: str) -> str:
    path = tmp_path / "tidemark.yaml"
    document = {
        "name": name,
        "source": {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "tables": [f"{shop}\\..*"],
            "signal_table": f"{shop}.my signals",
        },
        "kafka": {"bootstrap_servers": kafka},
    }
    path.write_text(json.dumps(document), "utf-8")
    return str(path)


def rows(server: Database, shop: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id, type, data FROM {shop}.`my signals`")
        return list(cursor.fetchall())


def test_a_signal_is_a_row_of_the_signal_table_and_its_id_is_printed(
    mysql80: Database, shop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, mysql80, shop, "127.0.0.1:1", "s")

    code = cli.main(
        [
            "signal",
            "execute-snapshot",
            "shop\\.a",
            "shop\\.b",
            "--where",
            "shop\\.a: id > 5",
            "--config",
            config,
        ]
    )

    assert code == 0
    ((signal_id, kind, data),) = rows(mysql80, shop)
    assert capsys.readouterr().out == f"{signal_id}\n"
    assert kind == "execute-snapshot"
    assert json.loads(data) == {
        "data-collections": ["shop\\.a", "shop\\.b"],
        "type": "INCREMENTAL",
        "additional-conditions": [{"data-collection": "shop\\.a", "filter": "id > 5"}],
    }


def test_a_snapshot_may_be_asked_for_that_the_log_waits_for() -> None:
    arguments = cli.parser().parse_args(["signal", "execute-snapshot", "shop\\.a", "--blocking"])
    assert json.loads(signal.data_of(arguments) or "") == {"data-collections": ["shop\\.a"], "type": "BLOCKING"}


def test_a_signal_without_tables_has_no_data_and_keeps_the_id_it_is_given(
    mysql80: Database, shop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, mysql80, shop, "127.0.0.1:1", "s")

    code = cli.main(["signal", "pause-snapshot", "--id", "mine", "--output", "json", "--config", config])

    assert code == 0
    assert rows(mysql80, shop) == [("mine", "pause-snapshot", None)]
    assert json.loads(capsys.readouterr().out) == {"id": "mine"}


def answer_when_asked(
    server: Database, shop: str, kafka: str, name: str, answer: Notification
) -> threading.Thread:
    """What a producer does: sees the row, answers, after an answer to somebody else."""

    def work() -> None:
        deadline = time.monotonic() + 120
        while not rows(server, shop) and time.monotonic() < deadline:
            time.sleep(0.05)
        producer = RecordProducer({"bootstrap.servers": kafka})
        other = signal_accepted(name, "other", "log", 1)
        for notification in (other, answer):
            key, value = as_json(notification)
            producer.produce(notifications_topic(name), value, key)
        producer.flush(120)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "rejected"])
def test_waiting_for_the_answer_reports_it_and_fails_on_a_refusal(
    mysql80: Database,
    kafka: Kafka,
    shop: str,
    notifications: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    accepted: bool,
) -> None:
    config = configuration(tmp_path, mysql80, shop, kafka.bootstrap_servers, notifications)
    answer = (
        signal_accepted(notifications, "mine", "resume-snapshot", 1)
        if accepted
        else signal_rejected(notifications, "mine", "resume-snapshot", 1, "nothing is paused")
    )
    thread = answer_when_asked(mysql80, shop, kafka.bootstrap_servers, notifications, answer)

    code = cli.main(["signal", "resume-snapshot", "--id", "mine", "--wait", "120", "--config", config])

    thread.join()
    printed = capsys.readouterr().out
    assert (code, printed) == (
        (0, "mine: accepted\n") if accepted else (1, "mine: rejected: nothing is paused\n")
    )


def test_no_answer_in_time_fails_and_says_what_may_be_wrong(
    mysql80: Database, kafka: Kafka, shop: str, notifications: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, mysql80, shop, kafka.bootstrap_servers, notifications)

    code = cli.main(["signal", "log", "--message", "hi", "--id", "mine", "--wait", "0.5", "--config", config])

    assert code == 1
    printed = capsys.readouterr().out
    assert printed.startswith("mine: no answer within 0.5 s; is `tidemark run` running?")
    assert "carried out when the producer comes to it" in printed


def test_waiting_before_the_producer_was_ever_started_says_so(
    mysql80: Database, kafka: Kafka, shop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, mysql80, shop, kafka.bootstrap_servers, unique_name("signal"))

    code = cli.main(["signal", "pause-snapshot", "--wait", "--config", config])

    assert code == 1
    assert "was `tidemark run` ever started?" in capsys.readouterr().err
    assert rows(mysql80, shop) == []
