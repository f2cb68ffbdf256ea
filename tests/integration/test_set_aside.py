"""One table that cannot be published is set aside, whatever keeps it from it, and the others continue."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from schemas.errors import SchemaMismatchError, StateError
from schemas.settings import Settings, from_mapping
from tests.support.producers import SIGNAL, Running, Source, running
from tests.support.servers import database
from tests.support.topics import read_topic

REFUSED = {
    "mysql80": ("CREATE TABLE r (id INT PRIMARY KEY, v INT, INDEX f ((v + 1)))", "ALTER TABLE r DROP INDEX f"),
    "mariadb114": ("CREATE TABLE r (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING", "ALTER TABLE r DROP SYSTEM VERSIONING"),
}
"""A table that cannot be captured, and the statement after which it can."""


ANY_SERVER = pytest.mark.parametrize(
    "source", ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)], indirect=True
)
"""For what the broker, the settings or the names decide: the server only has the rows."""


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request: Any, kafka: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL)
    yield created
    created.connection.close()


def settings_of(source: Source, *, mode: str = "never", **more: Any) -> Settings:
    """Names are those of Avro: columns `a b` and `a_b` are one."""
    changes: dict[str, Any] = {"format": {"type": "json", "field_names": "avro"}, "snapshot": {"mode": mode, "readers": 1}, **more}
    return from_mapping({**source.mapping(), **changes})


def documents(source: Source) -> dict[str, dict[str, Any]]:
    """The state topic: what is set aside, by table."""
    found: dict[str, Any] = {}
    for record in read_topic(source.bootstrap_servers, f"{source.name}.state", raw=True):
        found[record.key.decode()] = record.value and json.loads(record.value)
    kept = {key: document for key, document in found.items() if key.startswith("aside/") and document}
    return {key.rpartition(".")[2]: document for key, document in kept.items()}


def reported(source: Source) -> list[tuple[str, str]]:
    """Notifications of tables: (type, table)."""
    records = read_topic(source.bootstrap_servers, f"{source.name}.notifications")
    values = [record.value.get("payload", record.value) for record in records]
    tables = [value for value in values if value["aggregate_type"] == "Table"]
    assert all(value["type"] == "TAKEN_UP" or value["additional_data"]["position"] for value in tables)
    return [(value["type"], value["additional_data"]["table"].rpartition(".")[2]) for value in tables]


def ids(source: Source, table: str) -> list[int]:
    return [change.value["after"]["id"] for change in source.changes(table)]


def snapshot_rows(source: Source, table: str) -> dict[int, dict[str, Any]]:
    records = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{table}")
    rows = [record.value["after"] for record in records if "after" in record.value]
    return {row["id"]: row for row in rows}


def markers(source: Source, table: str, kind: str) -> list[dict[str, Any]]:
    records = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{table}")
    return [record.value for record in records if record.value.get("type") == kind and record.partition == 0]


def is_read(run: Running, table: str) -> bool:
    assert run.producer.coordinator is not None
    states = [one.state for one in run.producer.coordinator.progress() if one.table.endswith(f".{table}")]
    return bool(states) and states[-1] == "done"


def test_a_table_is_set_aside_by_an_alter_and_resumed_by_another_while_the_others_continue(source: Source) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, `a b` INT)", "CREATE TABLE u (id INT PRIMARY KEY)",
        "CREATE TABLE `v w` (id INT PRIMARY KEY)",
    )  # fmt: skip
    settings = settings_of(source)
    with running(settings) as run:
        source.execute("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1)", "INSERT INTO `v w` VALUES (1)")
        source.execute(
            "ALTER TABLE t ADD COLUMN a_b INT",
            "BEGIN", "INSERT INTO u VALUES (2)", "INSERT INTO t VALUES (3, 3, 3)", "INSERT INTO u VALUES (3)", "COMMIT",
            "DELETE FROM t WHERE id = 1",
            "CREATE TABLE v_w (id INT PRIMARY KEY)", "INSERT INTO v_w VALUES (7)", "INSERT INTO `v w` VALUES (2)",
        )  # fmt: skip
        run.caught_up(source)
        assert run.error is None
        heartbeats = len(markers(source, "t", "heartbeat"))
    assert (ids(source, "t"), ids(source, "u"), ids(source, "v_w")) == ([1, 2], [1, 2, 3], [1, 2])
    aside = documents(source)
    assert "are both called 'a_b'" in aside["t"]["reason"]
    assert "would have topics" in aside["v_w"]["reason"] or "would share the topic" in aside["v_w"]["reason"]
    assert aside["t"]["position"] == source.changes("u")[1].value["source"]["sequence"][:-10] + "0" * 10
    assert reported(source) == [("SET_ASIDE", "t"), ("SET_ASIDE", "v_w")]

    with running(settings) as run:  # a restart keeps it aside, and answers who asks for it
        ask = json.dumps({"data-collections": [f"{source.schema}\\.t"], "type": "INCREMENTAL"})
        source.execute(f"INSERT INTO tidemark_signal VALUES ('asked', 'execute-snapshot', '{ask}')".replace("\\", "\\\\"))
        source.execute("INSERT INTO u VALUES (4)", "UPDATE t SET `a b` = 20 WHERE id = 2")
        run.caught_up(source)
        progress = run.producer.coordinator.progress
        run.until(lambda: any(one.request == "asked" and one.state == "failed" for one in progress()), "the signal is answered")
        assert next(one.error for one in progress() if one.request == "asked").startswith(f"{source.schema}.t is set aside: ")
        assert len(markers(source, "t", "heartbeat")) == heartbeats, "a sink would take it for consistent at a later place"

        source.execute("ALTER TABLE t DROP COLUMN a_b", "RENAME TABLE v_w TO x")
        run.until(lambda: is_read(run, "t") and is_read(run, "x"), "what was set aside is read again")
        source.execute("INSERT INTO t VALUES (4, 4)", "INSERT INTO x VALUES (8)")
        run.caught_up(source)
        run.until(lambda: not documents(source), "nothing is set aside")
    assert snapshot_rows(source, "t").keys() == {2, 3}
    assert snapshot_rows(source, "t")[2] == {"id": 2, "a_b": 20}
    assert all(marker["whole_table"] for marker in markers(source, "t", "complete"))
    assert (ids(source, "t"), ids(source, "u")) == ([1, 2, 4], [1, 2, 3, 4])
    assert (snapshot_rows(source, "x").keys(), ids(source, "x")) == ({7}, [8])
    assert ("TAKEN_UP", "t") in reported(source)


@pytest.mark.parametrize("consistency", ["chunked", "one_transaction"])
def test_a_table_that_cannot_be_described_or_has_no_topic_at_the_start_keeps_no_other_from_being_read(
    source: Source, consistency: str
) -> None:
    refused, mended = REFUSED[source.server.name]
    source.execute(
        refused, "INSERT INTO r (id, v) VALUES (1, 1)",
        "CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1), (2)",
        "CREATE TABLE `a b` (id INT PRIMARY KEY)", "CREATE TABLE a_b (id INT PRIMARY KEY)", "INSERT INTO a_b VALUES (5)",
        "CREATE TABLE d (id INT PRIMARY KEY, `x y` INT, x_y INT)", "INSERT INTO d VALUES (1, 1, 1)",
    )  # fmt: skip
    with running(settings_of(source, snapshot={"mode": "initial", "readers": 1, "consistency": consistency})) as run:
        run.until(lambda: is_read(run, "u"), "the others are read")
        run.until(lambda: {"d", "a_b", "r"} == set(documents(source)), "three are set aside")
        source.execute("TRUNCATE d", "INSERT INTO d VALUES (2, 2, 2)", "INSERT INTO u VALUES (3)")
        source.execute("CREATE TABLE IF NOT EXISTS r (id INT PRIMARY KEY)")
        run.caught_up(source)
        assert (source.schema, "r") not in run.producer.tables.known(), "no marker says that it has no rows"
        assert [marker.get("empty") for marker in markers(source, "d", "floor")] == [None], "later rows are not published"
        assert snapshot_rows(source, "u").keys() == {1, 2}
        assert ids(source, "u") == [3]
        source.execute("ALTER TABLE d CHANGE x_y z INT", mended)
        run.until(lambda: is_read(run, "d") and is_read(run, "r"), "they are read when they can be")
        source.execute("INSERT INTO r (id, v) VALUES (2, 2)")
        run.caught_up(source)
    assert (snapshot_rows(source, "r").keys(), ids(source, "r")) == ({1}, [2])
    assert snapshot_rows(source, "d") == {2: {"id": 2, "x_y": 2, "z": 2}}


def test_a_table_that_a_tool_mends_by_swapping_in_a_copy_is_read_again(source: Source) -> None:
    """Such a swap alone needs no snapshot: the copy has the rows of the table. Those of this one were not published."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, `a b` INT)")
    with running(settings_of(source)) as run:
        source.execute("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t ADD COLUMN a_b INT", "INSERT INTO t VALUES (2, 2, 2)")
        run.caught_up(source)
        run.until(lambda: set(documents(source)) == {"t"}, "it is set aside")
        source.execute(
            "CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho DROP COLUMN a_b",
            "INSERT IGNORE INTO _t_gho (id, `a b`) SELECT id, `a b` FROM t",
            "RENAME TABLE t TO _t_del, _t_gho TO t", "DROP TABLE _t_del", "INSERT INTO t VALUES (3, 3)",
        )  # fmt: skip
        run.caught_up(source)
        run.until(lambda: not documents(source), "it is taken up")
        run.until(lambda: is_read(run, "t"), "it is read again")
    assert snapshot_rows(source, "t").keys() >= {1, 2}
    assert ids(source, "t") == [1, 3]


