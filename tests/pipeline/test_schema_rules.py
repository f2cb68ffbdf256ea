"""Schema behaviours × kinds of changes, as a table; and what the settings refuse. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from schemas.errors import ConfigError, SchemaChangeError
from schemas.identity import SourceId, SourceTable, Target
from schemas.settings import SchemaChangeSettings, Settings, SinkSettings, from_mapping
from schemas.settings.schema_change_section import applied_kinds, check_schema_changes
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.decode.spark_types import Field
from spark_jobs.decode.table_layout import TableLayout, kept_to, layout
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.pipeline.row_images import Image, Item
from spark_jobs.pipeline.schema_rules import SchemaRule, differences, dropped_columns, emptied, require_key
from spark_jobs.pipeline.table_routes import Feed
from spark_jobs.pipeline.target_layout import TargetImages, evolution
from spark_jobs.sinks.contract import Evolution, FedBy, TargetRecord
from spark_jobs.sinks.memory_sink import MemoryCommit, MemorySink, MemoryStorage, StoredTable
from spark_jobs.sinks.stamp import Stamp

INT, LONG, TEXT = T.IntegerType(), T.LongType(), T.StringType()
ALL = frozenset({"create.table", "add.column", "alter.column.type", "drop.column", "rename.column", "truncate.table", "drop.table"})


def writer(number: int, fill: Any = None, /, **columns: T.DataType) -> WriterSchema:
    fields = tuple(Field(name, kind, lambda value: value, fill) for name, kind in columns.items())
    return WriterSchema(number, f"schema {number}", "{}", fields)


def rule(behaviour: str = "lenient", **more: Any) -> SchemaRule:
    return SchemaRule.of(SchemaChangeSettings(behaviour=behaviour, **more))  # type: ignore[arg-type]


TABLE: Mapping[str, Mapping[str, bool]] = {
    "lenient": {"adds": True, "retypes": True, "drops": False, "narrows": False, "insists": False},
    "evolve": {"adds": True, "retypes": True, "drops": True, "narrows": True, "insists": True},
    "try_evolve": {"adds": True, "retypes": True, "drops": True, "narrows": True, "insists": False},
    "ignore": {"adds": False, "retypes": False, "drops": False, "narrows": False, "insists": False},
    "exception": {"adds": True, "retypes": True, "drops": False, "narrows": False, "insists": False},
}
EXCLUDED = {"adds": "add.column", "retypes": "alter", "narrows": "alter.column.type", "drops": "drop"}


@pytest.mark.parametrize("behaviour", TABLE)
def test_each_behaviour_does_with_each_kind_what_the_table_says(behaviour: str) -> None:
    found = rule(behaviour)
    assert {name: getattr(found, name) for name in TABLE[behaviour]} == TABLE[behaviour]
    assert found.keeps == frozenset()
    for name, kind in EXCLUDED.items():
        without = rule(behaviour, exclude=(kind,))
        assert not getattr(without, name), "an excluded kind is not applied"
        others = [other for other in EXCLUDED if other not in (name, "narrows" if name == "retypes" else name)]
        others = [other for other in others if EXCLUDED[other].partition(".")[0] != kind.partition(".")[0]]
        assert {other: getattr(without, other) for other in others} == {other: TABLE[behaviour][other] for other in others}


CHANGES = [
    *differences(writer(1, a=INT, b=INT), writer(2, A=LONG, c=TEXT)),
    *emptied(["truncate", "create", "rename", ""]),
]


def test_kinds_come_from_comparing_two_schemas() -> None:
    assert [(one.kind, one.text) for one in CHANGES] == [
        ("alter.column.type", "column A changed its type from int to bigint"),
        ("add.column", "column c string was added"),
        ("drop.column", "column b was dropped"),
        ("truncate.table", "the table was truncated"),
        ("drop.table", "the table was dropped"),
    ]
    assert differences(writer(1, a=INT), writer(2, 5, a=INT)) == [], "another default is no change of a column"


@pytest.mark.parametrize("behaviour", TABLE)
def test_only_exception_ends_the_sink_and_only_for_kinds_that_are_applied(behaviour: str) -> None:
    for change in CHANGES:
        found = rule(behaviour)
        found.require_allowed("shop.t", [])
        rule(behaviour, exclude=(change.kind,)).require_allowed("shop.t", [change])
        rule(behaviour, include=("create",)).require_allowed("shop.t", [change])
        if behaviour == "exception":
            with pytest.raises(SchemaChangeError, match=f"shop.t has changed .*{change.text}.* exclude {change.kind}"):
                found.require_allowed("shop.t", [change])
        else:
            found.require_allowed("shop.t", [change])


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        ((), (), ALL),
        (("add.column",), (), {"create.table", "add.column"}),
        (("drop",), ("drop.table",), {"create.table", "drop.column"}),
        (("drop", "alter.column"), ("drop",), {"create.table", "alter.column.type"}),
        ((), ("truncate.table", "drop"), ALL - {"truncate.table", "drop.column", "drop.table"}),
    ],
)
def test_beginnings_of_names_match_and_exclude_wins(include: tuple[str, ...], exclude: tuple[str, ...], left: set[str]) -> None:
    settings = SchemaChangeSettings(include=include, exclude=exclude)
    check_schema_changes("sinks.0.schema_changes", settings)
    assert applied_kinds(settings) == left


def job_of(folder: Path, given: dict[str, Any]) -> Settings:
    """The settings of a job with one sink that treats schema changes so."""
    sink = SinkSettings(path=str(folder), schema_changes=SchemaChangeSettings(**given))
    return replace(from_mapping({"name": "shop", "source": {"tables": [".*"]}}), sinks=(sink,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"include": ("rename.column",)}, r"include\.0: 'rename\.column': schemas show a renamed column as one that is dropped"),
        ({"exclude": ("drop", "rename")}, r"exclude\.1: 'rename': .* name drop\.column and add\.column"),
        ({"exclude": ("create.table",)}, r"exclude\.0: 'create\.table': tables that come are always made"),
        ({"include": ("add.colum",)}, r"include\.0: 'add\.colum' is no kind of schema change; did you mean 'add\.column'\?"),
        ({"exclude": ("",)}, r"exclude\.0: '' is no kind of schema change; there are create\.table, add\.column"),
    ],
)
def test_names_that_mean_no_kind_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^sinks\.0\.schema_changes\.{message}"):
        check_schema_changes("sinks.0.schema_changes", SchemaChangeSettings(**given))


def test_rows_of_a_table_that_is_made_again_stay_as_those_of_one_that_is_dropped() -> None:
    assert rule(exclude=("truncate",)).keeps == {"truncate"}
    assert rule(exclude=("drop.table",)).keeps == {"drop", "rename", "create"}


def test_columns_that_no_schema_ever_had_are_not_dropped() -> None:
    old, new, key = writer(1, id=INT, a=INT, B=INT), writer(2, id=INT, c=INT), writer(3, id=INT)
    existing = [("id", INT), ("A", INT), ("b", INT), ("by_hand", INT), ("c", INT)]
    assert dropped_columns(existing, [new, key], [old, new, key]) == ("A", "b")
    assert dropped_columns(existing, [old, new, key], [old, new, key]) == ()


def test_a_column_that_comes_back_is_filled_with_its_new_default() -> None:
    key = writer(9, id=INT)
    versions = [writer(1, 1, id=INT, c=INT), writer(2, id=INT), writer(3, 3, id=INT, c=INT), writer(4, 4, id=INT, c=INT)]
    plan = layout([key], versions, [("id", INT)])
    assert evolution([("id", INT)], plan).added == (("c", INT, 3),)


@pytest.mark.parametrize(
    ("adds", "retypes", "columns", "unfit"),
    [
        (False, False, [("id", INT), ("a", INT), ("old", TEXT)], [("a", LONG)]),
        (True, False, [("id", INT), ("a", INT), ("old", TEXT), ("new", TEXT)], [("a", LONG)]),
        (False, True, [("id", INT), ("a", LONG), ("old", TEXT)], []),
    ],
)
def test_columns_that_do_not_follow_the_source(adds: bool, retypes: bool, columns: list[Any], unfit: list[Any]) -> None:
    existing = [("id", INT), ("a", INT), ("old", TEXT)]
    plan = layout([writer(9, id=INT)], [writer(1, id=INT, a=INT, old=TEXT), writer(2, id=INT, a=LONG, new=TEXT)], existing)
    kept = kept_to(plan, existing, adds=adds, retypes=retypes)
    assert list(kept.columns) == columns
    assert list(kept.unfit) == unfit
    require_key("shop.t", kept.columns, kept.keys)


def test_a_key_that_the_target_does_not_have_ends_the_sink() -> None:
    with pytest.raises(SchemaChangeError, match=r"shop\.t has another key now, with code, which its target does not have"):
        require_key("shop.t", [("id", INT)], ["id", "code"])


# ── targets of several tables, and of images ────────────────────

TARGET = Target("lake", "ods.orders")
ONE, TWO = (SourceTable.of(SourceId("shop"), name, "orders") for name in ("s1", "s2"))
OLD = [(SOURCE, TEXT), ("id", INT), ("a", INT), ("b", INT)]


def image(table: SourceTable, **columns: T.DataType) -> Image:
    return Image(Feed(table, TARGET), tuple(Item(name, kind, source=name) for name, kind in columns.items()), ("id",), None)


def shared(*images: Image, fed: Mapping[SourceTable, tuple[str, ...]], existing: Any = OLD) -> TargetImages:
    fed_by = {table.text: FedBy(("id",), columns) for table, columns in fed.items()}
    return TargetImages(TARGET, existing, images, [()] * len(images), fed_by, is_shared=True)


BOTH = {ONE: ("id", "a", "b"), TWO: ("id", "a", "b")}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (shared(image(ONE, id=INT, a=INT), image(TWO, id=INT, a=INT), fed=BOTH), Evolution((), (), (), ("b",))),
        (shared(image(ONE, id=INT, a=INT), image(TWO, id=INT, a=INT, b=INT), fed=BOTH), Evolution((), (), (("b", ONE.text, None),))),
        (shared(image(ONE, id=INT, a=INT), fed=BOTH), Evolution((), (), (("b", ONE.text, None),))),
        (shared(image(ONE, id=INT, a=INT), fed=BOTH | {ONE: ("id", "a")}), Evolution((), ())),
        (shared(image(ONE, id=INT, a=INT), fed={ONE: ("id", "a", "b"), TWO: ("id", "a")}), Evolution((), (), (), ("b",))),
        (shared(image(ONE, id=INT, a=LONG, b=INT), image(TWO, id=INT, a=INT, b=INT), fed=BOTH), Evolution((), (("a", LONG),))),
    ],
    ids=["both lost it", "one lost it", "the other takes no part", "lost before", "the other never had it", "widened"],
)
def test_evolve_drops_what_no_table_has_and_empties_what_one_lost(found: TargetImages, expected: Evolution) -> None:
    target_layout = found.layout(rule("evolve"), drops=True)
    assert found.evolution(target_layout, drops=True) == expected
    lenient = found.layout(rule(), drops=False)
    assert found.evolution(lenient, drops=False) == Evolution((), expected.retyped), "lenient keeps them with their values"


def test_ignore_keeps_the_columns_of_a_shared_target_and_their_types() -> None:
    added = shared(image(ONE, id=INT, a=INT, b=INT, c=INT), fed=BOTH)
    assert list(added.layout(rule("ignore"), drops=False).columns) == OLD
    later = shared(image(ONE, id=INT, a=INT, b=INT, C=INT), fed=BOTH | {ONE: ("id", "a", "b", "c")})
    with pytest.raises(SchemaChangeError, match=r"ods\.orders has rows without C, .* tidemark rebuild ods\.orders"):
        later.layout(rule(), drops=False)
    wider = shared(image(ONE, id=INT, a=LONG, b=INT), fed=BOTH)
    kept = wider.layout(rule("ignore"), drops=False)
    assert list(kept.columns) == OLD
    assert [item.name for item in wider.images[0].unfit(kept.types)] == ["a"]
    second = shared(image(TWO, id=INT, a=INT, b=INT), fed={ONE: ("id", "a", "b")}, existing=OLD[1:])
    assert (SOURCE, TEXT) in second.layout(rule("ignore"), drops=False).columns, "the identity is no column of a source"


def test_layouts_of_targets_that_do_not_exist_are_as_the_source() -> None:
    new = shared(image(ONE, id=INT, a=LONG), fed={}, existing=())
    for behaviour in TABLE:
        assert isinstance(new.layout(rule(behaviour), drops=True), TableLayout)
        assert new.layout(rule(behaviour), drops=True).types["a"] == LONG


def test_evolve_ends_where_rows_that_were_read_again_do_not_fit_and_try_evolve_leaves_the_column_wide() -> None:
    stamp = Stamp("query", 0, TARGET.name, {})
    rows = {(1,): {"id": 1, "a": 2**40, "b": 7, POSITION: "p"}}
    table = StoredTable([("id", INT), ("a", LONG), ("b", LONG)], rows, [MemoryCommit(stamp, "put")])
    target = MemorySink(MemoryStorage({TARGET: table}), lambda: "query").target(None, TARGET, (ONE,))  # type: ignore[arg-type]
    batch = TargetBatch(target, TargetRecord(last_commit=0), 1)
    today = [writer(1, id=INT, a=INT, b=INT)]
    with pytest.raises(SchemaChangeError, match=r"ods\.orders has rows whose values do not fit .*: a \(int\)\. Choose"):
        batch.narrow(today, replace(stamp, batch_id=1), insists=True)
    assert dict(table.columns)["b"] == LONG, "nothing was changed"
    assert batch.narrow(today, replace(stamp, batch_id=1)) == [("b", INT)]
    assert dict(table.columns) == {"id": INT, "a": LONG, "b": INT}
