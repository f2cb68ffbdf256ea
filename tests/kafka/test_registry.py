"""What answers of a registry, or of a proxy before it, mean for a producer: retried, or the end."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from devservers import Registry
from kafkaio.schema_registry import HttpRegistry
from producer.kafka.registry import RegistryWatch, SchemaIdRegistry
from producer.kafka.schema_ids import SchemaIds
from schemas.errors import (
    RegistryAccessError,
    RegistryError,
    RegistryUnavailableError,
    SecretError,
    is_of_one_table,
)
from tests.support.servers import unique_name

HTML = b"<html><body>no healthy upstream</body></html>"


class Answers(BaseHTTPRequestHandler):
    """Each request is answered with the status that its path names."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = int(self.path.split("/")[1])
        body = b'{"error_code": 409, "message": "it is incompatible"}' if status == 409 else HTML
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def served(answers: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def proxy() -> Iterator[str]:
    with served(Answers) as url:
        yield url


class BrokenAnswers(Answers):
    """Each request is answered with HTTP 503, and the connection ends inside the body."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(HTML)


@pytest.fixture
def broken() -> Iterator[str]:
    with served(BrokenAnswers) as url:
        yield url


@pytest.mark.parametrize("status", [404, 429, 500, 502, 503])
def test_a_registry_that_fails_or_is_unreachable_behind_its_proxy_is_waited_for(proxy: str, status: int) -> None:
    registry = SchemaIdRegistry(f"{proxy}/{status}")
    with pytest.raises(RegistryUnavailableError, match=f"HTTP {status}") as caught:
        registry.register("t-value", '"string"')
    assert "compatibility" not in str(caught.value)
    assert not is_of_one_table(caught.value), "all tables would be set aside, one by one"


@pytest.mark.parametrize(("status", "words"), [(401, "refuses the user"), (409, "refuses the schema of t-value: it is incompat")])
def test_what_a_registry_refuses_is_final(proxy: str, status: int, words: str) -> None:
    registry = SchemaIdRegistry(f"{proxy}/{status}")
    with pytest.raises(RegistryError, match=words) as caught:
        registry.register("t-value", '"string"')
    assert not isinstance(caught.value, RegistryUnavailableError)
    assert isinstance(caught.value, RegistryAccessError) == (status == 401)


def test_a_body_that_breaks_off_is_no_other_error_than_its_status(broken: str) -> None:
    with pytest.raises(RegistryUnavailableError, match="HTTP 503"):
        SchemaIdRegistry(broken).register("t-value", '"string"')
    with pytest.raises(RegistryUnavailableError, match="HTTP 503"):
        HttpRegistry(broken).versions("t-value")


def test_what_a_registry_lost_is_registered_again_and_other_ids_need_a_new_start(registry: Registry) -> None:
    """One request returns everything that was registered, whatever the number of records."""
    key, value = (f"{unique_name('lost')}-{part}" for part in ("key", "value"))
    schemas = [(key, '"string"'), (value, _record("a")), (value, _record("a", "b"))]
    registered = SchemaIdRegistry(registry.url)
    ids = [registered.register(*schema) for schema in schemas]
    watch = RegistryWatch(registered)
    watch.look()
    assert (registered.lost_subjects(), watch.problem) == ([], None)

    for more in ("", "?permanent=true"):
        lost = urllib.request.Request(f"{registry.url}/subjects/{value}{more}", method="DELETE")  # noqa: S310 - loopback
        urllib.request.urlopen(lost).close()  # noqa: S310 - loopback
    assert registered.lost_subjects() == [value]
    watch.look()
    assert registered.lost_subjects() == []
    with urllib.request.urlopen(f"{registry.url}/subjects/{value}/versions") as answer:  # noqa: S310 - loopback
        assert json.load(answer) == [1, 2]
    again = SchemaIdRegistry(registry.url)
    moved = [again.register(*schema) for schema in schemas] != ids
    assert (watch.problem is not None) == moved
    if watch.problem is not None:
        assert value in str(watch.problem)


def test_a_password_that_cannot_be_read_for_a_moment_does_not_end_the_watch(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registered = SchemaIdRegistry(registry.url)
    watch = RegistryWatch(registered, every_s=0.01)
    looked = threading.Semaphore(0)

    def look() -> None:
        looked.release()
        message = "format.registry_password_file is empty"
        raise SecretError(message)

    monkeypatch.setattr(watch, "look", look)
    watch.start()
    try:
        assert all(looked.acquire(timeout=10) for _ in range(2))
    finally:
        watch.stop()


def test_within_a_subject_no_id_is_given_to_a_second_schema(registry: Registry) -> None:
    """A registry that lost its memory numbers from 1 again: what it gives then may be the id of other records in Kafka."""
    subject = f"{unique_name('again')}-value"
    first = SchemaIdRegistry(registry.url)
    given = first.register(subject, _record("a"))
    kept = {f"registered/{given}/{subject}": {"v": 1, "subject": subject, "id": given, "schema": _record("b")}}
    used = SchemaIds(kept)
    second = SchemaIdRegistry(registry.url, used=used)
    other = second.register(subject, _record("a"))
    assert other != given
    (document,) = used.pop_unsaved().values()
    assert (document["subject"], document["id"]) == (subject, other)
    assert json.loads(document["schema"]) == {**json.loads(_record("a")), "tidemark.generation": 2}
    assert used.pop_unsaved() == {}
    kept[f"registered/{other}/{subject}"] = document

    third = SchemaIdRegistry(registry.url, used=SchemaIds(kept))
    assert third.register(subject, _record("a")) == other, "each start would make an id of its own"


def _record(*names: str) -> str:
    fields = [{"name": name, "type": "int"} for name in names]
    return json.dumps({"type": "record", "name": "Value", "fields": fields})


@pytest.mark.parametrize("path", ["", "/apis/registry/v3", "/apis/ccompat/v9"])
def test_a_path_without_the_api_is_said_to_be_one(registry: Registry, path: str) -> None:
    """A real registry of Apicurio, which has several APIs: the compatibility of schemas has nothing to do with it."""
    url = registry.url.partition("/apis")[0] + path
    words = f"this is not a Confluent-compatible registry API at {re.escape(url)}: HTTP 404: .*/apis/ccompat/v7"
    producing = SchemaIdRegistry(url)
    with pytest.raises(RegistryError, match=words) as caught:
        producing.register("t-value", '"string"')
    assert not isinstance(caught.value, RegistryUnavailableError)
    assert "compatibility" not in str(caught.value)
    assert not is_of_one_table(caught.value), "all tables would be set aside, one by one"
    with pytest.raises(RegistryError, match=words):
        HttpRegistry(url).versions("t-value")
