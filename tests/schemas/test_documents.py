"""Documents that earlier versions wrote are read, and what is written has not changed by one byte.

`recorded/documents.json` was written by the code before there was one codec (46889e1), a text per kind and variant.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.documents import OffsetDocument, RequestDocument, TaskDocument, WindowDocument
from schemas.errors import StateError
from schemas.identity import SourceId
from schemas.json_codec import decode, encode
from schemas.merge_progress import MergeProgress
from schemas.merge_rule import NOTHING, TableState
from schemas.position import Position
from schemas.state import KINDS, State, StateRecords, kind_of, parse, partition_of, value_of

RECORDED = json.loads((Path(__file__).parent / "recorded" / "documents.json").read_text(encoding="utf-8"))
DOCUMENTS = [one for one in RECORDED if one["key"] and one["kind"] != "marker"]
SHOP = SourceId("shop")


def recorded(kind: str) -> list[dict[str, Any]]:
    return [json.loads(one["text"]) for one in RECORDED if one["kind"] == kind]


@pytest.mark.parametrize("one", DOCUMENTS, ids=lambda one: one["key"])
def test_a_document_of_the_state_topic_is_read_and_written_byte_by_byte(one: dict[str, str]) -> None:
    kind = kind_of(one["key"])
    assert kind is not None
    document = parse(kind, one["key"], json.loads(one["text"]))
    assert value_of(document).decode() == one["text"]
    if hasattr(document, "key"):
        assert document.key == one["key"]


def test_the_merge_job_s_memory_of_markers_is_read_and_written_byte_by_byte() -> None:
    for document in recorded("merge-state"):
        state = TableState.from_json(document)
        assert json.dumps(state.to_json()) == json.dumps(document)
        old = {name: value for name, value in document.items() if name not in {"emptied", "swept", "gap"}}
        assert TableState.from_json(old) == replace(state, emptied=NOTHING, swept=NOTHING, gap=None)
        for name in set(document) - {"emptied", "swept", "gap"}:
            with pytest.raises(KeyError):
                TableState.from_json({key: value for key, value in document.items() if key != name})


def test_every_kind_of_document_was_recorded() -> None:
    assert {kind_of(one["key"]) for one in DOCUMENTS} == set(KINDS.values())


def test_the_progress_file_is_read_and_written_byte_by_byte() -> None:
    (document,) = recorded("progress")
    progress = decode(MergeProgress, document)
    assert json.dumps(encode(progress)) == json.dumps(document)
    assert progress.tables["shop.b"].applied_position is None


@pytest.mark.parametrize(
    ("kind", "key", "missing", "expected"),
    [
        ("request", "request/r2", ["blocking"], {"blocking": False}),
        ("table", "table/r2/shop.b", ["merge", "surrogate", "children"], {"merge": "spark", "surrogate": None, "children": None}),
        ("window", "window/w1", ["readers"], {"readers": 0}),
        ("offset", "offset", ["v", "last", "inherited"], {"last": None, "inherited": ""}),
        ("alive", "alive", ["since_ms", "machine", "batch"], {"since_ms": None, "machine": "", "batch": {}}),
        ("schema", "schema/shop.a", ["comment"], {"comment": None}),
    ],
)
def test_fields_that_older_versions_did_not_have_have_a_meaning(
    kind: str, key: str, missing: list[str], expected: dict[str, object]
) -> None:
    old = {name: value for name, value in recorded(kind)[-1 if kind != "offset" else 1].items() if name not in missing}
    found = kind_of(key)
    assert found is not None
    document = parse(found, key, old)
    assert {name: getattr(document, name) for name in expected} == expected


def test_a_request_without_its_state_is_refused_with_the_field() -> None:
    (first, _) = recorded("request")
    del first["state"]
    with pytest.raises(StateError, match=r"request/r1 in the state topic cannot be understood \(KeyError\('state'\)\)"):
        parse(RequestDocument, "request/r1", first)


@pytest.mark.parametrize(
    ("kind", "key", "change"),
    [
        (OffsetDocument, "offset", {"pos": "12"}),
        (OffsetDocument, "offset", {"part": {"rows": 3}}),
        (RequestDocument, "request", {"origin": "elsewhere"}),
        (RequestDocument, "request", {"tables": "shop.a"}),
        (RequestDocument, "request", {"started": 1}),
        (TaskDocument, "table", {"outstanding": [[1, None, None, 0]]}),
        (TaskDocument, "table", {"first_bound": "12"}),
        (WindowDocument, "window", {"chunk": True}),
    ],
)
def test_a_value_of_another_type_is_refused(kind: type[Any], key: str, change: dict[str, object]) -> None:
    with pytest.raises(StateError, match="cannot be understood"):
        parse(kind, key, recorded(key)[0] | change)


def test_an_offset_of_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(StateError, match="of version 4: a newer Tidemark wrote it"):
        parse(OffsetDocument, "offset", recorded("offset")[0] | {"v": 4})


def test_unknown_fields_are_ignored_but_those_of_columns() -> None:
    assert parse(WindowDocument, "window/w1", recorded("window")[0] | {"new": 1}).id == "w1"
    (catalog,) = recorded("catalog")
    catalog["columns"][0]["invisible"] = True
    kind = kind_of("catalog/shop.a")
    assert kind is not None
    with pytest.raises(StateError, match="unknown fields: invisible"):
        parse(kind, "catalog/shop.a", catalog)


def test_the_newest_record_of_a_key_counts_and_one_without_value_deletes() -> None:
    records = StateRecords("shop.state", SHOP, skipped=("registered/",))
    window = recorded("window")[0]
    for key, value in (
        (b"window/w1", json.dumps(window | {"chunk": 1})),
        (b"window/w2", json.dumps(window | {"id": "w2"})),
        (b"registered/1/x", "not even JSON"),
        (None, "{}"),
        (b"window/w1", json.dumps(window)),
        (b"window/w2", None),
        (b"window/w3", None),
        (b"offset", json.dumps(recorded("offset")[0])),
    ):
        records.apply(key, None if value is None else value.encode())
    state = records.state
    assert list(state) == ["window/w1", "offset"]
    assert state.all(WindowDocument)["window/w1"].chunk == window["chunk"]
    assert state.committed == Position(1, 1, 157).of(SHOP)
    records.apply(b"offset", None)
    assert (records.state.committed, state.committed is None) == (None, False), "a state does not change"


@pytest.mark.parametrize("record", [(b"offset", b"{"), (b"\xff", b"{}"), (b"offset", b"\xff")])
def test_a_record_that_is_not_one_of_ours_is_a_state_error(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(StateError, match=r"topic shop\.state has a record that is not one of ours"):
        StateRecords("shop.state", SHOP).apply(*record)


def test_the_offset_has_a_partition_of_its_own() -> None:
    assert [partition_of(key) for key in ("offset", "alive", "window/w1", "inexact")] == [0, 1, 1, 1]


def test_documents_of_a_newer_version_are_carried_along() -> None:
    state = State({"pipelines/x": {"v": 7}}, SHOP)
    assert kind_of("pipelines/x") is None
    assert (state["pipelines/x"], len(state), state.one(OffsetDocument)) == ({"v": 7}, 1, None)
