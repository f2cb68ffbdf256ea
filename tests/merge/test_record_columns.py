"""What targets have of the newest record of a row, and the keys they are given: merged on a real broker, registry and sinks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from devservers import Postgres
from schemas.errors import ConfigError
from schemas.markers import FloorMarker
from schemas.settings import RouteSettings, Settings, TransformSettings
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, Crash, at, crash, flush, merge_all, progress, quarantined, topics_of
from tests.merge.test_changelog_files import changelog, events
from tests.merge.test_routed_merge import INTO_ONE, SHARDS, routed, rows

SELECT = ("id", "amount", "__op__ AS kind", "__ts__ AS at", "__position__ AS pos")


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize("targets", [("ods.live",), ("ods.live", "ods.kept")], ids=["by workers", "by Spark"])
def test_a_row_has_the_op_the_time_and_the_position_of_its_newest_record(
    targets: tuple[str, ...], spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """Rows of a table that goes into a target with `soft_delete` are read by Spark."""
    plain = TransformSettings(tables="shop.orders", into="ods.live", select=SELECT, where="__op__ <> 'u' OR __ts__ < '2024-01-01'")
    kept = TransformSettings(tables="shop.orders", select=SELECT, soft_delete="gone")
    routes = [RouteSettings(tables="shop.orders", into=into) for into in targets]
    settings = routed(merge_settings(), *routes, transforms=(plain, kept))
    topics = topics_of(settings, ORDERS)
    topics.committed_ms = 1_600_000_000_123
    for number, key in enumerate("abc"):
        topics.change("c", {"id": key, "amount": number}, at(100 + number, 1).text)
    topics.row({"id": "d", "amount": 9}, at(90).text)
    flush(topics)
    merge_all(spark, settings)

    topics.committed_ms = 1_700_000_000_001
    topics.change("u", {"id": "a", "amount": 10}, at(200, 1).text)
    topics.committed_ms = 1_800_000_000_000
    topics.change("u", {"id": "b", "amount": 11}, at(210, 1).text)
    topics.change("d", {"id": "c", "amount": 2}, at(220, 1).text)
    topics.row({"id": "a", "amount": 0}, at(150).text)  # late
    flush(topics)
    with pytest.raises(Crash):
        merge_all(spark, settings, crash)  # the rows are written, the state is not
    merge_all(spark, settings)

    def row(key: str, amount: int, op: str, ms: int | None, pos: str, **more: Any) -> dict[str, Any]:
        return {"id": key, "amount": amount, "kind": op, "at": ms and moment(ms), "pos": pos, **more}

    assert progress(settings)["set_aside"] is None
    old, new = row("d", 9, "r", None, at(90).text), row("a", 10, "u", 1_700_000_000_001, at(200, 1).text)
    assert {one["id"]: one for one in rows(settings, "ods.live")} == {"a": new, "d": old}, "b was updated in 2027, c is gone"
    if len(targets) == 1:
        return
    assert {one["id"]: one for one in rows(settings, "ods.kept")} == {
        "a": new | {"gone": False},
        "b": row("b", 11, "u", 1_800_000_000_000, at(210, 1).text, gone=False),
        "c": row("c", 2, "d", 1_800_000_000_000, at(220, 1).text, gone=True),
        "d": old | {"gone": False},
    }


def test_events_have_the_op_and_the_time_of_their_change(spark: SparkSession, merge_settings: SinkFactory) -> None:
    transform = TransformSettings(tables="shop.orders", select=SELECT[:4], where="__op__ <> 'd'")
    settings = changelog(merge_settings(), transforms=(transform,))
    topics = topics_of(settings, ORDERS)
    topics.committed_ms = 1_600_000_000_123
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    topics.change("u", {"id": "a", "amount": 2}, at(110, 1).text, before={"id": "a", "amount": 1})
    topics.change("d", {"id": "a", "amount": 2}, at(120, 1).text)
    topics.row({"id": "b", "amount": 5}, at(90).text)
    flush(topics)
    merge_all(spark, settings)
    found = sorted((one["_tm_op"], one["id"], one["amount"], one["kind"], one["at"]) for one in events(settings))
    then = moment(1_600_000_000_123)
    assert found == [("+I", "a", 1, "c", then), ("+I", "b", 5, "r", None), ("+U", "a", 2, "u", then), ("-U", "a", 1, "u", then)], (
        "the condition leaves deletes out"
    )


def keyed(settings: Settings, *key: str) -> Settings:
    transforms = (TransformSettings(tables=r"s\d\.orders", key=key, select=("id", "amount", "__op__ AS kind")),)
    return routed(settings, INTO_ONE, transforms=transforms)


def test_a_table_of_a_database_has_the_key_that_is_asked_for_and_rows_merge_by_their_identity(
    spark: SparkSession, merge_settings: SinkFactory, postgres17: Postgres
) -> None:
    """A row whose key has a NULL goes to quarantine, and the target keeps the version before."""
    plain = merge_settings()
    database = {"type": "postgresql", "url": str(postgres17.jdbc_url), "user": postgres17.user, "password": postgres17.password}
    given = replace(plain.sink, path="", work=plain.sink.path, routes=(), **database)
    settings = keyed(replace(plain, sinks=(given,)), "amount", "id")

    def stored(sql: str) -> list[tuple[Any, ...]]:
        with postgres17.connect() as connection:
            return connection.execute(sql).fetchall()

    with postgres17.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS ods.orders")
    one, two = (topics_of(settings, table) for table in SHARDS)
    for key, amount in (("a", 1), ("b", 2), ("c", 2)):
        one.change("c", {"id": key, "amount": amount}, at(100, 1).text)
    flush(one)
    merge_all(spark, settings)
    two.change("c", {"id": "a", "amount": 1}, at(150, 1).text)
    one.change("u", {"id": "a", "amount": 7}, at(200, 1).text)
    one.change("u", {"id": "b", "amount": None}, at(210, 1).text)
    one.change("d", {"id": "c", "amount": 2}, at(220, 1).text)
    flush(one, two)
    merge_all(spark, settings)
    found = stored("SELECT _tm_source, id, amount, kind FROM ods.orders ORDER BY 1, 2")
    name = settings.name
    assert found == [(f"{name}:s1.orders", "a", 7, "u"), (f"{name}:s1.orders", "b", 2, "c"), (f"{name}:s2.orders", "a", 1, "c")]
    ((_, _, _, reason),) = quarantined(settings)
    assert "amount is of the key (amount, id) and NULL" in reason
    definitions = [sql for (sql,) in stored("SELECT indexdef FROM pg_indexes WHERE tablename = 'orders' AND schemaname = 'ods'")]
    assert any("UNIQUE" in sql and sql.endswith("(_tm_source, amount, id)") for sql in definitions), definitions
    assert any(sql.endswith("(id)") for sql in definitions), definitions
    ends = two.change_offsets
    two.marker(FloorMarker(table="s2.orders", partitions=2, position=at(250), horizon=at(250), change_offsets=ends, reason="truncate"))
    flush(two)
    merge_all(spark, settings)
    assert len(stored("SELECT 1 FROM ods.orders")) == 2


def test_a_wrong_plan_is_refused_before_the_sink_makes_anything(
    spark: SparkSession, merge_settings: SinkFactory, postgres17: Postgres
) -> None:
    plain = merge_settings()
    database = {"type": "postgresql", "url": str(postgres17.jdbc_url), "user": postgres17.user, "password": postgres17.password}
    settings = keyed(replace(plain, sinks=(replace(plain.sink, name="unmade", path="", work=plain.sink.path, **database),)), "amont")
    topics = topics_of(settings, SHARDS[0])
    topics.register()
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    flush(topics)
    with pytest.raises(ConfigError, match=r"ods.orders: unmade: transforms.0.key.0: the target has no column 'amont'; did you mean 'amount'"):
        merge_all(spark, settings)
    with postgres17.connect() as connection:
        owners = connection.execute("SELECT to_regclass('tidemark.tidemark_owner')").fetchone()
        if owners != (None,):
            assert not connection.execute("SELECT 1 FROM tidemark.tidemark_owner WHERE sink = 'unmade'").fetchone()