@ANY_SERVER
def test_topics_of_other_partitions_set_their_tables_aside_at_a_start_and_later(source: Source) -> None:
    """A consumer that came first has the broker make them, for instance."""
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    made = [NewTopic(f"{source.name}.{source.schema}.{table}", 1, 1) for table in ("t", "w")]
    for made_now in admin.create_topics(made).values():
        made_now.result(30)
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    with pytest.raises(StateError, match="has 1 partitions"), running(settings_of(source, on_table_error="stop")):
        pass
    with running(settings_of(source)) as run:
        source.execute("INSERT INTO u VALUES (1)", "CREATE TABLE w (id INT PRIMARY KEY)", "INSERT INTO w VALUES (1)")
        source.execute("INSERT INTO u VALUES (2)")
        run.caught_up(source)
        aside = documents(source)
        assert aside.keys() == {"t", "w"}
        assert all("has 1 partitions" in one["reason"] for one in aside.values())
        for mended in admin.create_partitions([NewPartitions(made[0].topic, 2)]).values():
            mended.result(30)
        ask = json.dumps({"data-collections": [f"{source.schema}.t"], "type": "INCREMENTAL"})
        source.execute(f"INSERT INTO tidemark_signal VALUES ('asked', 'execute-snapshot', '{ask}')")
        run.until(lambda: is_read(run, "t"), "it is taken up")
    assert ids(source, "u") == [1, 2]


