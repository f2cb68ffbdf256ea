"""Documents that sinks keep, as the jobs of 852fce95 wrote them: they are read, and written alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.json_codec import decode, encode
from spark_jobs.sinks.changelog_events import Appended, read_versioned
from spark_jobs.sinks.files.manifest import EventFile, Manifest, ManifestPart
from spark_jobs.sinks.kafka.kept_changes import KeptStep
from spark_jobs.sinks.kafka.sink_commits import Mirrored, SinkCommit

TABLE = "shop:shop.orders"
APPENDED = '{"ends":{"shop.orders@Xy":{"0":12,"10":3}},"floor":"01","sweeps":["{}"],"floors":["floor"]}'
MANIFEST = (
    '{"v":1,"query_id":"q","batch_id":3,"format":"parquet","parts":[{"source":"shop:shop.orders","events":5,"files":'
    f'[{{"path":"batch=3/orders/part-0.parquet","bytes":812}}]}}],"appended":{{"{TABLE}":{APPENDED}}},'
    '"stamp":{"tidemark":1,"batch_id":3}}'
)
COMMIT = f'{{"v":1,"query_id":"q","batch_id":3,"topic":"ods","topic_id":"Ab","appended":{{"{TABLE}":{APPENDED}}},"stamp":{{"tidemark":1}}}}'
MIRRORED = (
    '{"v":1,"query_id":"q","batch_id":3,"topic":"ods","topic_id":"Ab","appended":{},"stamp":{"tidemark":1},'
    '"mirrored":{"sent":7,"partitions":2}}'
)
STEP = '{"number":4,"batch_id":3,"step":"shop.orders/merge","keys":["id"],"messages":[2,0]}'

UNTIL = {TABLE: Appended({"shop.orders@Xy": {0: 12, 10: 3}}, "01", ("{}",), ("floor",))}
FILES = (EventFile("batch=3/orders/part-0.parquet", 812),)


@pytest.mark.parametrize(
    ("text", "document"),
    [
        (MANIFEST, Manifest("q", 3, "parquet", (ManifestPart(TABLE, 5, FILES),), UNTIL, {"tidemark": 1, "batch_id": 3})),
        (COMMIT, SinkCommit("q", 3, "ods", "Ab", UNTIL, {"tidemark": 1})),
        (MIRRORED, SinkCommit("q", 3, "ods", "Ab", {}, {"tidemark": 1}, Mirrored(7, 2))),
    ],
    ids=["manifest", "commit of a changelog", "commit of a mirror"],
)
def test_versioned_documents_are_read_and_written_alike(text: str, document: Any) -> None:
    assert read_versioned(type(document), text) == document
    assert json.dumps(encode(document), separators=(",", ":")) == text


def test_a_step_of_a_mirror_is_read_and_written_alike() -> None:
    step = KeptStep(4, 3, "shop.orders/merge", ("id",), (2, 0))
    assert decode(KeptStep, json.loads(STEP)) == step
    assert json.dumps(encode(step), separators=(",", ":")) == STEP


def test_a_document_from_before_floors_had_names_is_read() -> None:
    old = json.loads(COMMIT)
    del old["appended"][TABLE]["floors"]
    until = read_versioned(SinkCommit, json.dumps(old)).appended[TABLE]
    assert until.floors == ()
    assert until.has_floor("any", "01")


@pytest.mark.parametrize("key", ["v", "appended", "stamp", "topic_id"])
def test_a_document_without_a_required_key_is_refused(key: str) -> None:
    document = json.loads(COMMIT)
    del document[key]
    with pytest.raises(KeyError, match=key):
        read_versioned(SinkCommit, json.dumps(document))


def test_a_document_of_a_later_version_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="it has version 2, this job knows 1: upgrade it"):
        read_versioned(SinkCommit, COMMIT.replace('"v":1', '"v":2'))
