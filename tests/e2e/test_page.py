"""The page beside a pipeline: what each view says, against what the test knows, while it works and while a process is dead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from devservers import Database
from schemas.batch_stages import STAGES
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.page_client import PageClient, page_of_log
from tests.support.servers import new_database


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline) -> Pipeline:
    made = make_pipeline(mysql80, new_database(mysql80), service={"page_port": 0}, snapshot={"mode": "never", "chunk_rows": 50})
    with made.connect() as connection:
        create_signal_table(connection)
    made.sql(
        "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO items WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 400) SELECT i, 'one' FROM n",
        "CREATE TABLE others (id INT PRIMARY KEY)",
    )
    return made


def produce(bootstrap_servers: str, topic: str, key: bytes, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def word_of(page: PageClient) -> str:
    (sink,) = page.json("overview")["sinks"]
    return sink["word"]


def row_of(page: PageClient, table: str) -> dict[str, object]:
    return next(one for one in page.json("tables") if one["table"] == table)


def is_newest_of(table: str, column: str) -> Callable[[Any], bool]:
    """Return whether the newest change is one of that table and changes that column."""

    def is_newest(document: Any) -> bool:
        return any(
            one["table"] == table and column in [cell["name"] for cell in one["changed"]] for one in document["changes"][:1]
        )

    return is_newest


@pytest.mark.timeout(600)
def test_the_page_says_what_is_true_of_a_pipeline_and_starts_snapshots(pipeline: Pipeline) -> None:
    items = f"{pipeline.database}.items"
    pipeline.start("page")
    page = page_of_log(pipeline.log_path("page"))
    page.wait("the first look", "overview", lambda _: True)
    assert word_of(page) == "unknown"  # nothing was started
    pipeline.start("run", "merge")
    pipeline.wait_for_log()
    pipeline.sql("INSERT INTO others VALUES (1)", "UPDATE items SET name = 'two' WHERE id = 7")
    page.json("changes")

    assert page.post("/snapshots/start", {"tables": items}).status == 401  # nobody has signed in
    assert page.sign_in().status == 303
    started = page.post("/snapshots/start", {"tables": items.replace(".", r"\.")})
    assert started.status == 303, started
    signal_id = started.headers["location"].partition("sent=")[2]
    found = page.wait("the snapshot", "snapshots", lambda found: found["requests"] and found["requests"][0]["state"] == "done")
    assert found["requests"][0]["id"] == signal_id
    assert found["requests"][0]["rows_read"] == 400
    pipeline.wait_for_sink("items")
    pipeline.sql("ALTER TABLE items ADD COLUMN price INT", "UPDATE items SET price = 3, name = 'three' WHERE id = 7")
    pipeline.wait_for_sink("items")
    page.wait_for_look()  # an older one is as well, and has not seen the last batch

    nothing_left = {"lag_s": 0.0, "records": 0, "unknown": None}
    overview = page.wait("all to be well", "overview", lambda found: found["sinks"][0]["to_sink"] == nothing_left)
    assert overview["sinks"][0]["word"] == "running"
    assert overview["tables"] == {"captured": 2, "consistent": 1, "snapshotting": 0, "set_aside": 0, "quarantined_records": 0}
    page.wait("the second version", "tables", lambda _: row_of(page, items)["schema_version"] == 2)
    row = row_of(page, items)
    assert row["sinks"][0]["merged"] == {one.table: one.sink_rows for one in pipeline.status().tables}[items]
    assert row["sinks"][0]["state"].startswith("consistent")
    change = page.wait("the last change", "changes", is_newest_of(items, "price"))["changes"][0]
    assert (change["operation"], change["key"]) == ("update", "id=7")
    assert {cell["name"]: (cell["before"], cell["after"]) for cell in change["changed"]} == {
        "name": ("two", "three"),
        "price": ("NULL", "3"),
    }
    history = page.get(f"/api/v1/schema/{items}").document
    assert history["events"][0]["ddl"] == "ALTER TABLE items ADD COLUMN price INT"
    assert [one["name"] for one in history["events"][0]["difference"]["added"]] == ["price"]
    (sink,) = page.wait("all batches", "sinks", lambda found: sum(one["records"] for one in found[0]["batches"]) >= 402)
    assert all(one[stage] >= 0 for one in sink["batches"] for stage in STAGES)
    checks = page.wait("the checks", "checks", lambda found: found["ended_ms"] is not None and not found["running"], 90)
    assert "kafka" in checks["checked"]
    for view in ("", "tables", "changes", "snapshots", "schema", "sinks", "checks", "problems", f"schema/{items}", "sign-in"):
        answer = page.get(f"/{view}")
        assert answer.status == 200, (view, answer.text)

    pipeline.kill("merge")
    page.wait("the killed merge job", "overview", lambda found: found["sinks"][0]["word"] == "dead", 30)
    assert any("tidemark merge" in one["advice"] for one in page.json("problems"))
    pipeline.start("merge")
    page.wait("the merge job again", "overview", lambda found: found["sinks"][0]["word"] == "running", 90)
    assert pipeline.stop("page") == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_record_that_cannot_be_read_is_shown_and_retried(pipeline: Pipeline) -> None:
    pipeline.start("run", "merge", "page")
    page = page_of_log(pipeline.log_path("page"))
    page.sign_in()
    pipeline.wait_for_log()
    pipeline.sql("INSERT INTO others VALUES (1)")
    pipeline.wait_for_sink("others", consistent=False)
    produce(pipeline.kafka.bootstrap_servers, f"{pipeline.name}.{pipeline.database}.others", b"key", b"no Avro")
    page.wait("the quarantine", "sinks", lambda found: found[0]["quarantine"], 90)

    detail = page.get("/api/v1/sinks/lake").document
    (group,) = detail["quarantine"]["groups"]
    assert (group["table"], group["records"]) == (f"{pipeline.database}.others", 1)
    counted = {one["table"]: one["files"] for one in detail["files"]["tables"]}
    assert counted == {f"{pipeline.database}.others": 1}
    assert any("quarantine" in one["what"] for one in page.json("problems"))
    assert word_of(page) == "needs_a_person"

    def retried() -> dict[str, object]:
        assert page.post("/sinks/lake/retry", {"table": group["table"]}).status == 303
        assert page.post("/sinks/lake/retry", {"table": group["table"]}).status == 400  # one runs
        deadline = time.monotonic() + 120
        while (found := page.get("/api/v1/sinks/lake").document["retry"])["running"]:
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
        return found

    beside = retried()
    assert beside["code"] == 1, beside  # the merge job has the sink
    pipeline.stop("merge")
    alone = retried()
    assert alone["code"] == 1, alone  # it still cannot be read
    assert "0 merged and out of quarantine, 1 still in it" in str(alone["said"]), alone
    assert "no Avro" not in page.get("/sinks/lake").text  # what a record says is shown by no page
