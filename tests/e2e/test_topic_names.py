"""Topics with another delimiter, from the source to the lake: who reads them looks for them under these names."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from devservers import Database, Kafka
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import create_signal_table
from tests.support.servers import new_database
from tests.support.topics import read_topic


def test_a_delimiter_that_is_in_names_of_databases_too_still_leads_every_row_home(
    mysql80: Database, kafka: Kafka, make_pipeline: MakePipeline
) -> None:
    database = new_database(mysql80)
    assert "_" in database
    with mysql80.connect(database=database) as connection, connection.cursor() as cursor:
        create_signal_table(connection)
        for table in ("t", "t_t", "a$b"):
            cursor.execute(f"CREATE TABLE `{table}` (id INT PRIMARY KEY, v VARCHAR(9))")
            cursor.execute(f"INSERT INTO `{table}` VALUES (1, '{table}'), (2, 'x')")
    pipeline = make_pipeline(
        mysql80,
        database,
        kafka={"bootstrap_servers": kafka.bootstrap_servers, "topic_delimiter": "_"},
        snapshot={"mode": "initial", "readers": 2},
        records={"provide_transaction_metadata": True, "heartbeat_interval_ms": 200},
    )
    tables = ("t", "t_t", r"a\$b")
    pipeline.start("run", "merge")
    pipeline.wait_for_snapshot("t", "t_t", "a$b")
    pipeline.sql("UPDATE t SET v = 'u' WHERE id = 1", "DELETE FROM t_t WHERE id = 2", "INSERT INTO `a$b` VALUES (3, NULL)")
    pipeline.sql("CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (7)")
    pipeline.wait_for_sink("t", "t_t", "a$b")
    pipeline.wait_for_sink("late", consistent=False)
    assert pipeline.assert_equal(*tables, "late").rows == 2 + 1 + 3 + 1

    name = pipeline.name
    servers = pipeline.settings.kafka.bootstrap_servers
    ours = {topic for topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics if name in topic}
    of_tables = {f"{database}_{table}" for table in ("t", "t_t", "a_b", "late")}
    assert ours == {
        name,
        f"{name}_state",
        f"{name}_notifications",
        f"{name}_transaction",
        f"__debezium-heartbeat_{name}",
        f"{name}_{database}_tidemark_signal",
        *(f"{name}_{table}" for table in of_tables),
        *(f"{name}-snapshot_{table}" for table in of_tables),
    }
    assert len(read_topic(servers, f"{name}_{database}_t", raw=True)) == 1

    # Somebody adds partitions to a topic, and keys would move: the producer ends, and does not begin again.
    pipeline.stop("merge")
    wider = NewPartitions(f"{name}_{database}_t_t", pipeline.settings.kafka.partitions + 1)
    admin = AdminClient({"bootstrap.servers": servers})  # kept: its answers end with it
    admin.create_partitions([wider])[wider.topic].result(30)
    words = f"topic {wider.topic} has {wider.new_total_count} partitions, {wider.new_total_count - 1} were expected"
    status, said = pipeline.wait_for_end("run")
    assert (status, said.count(words)) == (1, 1), said
    pipeline.start("run")
    status, said = pipeline.wait_for_end("run")
    assert (status, said.count(words)) == (1, 2), said
