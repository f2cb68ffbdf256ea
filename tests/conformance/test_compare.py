"""The comparison itself: it sees what differs, and excuses nothing that is not in the list."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.comparison import UNKNOWN, Comparison
from conformance.difference import Difference
from schemas.position import Position
from tests.conformance.__main__ import verdict
from tests.conformance.differences import DIFFERENCES, unneeded
from tests.conformance.falsify import Outcome, changes, falsify
from tests.conformance.generator import Generator
from tests.conformance.listed_events import Log, Truth, listed, truth_of
from tests.conformance.recorded import Recorded
from tests.conformance.scenarios import Scenario
from tests.support.topics import Record

POSITION = "0000.0000000001.000000000100.0000000001"


def field(name: str, kind: str, **more: Any) -> Any:
    return {"type": kind, "optional": True, "field": name, **more}


SOURCE = [field("name", "string"), field("sequence", "string")]
OTHERS = [field("source", "struct", fields=SOURCE), field("op", "string"), field("ts_ms", "int64")]


def record(prefix: str, *, version: Any = None, **row: Any) -> Record:
    def image(name: str) -> Any:
        columns = [{"type": "int32", "optional": True, "field": column} for column in row]
        return {"type": "struct", "fields": columns, "optional": True, "field": name}

    schema = {
        "type": "struct",
        "name": f"{prefix}.conf.t.Envelope",
        "optional": False,
        "fields": [image("before"), image("after"), *OTHERS],
    }
    payload = {
        "before": None,
        "after": row,
        "source": {"name": prefix, "sequence": version},
        "op": "c",
        "ts_ms": 1,
    }
    return Record("t", 0, 0, None, {"schema": schema, "payload": payload}, {})


def problems(left: list[Record], right: list[Record]) -> list[str]:
    comparison = Comparison("random", "left", "right")
    comparison.topic("t", left, right)
    return comparison.problems


def test_equal_records_have_no_problem() -> None:
    assert problems([record("left", a=1)], [record("right", version=POSITION, a=1)]) == []


def test_another_value_name_schema_header_or_number_of_records_is_a_problem() -> None:
    left, right = record("left", a=1), record("right", version=POSITION, a=1)
    assert len(problems([left], [record("right", version=POSITION, a=2)])) == 1
    assert problems([left], [record("right", version=POSITION, b=1)])
    other = copy.deepcopy(right)
    other.value["schema"]["fields"][1]["fields"][0]["optional"] = False
    assert len(problems([left], [other])) == 1
    other = copy.deepcopy(right)
    other.headers["x"] = "y"
    assert len(problems([left], [other])) == 1
    assert len(problems([left, left], [right])) == 1


def test_the_same_seed_gives_the_same_statements() -> None:
    one, other = (list(Generator(7, 5, 200).statements()) for _ in range(2))
    assert one == other
    assert one != list(Generator(8, 5, 200).statements())
    assert {statement.split()[0] for statement in one} >= {"CREATE", "INSERT", "UPDATE", "DELETE", "ALTER"}


def test_an_intended_difference_that_never_comes_fails_the_run(capsys: Any) -> None:
    comparison = Comparison("random", "left", "right", records=1)
    comparison.intended.update(DIFFERENCES)
    assert unneeded([comparison]) == []
    assert verdict([comparison], Outcome(2), complete=True) == 0
    assert "2 falsifications, 2 noticed" in capsys.readouterr().out
    del comparison.intended[DIFFERENCES[-1]]
    assert unneeded([comparison]) == [DIFFERENCES[-1].name]
    assert verdict([comparison], Outcome(2), complete=True) == 1
    assert verdict([comparison], Outcome(2), complete=False) == 0
    assert verdict([comparison], Outcome(), complete=False) == 1
    assert verdict([comparison], Outcome(2, ["a null"]), complete=False) == 1
    assert f"intended difference never seen: {DIFFERENCES[-1].name}" in capsys.readouterr().out


def test_a_run_that_compared_nothing_fails() -> None:
    empty = Comparison("random", "left", "right")
    empty.intended.update(DIFFERENCES)
    assert verdict([], Outcome(2), complete=False) == 1
    assert verdict([empty], Outcome(2), complete=True) == 1


def test_every_intended_difference_is_in_the_docs_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text(encoding="utf-8")
    compared = text.partition("\n## ")[0]  # what follows is of records this suite does not compare
    rows = [line for line in compared.splitlines() if line.startswith("| ") and not line.startswith("| What")]
    assert rows == [f"| {item.name} | {item.reason} |" for item in DIFFERENCES]


def avro_record(prefix: str, kind: Any, value: Any, **more: Any) -> Record:
    row = {"type": "record", "name": "Value", "fields": [{"name": "a", "type": kind, **more}]}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    schema = {"type": "record", "name": "Envelope", "namespace": f"{prefix}.conf.t", "fields": images}
    source = {"name": prefix, "sequence": POSITION if prefix == "right" else None}
    payload = {"before": None, "after": {"a": value}, "source": source, "op": "c", "ts_ms": 1}
    return Record("t", 0, 0, None, {"schema": schema, "payload": payload}, {})


def test_schemas_and_values_of_avro_are_compared_as_those_of_json() -> None:
    left = avro_record("left", "long", 1)
    assert problems([left], [avro_record("right", "long", 1)]) == []
    assert len(problems([left], [avro_record("right", "long", 2)])) == 1
    assert len(problems([left], [avro_record("right", "int", 1)])) == 1
    assert len(problems([left], [avro_record("right", "long", 1, default=1)])) == 1
    small = {"type": "int", "connect.type": "int16"}
    assert problems([avro_record("left", "boolean", True)], [avro_record("right", small, 1)]) == []
    assert len(problems([avro_record("left", "boolean", True)], [avro_record("right", small, 0)])) == 1


def boundary(status: str, ident: str) -> Record:
    counts: tuple[Any, Any] = (None, None) if status == "BEGIN" else (0, [])
    payload = {"status": status, "id": ident, "event_count": counts[0], "data_collections": counts[1], "ts_ms": 1}
    key = {"schema": {}, "payload": {"id": ident}}
    return Record("t", 0, 0, key, {"schema": {}, "payload": payload}, {})


def test_only_boundaries_of_xa_transactions_may_be_ours_alone() -> None:
    both = [boundary("BEGIN", "1"), boundary("END", "1")]
    more = [*both, boundary("BEGIN", "2"), boundary("END", "2")]
    comparison = Comparison("tx", "left", "right")
    comparison.transaction_boundaries("transactions", both, more)
    assert len(comparison.problems) == 1
    comparison = Comparison("tx", "left", "right", xa={"2"})
    comparison.transaction_boundaries("transactions", both, more)
    assert comparison.problems == []


@pytest.mark.parametrize(
    ("debezium", "ours", "is_meant"),
    [
        ('{"a":1,"k":04:05:00.621Z}', '{"a":1,"k":1014-11-03T04:05:00.621Z}', True),
        ('{"k":04:05:00.622Z}', '{"k":1014-11-03T04:05:00.621Z}', False),
        ('{"k":04:05:00.621Z}', '{"k":1970-01-02T04:05:00.621Z}', False),
        ('{"k":1}', '{"k":2}', False),
    ],
)
def test_only_dates_before_1970_may_be_missing_in_headers(debezium: str, ours: str, is_meant: bool) -> None:
    (difference,) = (item for item in DIFFERENCES if item.name.startswith("DATETIME keys before"))
    assert difference.excuses(debezium, ours) == is_meant


def boundary_problems(left: list[Record], right: list[Record]) -> list[str]:
    comparison = Comparison("random", "left", "right")
    comparison.transaction_boundaries("t", left, right)
    return comparison.problems


GEOMETRY = "io.debezium.data.geometry"


def geometry(name: str, *fields: str) -> Any:
    parts = [{"name": item, "type": "double" if item in "xy" else ["null", "bytes"]} for item in fields]
    return {"type": "record", "name": name, "namespace": GEOMETRY, "fields": parts, "connect.name": f"{GEOMETRY}.{name}"}


def test_the_fields_of_a_struct_in_a_row_have_an_order_in_avro_too() -> None:
    kind = ["null", geometry("Point", "x", "y", "wkb")]
    point = {"x": 1.0, "y": 2.0, "wkb": b"\1"}
    left, doc = avro_record("left", kind, point), {"doc": "Geometry (POINT)"}
    assert problems([left], [avro_record("right", kind, dict(point), **doc)]) == []
    assert len(problems([left], [avro_record("right", kind, dict(reversed(point.items())), **doc)])) == 1
    assert len(problems([left], [avro_record("right", kind, {**point, "x": 1}, **doc)])) == 1


def test_the_fields_of_transaction_blocks_and_of_counts_in_ends_have_an_order() -> None:
    blocks = {"id": "a:1", "total_order": 1, "data_collection_order": 1}
    left, right = record("left", a=1), record("right", version=POSITION, a=1)
    for side, block in ((left, blocks), (right, dict(blocks))):
        side.value["payload"]["transaction"] = block
        side.value["schema"] = None
    assert problems([left], [right]) == []
    right.value["payload"]["transaction"] = dict(reversed(blocks.items()))
    assert len(problems([left], [right])) == 1
    ends = [boundary("END", "a:1"), boundary("END", "a:1")]
    for end, entry in zip(ends, ({"data_collection": "d.t", "event_count": 1}, {"event_count": 1, "data_collection": "d.t"}), strict=True):
        end.value["payload"]["data_collections"] = [entry]
    assert boundary_problems(ends[:1], ends[:1]) == []
    assert len(boundary_problems(ends[:1], ends[1:])) == 1


@pytest.mark.parametrize(("name", "doc"), [("Point", "Geometry (POINT)"), ("Geometry", "Geometry")])
def test_a_geometry_has_the_doc_of_its_type_in_avro_and_no_other(name: str, doc: str) -> None:
    other = ({"Geometry", "Geometry (POINT)"} - {doc}).pop()
    for kind in (["null", geometry(name, "wkb")], ["null", f"{GEOMETRY}.{name}"]):
        left = avro_record("left", kind, None)
        reported = avro_record("left", kind, None, doc=doc)  # of Confluent's converter
        assert problems([left], [avro_record("right", kind, None, doc=doc)]) == []
        assert problems([reported], [avro_record("right", kind, None, doc=doc)]) == []
        for false in ({}, {"doc": other}, {"doc": ""}, {"doc": None}):
            assert len(problems([left], [avro_record("right", kind, None, **false)])) == 1
            assert len(problems([reported], [avro_record("right", kind, None, **false)])) == 1
    left = avro_record("left", "long", 1)
    assert len(problems([left], [avro_record("right", "long", 1, doc=doc)])) == 1


@pytest.mark.parametrize(
    ("kind", "own_kind", "default", "own_default", "ours"),
    [
        ("boolean", {"type": "int", "connect.type": "int16"}, True, 1, 1),
        ("int", "int", 5, 5, 5),
        ("double", "double", 1.5, 1.5, 1.5),
    ],
)
def test_a_default_beside_a_default_of_debezium_is_no_null(
    kind: Any, own_kind: Any, default: Any, own_default: Any, ours: Any
) -> None:
    left = avro_record("left", [kind, "null"], default, default=default)
    rights = [avro_record("right", [own_kind, "null"], value, default=own_default) for value in (None, ours)]
    for seen, meant in ((None, [0, 1]), (default, [1, 0]), (UNKNOWN, [0, 0])):
        for right, count in zip(rights, meant, strict=True):
            comparison = Comparison("avro", "left", "right", witness=lambda *_, seen=seen: seen)  # type: ignore[misc]
            comparison.topic("t", [left], [right])
            assert len(comparison.problems) == count, (seen, right.value["payload"], comparison.problems)


def test_a_snapshot_that_debezium_leaves_unset_is_false_on_the_right() -> None:
    left, right = record("left", a=1), record("right", version=POSITION, a=1)
    for side, value in ((left, None), (right, "false")):
        side.value["payload"]["source"]["snapshot"] = value
        side.value["schema"] = None
    assert problems([left], [right]) == []
    for false in (None, "true", False):
        right.value["payload"]["source"]["snapshot"] = false
        assert len(problems([left], [right])) == 1


# ── truth ────────────────────

# As MySQL lists a compressed transaction: the events inside stand at the end of their payload, and have no length.
LISTED: Final = (
    ("b.000001", 4, "Format_desc", 1, 127, ""),
    ("b.000001", 127, "Gtid", 1, 206, ""),
    ("b.000001", 206, "Transaction_payload", 1, 441, "compression='ZSTD', decompressed_size=4424 bytes"),
    ("b.000001", 441, "Query", 1, 441, "BEGIN"),
    ("b.000001", 441, "Table_map", 1, 441, "table_id: 85 (x.a)"),
    ("b.000001", 441, "Write_rows", 1, 441, "table_id: 85 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F"),
    ("b.000001", 441, "Table_map", 1, 441, "table_id: 87 (x.b)"),
    ("b.000001", 441, "Delete_rows", 1, 441, "table_id: 87"),
    ("b.000001", 441, "Table_map", 1, 441, "table_id: 85 (x.a)"),
    ("b.000001", 441, "Update_rows_partial", 1, 441, "table_id: 85 flags: STMT_END_F"),
    ("b.000001", 441, "Xid", 1, 441, "COMMIT /* xid=11 */"),
    ("b.000001", 441, "Gtid", 1, 520, ""),
    ("b.000001", 520, "Transaction_payload", 1, 704, ""),
    ("b.000001", 704, "Query", 1, 704, "BEGIN"),
    ("b.000001", 704, "Table_map", 1, 704, "table_id: 85 (x.a)"),
    ("b.000001", 704, "Write_rows", 1, 704, "table_id: 85 flags: STMT_END_F"),
    ("b.000001", 704, "Xid", 1, 704, "COMMIT /* xid=12 */"),
)


def source_at(pos: int, version: int, ordinal: int, *, row: int = 0, table: str = "a") -> dict[str, Any]:
    sequence = Position(0, 1, version, ordinal).text
    return {"file": "b.000001", "pos": pos, "row": row, "db": "x", "table": table, "sequence": sequence, "snapshot": "false"}


def test_a_row_of_a_compressed_transaction_has_the_position_of_its_payload() -> None:
    truth = Truth(Log({"b.000001": listed(LISTED)}))

    def found(op: str, pos: int, version: int = 127, table: str = "a") -> list[str]:
        return [*truth.objections(op, source_at(pos, version, 1, table=table))]

    assert found("c", 206) == found("u", 206) == found("d", 206, table="b") == found("d", 206) == found("c", 520, 441) == []
    for pos in (127, 205, 207, 441, 520, 704, 4):  # also the position that the server lists the events inside at
        assert len(found("c", pos)) == 1, pos
    assert len(found("c", 206, version=441)) == 1
    assert len(found("c", 206, table="b")) == len(found("u", 206, table="b")) == len(found("c", 206, table="z")) == 1
    assert len(found("u", 520, version=441)) == len(found("d", 520, version=441)) == 1


def test_rows_of_one_payload_keep_their_versions() -> None:
    rows = [
        source_at(206, 127, 1), source_at(206, 127, 2, row=1), source_at(206, 127, 3, table="b"),
        source_at(206, 127, 4), source_at(206, 127, 5, row=1),
    ]  # fmt: skip
    ops = "ccduu"
    records = [
        Record("t", 0, 0, None, {"schema": None, "payload": {"source": row, "op": op}}, {})
        for row, op in zip(rows, ops, strict=True)
    ]
    truth = truth_of([records], [], Log({"b.000001": listed(LISTED)}))
    for number, (row, op) in enumerate(zip(rows, ops, strict=True), 1):
        assert [*truth.objections(op, row)] == []
        for ordinal in {*range(8)} - {number}:
            false = {**row, "sequence": Position(0, 1, 127, ordinal).text}
            assert [*truth.objections(op, false)], (row, ordinal)
        assert [*truth.objections(op, {**row, "row": row["row"] + 1})]


def test_a_row_of_an_xa_transaction_has_the_thread_of_its_neighbours() -> None:
    rows = [source_at(pos, pos, 1) | {"thread": thread} for pos, thread in ((100, 7), (200, 7), (300, 8), (400, 8))]
    records = [Record("t", 0, 0, None, {"schema": None, "payload": {"source": row, "op": "c"}}, {}) for row in rows]
    truth = truth_of([records], [])

    def found(pos: int, thread: Any) -> int:
        return len([*truth.objections("x", source_at(pos, pos, 1) | {"thread": thread})])

    assert found(150, 7) == found(350, 8) == found(250, 7) == found(250, 8) == found(50, 9) == found(450, 9) == 0
    assert found(150, 8) == found(150, 6) == found(150, None) == found(350, 7) == 1


def xa_problems(*threads: Any, turned: bool = False) -> list[str]:
    """Of rows of one XA transaction with these threads, and its BEGIN and END, whose fields may be turned round."""
    source = {"gtid": "a:1", "file": "b.000001", "pos": 100, "ts_ms": 1, "ts_us": 1_000, "ts_ns": 1_000_000, "db": "d", "table": "t"}
    lefts, rights = [], []
    for number, thread in enumerate(threads, 1):
        left, right = record("left", a=1), record("right", version=Position(0, 1, 100, number).text, a=1)
        block = {"id": "a:1", "total_order": number, "data_collection_order": number}
        for side, own, reported in ((left, None, None), (right, thread, block)):
            side.value["payload"]["source"] |= source | {"thread": own}
            side.value["payload"]["transaction"] = reported
            side.value["schema"] = None
        lefts.append(left)
        rights.append(right)
    end = boundary("END", "a:1")
    end.value["payload"] |= {
        "event_count": len(threads), "data_collections": [{"data_collection": "d.t", "event_count": len(threads)}]
    }  # fmt: skip
    if turned:
        end.value["payload"] = dict(reversed(end.value["payload"].items()))
    comparison = Comparison("tx", "left", "right")
    comparison.topic("t", lefts, rights)
    comparison.transaction_boundaries("transactions", [], [boundary("BEGIN", "a:1"), end])
    return comparison.problems


def test_rows_of_an_xa_transaction_have_one_thread_and_fields_of_its_end_an_order() -> None:
    assert len(xa_problems(7, turned=True)) == 1
    assert xa_problems(7) == xa_problems(7, 7) == []
    assert len(xa_problems(None)) == 1
    assert len(xa_problems(7, 8)) == 1
    assert len(xa_problems(7, None)) == 2  # in the record, and beside the other


# ── falsifications ────────────────────


class Blind(Recorded):
    """A scenario whose comparison sees no int32."""

    def comparison(self, truth: Truth) -> Comparison:
        """A comparison that excuses every int32."""
        return replace(super().comparison(truth), differences=(Difference("all", r"int32", lambda *_: True, ""),))


@pytest.mark.parametrize("headers", [{}, {"h": "y"}])
def test_a_difference_hides_no_falsification_that_nobody_notices(headers: dict[str, str]) -> None:
    theirs = replace(record("d_random", a=1), headers=headers)
    ours = record("t_random", version=POSITION, a=1)
    more = {"snapshot": "false", "file": "b.000001", "pos": 100, "row": 0, "db": "conf", "table": "t"}
    for side in (theirs, ours):
        side.value["payload"]["source"] |= more
        kinds = {name: "string" if isinstance(value, str) else "int64" for name, value in more.items()}
        source = field("source", "struct", fields=[*SOURCE, *(field(name, kind) for name, kind in kinds.items())])
        side.value["schema"]["fields"][2] = source
        side.value["payload"]["ts_ms"] = 1_700_000_000_000
    recorded = Blind(Scenario("random", ("conf",)), {"conf.t": ([theirs], [ours])})
    truth = truth_of([[ours]], [])
    assert recorded.compared(truth).differing == len(headers)
    missed = falsify(recorded, truth).missed
    assert missed
    assert [kind for kind in missed if "<int32?>" not in kind] == []


def ways(document: Any, *, is_schema: bool) -> set[tuple[tuple[Any, ...], str]]:
    return {(path, way) for path, way, _ in changes(document, (), is_schema=is_schema)}


def test_properties_of_a_schema_have_no_order_and_fields_of_records_and_members_of_unions_do() -> None:
    schema = {"type": "record", "fields": [{"name": "a", "type": ["null", {"type": "int", "connect.type": "int16"}]}, {"name": "b", "type": "int"}]}
    found = {path for path, way in ways(schema, is_schema=True) if way == "in another order"}
    assert found == {("fields",), ("fields", 0, "type")}


def test_fields_of_a_payload_have_an_order_whatever_they_are_called() -> None:
    payload = {"type": "CREATE", "name": "t", "parameters": {"a": 1, "b": 2}}
    found = {path for path, way in ways(payload, is_schema=False) if way == "in another order"}
    assert found == {(), ("parameters",)}
