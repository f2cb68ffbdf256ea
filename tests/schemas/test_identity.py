"""Sources, tables, targets and positions survive their text form, and positions of two sources are never compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.position import Position, SourcePosition

SHOP, BILLING = SourceId("shop"), SourceId("billing-2")
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
IDS = st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True).map(SourceId)
POSITIONS = st.builds(
    Position,
    st.integers(0, 9_999),
    st.integers(0, 9_999_999_999),
    st.integers(0, 999_999_999_999),
    st.integers(0, 9_999_999_999),
)


@given(IDS, NAMES, NAMES)
def test_a_source_table_survives_its_text_form(source: SourceId, database: str, table: str) -> None:
    name = SourceTable.of(source, database, table)
    assert SourceTable.parse(name.text) == name
    assert TableName.parse(name.name.text) == name.name
    assert SourceTable.parse(name.name.text, source) == name


@given(st.from_regex(r"[^:]+", fullmatch=True), NAMES)
def test_a_target_survives_its_text_form(sink: str, name: str) -> None:
    assert Target.parse(Target(sink, name).text) == Target(sink, name)


@given(IDS, POSITIONS)
def test_a_position_of_a_source_survives_its_text_form(source: SourceId, position: Position) -> None:
    assert SourcePosition.parse(position.of(source).text) == position.of(source)
    assert SourcePosition.parse(position.text, source).within(source) is not None
    assert len(position.text) == 39


@given(POSITIONS, POSITIONS)
def test_the_text_of_positions_sorts_as_the_positions_do(one: Position, other: Position) -> None:
    assert (one < other) == (one.text < other.text)


def test_ordinary_names_have_no_quotes_in_their_text() -> None:
    assert SourceTable.of(SHOP, "orders", "lines").text == "shop:orders.lines"
    assert TableName("a.b", "c`d").text == "`a.b`.`c``d`"
    assert TableName("a.b", "c").plain == "a.b.c"


@pytest.mark.parametrize("text", ["", "a b", "a/b", "ü", "x" * 101, "shop\n"])
def test_a_source_has_the_name_of_a_topic_prefix(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a source"):
        SourceId(text)


@pytest.mark.parametrize("text", ["", "orders", "a.b.c", ".b", "a.", "`a.b", "a`.b", "shop:a.b"])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a table"):
        TableName.parse(text)


def test_a_table_without_source_needs_a_default() -> None:
    with pytest.raises(ValueError, match=r"expected source:database\.table"):
        SourceTable.parse("orders.lines")
    with pytest.raises(ValueError, match="not a target"):
        Target.parse("orders")
    with pytest.raises(ValueError, match="name of a source"):
        SourcePosition.parse(Position.MINIMUM.text)


def test_values_have_an_order_where_one_makes_sense() -> None:
    tables = [SourceTable.of(SHOP, "b", "a"), SourceTable.of(BILLING, "z", "z"), SourceTable.of(SHOP, "a", "b")]
    assert sorted(tables) == [tables[1], tables[2], tables[0]]


def test_positions_are_compared_within_their_source_only() -> None:
    early, late = Position(1, 2, 3).of(SHOP), Position(1, 2, 4).of(SHOP)
    assert early.within(SHOP) < late.within(SHOP)
    assert early != Position(1, 2, 3).of(BILLING)
    with pytest.raises(TypeError, match="of source shop is not in the log of source billing-2"):
        early.within(BILLING)


@pytest.mark.parametrize("other", [SHOP, BILLING])
def test_the_order_of_two_sources_positions_is_a_type_error(other: SourceId) -> None:
    one, two = Position(1, 2, 3).of(SHOP), Position(1, 2, 4).of(other)
    for compared in (
        lambda: one < two,  # type: ignore[operator]
        lambda: one >= two,  # type: ignore[operator]
        lambda: max(one, two),  # type: ignore[call-overload]
        lambda: one < Position(1, 2, 4),  # type: ignore[operator]
        lambda: Position(1, 2, 4) < one,  # type: ignore[operator]
    ):
        with pytest.raises(TypeError):
            compared()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("shop.orders", ("shop", "orders")),
        ("`my.db`.t", ("my.db", "t")),
        ("my.`d.b`", ("my", "d.b")),
        ("`a``.b`.`c`", ("a`.b", "c")),
        ("a`b.c:d e/%", ("a`b", "c:d e/%")),
    ],
)
def test_a_person_quotes_a_name_that_has_a_dot(text: str, names: tuple[str, str]) -> None:
    assert TableName.written(text) == TableName(*names)


@pytest.mark.parametrize("text", ["", "t", ".t", "db.", "my.db.t", "`my.db.t`", "`my.db`t", "`my`.`db`.t"])
def test_what_a_person_may_have_meant_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a name that has a dot in backticks"):
        TableName.written(text)
