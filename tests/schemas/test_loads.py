from __future__ import annotations

import pytest

from schemas.errors import DecodeError
from schemas.loads import LOAD_ANSWER, LoadAnswer


@pytest.mark.parametrize(
    "answer", [LoadAnswer("w", 5), LoadAnswer("w", 0), LoadAnswer("w", error="the server is gone", retry=True), LoadAnswer("w", error="no")]
)
def test_an_answer_is_read_as_it_was_written(answer: LoadAnswer) -> None:
    row_id, kind, data = answer.row
    assert (kind, LoadAnswer.parse(row_id, data)) == (LOAD_ANSWER, answer)


def test_an_answer_fits_into_a_row_of_the_signal_table() -> None:
    row_id, kind, data = LoadAnswer("f" * 36, error="ü\n" * 5000).row
    assert len(row_id) <= 42
    assert len(kind) <= 32
    assert len(data) <= 512
    assert LoadAnswer.parse(row_id, data).error.startswith("ü\nü")


@pytest.mark.parametrize(("row_id", "data"), [("w", "{}"), ("w-done", "5"), ("w-done", "no"), ("w-done", '{"rows":"x"}')])
def test_another_row_is_no_answer(row_id: str, data: str) -> None:
    with pytest.raises(DecodeError, match="no answer to a load marker"):
        LoadAnswer.parse(row_id, data)
