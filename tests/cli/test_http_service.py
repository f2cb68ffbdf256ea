"""The HTTP endpoint on a real socket: what it answers, what it refuses, and that no bytes bring it down."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.stream.reader_progress import LogProgress
from schemas import signals
from schemas.errors import ConfigError, PublishError, RetriableSourceError
from schemas.position import Position
from schemas.settings import ServiceSettings
from tidemark.api.health import HealthServer
from tidemark.api.service import LARGEST_BODY, Service
from tidemark.status.lags import Lag, Lags, Verdict, Word

if TYPE_CHECKING:
    from producer.app import Producer
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.stream.handlers.commit_seal import CommitSeal

JSON = {"Content-Type": "application/json"}
SLOW_BODY = b"POST /api/v1/signals HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


class Taken(list):
    """The signals that were inserted."""

    def insert(self, signal_id: str, kind: str, data: str | None) -> None:
        self.append((signal_id, kind, data))


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture
def service(taken: Taken) -> Iterator[Service]:
    with Service(ServiceSettings(), taken.insert, lambda: '{"tables": {}}') as running:
        yield running


def ask(
    service: Service,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    host: str = "127.0.0.1",
):
    with closing(http.client.HTTPConnection(host, service.port, timeout=120)) as connection:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, JSON if headers is None else headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        kind = answer.headers.get_content_type()
        return answer.status, json.loads(text) if kind == "application/json" else text


def test_it_is_alive_and_says_why_it_is_not_ready(service: Service) -> None:
    assert ask(service, "GET", "/livez") == (200, {"status": "alive"})
    status, document = ask(service, "GET", "/readyz")
    assert status == 503
    assert "starting" in document["error"]


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_it_listens_where_it_is_configured_to(taken: Taken, host: str) -> None:
    with Service(ServiceSettings(host=host), taken.insert, str) as running:
        assert ask(running, "GET", "/livez", host=host) == (200, {"status": "alive"})


def test_status_is_that_of_the_command(service: Service) -> None:
    assert ask(service, "GET", "/api/v1/status") == (200, {"tables": {}})


def test_a_status_that_cannot_be_read_is_an_error_with_a_clear_error() -> None:
    def fail() -> str:
        raise PublishError("the brokers do not answer")

    with Service(ServiceSettings(), Taken().insert, fail) as running:
        assert ask(running, "GET", "/api/v1/status") == (503, {"error": "the brokers do not answer"})


def test_a_signal_becomes_a_row(service: Service, taken: Taken) -> None:
    data = {"data-collections": ["shop.orders"], "type": "INCREMENTAL"}
    answer = ask(
        service, "POST", "/api/v1/signals", {"id": "one", "type": signals.EXECUTE_SNAPSHOT, "data": data}
    )
    assert answer == (202, {"id": "one"})
    status, document = ask(service, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT})
    assert status == 202
    assert taken == [
        ("one", signals.EXECUTE_SNAPSHOT, json.dumps(data)),
        (document["id"], signals.PAUSE_SNAPSHOT, None),
    ]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "not JSON"),
        (b"[" * 50_000, 400, "not JSON"),
        ([], 400, "object"),
        ({"data": {}}, 400, "type:"),
        ({"type": "execute-snapshots", "data": {}}, 400, "execute-snapshot"),
        ({"type": signals.EXECUTE_SNAPSHOT}, 400, "data-collections"),
        ({"type": signals.PAUSE_SNAPSHOT, "idd": "x"}, 400, "idd"),
        ({"type": signals.PAUSE_SNAPSHOT, "id": "x" * 43}, 400, "42"),
        (b'{"type": "pause-snapshot", "id": "\\ud800"}', 400, "id:"),
        ({"type": signals.LOG, "data": {"message": "x" * 3_000}}, 400, "2048"),
        (b" " * (LARGEST_BODY + 1), 413, str(LARGEST_BODY)),
    ],
)
def test_a_bad_signal_is_refused_with_a_clear_error(
    service: Service, taken: Taken, body: object, status: int, reason: str
) -> None:
    answer, document = ask(service, "POST", "/api/v1/signals", body)
    assert answer == status
    assert reason in document["error"]
    assert not taken


def test_the_client_that_sends_far_too_much_is_reported_so_and_not_hung_up_on(service: Service) -> None:
    status, document = ask(service, "POST", "/api/v1/signals", b" " * (12 * LARGEST_BODY))
    assert status == 413
    assert str(LARGEST_BODY) in document["error"]


def test_health_is_reported_while_many_wait_for_a_kafka_that_is_unreachable() -> None:
    """Else a producer that only waits would be killed for it."""
    back = threading.Event()

    def describe() -> str:
        back.wait(300)
        return "{}"

    with Service(ServiceSettings(), Taken().insert, describe) as running, ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(ask, running, "GET", "/api/v1/status") for _ in range(16)]
        try:
            refused = [done.result() for done in islice(as_completed(waiting, timeout=120), 8)]
            assert all(code == 503 and "retry" in document["error"] for code, document in refused)
            while len(running._server._clients) > 8:  # the last refusals are read before their threads have ended
                time.sleep(0.01)
            assert ask(running, "GET", "/livez")[0] == 200
        finally:
            back.set()
        assert sorted(done.result()[0] for done in waiting) == [200] * 8 + [503] * 8


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost:", SLOW_BODY], ids=["nothing", "head", "body"])
def test_health_is_reported_while_many_clients_do_not_finish_their_requests(service: Service, taken: Taken, sent: bytes) -> None:
    """Anybody who can connect would have the process killed else."""
    with ExitStack() as stack:
        for _ in range(50):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=120))
            slow.sendall(sent)
        for path in ("/livez", "/metrics", "/api/v1/status"):
            assert ask(service, "GET", path)[0] == 200
        body = {"type": signals.PAUSE_SNAPSHOT}
        assert ask(service, "POST", "/api/v1/signals", body)[0] == 202
    assert len(taken) == 1


def test_a_client_that_sends_a_byte_now_and_then_is_hung_up_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.api.health._REQUEST_S", 1.0)
    deadline = time.monotonic() + 60

    def drip(connection: socket.socket) -> None:
        while time.monotonic() < deadline:
            connection.sendall(b"G")
            time.sleep(0.05)

    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as slow, pytest.raises(OSError, match=r"reset|pipe"):
        drip(slow)
    assert time.monotonic() < deadline


REBOUND = [
    ({"Host": "evil.example"}, "evil.example"),
    ({"Host": "evil.example:8080"}, "evil.example"),
    ({"Host": "127.0.0.1.evil.example"}, "evil.example"),
    ({"Host": "[::1"}, "Host"),
    ({"Origin": "http://evil.example"}, "Origin"),
    ({"Origin": "null"}, "Origin"),
]


@pytest.mark.parametrize(("headers", "word"), REBOUND)
def test_a_page_that_leads_its_own_name_to_loopback_signals_nothing(
    service: Service, taken: Taken, headers: dict[str, str], word: str
) -> None:
    """DNS rebinding: for the browser it is one origin, so JSON is sent without a question before."""
    status, document = ask(service, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT}, {**JSON, **headers})
    assert status == 403
    assert word in document["error"]
    assert ask(service, "GET", "/api/v1/status", headers=headers)[0] == 403
    assert ask(service, "GET", "/livez", headers=headers)[0] == 200
    assert not taken


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080"])
def test_the_names_of_loopback_are_answered(service: Service, taken: Taken, host: str) -> None:
    own = {"Host": host, "Origin": f"http://{host}"}
    status, _ = ask(service, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT}, {**JSON, **own})
    assert (status, len(taken)) == (202, 1)


def test_with_a_token_it_may_have_any_name(taken: Taken) -> None:
    """Behind a proxy, for instance; a page cannot know the token."""
    with Service(ServiceSettings(token="it"), taken.insert, str) as running:
        headers = {**JSON, "Host": "tidemark.example", "Authorization": "Bearer it"}
        assert ask(running, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT}, headers)[0] == 202


def test_a_method_that_is_not_known_is_refused_with_a_clear_error(service: Service) -> None:
    status, document = ask(service, "PUT", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT})
    assert status == 501
    assert "PUT" in document["error"]


def producer_that_reads(progress: LogProgress) -> Producer:
    """One of which only the log reader's figures are known."""
    found = SimpleNamespace(
        reader=SimpleNamespace(progress=progress), retention=None, commits=None, coordinator=None,
        aside=SimpleNamespace(tables=set()), flavour="mysql",
    )
    return cast("Producer", found)


