"""Who may read and act: on loopback, beyond it, from a page of another origin, under a name that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from schemas.settings import Settings, from_mapping
from tests.support.page_client import PageClient
from tidemark.page.page_views import VIEWS, Views
from tidemark.page.parts import Parts
from tidemark.page.server import PageServer
from tidemark.page.sign_in import Access

TOKEN = "a token"
FORM = {"tables": r"shop\.orders"}


def settings_of(**service: object) -> Settings:
    return from_mapping(
        {
            "name": "shop",
            "source": {"host": "127.0.0.1", "port": 1, "user": "t", "tables": [r"shop\..*"], "signal_table": "shop.signals"},
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "format": {"registry": "http://127.0.0.1:1"},
            "sinks": [{"name": "lake", "type": "delta", "path": "/nowhere/lake"}],
            "service": service,
        }
    )


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def page_of(stack: ExitStack, *, is_elsewhere: bool = False, **service: object) -> PageClient:
    """A page without Kafka, source or sink. `is_elsewhere`: as if it listened beyond loopback."""
    settings = settings_of(**service)
    listed = replace(settings.service, host="10.0.0.1") if is_elsewhere else settings.service
    access = Access(listed, 0)
    views = Views(settings, Parts(settings), access)  # nothing looks: facts are unknown
    server = stack.enter_context(PageServer(views.application(), "127.0.0.1", 0))
    return PageClient(server.port, access.token)


def test_loopback_may_read_without_a_token_and_sees_that_nothing_is_known(stack: ExitStack) -> None:
    page = page_of(stack)

    for view in ("", *VIEWS[1:4]):
        answer = page.get(f"/{view}")
        assert answer.status == 200, answer
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.get("/livez").status == 200
    assert page.get("/readyz").status == 503
    assert "the first look is not over" in page.get("/").text


@pytest.mark.parametrize("header", ["Host", "Origin"])
@pytest.mark.parametrize("path", ["/", "/api/v1/overview", "/parts/changes"])
def test_a_foreign_name_of_loopback_reads_nothing(header: str, path: str, stack: ExitStack) -> None:
    value = "evil.example" if header == "Host" else "http://evil.example"
    answer = page_of(stack).get(path, **{header: value})

    assert answer.status == 403
    assert f"the header {header} is" in answer.text


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_what_comes_through_a_proxy_is_not_of_this_machine(header: str, stack: ExitStack) -> None:
    page = page_of(stack, token=TOKEN)
    assert page.get("/api/v1/overview").status == 200
    assert page.get("/api/v1/overview", **{header: "10.1.2.3"}).status == 401
    assert page.get("/api/v1/overview", **{header: "10.1.2.3", "Authorization": f"Bearer {TOKEN}"}).status == 200


def test_behind_a_proxy_the_listed_name_is_an_own_name_and_one_signs_in(stack: ExitStack) -> None:
    page = page_of(stack, token=TOKEN, page_names=["cdc.example.org"])
    kept = {"Host": "cdc.example.org", "X-Forwarded-Proto": "https"}

    assert page.get("/api/v1/overview", **kept).status == 401
    cookie = page.post("/sign-in", {"token": TOKEN}, **kept, Origin="https://cdc.example.org").headers["set-cookie"]
    assert "Secure" in cookie
    page.cookie = cookie.partition(";")[0]
    assert page.get("/api/v1/overview", **kept).status == 200
    assert page.post("/snapshots/start", FORM, **kept, Origin="https://cdc.example.org").status == 503  # the source does not answer
    assert page.post("/snapshots/start", FORM, Origin="https://cdc.example.org").status == 503  # the proxy has changed Host
    assert page.post("/snapshots/start", FORM, **kept, Origin="https://evil.example").status == 403


def test_no_name_of_another_origin_leads_to_a_page_beyond_loopback_even_with_the_token(stack: ExitStack) -> None:
    page = page_of(stack, is_elsewhere=True, token=TOKEN)
    known = {"Authorization": f"Bearer {TOKEN}"}

    assert page.get("/api/v1/overview", **known, Host="evil.example").status == 403
    assert page.get("/api/v1/overview", **known, Host="192.168.7.7:8090").status == 200  # no name leads to an address
    body = b'{"type": "pause-snapshot"}'
    headers = {**known, "Host": "evil.example", "Origin": "http://evil.example", "Content-Type": "application/json"}
    assert page.ask("POST", "/api/v1/signals", body, headers).status == 403


def test_images_and_scripts_of_other_origins_read_nothing(stack: ExitStack) -> None:
    page = page_of(stack)
    assert page.get("/checks?again=1", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status == 403
    assert page.get("/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status == 200  # a link


def test_beyond_loopback_nothing_is_read_without_the_token(stack: ExitStack) -> None:
    page = page_of(stack, is_elsewhere=True, token=TOKEN)

    assert page.get("/").headers["location"] == "/sign-in"
    assert page.get("/api/v1/overview").status == 401
    assert page.get("/api/v1/overview", Authorization="Bearer wrong").status == 401
    assert page.get("/api/v1/overview", Authorization=f"Bearer {TOKEN}").status == 200
    assert page.get("/sign-in").status == 200
    assert page.get("/livez").status == 200
    page.sign_in()
    assert page.get("/").status == 200


def test_acting_needs_somebody_who_has_signed_in_on_this_page(stack: ExitStack) -> None:
    page = page_of(stack, token=TOKEN)

    assert page.post("/snapshots/start", FORM).status == 401
    page.token = "another"
    assert page.sign_in().status == 401
    page.token = TOKEN
    cookie = page.sign_in().headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": ""}):
        assert page.post("/snapshots/start", FORM, **headers).status == 403, headers
    assert page.post("/snapshots/start", FORM, Host="evil.example", Origin="http://evil.example").status == 403  # rebinding
    accepted = page.post("/snapshots/start", FORM)
    assert accepted.status == 503, accepted  # it was let through: the source does not answer
    page.post("/sign-out", {})
    assert page.post("/snapshots/start", FORM).status == 401


def test_a_script_acts_with_the_token_and_what_it_asks_is_checked(stack: ExitStack) -> None:
    page = page_of(stack, token=TOKEN)
    known = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def send(body: bytes, **headers: str) -> int:
        return page.ask("POST", "/api/v1/signals", body, {**known, **headers}).status

    assert send(b'{"type": "log", "data": {"message": "m"}}') == 503  # the source does not answer
    assert send(b'{"type": "log", "data": {"message": "m"}}', Authorization="Bearer wrong") == 401
    assert send(b'{"id": "mine", "type": "pause-snapshot"}') == 503  # as the producer's endpoint takes it
    assert send(b'{"type": "pause-snapshot", "more": 1}') == 400
    assert send(b'{"type": "nothing of the kind"}') == 400
    assert send(b"not JSON") == 400
    assert send(b"[" * 100_000) == 413
    assert send(b"[" * 60_000) == 400
    assert send(b"[]") == 400
    assert send(b"{}", **{"Content-Type": "text/plain"}) == 415


def test_a_form_that_means_nothing_is_refused_with_what_to_do(stack: ExitStack) -> None:
    page = page_of(stack, token=TOKEN)
    page.sign_in()

    assert "give at least one pattern" in page.post("/snapshots/start", {"tables": " "}).text
    assert page.post("/snapshots/stop", {"tables": " "}).status == 400  # all only where the form says so
    assert page.post("/snapshots/stop", {"all": "1"}).status == 503
    assert "there is no action" in page.post("/snapshots/explode", FORM).text
    assert page.get("/nothing/here").status == 404
    assert page.get("/changes/7").status == 404
    assert page.ask("DELETE", "/", None, {}).status == 405


def test_a_token_is_made_where_the_settings_have_none() -> None:
    first, second = (Access(settings_of().service, 0) for _ in range(2))

    assert first.is_made_here
    assert len(first.token) >= 20
    assert first.token != second.token
    assert first.sign_in(second.token) is None
