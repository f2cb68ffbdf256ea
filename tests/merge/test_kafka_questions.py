"""A query that asks Kafka for offsets: a long question is a wait for Kafka, short ones that a look meets each time are not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from schemas.waiting import WAITS
from spark_jobs.jobs import merge_job
from spark_jobs.jobs.merge_job import KafkaQuestions

ASKS = "Getting offsets from KafkaV2[SubscribePattern[shop.*]]"
IDLE = "Waiting for data to arrive"


class Query:
    """A query whose status has these messages, one for each look at it."""

    def __init__(self, *messages: str) -> None:
        self._messages = cycle(messages)

    @property
    def status(self) -> dict[str, Any]:
        return {"message": next(self._messages)}


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaQuestions]:
    monkeypatch.setattr(merge_job, "_BETWEEN_S", (0.0, 0.0))
    with KafkaQuestions("kafka:9092") as asks:
        yield asks


def waits() -> set[float]:
    return {one.since_s for one in WAITS.current().values() if one.address == "kafka:9092"}


def test_a_question_that_is_asked_all_the_time_is_one_wait(asks: KafkaQuestions) -> None:
    found = []
    for _ in range(5):
        asks.look(Query(ASKS))  # type: ignore[arg-type]
        found.append(waits())
    assert len(found[0]) == 1
    assert found == [found[0]] * 5
    asks.look(Query(IDLE))  # type: ignore[arg-type]
    assert waits() == set()


@pytest.mark.parametrize("messages", [(ASKS, IDLE), (ASKS, ASKS, IDLE)])
def test_short_questions_that_a_look_meets_each_time_are_no_wait(asks: KafkaQuestions, messages: tuple[str, ...]) -> None:
    for number in range(6):
        asks.look(Query(*messages))  # type: ignore[arg-type]
        assert len(waits()) == 1 - number % 2, number


def test_what_is_noted_ends_with_the_watch() -> None:
    with KafkaQuestions("kafka:9092") as asks:
        asks.look(Query(ASKS))  # type: ignore[arg-type]
        assert len(waits()) == 1
    assert waits() == set()