def test_times_that_are_not_known_yet_are_no_figures(service: Service) -> None:
    """A source at rest after a restart would be half a century behind, and raise an alarm."""
    progress = LogProgress(Position(0, 1, 4))
    service.watch(producer_that_reads(progress))
    text = ask(service, "GET", "/metrics")[1]
    assert "tidemark_log_cuts_total 0.0" in text
    assert "timestamp_seconds" not in text
    progress.committed_ms = progress.source_ts_ms = 1_000
    text = ask(service, "GET", "/metrics")[1]
    assert "tidemark_log_committed_timestamp_seconds 1.0" in text
    assert "tidemark_log_source_timestamp_seconds 1.0" in text


def test_the_members_of_a_group_are_there_for_sources_that_are_in_one(taken: Taken, service: Service) -> None:
    assert ask(service, "GET", "/api/v1/group")[0] == 404
    with Service(ServiceSettings(), taken.insert, str, describe_group=lambda: '{"group": "shop"}') as running:
        assert ask(running, "GET", "/api/v1/group") == (200, {"group": "shop"})
        headers = {"Host": "page.example"}
        assert ask(running, "GET", "/api/v1/group", headers=headers)[0] == 403, "as /api/v1/status"


def test_the_clock_of_a_source_with_commit_records_is_compared(service: Service) -> None:
    producer = producer_that_reads(LogProgress(Position(0, 1, 4)))
    service.watch(producer)
    assert "clock_skew" not in ask(service, "GET", "/metrics")[1]
    producer.commits = cast("CommitSeal", SimpleNamespace(skew_us=-1_500_000))
    assert "tidemark_clock_skew_ms -1500.0" in ask(service, "GET", "/metrics")[1]


