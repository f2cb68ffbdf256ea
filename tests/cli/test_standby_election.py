"""Who leads, asked of a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from devservers import Kafka
from devservers.processes import free_port
from producer.stream.reader_progress import LogProgress
from schemas.errors import FencedError, KafkaAccessError, PublishError, SinkError, SourceError, TidemarkError
from schemas.position import Position
from schemas.settings import from_mapping, task_from_mapping
from tests.support import guarded_kafka
from tests.support.lost_clients import LostClient
from tests.support.own_broker import own_kafka
from tests.support.servers import unique_name
from tidemark import cli
from tidemark.process.leadership import Leadership, run_when_leading

ROOT = Path(__file__).parents[2]
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
PASSWORD = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_captain="{}";'
PRODUCER = """
import json, sys, threading
from schemas.errors import SourceError
from schemas.settings import from_mapping
from tidemark.process import leadership

leadership._HEARD_S = 120.0

def run(term):
    print("leads", flush=True)
    sys.stdin.readline()
    raise SourceError("another reader uses the server id")

document = {"name": sys.argv[1], "source": {"tables": ["a.b"]}, "kafka": json.loads(sys.argv[2])}
leadership.run_when_leading(leadership.Leadership.of_producer(from_mapping(document), threading.Event()), run)
"""


def producer(name: str, **kafka: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRODUCER, name, json.dumps(kafka)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def comes_to_lead(process: subprocess.Popen[str]) -> bool:
    """False when it ends instead."""
    assert process.stdout is not None
    return any(line == "leads\n" for line in process.stdout)


def test_a_frozen_leader_that_the_source_turns_away_waits_for_its_turn_again(kafka: Kafka) -> None:
    """The source serves the new leader only, and says so before Kafka does: that is no reason to end."""
    name = unique_name("standby")
    with ExitStack() as stack:
        first = stack.enter_context(producer(name, bootstrap_servers=kafka.bootstrap_servers))
        stack.callback(first.kill)
        assert comes_to_lead(first)
        first.send_signal(signal.SIGSTOP)
        second = stack.enter_context(producer(name, bootstrap_servers=kafka.bootstrap_servers))
        stack.callback(second.kill)
        assert comes_to_lead(second)
        assert first.stdin is not None
        first.stdin.write("an error\n")
        first.stdin.flush()
        first.send_signal(signal.SIGCONT)
        second.kill()
        assert comes_to_lead(first)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody loses its place because the machine stands still for a moment."""
    monkeypatch.setattr("tidemark.process.leadership.SESSION_MS", 120_000)


