"""The public documents of a pipeline in each state, as they are recorded: no field, value or reason is lost."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from producer.app import Producer
from schemas.settings import Settings
from tests.cli.public_states import NOW_MS, RECORDED, SETTINGS, said, states
from tidemark.commands import run
from tidemark.status.status_tree import Status

STATES = states()


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STATES)
def test_what_is_said_of_a_pipeline_is_what_was_recorded(name: str) -> None:
    answered = json.loads(json.dumps(said(STATES[name])))
    for surface, expected in recorded(name).items():
        assert answered[surface] == expected, surface


def test_every_state_is_recorded() -> None:
    assert {one.stem for one in RECORDED.glob("*.json")} == set(STATES)


@pytest.mark.parametrize("name", ["running", "two_sinks", "never_started"])
def test_the_endpoint_of_the_producer_says_what_the_command_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = STATES[name]

    class Seen:
        def __init__(self, _: Settings) -> None: ...

        def settled_each(self) -> dict[str, Status]:
            return pipeline.statuses(pipeline.documents, NOW_MS)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("tidemark.api.observe.Observer", Seen)
    room = None if pipeline.source is None else pipeline.source.room
    with ExitStack() as stack:
        service = run._serve(SETTINGS, stack)
        service.watch(cast("Producer", SimpleNamespace(retention=SimpleNamespace(latest=room))))
        answered = json.loads(service.describe())
    fields = {"lag", "producer", "source", "tables"}  # the source was asked later, and rates need two looks
    for one, other in zip(of_each_sink(answered), of_each_sink(recorded(name)["status"]), strict=True):
        assert one.keys() == other.keys()
        assert one["tables"].keys() == other["tables"].keys()
        assert [one[key] for key in other if key not in fields] == [other[key] for key in other if key not in fields]


def of_each_sink(document: dict[str, Any]) -> list[dict[str, Any]]:
    return list(document["sinks"].values()) if "sinks" in document else [document]
