"""Documents of the merge job that earlier versions wrote are read, and the documents of today have the same content.

`recorded/documents.json` was written by the code at 4558273e, which had its own code for each document.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import SinkError
from schemas.identity import SourceId, SourceTable, Target
from schemas.json_codec import decode
from schemas.merge_progress import MergeProgress, SetAside
from schemas.merge_rule import Gap
from spark_jobs.merge.job_state import JobStates, MergeState, Naming
from spark_jobs.merge.load_record import DoneLoad
from spark_jobs.merge.progress_report import publish_progress
from spark_jobs.merge.schema_sources import UsedSchemas
from spark_jobs.sinks.contract import FedBy, TargetRecord
from spark_jobs.sinks.memory_sink import MemoryStates
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import PROGRESS
from tests.merge.lake import at

RECORDED = json.loads((Path(__file__).parent / "recorded" / "documents.json").read_text(encoding="utf-8"))
SHOP = SourceId("shop")
ORDERS, DOTTED = SourceTable.of(SHOP, "shop", "orders"), SourceTable.of(SHOP, "shop", "a.b")
ALL = Target("lake", "shop.all")


def recorded(kind: str) -> list[str]:
    return [one["text"] for one in RECORDED if one["kind"] == kind]


def states() -> tuple[MemoryStates, list[MergeState]]:
    store = MemoryStates({})
    for number, text in enumerate(recorded("job-state"), 7):
        store.save(number, text)
    naming = Naming(SHOP, "lake", lambda name, _: (name.split(".")[0], name.split(".")[1]))
    own = JobStates(store, naming)
    loaded = [own.load("q-1", number) for number in (7, 8)]
    for state in loaded:
        own.save(state)
    return store, loaded


def test_the_state_of_the_job_is_read() -> None:
    _, (first, routed) = states()
    assert (first.query_id, first.batch_id, first.retired, first.topics) == (
        "q-1", 7, ("shop/orders/5",), {"shop.shop.orders": "t1"},
    )  # fmt: skip
    record = first.source(ORDERS)
    assert record.state.gap == Gap({0: 3}, frozenset({1}), at(4).text)
    assert record.set_aside == SetAside("its topic is gone", 1000, 2, 2000, is_recreated=True)
    assert (record.merged, record.change_offsets, record.trimmed) == (12, {10: 4, 2: 7}, {1: 6, 0: 2})
    assert (record.keyed_by, record.written_by) == ((3, at(2).text), (4, at(3).text))
    assert [(one.path, one.count, one.keys) for one in record.tombstones] == [("shop/orders/7", 3, {"id": "int", "a b": "string"})]
    assert [(one.window, one.rows, one.error, one.server) for one in record.loads.answers] == [
        ("w1", 20, "", "s-1"), ("w2", 0, "no column ä", ""),
    ]  # fmt: skip
    assert [(one.window, one.query) for one in record.loads.pending] == [("w3", "SELECT 'ä'")]
    assert record.loads.done["w1"] == DoneLoad(at(3).text, is_put=True)
    assert (record.feeds, record.is_recreated, first.source(DOTTED).feeds) == (None, True, None)
    assert first.target(Target("lake", "shop.orders")) == TargetRecord(7, (1, 90), ("id",), 3)
    assert routed.targets == {ALL: TargetRecord(8, None, (), 1, {ORDERS.text: FedBy(("id",), ("id", "note"))})}
    assert (routed.source(ORDERS).feeds, routed.source(ORDERS).superseded) == ({ALL.text: "d41d8"}, (5,))


def test_a_state_that_is_written_again_has_the_same_content() -> None:
    """Answers are objects now, and a table without loads has no `loads`."""
    store, _ = states()
    for number, text in zip((7, 8), recorded("job-state"), strict=True):
        before, after = json.loads(text), json.loads(store.load(number))
        for name, table in before["tables"].items():
            written = after["tables"][name]
            assert table.pop("loads", None) is None or written.pop("loads")["done"]
            assert "loads" not in written
            assert dict(table) == written
        assert before == after


@pytest.mark.parametrize("name", ["state", "tombstones", "merged", "change_offsets", "skipped", "last_commit", "key_range"])
def test_an_entry_that_lacks_what_every_version_wrote_is_refused(name: str) -> None:
    store = MemoryStates({})
    document: dict[str, Any] = json.loads(recorded("job-state")[0])
    del document["tables"]["shop.orders"][name]
    store.save(7, json.dumps(document))
    with pytest.raises(SinkError, match="cannot read the merge job's state of batch 7"):
        JobStates(store, Naming(SHOP, "lake", lambda name, _: (name, name))).load("q-1", 7)


def test_the_used_schemas_are_read_and_written_again(tmp_path: Path) -> None:
    files, (text,) = LocalFiles(tmp_path), recorded("used-schemas")
    files.write("schemas/shop/orders/schemas.json", text)
    used = UsedSchemas(files, "schemas")
    assert used.known("shop/orders", "key") == (RegisteredSchema(3, '{"type": "int"}'),)
    assert used.known("shop/orders", "value") == (RegisteredSchema(4, '{"type":"string"}'), RegisteredSchema(5, "ä"))
    used.noted("shop/orders", "key", [RegisteredSchema(9, '{"type": "long"}')])
    document = json.loads(text)
    document["key"].append({"id": 9, "schema": '{"type": "long"}'})
    assert json.loads(files.read("schemas/shop/orders/schemas.json")) == document


def test_the_progress_file_is_written_as_before(tmp_path: Path) -> None:
    _, (state, _) = states()
    publish_progress(LocalFiles(tmp_path), state, caught_up=True)
    before = json.loads(recorded("progress")[0])
    after = json.loads((tmp_path / PROGRESS).read_text(encoding="utf-8"))
    table = {name: value for name, value in before["tables"]["shop.orders"].items() if name not in {"delays", "recent_delays"}}
    assert list(after["tables"]["shop.orders"].items()) == list(table.items())
    assert decode(MergeProgress, before).tables["shop.orders"].delays is not None
