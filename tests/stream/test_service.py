"""The HTTP endpoint beside a producer that runs."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from devservers import Registry
from producer.app import Producer
from producer.sign import LivenessWriter
from schemas.settings import ServiceSettings, from_mapping
from tests.chaos.proxy import Proxy
from tests.support.producers import Source, running
from tidemark.api.observe import Observer
from tidemark.api.service import Service
from tidemark.commands import status
from tidemark.commands.run import run_producer
from tidemark.status.job_standing import JobState


def metric(text: str, name: str) -> float:
    """The value of a metric without labels; infinity where there is none."""
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} ")), float("inf"))


def test_it_shows_how_the_producer_goes(mysql: Source) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = mysql.settings()

    def describe() -> str:
        with Observer(settings) as observer:
            now = observer.read()
        return status.as_json(now, now)

    def answer(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{service.port}{path}") as response:
            return response.read().decode()

    def is_ready() -> bool:
        try:
            return json.loads(answer("/readyz")) == {"status": "ready"}
        except HTTPError:
            return False  # the reader stood still for a moment

    with Service(ServiceSettings(), lambda *_: None, describe) as service:
        with pytest.raises(HTTPError, match="503"):
            answer("/readyz")
        with running(settings) as run:
            service.watch(run.producer)
            mysql.execute("INSERT INTO t VALUES (1), (2)")
            run.caught_up(mysql)
            run.until(is_ready, "the endpoint says so")
            assert "tidemark_log_rows_total 2.0" in answer("/metrics")
            run.until(lambda: "tidemark_ready 1.0" in answer("/metrics"), "the metric says so, too")
            counted = f'tidemark_commit_to_kafka_seconds_count{{table="{mysql.schema}.t"}} 1.0'
            run.until(lambda: counted in answer("/metrics"), "its way to Kafka is counted")
            run.until(lambda: "tidemark_log_behind_bytes" in answer("/metrics"), "the retention is looked at")
            run.until(lambda: 0 <= metric(answer("/metrics"), "tidemark_log_lag_seconds") < 60, "the log is read to its end")
            assert f"{mysql.schema}.t" in json.loads(answer("/api/v1/status"))["tables"]
        service.waits("db:3306 refuses the user")
        with pytest.raises(HTTPError) as refused:
            answer("/readyz")
        assert json.loads(refused.value.read()) == {"error": "db:3306 refuses the user"}
        assert "tidemark_ready 0.0" in answer("/metrics")


def test_a_start_knows_what_the_one_before_it_knew_to_be_in_kafka(mysql: Source) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = mysql.settings()

    def known() -> int:
        sign = observer.read().sign
        return 0 if sign is None or sign.in_kafka_ms is None else sign.in_kafka_ms

    with Observer(settings) as observer:
        with running(settings) as run:
            mysql.execute("INSERT INTO t VALUES (1)")
            run.caught_up(mysql)
            with LivenessWriter(settings) as writer:
                writer.watch(run.producer)
                run.until(lambda: known() > 0, "a liveness record says so")
        before_ms = known()
    with Producer(settings) as again:  # it has read nothing yet
        assert again.reader is not None
        assert again.reader.progress.times.in_kafka_ms == before_ms


def test_one_failure_lasts_until_an_attempt_succeeds(mysql: Source, registry: Registry) -> None:
    """A registry that is down for a new schema: attempts begin, read and fail again, and neither readiness nor status flap."""
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    address = urlsplit(registry.url)
    assert address.port is not None
    with Proxy(address.port) as proxy:
        url = registry.url.replace(str(address.port), str(proxy.port), 1)
        document = {**mysql.mapping(), "format": {"type": "avro", "registry": url}}
        settings, stop = from_mapping(document), threading.Event()
        service = Service(ServiceSettings(), lambda *_: None, str)
        producer = threading.Thread(target=run_producer, args=(settings, stop, service))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        with service, Observer(settings) as observer:
            producer.start()
            try:
                within(lambda: service.not_ready() is None, service.not_ready)
                proxy.lead_to(nobody)
                proxy.disconnect()
                mysql.execute("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")
                within(lambda: service.not_ready() is not None, lambda: "ready")
                failed_s = time.monotonic()
                answers, states = list[str | None](), list[tuple[JobState, int]]()
                while service._counts()[0] < 4:
                    assert time.monotonic() < failed_s + 120, answers
                    answers.append(service.not_ready())
                    status = observer.read()
                    states.append((status.producer().state, 0 if status.sign is None else status.sign.since_ms or 0))
                    time.sleep(0.05)
                assert None not in answers, "it flapped"
                while states[0][0] is not JobState.WAITING:  # the records come every two seconds
                    states.pop(0)
                assert {state for state, _ in states} == {JobState.WAITING}
                assert len({since for _, since in states}) == 1, "it counts from the first failure"
                proxy.lead_to(address.port)
                within(lambda: service.not_ready() is None, service.not_ready)
                within(lambda: observer.read().producer().state is JobState.READING, lambda: observer.read().producer())
            finally:
                stop.set()
                producer.join(120)


def within(condition: Callable[[], bool], facts: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, facts()
        time.sleep(0.1)


def test_a_producer_that_waits_for_its_source_says_so_from_outside(mysql: Source) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings()) as run:
        run.caught_up(mysql)
    with socket.socket() as silent, Observer(mysql.settings()) as observer:
        silent.bind(("127.0.0.1", 0))  # nobody listens: it refuses
        away = mysql.settings(host="127.0.0.1", port=silent.getsockname()[1])
        stop = threading.Event()
        producer = threading.Thread(target=run_producer, args=(away, stop, None))
        producer.start()
        try:
            deadline = time.monotonic() + 120
            while (status := observer.read().producer()).state != JobState.WAITING:
                assert time.monotonic() < deadline, status
                time.sleep(0.2)
            assert str(silent.getsockname()[1]) in status.reason
            assert status.alive
        finally:
            stop.set()
            producer.join(120)
        assert observer.settled().producer().state == JobState.NOT_RUNNING