def test_the_metrics_have_a_histogram_of_the_way_to_kafka_for_each_table(service: Service) -> None:
    progress = LogProgress(Position(0, 1, 4))
    service.watch(producer_that_reads(progress))
    assert "tidemark_commit_to_kafka_seconds_bucket" not in ask(service, "GET", "/metrics")[1]
    progress.delays.note(("shop", "orders"), 1_000_000_000)
    progress.delays.committed(1_000_040_000)
    text = ask(service, "GET", "/metrics")[1]
    assert 'tidemark_commit_to_kafka_seconds_bucket{le="0.025",table="shop.orders"} 0.0' in text
    assert 'tidemark_commit_to_kafka_seconds_bucket{le="0.05",table="shop.orders"} 1.0' in text
    assert 'tidemark_commit_to_kafka_seconds_count{table="shop.orders"} 1.0' in text


def test_the_metrics_have_the_lag_of_each_table_and_the_word_for_each_sink_as_far_as_they_are_known(taken: Taken) -> None:
    unknown, late = Lag(unknown="why"), Lag(seconds=41.7, left=3)
    tables = {"shop.a": late, "shop.b": unknown, "shop.c": Lag(seconds=0.0, left=0), "shop.d": Lag(left=9, unknown="why")}
    lags = Lags(unknown, unknown, tables, Verdict(Word.BEHIND, ("late",)))
    known: dict[str, Lags] = {}
    with Service(ServiceSettings(), taken.insert, str, lambda: known) as service:
        assert "tidemark_sink" not in ask(service, "GET", "/metrics")[1]
        assert "tidemark_state" not in ask(service, "GET", "/metrics")[1]
        known["lake"] = lags
        text = ask(service, "GET", "/metrics")[1]
    found = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("tidemark_s")}
    assert {name: value for name, value in found.items() if "sink_lag" in name} == {
        'tidemark_sink_lag_seconds{sink="lake",table="shop.a"}': 41.7, 'tidemark_sink_lag_seconds{sink="lake",table="shop.c"}': 0.0,
    }  # fmt: skip
    assert {name: value for name, value in found.items() if "behind" in name and "state" not in name} == {
        f'tidemark_sink_behind_records{{sink="lake",table="shop.{table}"}}': left for table, left in (("a", 3), ("c", 0), ("d", 9))
    }
    words = {word.value: found[f'tidemark_state{{sink="lake",state="{word.value}"}}'] for word in Word}
    assert words == {word.value: float(word is Word.BEHIND) for word in Word}