@ANY_SERVER
def test_with_stop_the_error_ends_the_producer_and_what_was_committed_before_it_is_published(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, `a b` INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    with running(settings_of(source, on_table_error="stop")) as run:
        run.caught_up(source)
        source.execute("ALTER TABLE t ADD COLUMN a_b INT", "INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (3, 3, 3)")
        run.until_ended()
        assert isinstance(run.error, SchemaMismatchError)
    assert ids(source, "u") == [1]
    with running(settings_of(source)) as run:  # another setting, and it continues
        source.execute("INSERT INTO u VALUES (2)")
        run.caught_up(source)
    assert ids(source, "u") == [1, 2]
    assert documents(source).keys() == {"t"}


def test_a_schema_that_the_registry_refuses_sets_its_table_aside_until_it_takes_it(
    mysql80: Any, kafka: Any, registry: Any, fresh_database: Callable[..., str]
) -> None:
    source = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY, c INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    settings = from_mapping({**source.mapping(), "format": {"type": "avro", "registry": registry.url}})
    topic = f"{source.name}.{source.schema}.t"

    def compatibility(level: str) -> None:
        body = json.dumps({"compatibility": level}).encode()
        url = f"{registry.url}/config/{topic}-value"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers, method="PUT")  # noqa: S310 - our own registry
        urllib.request.urlopen(request).close()  # noqa: S310

    with running(settings) as run:
        source.execute("INSERT INTO t VALUES (1, 1)")
        run.caught_up(source)
        compatibility("FULL")
        source.execute("ALTER TABLE t MODIFY c VARCHAR(9)", "INSERT INTO t VALUES (2, 'b')", "INSERT INTO u VALUES (1)")
        run.caught_up(source)
        assert "refuses the schema" in documents(source)["t"]["reason"]
        compatibility("NONE")
        ask = json.dumps({"data-collections": [f"{source.schema}.t"], "type": "INCREMENTAL"})
        source.execute(f"INSERT INTO tidemark_signal VALUES ('asked', 'execute-snapshot', '{ask}')")
        run.until(lambda: is_read(run, "t"), "a request resumes it")
        assert not documents(source)
    assert len(read_topic(source.bootstrap_servers, f"{source.name}.{source.schema}.u", raw=True)) == 1
    source.connection.close()


@ANY_SERVER
def test_a_table_without_a_written_column_has_empty_rows_and_keeps_no_other_from_being_published(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    settings = settings_of(source, mode="initial", records={"column_include_list": [rf"{source.schema}\.t\.id"]})
    with running(settings) as run:
        run.until(lambda: is_read(run, "t") and is_read(run, "u"), "both are read")
        source.execute("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1, 1)", "UPDATE u SET v = 2", "DELETE FROM u")
        source.execute("CREATE TABLE w (id INT PRIMARY KEY)", "INSERT INTO t VALUES (2)", "INSERT INTO w VALUES (1)")
        run.caught_up(source)
    assert ids(source, "t") == [1, 2]
    seen = [(change.key, change.value["op"], change.value["before"], change.value["after"]) for change in source.changes("u")]
    assert seen == [({"id": 1}, "c", None, {}), ({"id": 1}, "u", {}, {}), ({"id": 1}, "d", {}, None)]
    assert [change.value["after"] for change in source.changes("w")] == [{}]


@ANY_SERVER
def test_flat_rows_never_overwrite_a_column(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, __op INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    with running(settings_of(source, records={"unwrap": True})) as run:
        source.execute("INSERT INTO t VALUES (1, 5)", "INSERT INTO u VALUES (1)")
        run.caught_up(source)
        assert "records.unwrap" in documents(source)["t"]["reason"]
        source.execute("DROP TABLE t", "INSERT INTO u VALUES (2)")
        run.caught_up(source)
        run.until(lambda: not documents(source), "a table that is gone is not set aside")
        assert not run.producer.coordinator.progress()
    assert [record.value["__op"] for record in source.records("u")] == ["c", "c"]
