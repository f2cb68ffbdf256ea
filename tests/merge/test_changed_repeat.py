"""The repeat of a batch whose world has changed since its first attempt: it is the same batch, or it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafkaio.schema_registry import HttpRegistry, RegisteredSchema, SchemaRegistry
from schemas.columns import ColumnType
from schemas.errors import SinkError
from schemas.identity import TableName
from schemas.settings import RouteSettings, SchemaChangeSettings, Settings, TransformSettings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.target_rebuild import rebuild
from spark_jobs.merge.batch import BatchMerger
from spark_jobs.store.sink_layout import BATCH, SCHEMAS
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    ORDERS,
    Crash,
    at,
    column,
    flush,
    merge_all,
    progress,
    quarantined,
    topics_of,
)
from tests.merge.test_changelog_kafka import streamed, topic_of
from tests.merge.test_routed_merge import routed
from tests.merge.test_routed_merge import rows as rows_of
from tests.support.changelogs import events_of_files, events_of_topic
from tidemark.verify.sink_types import open_reader

OTHER = replace(ORDERS, name="other")
ALSO = replace(ORDERS, columns=(*ORDERS.columns, column("note", ColumnType.INT)))


def dies_after_its_writes(name: str, _batch_id: int) -> None:
    """Play kill -9 after the rows of a batch were written."""
    if name == "merged":
        raise Crash


def die(spark: SparkSession, settings: Settings, registry: SchemaRegistry | None = None) -> None:
    """Run a batch up to a crash after its last write to a target."""
    with pytest.raises(Crash):
        MergeJob(settings, spark=spark, on_step=dies_after_its_writes, registry=registry).run(until_caught_up=True)


def by(plain: Settings, **transform: Any) -> Settings:
    """The sink with one transform of ORDERS."""
    return routed(plain, *plain.sink.routes, transforms=(TransformSettings(tables="shop.orders", **transform),))


class OldRegistry:
    """A registry that knows only the first version of each subject."""

    def __init__(self, url: str | None) -> None:
        self._registry = HttpRegistry(url or "")

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        return self._registry.versions(subject)[:1]


def ids(settings: Settings, target: str = "shop.orders") -> list[str]:
    return sorted(row["id"] for row in rows_of(settings, target))


def test_a_repeat_with_another_filter_is_refused_until_it_is_changed_back_or_the_target_is_made_again(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(topics)
    low, high = by(plain, where="amount < 3"), by(plain, where="amount >= 3")
    die(spark, low)
    for changed in (high, plain):
        with pytest.raises(SinkError, match=r"shop.orders has rows of shop.orders by another rule: an attempt at batch 0 .* tidemark rebuild"):
            merge_all(spark, changed)
    assert rebuild(high, ["shop.orders"], spark) == (), "no batch of it has ended: its records are all in the one to be repeated"
    merge_all(spark, high)
    assert ids(plain) == ["3", "4"]
    with pytest.raises(SinkError, match=r"shop.orders was built of shop.orders by another rule"):
        merge_all(spark, low)


def test_a_repeat_by_the_same_rules_is_not_refused_after_they_were_changed_back(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(topics)
    die(spark, by(plain, where="amount < 3"))
    with pytest.raises(SinkError):
        merge_all(spark, by(plain, where="amount < 4"))
    merge_all(spark, by(plain, where="amount < 3"))
    assert ids(plain) == ["0", "1", "2"]


def test_a_repeat_that_sees_more_schemas_is_the_same_batch_as_the_first_attempt(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    topics.alter(ALSO)
    topics.change("c", {"id": "b", "amount": 2, "note": 2}, at(110, 1).text)
    flush(topics)
    die(spark, plain, OldRegistry(plain.format.registry))
    merge_all(spark, plain)
    assert ids(plain) == ["a"], "the record that the first attempt could not read is in quarantine, and named"
    assert [offset for _, _, offset, _ in quarantined(plain)] == [1]
    assert progress(plain)["quarantined"] == 1
    topics.change("u", {"id": "b", "amount": 3, "note": 3}, at(120, 1).text)
    flush(topics)
    merge_all(spark, plain)
    assert [(row["id"], row["note"]) for row in rows_of(plain, "shop.orders")] == [("a", None), ("b", 3)]


def test_a_batch_that_an_older_version_began_is_read_by_what_the_registry_has(spark: SparkSession, merge_settings: SinkFactory) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    topics.change("c", {"id": "1", "amount": 1}, at(101, 1).text)
    flush(topics)
    die(spark, plain)
    service = Path(plain.sink.service_path)
    (service / BATCH).unlink()
    kept = list((service / SCHEMAS).rglob("schemas.json"))
    assert kept, "such a version had none"
    for file in kept:
        file.unlink()
    merge_all(spark, plain)
    topics.change("c", {"id": "2", "amount": 2}, at(102, 1).text)
    flush(topics)
    merge_all(spark, plain)
    assert ids(plain) == ["1", "2"], "the repeat has left out the first record, and the next batch sets the table aside"


def test_a_batch_that_has_written_nothing_sees_the_world_as_it_is(spark: SparkSession, merge_settings: SinkFactory) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    topics.alter(ALSO)
    topics.change("c", {"id": "b", "amount": 2, "note": 2}, at(110, 1).text)
    flush(topics)

    def dies_at_once(name: str, _batch_id: int) -> None:
        if name == "begun":
            raise Crash

    with pytest.raises(Crash):
        MergeJob(
            by(plain, where="amount < 3"), spark=spark, on_step=dies_at_once, registry=OldRegistry(plain.format.registry)
        ).run(until_caught_up=True)
    merge_all(spark, by(plain, where="amount < 2"))
    assert ids(plain) == ["a"]


def test_a_repeat_with_another_expression_is_refused_while_rows_of_the_first_are_in_quarantine(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(6):
        topics.change("c", {"id": str(number), "amount": number % 3}, at(100 + number, 1).text)
    flush(topics)
    divided, tried = (by(plain, select=("*", f"{text} AS share")) for text in ("100 / amount", "try_divide(100, amount)"))
    die(spark, divided)
    assert len(quarantined(plain)) == 2
    with pytest.raises(SinkError, match="by another rule"):
        merge_all(spark, tried)
    rebuild(tried, ["shop.orders"], spark)
    assert quarantined(plain) == [], "records that the batch is to read again are not left there"
    merge_all(spark, tried)
    assert ids(plain) == [str(number) for number in range(6)]
    assert progress(plain)["quarantined"] == 0


def test_a_repeat_that_would_have_a_column_which_the_first_attempt_ignored_is_refused(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    lenient = merge_settings()
    ignoring = replace(lenient, sinks=(replace(lenient.sink, schema_changes=SchemaChangeSettings(behaviour="ignore")),))
    topics = topics_of(lenient, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, ignoring)
    topics.alter(ALSO)
    topics.change("c", {"id": "b", "amount": 2, "note": 2}, at(110, 1).text)
    flush(topics)
    die(spark, ignoring)
    with pytest.raises(SinkError, match=r"shop.orders has rows with another schema_changes: an attempt at batch 1"):
        merge_all(spark, lenient)
    merge_all(spark, ignoring)
    assert ids(lenient) == ["a", "b"]


def test_a_table_whose_topics_are_created_again_before_its_first_batch_is_repeated_is_set_aside_and_named(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """Nothing of the table is in the state yet: only the document of the batch knows which topics were read."""
    settings = merge_settings()
    topics, other = topics_of(settings, ORDERS), topics_of(settings, OTHER)
    other.register()
    for one in (topics, other):
        one.change("c", {"id": "one", "amount": 1}, at(50, 1).text)
    flush(topics, other)
    die(spark, settings)
    topics.create_again()
    topics.change("c", {"id": "two", "amount": 2}, at(60, 1).text)
    flush(topics)
    merge_all(spark, settings)
    merge_all(spark, settings)
    assert ids(settings) == ["one", "two"]
    assert "was deleted and created again" in progress(settings)["incomplete"]
    assert progress(settings)["consistent_at"] is None
    assert ids(settings, "shop.other") == ["one"]


def test_a_table_that_an_attempt_has_not_reached_ends_no_sink_when_its_topics_are_created_again(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, merged = merge_settings(), BatchMerger._merged
    topics, other = topics_of(settings, ORDERS), topics_of(settings, OTHER)
    other.register()
    for one in (topics, other):
        one.change("c", {"id": "one", "amount": 1}, at(50, 1).text)
    flush(topics, other)
    with monkeypatch.context() as patched:
        patched.setattr(
            BatchMerger,
            "_merged",
            lambda self, inputs, *more: merged(self, [one for one in inputs if one.table.name.table == OTHER.name], *more),
        )
        die(spark, settings)
    topics.create_again()
    topics.change("c", {"id": "two", "amount": 2}, at(60, 1).text)
    flush(topics)
    merge_all(spark, settings)
    merge_all(spark, settings)
    assert (ids(settings), ids(settings, "shop.other")) == (["two"], ["one"])
    assert "was deleted and created again" in progress(settings)["incomplete"]


SINKS = ("iceberg", "postgresql", "mariadb", "files", "kafka mirror", "kafka changelog")


@pytest.mark.parametrize("kind", ["iceberg", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SINKS[1:])])
def test_each_type_of_sink_refuses_a_repeat_by_another_rule(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = of_kind(kind, request, merge_settings())
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(topics)
    low, high = by(plain, where="amount < 3"), by(plain, where="amount >= 3")
    die(spark, low)
    with pytest.raises(SinkError, match="by another rule: an attempt at batch 0"):
        merge_all(spark, high)
    if "changelog" not in kind and kind != "files":
        rebuild(high, [plain.sink.routes[0].into if plain.sink.routes else "shop.orders"], spark)
        merge_all(spark, high)
        assert there(high) == {"3", "4"}
        return
    merge_all(spark, low)
    assert there(low) == {"0", "1", "2"}


def of_kind(kind: str, request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """The settings with a sink of a type."""
    sink = settings.sink
    if kind in ("postgresql", "mariadb"):
        server = request.getfixturevalue("postgres17" if kind == "postgresql" else "mariadb114")
        address = f"{kind}://127.0.0.1:{server.port}/"
        url = address + (server.database if kind == "postgresql" else "?sslMode=DISABLED")
        made = replace(sink, type=kind, url=url, user=server.user, password=server.password, work=sink.path, path="", name=settings.name)
        routes = (RouteSettings(tables=r"shop\.orders", into=f"{settings.name.replace('-', '_')}.orders"),)
        return replace(settings, sinks=(replace(made, routes=routes),))
    if kind.startswith("kafka"):
        return streamed(settings, kind.partition(" ")[2])
    if kind == "files":
        return replace(settings, sinks=(replace(sink, type="files", mode="changelog", format="parquet"),))
    return replace(settings, sinks=(replace(sink, type=kind),))


def there(settings: Settings) -> set[str]:
    """The ids in the target of ORDERS."""
    if settings.sink.type == "files":
        return {row["id"] for row in events_of_files(Path(settings.sink.path) / "shop" / "orders")}
    if settings.sink.type == "kafka" and settings.sink.mode == "changelog":
        return {row["id"] for row in events_of_topic(settings.kafka.bootstrap_servers, topic_of(settings, "shop.orders"))}
    database = settings.sink.routes[0].into.partition(".")[0] if settings.sink.routes else "shop"
    rows = open_reader(settings).rows(TableName(database, "orders"))
    return {row["id"] for part in rows.read(["id"]) for row in part.to_pylist()}
