"""Expressions and Python functions of transforms in the merge job: rows and tables on which they fail."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

from schemas.errors import ConfigError
from schemas.settings import RouteSettings, Settings, TransformSettings, UdfSettings
from spark_jobs.pipeline.udfs import register_udfs, udf_sources
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, at, flush, merge_all, progress, quarantined
from tests.merge.test_routed_merge import INTO_ONE, PEOPLE, SHARDS, begun_shards, routed, rows, topics_of
from tests.merge.test_spark_model import Dying, merge_through_crashes


def test_an_expression_that_cannot_be_bound_sets_aside_its_own_table(spark: SparkSession, merge_settings: SinkFactory) -> None:
    plain = merge_settings()
    good, bad = topics_of(plain, PEOPLE), topics_of(plain, ORDERS)
    good.register()
    bad.register()
    good.change("c", {"id": 1, "email": "1", "state": "open"}, at(100, 1).text)
    bad.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    flush(good, bad)

    def settings(text: str) -> Settings:
        return routed(plain, transforms=(TransformSettings(tables=r"shop\.orders", select=("id", text)),))

    merge_all(spark, settings("to_timestamp_ltz(amount, 3) AS at"))
    assert len(rows(plain, "crm.people")) == 1
    reason = progress(plain)["set_aside"]["reason"]
    assert re.match(r"lake: transforms\.0\.select\.1: Spark cannot bind 'to_timestamp_ltz\(amount, 3\) AS at': \S", reason)
    assert "\n" not in reason
    merge_all(spark, settings("timestamp_millis(amount) AS at"))
    assert len(rows(plain, "shop.orders")) == 1, "a rule by which nothing was merged may change"


@pytest.mark.parametrize("where", [None, "100 / amount > 1"], ids=["select", "where"])
def test_a_row_on_which_an_expression_fails_is_quarantined_and_the_others_are_merged(
    where: str | None, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    transform = TransformSettings(tables="shop.orders", into="ods.*", select=("id", "100 / amount AS share"), where=where)
    settings = routed(
        merge_settings(),
        RouteSettings(tables="shop.orders", into="ods.orders"),
        RouteSettings(tables="shop.orders", into="all.orders"),
        transforms=(transform,),
    )
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "a", "amount": 50}, at(100, 1).text)
    topics.change("c", {"id": "b", "amount": 10}, at(110, 1).text)
    topics.flush()
    merge_all(spark, settings)
    topics.change("u", {"id": "b", "amount": 0}, at(200, 1).text)
    topics.change("c", {"id": "c", "amount": 20}, at(210, 1).text)
    topics.flush()
    dying = Dying(5)
    merge_through_crashes(spark, settings, dying)
    assert [(row["id"], row["share"]) for row in rows(settings, "ods.orders")] == [("a", 2.0), ("b", 10.0), ("c", 5.0)]
    assert {row["id"]: row["amount"] for row in rows(settings, "all.orders")} == {"a": 50, "b": 0, "c": 20}
    ((topic, _, offset, reason),) = quarantined(settings)
    assert (topic, offset) == (topics.changes, 2)
    assert reason.startswith("ods.orders: DIVIDE_BY_ZERO: Division by zero"), reason
    assert progress(settings)["quarantined"] == 1
    assert "could not be merged" in progress(settings)["lacks"]
    topics.row({"id": "b", "amount": 5}, at(150).text)  # a late snapshot row, older than the record that was left out
    topics.flush()
    merge_all(spark, settings)
    assert ("b", 10.0) in [(row["id"], row["share"]) for row in rows(settings, "ods.orders")]


def test_an_expression_that_fails_on_most_rows_sets_the_table_aside(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = routed(merge_settings(), transforms=(TransformSettings(tables="shop.orders", select=("id", "1 / amount AS x")),))
    topics = topics_of(settings, ORDERS)
    for number in range(130):
        topics.change("c", {"id": str(number), "amount": 0}, at(100 + number, 1).text)
    topics.flush()
    merge_all(spark, settings)
    reason = progress(settings)["set_aside"]["reason"]
    assert reason.startswith("more than 100 rows of a batch have a failing expression or an unfit value, the first: shop.orders: DIVIDE_BY_ZERO"), reason
    assert rows(settings, "shop.orders") == []


def test_a_python_function_masks_values(spark: SparkSession, merge_settings: SinkFactory) -> None:
    transform = TransformSettings(tables="crm.people", select=("id", "masked(email) AS mail"), where="masked(state) IS NOT NULL")
    settings = routed(merge_settings(), transforms=(transform,))
    settings = replace(settings, udfs=(UdfSettings(name="masked", function="tests.merge.udfs_of_a_shop:masked", returns="string"),))
    topics = topics_of(settings, PEOPLE)
    topics.register()
    topics.change("c", {"id": 1, "email": "ann@x", "state": "open"}, at(100, 1).text)
    topics.change("c", {"id": 2, "email": None, "state": "open"}, at(110, 1).text)
    topics.change("c", {"id": 3, "email": "eve@x", "state": None}, at(120, 1).text)
    topics.flush()
    merge_all(spark, settings)
    assert [(row["id"], row["mail"]) for row in rows(settings, "crm.people")] == [(1, "a**"), (2, None)]


def test_a_python_function_that_raises_is_named_with_its_error(spark: SparkSession, merge_settings: SinkFactory) -> None:
    transform = TransformSettings(tables="shop.orders", select=("id", "checked(amount) AS amount"))
    settings = routed(merge_settings(), transforms=(transform,))
    settings = replace(settings, udfs=(UdfSettings(name="checked", function="tests.merge.udfs_of_a_shop:checked", returns="int"),))
    topics = topics_of(settings, ORDERS)
    for number in range(1, 5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    topics.flush()
    merge_all(spark, settings)
    assert "the function checked raised ValueError: 3 is not an amount of this shop" in progress(settings)["set_aside"]["reason"]


@pytest.mark.parametrize(
    ("function", "returns", "message"),
    [
        ("no_such_module:f", "string", "udfs.0.function: the module 'no_such_module' cannot be imported: No module named"),
        ("tests.merge.udfs_of_a_shop:f", "string", "udfs.0.function: the module 'tests.merge.udfs_of_a_shop' has no function 'f'"),
        ("builtins:len", "int", "udfs.0.function: 'builtins' is built into Python: name a function of a module of your own, which calls it"),
        ("tests.merge.udfs_of_a_shop:masked", "strin", "udfs.0.returns: 'strin' is no type of Spark SQL"),
    ],
)
def test_a_python_function_that_cannot_be_had_is_refused(function: str, returns: str, message: str, spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=message):
        register_udfs(spark.newSession(), [UdfSettings(name="f", function=function, returns=returns)])


def test_a_function_of_a_zip_is_known_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for number in range(2):
        with ZipFile(tmp_path / f"{number}.zip", "w") as packed:
            packed.writestr("functions_in_a_zip.py", f"def f(x):\n    return x + {number}\n")
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(tmp_path / f"{number}.zip"))
            patched.delitem(sys.modules, "functions_in_a_zip", raising=False)
            texts.append(udf_sources([UdfSettings(name="f", function="functions_in_a_zip:f", returns="int")]))
    assert texts[0] != texts[1]


def test_an_expression_of_a_shared_target_that_could_not_be_bound_may_be_corrected(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    begun_shards(plain)

    def by(text: str) -> Settings:
        return routed(plain, INTO_ONE, transforms=(TransformSettings(tables=r"s2\.orders", select=("id", f"{text} AS amount")),))

    merge_all(spark, by("nosuch"))
    assert "nosuch" in progress(plain, SHARDS[1])["set_aside"]["reason"]
    merge_all(spark, by("amount"))
    assert progress(plain, SHARDS[1])["set_aside"] is None
    assert [row["amount"] for row in rows(plain, "ods.orders")] == [0, 1]
