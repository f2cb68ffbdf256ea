"""Shards into one table beside a table into two, by commands as users give them: plan, merge through a kill, rebuild, verify."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import new_database

SHARDS = ("orders_1", "orders_2")
TRANSFORM = {"tables": r".*\.orders_\d", "select": ["*", "amount * 2 AS twice"]}


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    routes = [
        {"tables": r".*\.orders_\d", "into": "ods.orders"},
        {"tables": r".*\.people", "into": "crm.people"},
        {"tables": r".*\.people", "into": "crm.names"},
    ]
    transforms = [TRANSFORM, {"tables": r".*\.people", "into": "crm.names", "select": ["name"]}]
    sink = {"name": "lake", "path": str(tmp_path / "lake"), "routes": routes, "transforms": transforms}
    made = make_pipeline(mysql80, database, snapshot={"mode": "initial", "chunk_rows": 50}, sinks=[sink])
    with made.connect() as connection:
        create_signal_table(connection)
    for number, name in enumerate(SHARDS):
        values = ", ".join(f"({one}, {one * 10 + number})" for one in range(150))
        made.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, amount INT)", f"INSERT INTO {name} VALUES {values}")
    made.sql(
        "CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(20))",
        f"INSERT INTO people VALUES {', '.join(f'({one}, {one!s})' for one in range(60))}",
    )
    return made


def command(pipeline: Pipeline, verb: str, *arguments: str) -> tuple[int | None, str]:
    """The exit code of a command, and all it printed."""
    path = pipeline.folder / f"{verb}-{time.monotonic_ns()}.log"
    child = pipeline.spawn(verb, path, *arguments)
    assert child.wait(180)
    return child.status, path.read_text(encoding="utf-8")


def test_shards_are_planned_merged_through_a_kill_made_again_and_verified(pipeline: Pipeline, tmp_path: Path) -> None:
    code, words = command(pipeline, "plan")
    assert code == 0, words
    orders = ", ".join(f"{pipeline.database}.{name}" for name in SHARDS)
    assert f"  {orders} → ods.orders\n    identity: _tm_source, id\n" in words
    assert "columns:  _tm_source string, id int, amount int, twice int" in words
    assert f"  {pipeline.database}.people → crm.names\n    identity: _tm_key_id\n" in words

    pipeline.start("run", "merge")
    pipeline.wait_for_sink(*SHARDS, "people")
    for name in SHARDS:
        pipeline.sql(f"UPDATE {name} SET amount = amount + 1 WHERE id % 3 = 0", f"DELETE FROM {name} WHERE id % 7 = 0")
    time.sleep(1.0)
    pipeline.kill("merge")
    pipeline.wait_for_killed()
    pipeline.sql("TRUNCATE orders_2", "INSERT INTO orders_2 VALUES (1, 7)", "DELETE FROM people WHERE id < 5")
    pipeline.start("merge")
    pipeline.wait_for_sink(*SHARDS, "people")
    code, words = command(pipeline, "verify")
    assert code == 0, words
    assert "not compared" not in words, "the computed column is compared, too"
    assert "ods.orders: 1 key is of several source tables: id=1" in words

    assert pipeline.stop("merge") == 0
    pipeline.config_path.write_text(pipeline.config_path.read_text("utf-8").replace("amount * 2", "amount * 3"), "utf-8")
    code, words = pipeline_refused(pipeline)
    assert code == 1, words
    assert "ods.orders was built of" in words
    assert "tidemark rebuild --sink lake ods.orders" in words
    code, words = command(pipeline, "rebuild", "--sink", "lake", "ods.orders", "--yes")
    assert code == 0, words
    assert "rebuild: ods.orders emptied in sink lake" in words
    assert "is asked for; start the merge job again" in words
    pipeline.start("merge")
    pipeline.wait_for_sink(*SHARDS, "people")
    rows = DeltaTable(str(tmp_path / "lake" / "ods" / "orders")).to_pyarrow_table().to_pylist()
    assert rows
    assert all(row["twice"] == row["amount"] * 3 for row in rows)
    code, words = command(pipeline, "verify")
    assert code == 0, words
    assert all(f"{pipeline.database}.{name} → ods.orders" in words for name in SHARDS)
    assert pipeline.stop("merge") == 0


def pipeline_refused(pipeline: Pipeline) -> tuple[int | None, str]:
    """What a merge job says that does not start."""
    pipeline.start("merge")
    return pipeline.wait_for_end("merge")
