"""`python -m conformance --snapshots` over a real broker: rows of quiet tables."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from conformance.__main__ import main
from tests.integration.test_compare_prefixes import TABLES, World, reported
from tests.integration.test_golden import snapshot_is_done
from tests.support.producing import RunningProducer
from tests.support.servers import database, drop_database


def test_rows_of_quiet_tables_are_compared_when_asked_and_the_signal_table_is_not(
    kafka: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(database("mysql80"), kafka, {"type": "json", "schemas": True})
    world.execute(*TABLES[:2])
    for number in range(150):
        world.execute(f"INSERT INTO t (id, v) VALUES ({number}, 'x')")
    for name, partitions in ((world.left, 2), (world.right, 3)):
        signals = {"signal_table": f"{world.schema}.signals"}
        snapshot = {"mode": "initial", "merge": "producer", "readers": 2, "chunk_rows": 40}
        settings = world.settings(name, partitions, source=signals, snapshot=snapshot)
        with RunningProducer(settings) as producer:
            producer.wait_until("the snapshot is done", snapshot_is_done)
            world.read_to_end(producer)
    file = tmp_path / "tidemark.yaml"
    source = {"host": "nowhere", "user": "u", "tables": [".*"], "signal_table": f"{world.schema}.signals"}
    kafka_settings = {"bootstrap_servers": kafka.bootstrap_servers}
    file.write_text(yaml.safe_dump({"name": world.right, "source": source, "kafka": kafka_settings}))
    sides = ["--left", world.left, "--right", world.right, "--config", str(file)]
    code = main([*sides, "--snapshots", rf"{world.schema}\..*"])
    lines, (records, differences, _) = reported(capsys)
    assert (code, differences) == (0, 0), "\n".join(lines)
    assert records >= 150
    assert any(line == f"not compared, as asked: {world.schema}.signals" for line in lines)
    assert main([*sides]) == 1  # rows of snapshots left out, nothing is compared
    _, (records, differences, _) = reported(capsys)
    assert (records, differences) == (0, 0)
    world.connection.close()
    drop_database(world.server, world.schema)
