"""What single values become, without a server."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from schemas.columns import Column, ColumnType
from tidemark.verify.rules import rule
from tidemark.verify.text_rows import Cells

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("days", "date"),
    [(-719_528, "0000-01-01"), (-719_469, "0000-02-29"), (-719_163, "0000-12-31"), (-719_162, "0001-01-01"), (0, "1970-01-01")],
)
def test_dates_of_the_year_0_are_dates_to_the_server(days: int, date: str) -> None:
    moment = days * DAY_US + 3_723_000_004
    assert rule(Column("c", ColumnType.DATE, nullable=False), "c", None).literal(days) == f"'{date}'"
    datetime = rule(Column("c", ColumnType.DATETIME, nullable=False, precision=6), "c", None)
    assert datetime.literal(moment) == f"'{date} 01:02:03.000004'"


def test_halves_of_surrogate_pairs_are_what_records_have_for_them() -> None:
    values = [b"a\xed\xa0\x80b", b"", "é\ud7ff".encode(), b"\xed\xbf\xbf"]
    ends = np.cumsum([len(value) for value in values])
    begins = ends - [len(value) for value in values]
    cells = Cells(np.frombuffer(b"".join(values), np.uint8), begins, ends, np.array([False, True, False, False]))
    text = rule(Column("c", ColumnType.TEXT, nullable=True, charset="utf8mb4"), "c", pa.string())
    assert text.from_source(cells).to_pylist() == [b"a?b", None, "é\ud7ff".encode(), b"?"]
