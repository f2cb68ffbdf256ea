"""What single values become, without a server."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from schemas.columns import Column, ColumnType
from tidemark.verify.rules import rule
from tidemark.verify.text_rows import Cells

DAY_US = 86_400_000_000
LEAP_DAY = 19_782 * DAY_US


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


@pytest.mark.parametrize(
    ("kind", "source", "sink", "equal"),
    [
        (ColumnType.SMALLINT, b"5", pa.array(["5", "x", "5.0", None]), [True, False, False, False]),
        (ColumnType.SMALLINT, b"5", pa.array([b"5", b"\xff"]), [True, False]),
        (ColumnType.YEAR, b"2024", pa.array([Decimal("2024.0"), Decimal("2024.5")]), [True, False]),
        (ColumnType.DECIMAL, b"1.50", pa.array(["1.5", "1.51", "NaN"]), [True, False, False]),
        (ColumnType.FLOAT, b"1.5", pa.array(["1.5", "1.5000001"]), [True, False]),
        (ColumnType.DOUBLE, b"1e300", pa.array(["1.0E300", "Infinity"]), [True, False]),
        (ColumnType.BIT, b"1", pa.array(["true", "false", "1"]), [True, False, False]),
        (ColumnType.DATE, b"2024-02-29", pa.array(["2024-02-29", "2024-02-30"]), [True, False]),
        (ColumnType.DATE, b"2024-02-29", pa.array([LEAP_DAY, LEAP_DAY + 1], pa.timestamp("us")), [True, False]),
        (ColumnType.DATETIME, b"2024-02-29 00:00:00", pa.array(["2024-02-29 00:00:00", "2024-02-29 00:00:00.5"]), [True, False]),
        (ColumnType.TIME, b"-00:00:01", pa.array(["-1000000", "1000000"]), [True, False]),
        (ColumnType.VARCHAR, b"\xc3\xbc", pa.array([b"\xc3\xbc", b"\xc3"]), [True, False]),
        (ColumnType.JSON, b'{"a": 1.0}', pa.array([b'{ "a" : 1 }', b"{", b'{"a": 2}']), [True, False, False]),
    ],
)
def test_a_sink_of_the_type_before_is_compared_by_what_a_cast_gives(
    kind: ColumnType, source: bytes, sink: pa.Array, equal: list[bool]
) -> None:
    made = rule(Column("c", kind, nullable=True, length=1, precision=3 if kind is ColumnType.DECIMAL else 0, scale=2), "c", sink.type)
    (ours,) = made.from_source(_cells(source)).to_pylist()
    theirs = made.from_sink(sink).to_pylist()
    assert [made.equal(ours, one) for one in theirs] == equal
    assert not any(made.shown(ours) == made.shown(one) for one, same in zip(theirs, equal, strict=True) if not same)
    assert made.literal(ours) not in [made.literal(one) for one, same in zip(theirs, equal, strict=True) if one and not same]


def _cells(value: bytes) -> Cells:
    buffer = np.frombuffer(value, dtype=np.uint8)
    return Cells(buffer, np.array([0]), np.array([len(value)]), np.array([False]))
