"""What `as_of_ms` says: nothing in the document is older."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from schemas.errors import ConfigError
from tests.page.test_page_access import page_of
from tidemark.api.schema_reader import SchemaReader, SchemaTopic
from tidemark.page import parts

LASTS_S = 0.05


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_checks_are_as_of_their_begin(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def examine(_settings: object) -> None:
        asked.append(now_ms())
        time.sleep(LASTS_S)
        raise ConfigError("nothing can be asked")

    monkeypatch.setattr(parts, "examine", examine)
    page = page_of(stack)
    page.wait("the end of the checks", "checks", lambda checks: checks["ended_ms"] is not None)
    found = page.get("/api/v1/checks").document
    assert found["as_of_ms"] <= asked[0] < found["checks"]["ended_ms"]


def test_schemas_are_as_of_the_begin_of_their_reading(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def read(_self: SchemaReader) -> SchemaTopic:
        asked.append(now_ms())
        time.sleep(LASTS_S)
        return SchemaTopic((), is_complete=True)

    monkeypatch.setattr(SchemaReader, "__init__", lambda *_: None)
    monkeypatch.setattr(SchemaReader, "__exit__", lambda *_: None)
    monkeypatch.setattr(SchemaReader, "read", read)
    page = page_of(stack)
    before_ms = now_ms()
    times = [page.get("/api/v1/schema").document["as_of_ms"] for _ in range(2)]
    assert before_ms <= times[0] <= asked[0]
    assert (times[1], len(asked)) == (times[0], 1)  # the second answer is what the first one read