def test_the_figures_have_debeziums_names_for_those_who_ask_for_them(taken: Taken) -> None:
    tables = [
        SimpleNamespace(table="shop.a", state="done", rows=7),
        SimpleNamespace(table="shop.b", state="running", rows=3),
        SimpleNamespace(table="shop.a", state="done", rows=9),  # its newest request
    ]
    with Service(ServiceSettings(), taken.insert, str, name="shop") as service:
        assert "debezium" not in ask(service, "GET", "/metrics?format=debezium")[1]  # not before the server is known
        producer = producer_that_reads(LogProgress(Position(0, 1, 400), rows=12, transactions=5, source_ts_ms=1_000))
        producer.coordinator = cast("SnapshotCoordinator", SimpleNamespace(progress=lambda: tables, waits_because=""))
        service.watch(producer)
        text = ask(service, "GET", "/metrics?format=debezium")[1]
        assert "debezium_metrics" not in ask(service, "GET", "/metrics")[1]
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("debezium"))
    stream, snapshot = (f'{{context="{one}",name="shop",plugin="mysql"}}' for one in ("streaming", "snapshot"))
    assert float(found[f"debezium_metrics_TotalNumberOfEventsSeen{stream}"]) == 12
    assert float(found[f"debezium_metrics_NumberOfCommittedTransactions{stream}"]) == 5
    assert float(found[f"debezium_metrics_BinlogPosition{stream}"]) == 400
    for other in ("MilliSecondsSinceLastEvent", "NumberOfDisconnects"):  # what we know of that means something else
        assert f"debezium_metrics_{other}{stream}" not in found
    assert f"debezium_metrics_MilliSecondsBehindSource{stream}" not in found  # nothing is proved to be in Kafka
    assert [float(found[f"debezium_metrics_{one}TableCount{snapshot}"]) for one in ("Total", "Remaining")] == [2, 1]
    assert [float(found[f"debezium_metrics_Snapshot{one}{snapshot}"]) for one in ("Running", "Paused", "Completed")] == [1, 0, 0]
    assert float(found['debezium_metrics_RowsScanned{context="snapshot",name="shop",plugin="mysql",table="shop.a"}']) == 9


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
def test_without_a_token_a_proxy_is_not_somebody_of_this_machine(header: str, service: Service, taken: Taken) -> None:
    body = {"type": signals.PAUSE_SNAPSHOT}
    assert ask(service, "POST", "/api/v1/signals", body, JSON | {header: "10.1.2.3"})[0] == 403
    assert ask(service, "GET", "/api/v1/status", None, {header: "10.1.2.3"})[0] == 403
    assert not taken
    assert ask(service, "POST", "/api/v1/signals", body)[0] == 202


def test_snapshots_that_failed_are_not_called_completed(taken: Taken) -> None:
    tables = [SimpleNamespace(table="shop.a", state="done", rows=7), SimpleNamespace(table="shop.b", state="failed", rows=3)]
    with Service(ServiceSettings(), taken.insert, str, name="shop") as service:
        producer = producer_that_reads(LogProgress(Position(0, 1, 400)))
        producer.coordinator = cast("SnapshotCoordinator", SimpleNamespace(progress=lambda: tables, waits_because=""))
        service.watch(producer)
        text = ask(service, "GET", "/metrics?format=debezium")[1]
    assert 'debezium_metrics_SnapshotCompleted{context="snapshot",name="shop",plugin="mysql"} 0.0' in text


def test_one_that_is_standby_has_no_figures_of_the_time_when_it_led(service: Service) -> None:
    service.watch(producer_that_reads(LogProgress(Position(0, 1, 4), committed_ms=1_000)))
    assert "tidemark_log" in ask(service, "GET", "/metrics")[1]
    service.note_standby()
    assert "tidemark_log" not in ask(service, "GET", "/metrics")[1]
    status, document = ask(service, "GET", "/readyz")
    assert status == 503
    assert "stands by" in document["error"]
    assert service.head_room is None
    service.leads()
    assert "starting" in ask(service, "GET", "/readyz")[1]["error"]