def test_one_leads_where_the_topic_was_made_with_more_partitions(kafka: Kafka, patient: None) -> None:
    """A consumer that waits for notifications before the first start has the broker make it, with what it has by default."""
    name = unique_name("standby")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(f"{name}.notifications", 3, 1)])[f"{name}.notifications"].result()
    document = {
        "name": name,
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    settings, stop, leading = from_mapping(document), threading.Event(), list[threading.Event]()
    at_once: list[int] = []
    led = threading.Event()

    def run(term: threading.Event) -> None:
        leading.append(term)
        at_once.append(len(leading))
        led.set()
        term.wait()
        leading.remove(term)

    members = [
        threading.Thread(target=run_when_leading, args=(Leadership.of_producer(settings, stop), run)) for _ in range(2)
    ]
    for member in members:
        member.start()
    assert led.wait(120)
    wait_for_members(admin, f"{name}-leader", 2)
    time.sleep(2)  # so that the other one comes to lead, if it does
    stop.set()
    for member in members:
        member.join(120)
    assert max(at_once) == 1


def wait_for_members(admin: AdminClient, group: str, count: int) -> None:
    """Wait until so many members of a group have their partitions."""
    deadline = time.monotonic() + 120
    while True:
        found = admin.describe_consumer_groups([group])[group].result(60)
        if found.state is ConsumerGroupState.STABLE and len(found.members) == count:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_a_producer_that_is_done_is_not_started_again(kafka: Kafka, patient: None) -> None:
    """`snapshot.mode: initial_only` ends its own term: there is nothing left to lead."""
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    starts: list[threading.Event] = []
    stop = threading.Event()

    def run(term: threading.Event) -> None:
        starts.append(term)
        term.set()
        if len(starts) > 1:
            stop.set()

    run_when_leading(Leadership.of_producer(from_mapping(document), stop), run)
    assert len(starts) == 1


def test_a_task_leads_beside_the_producer_of_its_source(kafka: Kafka, patient: None) -> None:
    source, section = unique_name("standby"), {"bootstrap_servers": kafka.bootstrap_servers}
    registry = {"registry": "http://127.0.0.1:1"}
    settings = from_mapping({"name": source, "source": {"tables": ["a.b"]}, "kafka": section})
    task = task_from_mapping(
        {"task": source, "sources": [{"name": source}], "kafka": section, "format": registry, "target": {"type": "mysql", "host": "a"}}
    )
    led = list[threading.Event]()
    with Leadership.of_producer(settings, threading.Event()) as producers:
        assert producers.wait() is not None
        run_when_leading(Leadership.of_task(task, threading.Event()), led.append)
    assert len(led) == 1


@pytest.mark.parametrize("error", [SourceError, PublishError])
def test_an_error_that_comes_with_the_loss_of_the_leadership_ends_no_process(
    kafka: Kafka, patient: None, error: type[TidemarkError]
) -> None:
    """The server of a task may report the new leader by an error of its own, before Kafka does. A Kafka that is down ends the term."""
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    stop, starts = threading.Event(), list[threading.Event]()
    leadership = Leadership.of_producer(from_mapping(document), stop)

    def run(term: threading.Event) -> None:
        starts.append(term)
        if len(starts) < 2:
            leadership._end_term()
            leadership._member.refusal = "so that it joins the group again"
            raise error("the session was ended")

    limit = threading.Timer(120, stop.set)
    limit.start()
    run_when_leading(leadership, run)
    limit.cancel()
    assert len(starts) == 2


def test_another_error_ends_the_process(kafka: Kafka, patient: None) -> None:
    document = {"name": unique_name("standby"), "source": {"tables": ["a.b"]}, "kafka": {"bootstrap_servers": kafka.bootstrap_servers}}
    leadership = Leadership.of_producer(from_mapping(document), threading.Event())

    def run(_term: threading.Event) -> None:
        leadership._end_term()
        raise SinkError("a row is missing")

    with pytest.raises(SinkError, match="a row is missing"):
        run_when_leading(leadership, run)


def test_one_whose_client_has_lost_every_broker_leads_with_another(
    kafka: Kafka, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other is there: nobody else would ever lead."""
    monkeypatch.setattr("tidemark.process.leadership._ASKS_EACH_S", 0.5)
    new_member, made = Leadership._new_member, list[object]()

    def lost_at_first(leadership: Leadership) -> Any:
        member = new_member(leadership)
        if not made:
            member._consumer = cast("Any", NeverJoins(member._consumer))
        made.append(member)
        return member

    monkeypatch.setattr(Leadership, "_new_member", lost_at_first)
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    stop, led = threading.Event(), list[threading.Event]()
    limit = threading.Timer(120, stop.set)
    limit.start()
    run_when_leading(Leadership.of_producer(from_mapping(document), stop), led.append)
    limit.cancel()
    assert led
    assert len(made) == 2


@pytest.mark.parametrize("failures", [1, 2])
def test_a_client_that_answers_when_kafka_is_back_is_kept(failures: int, kafka: Kafka) -> None:
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    leadership = Leadership.of_producer(from_mapping(document), threading.Event())
    member = leadership._member
    member._consumer = cast("Any", Recovers(member._consumer, failures))
    leadership._rejoin_if_cut_off()
    assert (leadership._member is member) == (failures == 1)
    leadership._member.close()


def test_an_error_that_nobody_expects_ends_the_wait_of_a_standby(kafka: Kafka) -> None:
    """Its thread had died of it, and it waited for ever for a term that could not come."""
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    stop = threading.Event()
    leadership = Leadership.of_producer(from_mapping(document), stop)
    leadership._member._consumer = cast("Any", Breaks(leadership._member._consumer))
    limit = threading.Timer(120, stop.set)
    limit.start()
    with leadership, pytest.raises(PublishError, match="cannot be understood"):
        leadership.wait()
    limit.cancel()


class Breaks(LostClient):
    def subscribe(self, *_: object, **__: object) -> None:
        pass

    def poll(self, timeout: float = 0.0) -> None:
        message = f"an answer within {timeout} s that cannot be understood"
        raise ValueError(message)


class Recovers(LostClient):
    def __init__(self, client: Any, failures: int) -> None:
        super().__init__(client)
        self._failures = failures

    def list_topics(self, *_: object, timeout: float) -> None:
        self._failures -= 1
        if self._failures >= 0:
            super().list_topics(timeout=timeout)


class NeverJoins(LostClient):
    def subscribe(self, *_: object, **__: object) -> None:
        pass


def test_the_endpoint_of_one_that_is_standby_says_so(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    port = free_port()
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "service": {"port": port},
    }
    config = tmp_path / "tidemark.yaml"
    config.write_text(json.dumps(document), "utf-8")
    said: list[str] = []

    def note() -> None:
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{port}/readyz", timeout=120)
        said.append(json.loads(refused.value.read())["error"])
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
            assert b"tidemark_log" not in answer.read()

    def run(_settings: object, _term: threading.Event, watch: Any, _waits: object, _reloads: object) -> None:
        note()
        progress = LogProgress(Position(0, 1, 4), committed_ms=1_000)
        watch(SimpleNamespace(reader=SimpleNamespace(progress=progress), retention=None, coordinator=None))
        if len(said) < 3:
            raise FencedError("another one has taken over")

    monkeypatch.setattr("producer.app.run", run)
    monkeypatch.setattr("producer.app.warm_up", note)
    assert cli.main(["run", "--standby", "--config", str(config)]) == 0
    assert "stands by" in said[0]
    assert ["is starting" in one for one in said[1:]] == [True, True]


def test_who_may_not_join_the_group_is_reported_so() -> None:
    """Else a standby would wait for ever, and nobody would know before the leader dies."""
    name = unique_name("refused")
    admin = AdminClient({"bootstrap.servers": guarded_kafka.guarded_kafka().bootstrap_servers})
    topics = AclBinding(  # all that it needs but its group
        ResourceType.TOPIC,
        name,
        ResourcePatternType.PREFIXED,
        "User:sailor",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for done in admin.create_acls([topics]).values():
        done.result(30)
    with producer(name, **guarded_kafka.section("sailor")) as waits:
        assert waits.stdout is not None
        ends = threading.Timer(240, waits.kill)
        ends.start()
        reported = next((line for line in waits.stdout if "authorization failed" in line), "nothing")
        ends.cancel()
        waits.kill()
    assert "warning" in reported


def test_a_standby_with_a_wrong_password_ends_with_a_clear_error() -> None:
    """As a producer alone does: wrong from the start, it is no rotation."""
    document = {"name": "refused", "source": {"tables": ["a.b"]}, "kafka": guarded_kafka.section("captain", "not-it")}
    stop = threading.Event()
    ends = threading.Timer(240, stop.set)
    ends.start()
    with pytest.raises(KafkaAccessError, match="Kafka refuses us"):
        run_when_leading(Leadership.of_producer(from_mapping(document), stop), lambda _term: None)
    ends.cancel()


@pytest.fixture
def asking_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A broker that asks for a password on one of its ports."""
    properties = {"sasl.enabled.mechanisms": "PLAIN", JAAS: PASSWORD.format("it")}
    with own_kafka(tmp_path, secure=("SASL_PLAINTEXT",), properties=properties) as broker:
        yield broker


def test_a_password_of_kafka_that_is_rotated_keeps_nobody_from_leading(asking_kafka: Kafka, tmp_path: Path) -> None:
    """A client that led has lost its place with its connections, and no client takes another password."""
    file = tmp_path / "password"
    file.write_text("it")
    section = {
        "bootstrap_servers": asking_kafka.listener("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl": {"mechanism": "PLAIN", "username": "captain", "password_file": str(file)},
    }
    document = {"name": "rotated", "source": {"tables": ["a.b"]}, "kafka": section}
    stop, leads = threading.Event(), threading.Semaphore(0)

    def run(term: threading.Event) -> None:
        leads.release()
        term.wait()

    waits = threading.Thread(target=run_when_leading, args=(Leadership.of_producer(from_mapping(document), stop), run))
    waits.start()
    try:
        assert leads.acquire(timeout=180)
        asking_kafka._properties[JAAS] = PASSWORD.format("another")
        asking_kafka.kill()
        file.write_text("another")
        asking_kafka.restart()
        assert leads.acquire(timeout=180)
    finally:
        stop.set()
        waits.join(120)
