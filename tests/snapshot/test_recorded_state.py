"""Requests, tables, windows and offsets that an earlier version wrote are taken over, and written again as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producer.snapshot.snapshot_state import ReadTask, Request, Window
from producer.stream.offset import LogOffset
from schemas.state import parse, value_of

RECORDED = json.loads((Path(__file__).parents[1] / "schemas" / "recorded" / "documents.json").read_text(encoding="utf-8"))


def recorded(*kinds: str) -> list[str]:
    return [one["text"] for one in RECORDED if one["kind"] in kinds]


def text(document: object) -> str:
    return value_of(document).decode()


@pytest.mark.parametrize("was", recorded("request"))
def test_a_request_is_taken_over(was: str) -> None:
    assert text(parse(Request, "request/r", json.loads(was))) == was


@pytest.mark.parametrize("was", recorded("table", "children"))
def test_a_table_is_taken_over_without_the_attempts_of_its_chunks(was: str) -> None:
    task = parse(ReadTask, "table/r/t", json.loads(was))
    assert text(task) == was
    task.note_outstanding()
    assert {chunk.tries.all for chunk in task.chunks.values()} <= {0}
    assert text(task) == was.replace('null,3,"x"', 'null,0,"x"')


@pytest.mark.parametrize("was", recorded("window"))
def test_a_window_is_taken_over(was: str) -> None:
    assert text(parse(Window, "window/w", json.loads(was))) == was


@pytest.mark.parametrize("was", recorded("offset"))
def test_an_offset_is_taken_over(was: str) -> None:
    document = json.loads(was)
    assert text(LogOffset.parse(document).document(document["committed_ms"])) == was
