"""Clients that hang on, send nonsense, or take no answer: probes are answered meanwhile, and nothing is accepted."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from tests.page.served import SERVICES, served
from tests.page.test_page_access import TOKEN, page_of, settings_of
from tests.support.page_client import PageClient
from tests.support.probes import Probes, probed
from tidemark.page import server as page_server
from tidemark.page.page_views import Views
from tidemark.page.parts import Parts
from tidemark.page.server import MOST_CONNECTIONS, PageServer
from tidemark.page.sign_in import Access

SLOW_HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
SLOW_BODY = (
    b"POST /api/v1/signals HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)
PROBE_S = 1.0


def nonsense(number: int) -> bytes:
    """A request that is none, another one for each number."""
    dice = random.Random(number)
    kinds: list[Callable[[], bytes]] = [
        lambda: dice.randbytes(dice.randrange(1, 400)),
        lambda: b"GET / HTTP/9.9\r\n\r\n",
        lambda: b"POST /api/v1/signals HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        lambda: b"POST /api/v1/signals HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        lambda: b"POST /snapshots/start HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}",
        lambda: b"GET /" + b"a" * dice.randrange(10_000, 40_000) + b" HTTP/1.1\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
        lambda: b"\x16\x03\x01\x02\x00" + dice.randbytes(200),
        lambda: b"POST /api/v1/signals HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\n"
        b"Content-Length: 14\r\n\r\n" + b'{"type":"log"}',
        lambda: b"POST /snapshots/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Cookie: tidemark_page_0=guessed\r\nContent-Length: 8\r\n\r\ntables=.",
    ]
    return dice.choice(kinds)()


def send_nonsense(port: int, numbers: range) -> int:
    """Send them, one connection each; how many were answered with 2xx."""
    accepted = 0
    for number in numbers:
        try:
            with closing(socket.create_connection(("127.0.0.1", port), timeout=5)) as client:
                client.sendall(nonsense(number))
                client.shutdown(socket.SHUT_WR)
                accepted += client.recv(12).startswith(b"HTTP/1.1 2")
        except OSError:
            continue  # it was hung up on
    return accepted


@contextmanager
def slow_clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        found = []
        for number in range(count):
            client = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=5)))
            client.sendall(SLOW_BODY if number % 2 else SLOW_HEAD)
            found.append(client)
        yield found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def page_port(stack: ExitStack) -> int:
    return page_of(stack, token=TOKEN).port


@pytest.mark.parametrize("name", SERVICES)
def test_two_hundred_slow_clients_and_a_thousand_wrong_requests_keep_no_probe_waiting(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(name) as port, probed(port) as probes, slow_clients(port, 200):
        accepted = send_nonsense(port, range(1000))
        time.sleep(0.3)

    waits_s = probes.waits_s()
    stood_still_s = sum(end - begin for begin, end in probes.stood_still)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(waits_s)} probes, the longest {max(waits_s):.3f} s, {stood_still_s:.1f} s without a processor; "
            f"{accepted} of 1000 wrong requests accepted\n"
        )
    assert len(waits_s) >= 10
    assert accepted == 0
    assert max(waits_s) <= PROBE_S


def test_a_probe_is_not_to_blame_for_a_process_that_stood_still() -> None:
    probes = Probes(asked=[(0.0, 0.5), (1.0, 3.0), (4.0, float("inf"))], stood_still=[(0.4, 1.2), (2.0, 2.5), (5.0, 6.0)])

    assert probes.waits_s() == pytest.approx([0.4, 1.3, float("inf")])


def test_a_client_that_does_not_finish_is_hung_up_on(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "REQUEST_S", 0.5)
    with slow_clients(page_port(stack), 1) as (client,):
        assert client.recv(100) == b""  # the end of the connection, before the client's own patience ends


def test_as_many_connections_as_there_may_be_leave_room_for_a_new_one(stack: ExitStack) -> None:
    port = page_port(stack)
    with slow_clients(port, MOST_CONNECTIONS + 20):
        assert PageClient(port).get("/livez").status == 200


@pytest.mark.parametrize("path", ["/sign-in", "/api/v1/signals"])
def test_as_many_bodies_that_do_not_come_leave_room_for_a_new_one(path: str, stack: ExitStack) -> None:
    port = page_port(stack)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\nt"
    ).encode()
    with ExitStack() as clients:
        for _ in range(MOST_CONNECTIONS + 20):
            client = clients.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=5)))
            client.sendall(head)
        time.sleep(0.5)
        for _ in range(5):
            assert PageClient(port).get("/livez").status == 200


def test_wrong_tokens_keep_nobody_waiting(stack: ExitStack) -> None:
    page = page_of(stack, token=TOKEN)
    found: list[int] = []

    def guess() -> None:
        found.append(PageClient(page.port).post("/sign-in", {"token": "wrong"}).status)

    threads = [threading.Thread(target=guess) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert page.sign_in().status == 303
    for thread in threads:
        thread.join(30)
    assert set(found) == {401, 429}
    assert found.count(429) >= 10


def test_a_body_that_does_not_come_has_an_end(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.page.page_views._BODY_S", 0.5)
    with closing(socket.create_connection(("127.0.0.1", page_port(stack)), timeout=20)) as client:
        client.sendall(SLOW_BODY)
        assert client.recv(12) == b"HTTP/1.1 408"


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    settings = settings_of()
    views = Views(settings, Parts(settings), Access(settings.service, 0))
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, pytest.raises(ConfigError, match=r"service\.page_port: cannot listen"):
        PageServer(views.application(), "127.0.0.1", taken.getsockname()[1])