def test_a_form_of_another_page_is_no_signal(service: Service, taken: Taken) -> None:
    headers = {"Content-Type": "text/plain"}
    status, document = ask(service, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT}, headers)
    assert status == 415
    assert "application/json" in document["error"]
    assert not taken


def test_a_source_that_is_unreachable_is_no_fault_of_the_request() -> None:
    def away(_id: str, _kind: str, _data: str | None) -> None:
        raise RetriableSourceError("the server is gone")

    with Service(ServiceSettings(), away, str) as running:
        answer = ask(running, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT})
    assert answer == (503, {"error": "the server is gone"})


def test_with_a_token_only_who_has_it_may_signal(tmp_path: Path, taken: Taken) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\nmore")
    body = {"type": signals.PAUSE_SNAPSHOT}
    with Service(ServiceSettings(host="0.0.0.0", token_file=str(file)), taken.insert, str) as running:  # noqa: S104
        for given, status in ((None, 401), ("Bearer wrong", 401), ("Bearer s3cret", 202)):
            headers = JSON | ({} if given is None else {"Authorization": given})
            assert ask(running, "POST", "/api/v1/signals", body, headers)[0] == status
    assert len(taken) == 1


def test_beyond_loopback_no_token_means_no_signals(taken: Taken) -> None:
    with Service(ServiceSettings(host="0.0.0.0"), taken.insert, str) as running:  # noqa: S104
        status, document = ask(running, "POST", "/api/v1/signals", {"type": signals.PAUSE_SNAPSHOT})
        assert ask(running, "GET", "/livez")[0] == 200
    assert status == 403
    assert "service.token" in document["error"]
    assert not taken


def test_a_port_that_is_taken_is_said_so(service: Service) -> None:
    with pytest.raises(ConfigError, match=f"service.port: cannot listen on 127.0.0.1:{service.port}"):
        Service(ServiceSettings(port=service.port), Taken().insert, str)


def test_an_empty_token_file_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\nlater")
    with pytest.raises(ConfigError, match="is empty"):
        Service(ServiceSettings(token_file=str(tmp_path / "token")), Taken().insert, str)


def test_no_bytes_bring_it_down(service: Service, taken: Taken) -> None:
    heads = st.sampled_from(
        [
            b"",
            b"GET /metrics HTTP/1.1\r\n",
            b"POST /api/v1/signals HTTP/1.1\r\nContent-Type: application/json\r\n",
        ]
    )

    @settings(max_examples=200, deadline=None)
    @given(heads, st.binary(max_size=300))
    def throw(head: bytes, rest: bytes) -> None:
        with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connection:
            try:
                connection.sendall(head + rest)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            except OSError as error:  # it hung up before everything was sent
                if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                    raise

    throw()
    assert ask(service, "GET", "/livez")[0] == 200
    assert not taken


def test_the_merge_job_s_health_says_when_it_is_ready_and_why_it_is_not() -> None:
    ready: list[str | None] = ["the merge job is starting"]
    with HealthServer("service.merge_port", "127.0.0.1", 0, lambda: ready[0]) as server:

        def ask(path: str) -> tuple[int, dict[str, str]]:
            with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        assert ask("/livez") == (200, {"status": "alive"})
        assert ask("/readyz") == (503, {"error": "the merge job is starting"})
        ready[0] = None
        assert ask("/readyz") == (200, {"status": "ready"})
        assert ask("/api/v1/status")[0] == 404
        with pytest.raises(ConfigError, match=r"service\.merge_port: cannot listen"):
            HealthServer("service.merge_port", "127.0.0.1", server.port, lambda: None)


def test_a_server_that_is_kept_for_a_moment_has_room_for_all_that_connect_meanwhile() -> None:
    """The system sends a client's request for a connection that finds no room again after a second: a probe has given up by then."""
    server = HealthServer("service.merge_port", "127.0.0.1", 0, lambda: None)
    with ExitStack() as clients:
        clients.callback(server.server_close)
        for _ in range(500):
            clients.enter_context(closing(socket.create_connection(server.server_address[:2], timeout=0.9)))
