"""The last values of a key in the state topic: what was read before Kafka falls silent counts. No server is needed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkaio.committed_reader import CommittedReader
from schemas.errors import PublishError, StateError
from tidemark.doctor.committed_log import last_values

TOPIC = "shop.state"


class Records:
    """A reader of one partition whose records end with an error, if one is given."""

    def __init__(self, *records: tuple[bytes, bytes | None], error: Exception | None = None) -> None:
        self._records, self._error = records, error
        self.began: dict[tuple[str, int], int] = {}

    def partitions(self, topic: str) -> list[tuple[str, int]]:
        return [(TOPIC, 0)] if topic == TOPIC else []

    def bounds(self, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return dict.fromkeys(partitions, (10, 9_000))

    def begin(self, offsets: dict[tuple[str, int], int]) -> None:
        self.began = offsets

    def read_to(self, _ends: dict[tuple[str, int], int]) -> Iterator[Any]:
        yield from [SimpleNamespace(key=key, value=value) for key, value in self._records]
        if self._error is not None:
            raise self._error


def values_of(reader: Records, topic: str = TOPIC) -> list[bytes]:
    return last_values(cast("CommittedReader", reader), topic, 0, "sign")


@pytest.mark.parametrize("error", [PublishError("Kafka sent nothing for 3 s"), StateError("a record is hidden")])
def test_the_values_before_an_error_count(error: Exception) -> None:
    reader = Records((b"sign", b"1"), (b"other", b"2"), (b"sign", b"3"), error=error)
    assert values_of(reader) == [b"1", b"3"]
    assert reader.began == {(TOPIC, 0): 7_000}


def test_a_value_that_was_removed_takes_the_earlier_ones_with_it() -> None:
    assert values_of(Records((b"sign", b"1"), (b"sign", None), (b"sign", b"2"))) == [b"2"]


def test_a_topic_that_is_not_there_yet_has_no_values() -> None:
    assert values_of(Records((b"sign", b"1")), "other.state") == []


def test_silence_before_the_first_value_is_an_error_and_an_open_transaction_is_none() -> None:
    with pytest.raises(PublishError, match="sent nothing"):
        values_of(Records((b"other", b"2"), error=PublishError("Kafka sent nothing for 3 s")))
    assert values_of(Records((b"other", b"2"), error=StateError("a record is hidden"))) == []
