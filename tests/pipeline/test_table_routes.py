"""Routes: which table goes into which target, and what the settings refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from schemas.errors import ConfigError, SinkError
from schemas.identity import SourceId, SourceTable
from schemas.settings import RouteSettings, TransformSettings, from_mapping
from spark_jobs.pipeline.table_plan import plan_of, require_same_rules
from spark_jobs.pipeline.table_routes import PLAIN, Routes

SOURCE = SourceId("shop")


def table(name: str) -> SourceTable:
    database, _, rest = name.partition(".")
    return SourceTable.of(SOURCE, database, rest)


def routes(*pairs: tuple[str, str], transforms: tuple[TransformSettings, ...] = (), **more: Any) -> Routes:
    return Routes("lake", [RouteSettings(tables=tables, into=into) for tables, into in pairs], transforms, **more)


def targets(found: Routes, name: str) -> list[str]:
    return [feed.target.name for feed in found.feeds(table(name))]


@pytest.mark.parametrize(
    ("pattern", "into", "name", "target"),
    [
        (r"shop\.orders", "ods.orders", "shop.orders", "ods.orders"),
        (r"shop_\d+\.orders", "ods.orders", "shop_12.orders", "ods.orders"),
        (r"shop\.(.+)", "ods.shop_$1", "shop.items", "ods.shop_items"),
        (r"(\w+)_(\d+)\.(\w+)", "$1.$3_${2}x", "shop_7.items", "shop.items_7x"),
        (r".*\..*", "$database.t_$table", "shop.items", "shop.t_items"),
        (r".*\..*", "all.${database}_$table", "shop.items", "all.shop_items"),
        (r"SHOP\.Orders", "ods.orders", "shop.orders", "ods.orders"),
    ],
)
def test_a_route_names_the_target(pattern: str, into: str, name: str, target: str) -> None:
    assert targets(routes((pattern, into)), name) == [target]


def test_names_with_dots_stay_in_their_part_of_the_target() -> None:
    one = SourceTable.of(SOURCE, "a.b", "c.d")
    (feed,) = routes((r".*", "$table.$database")).feeds(one)
    assert feed.target.name == "`c.d`.`a.b`"


def test_all_routes_that_match_count_or_the_first_alone() -> None:
    pairs = ((r"shop\.orders", "a.x"), (r"shop\..*", "b.$table"), (r"shop\.orders", "a.x"))
    assert targets(routes(*pairs), "shop.orders") == ["a.x", "b.orders"], "a target that two routes give is one target"
    assert targets(routes(*pairs, match="first"), "shop.orders") == ["a.x"]
    assert targets(routes(*pairs, match="first"), "shop.items") == ["b.items"]


def test_a_changelog_is_a_target_beside_each_mirror_with_the_same_rule() -> None:
    plain = TransformSettings(tables=".*", into=r"ods\.orders", where="a > 1")
    found = routes((r"s\d\.(.+)", "ods.$1"), transforms=(plain,), adds_changelogs=True)
    feeds = found.feeds(table("s1.orders"))
    assert [(feed.target.name, feed.is_changelog) for feed in feeds] == [("ods.orders", False), ("ods.orders__changelog", True)]
    assert len({feed.rule for feed in feeds}) == 1
    assert plan_of(found, [table("s1.orders")]).alone == {}
    with pytest.raises(ConfigError, match="would be the changelog of another target"):
        found.feeds(table("s1.orders__changelog"))


def test_a_table_without_a_route_keeps_its_name_or_is_left_out() -> None:
    pairs = ((r"shop\.orders", "a.x"),)
    assert targets(routes(*pairs), "shop.items") == ["shop.items"]
    assert targets(routes(*pairs, unrouted="leave_out"), "shop.items") == []


def test_the_first_transform_that_matches_table_and_target_counts() -> None:
    one = TransformSettings(tables=r"shop\.orders", into=r"a\..*", where="x > 1")
    two = TransformSettings(tables=r"shop\..*", where="x > 2")
    found = routes((r"shop\.(.*)", "a.$1"), (r"shop\.(.*)", "b.$1"), transforms=(one, two))
    assert [feed.transform for feed in found.feeds(table("shop.orders"))] == [one, two]
    assert [feed.transform for feed in found.feeds(table("shop.items"))] == [two, two]
    assert [feed.transform_number for feed in found.feeds(table("shop.orders"))] == [0, 1]
    assert [feed.transform for feed in found.feeds(table("other.items"))] == [None]


def test_the_rule_of_a_feed_differs_where_the_transform_does() -> None:
    def rule(**what: Any) -> str:
        transform = TransformSettings(tables=".*", **what)
        return routes(transforms=(transform,)).feeds(table("shop.orders"))[0].rule

    rules = [rule(where="a"), rule(where="b"), rule(select=("x",)), rule(select=("x", "y")), rule(select=("x",), where="a")]
    assert len(set(rules)) == len(rules)
    assert PLAIN not in rules
    assert rule(where="a", into=".*") == rule(where="a"), "which tables it is for is no part of what rows become"
    assert routes().feeds(table("shop.orders"))[0].rule == PLAIN


def test_a_group_that_is_empty_for_a_table_gives_no_name() -> None:
    found = routes((r"shop(_\d+)?\.orders", "$1.orders"))
    with pytest.raises(SinkError, match=r"gives no name for shop\.orders: a group of it is empty"):
        found.feeds(table("shop.orders"))
    plan = plan_of(found, [table("shop.orders"), table("shop_1.orders")])
    assert list(plan.failed) == [table("shop.orders")]
    assert plan.alone[table("shop_1.orders")].name == "_1.orders"


# ── the plan ────────────────────


def test_tables_that_share_targets_are_one_group_and_others_are_alone() -> None:
    found = routes(
        (r"s\d\.orders", "ods.orders"), (r"s1\.(.*)", "one.$1"), (r"crm\.a", "crm.x"),
        transforms=(TransformSettings(tables=r"hr\.people", select=("id",)),),
    )  # fmt: skip
    names = ["s1.orders", "s2.orders", "s1.items", "crm.a", "hr.people", "hr.jobs"]
    plan = plan_of(found, map(table, names))
    assert {t.name.plain: target.name for t, target in plan.alone.items()} == {
        "s1.items": "one.items", "crm.a": "crm.x", "hr.jobs": "hr.jobs",
    }  # fmt: skip
    assert [[t.name.plain for t in group.tables] for group in plan.groups] == [["hr.people"], ["s1.orders", "s2.orders"]]
    shards = plan.groups[1]
    assert [target.name for target in shards.targets] == ["ods.orders", "one.orders"]
    assert [t.name.plain for t in shards.tables_into(shards.targets[0])] == ["s1.orders", "s2.orders"]
    assert all(plan.has(table(name)) for name in names)
    assert not plan_of(routes(unrouted="leave_out"), map(table, names)).has(table("crm.a"))


def test_a_table_is_alone_until_another_goes_into_its_target() -> None:
    found = routes((r"s\d\.orders", "ods.orders"))
    assert table("s1.orders") in plan_of(found, [table("s1.orders")]).alone
    assert not plan_of(found, [table("s1.orders"), table("s2.orders")]).alone


def test_tables_that_keep_the_rules_they_were_merged_by_are_accepted() -> None:
    found = routes((r"s\d\.orders", "ods.orders"), transforms=(TransformSettings(tables="s.*", where="a"),))
    own = {feed.target.text: feed.rule for feed in found.feeds(table("s1.orders"))}
    require_same_rules(found, {table("s1.orders"): own, table("crm.a"): {"lake:crm.a": PLAIN}})
    require_same_rules(found, {table("crm.a"): None})
    require_same_rules(routes(), {table("crm.a"): None})


@pytest.mark.parametrize(
    ("remembered", "message"),
    [
        (None, r"s1\.orders has rows of s1\.orders, which does not go into it any longer"),
        ({"lake:ods.orders": PLAIN}, r"ods\.orders was built of s1\.orders by another rule"),
        ({}, r"s1\.orders now goes into ods\.orders, and was read before: .* tidemark rebuild --sink lake ods\.orders"),
        ({"lake:ods.orders": "", "lake:ods.more": ""}, r"ods\.more has rows of s1\.orders, which does not go into it any longer"),
    ],
)
def test_a_changed_plan_is_refused_with_the_target(remembered: Mapping[str, str] | None, message: str) -> None:
    found = routes((r"s\d\.orders", "ods.orders"), transforms=(TransformSettings(tables="s.*", where="a"),))
    with pytest.raises(SinkError, match=message):
        require_same_rules(found, {table("s1.orders"): remembered})


# ── settings ────────────────────


def with_sink(**sink: Any) -> Any:
    source = {"host": "db", "user": "u", "password": "p", "tables": [".*"], "signal_table": "shop.signals"}
    wire = {"registry": "http://registry:8081"}
    return from_mapping({"name": "shop", "source": source, "format": wire, "sinks": [{"path": "/lake", **sink}]})


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"routes": [{"tables": r"shop\.(.+)", "into": "ods.shop_$2"}]},
         r"sinks.0.routes.0.into: 'ods.shop_$2' names group 2, 'shop\\.(.+)' has 1"),
        ({"routes": [{"tables": "(", "into": "a.b"}]}, "sinks.0.routes.0.tables: '(' is not a regular expression"),
        ({"routes": [{"tables": ".*", "into": "orders"}]}, "sinks.0.routes.0.into: 'orders' is no target: it has the form database.table"),
        ({"routes": [{"tables": ".*", "into": "a.b.c"}]}, "is no target"),
        ({"routes": [{"tables": ".*", "into": "a.$tables"}]}, "names $tables: there are $1 to $9 for groups, $database and $table"),
        ({"routes": [{"tables": ".*", "into": "a.b$"}]}, "has a $ without a name"),
        ({"routes": [{"tables": ".*"}]}, "sinks.0.routes.0.into: is missing"),
        ({"routes": [{"tables": ".*", "inot": "a.b"}]}, "unknown key 'inot' in sinks.0.routes.0; did you mean 'into'?"),
        ({"match": "last"}, "sinks.0.match: expected one of all, first"),
        ({"transforms": [{"tables": ".*"}]}, "sinks.0.transforms.0: changes nothing: give it select, where, key, soft_delete, partition_by or options"),
        ({"transforms": [{"tables": ".*", "key": ["id", "a", "id"]}]}, "sinks.0.transforms.0.key: names 'id' twice"),
        ({"transforms": [{"tables": ".*", "key": [f"c{number}" for number in range(16)]}]}, "an index has 15 at most"),
        ({"transforms": [{"tables": ".*", "into": "[", "where": "a"}]}, "sinks.0.transforms.0.into: '[' is not a regular expression"),
    ],
)  # fmt: skip
def test_wrong_routes_are_refused_with_the_path_of_the_key(sink: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        with_sink(**sink)


def test_with_routes_the_merge_job_reads_no_chunks_itself() -> None:
    assert "routes" in with_sink(routes=[{"tables": ".*", "into": "a.$table"}]).why_no_loads
