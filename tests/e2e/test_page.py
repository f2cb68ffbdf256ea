"""The page beside a pipeline with a record that cannot be read. `test_operations` has what it says of a pipeline that works."""

from __future__ import annotations

import time

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.page_client import page_of_log
from tests.support.record_producer import RecordProducer
from tests.support.servers import new_database


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline) -> Pipeline:
    made = make_pipeline(mysql80, new_database(mysql80), service={"page_port": 0}, snapshot={"mode": "never"})
    with made.connect() as connection:
        create_signal_table(connection)
    made.sql("CREATE TABLE others (id INT PRIMARY KEY)")
    return made


def produce(bootstrap_servers: str, topic: str, key: bytes, value: bytes) -> None:
    producer = RecordProducer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, value, key)
    producer.flush(30)


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
    assert page.word() == "needs_a_person"

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
