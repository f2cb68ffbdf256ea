"""Numbers and times for people: the unknown is not zero."""

from __future__ import annotations

from schemas.readable import ago, count, counted, duration, moment, percent, size


def test_the_unknown_is_a_word_or_a_dash() -> None:
    assert [duration(None), count(None), moment(None), size(None), percent(None)] == ["unknown", "-", "unknown", "unknown", "unknown"]


def test_a_duration_has_the_unit_that_a_person_would_choose() -> None:
    seconds = (0.0, 119.9, 599.9, 600, 7200, 10_800, 200_000)
    assert [duration(one) for one in seconds] == ["0.0 s", "119.9 s", "599.9 s", "10 min", "120 min", "3.0 h", "2.3 days"]
    assert duration(41.7, 0) == "42 s"


def test_an_age_that_is_negative_says_that_clocks_differ() -> None:
    assert (ago(1_500), ago(-60_000)) == ("1.5 s ago", "60.0 s ahead of this machine's clock")


def test_numbers_have_separators_and_their_noun() -> None:
    assert [count(0), count(1234), counted(1, "table"), counted(1234, "row")] == ["0", "1,234", "1 table", "1,234 rows"]
    assert [size(value) for value in (0, 2048, 3 * 1024**4)] == ["0 B", "2.0 KiB", "3.0 TiB"]
    assert [percent(value) for value in (0.999, 1.0)] == ["99 %", "100 %"]
