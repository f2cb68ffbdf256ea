"""`tidemark tables`: a status becomes a line for each table and sink, and why a table is not consistent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.position import Position
from tests.cli.test_status import LOG, documents, progress, status_of, task
from tidemark import cli
from tidemark.commands.table_list import as_json, as_text
from tidemark.status.captured_tables import CapturedTable, captured_tables, inconsistency
from tidemark.status.job_standing import SinkFacts
from tidemark.status.status_tree import FOLLOWING, Status, TableStatus

NOW_MS = 1_000_000


def status(**values: object) -> Status:
    return status_of(documents(), progress(**values), NOW_MS)


def tables(found: Status, rows: Any = None) -> list[CapturedTable]:
    return list(captured_tables({"lake": found}, {"shop.orders": NOW_MS - 5_000}, {"shop.orders": 3}, rows))


def test_a_table_has_snapshot_version_last_record_and_its_state_in_the_sink() -> None:
    orders, quiet = tables(status())
    assert (orders.table, orders.snapshot, orders.rows_read, orders.version) == ("shop.orders", "running", 400, 3)
    assert orders.last_record_ms == NOW_MS - 5_000
    assert orders.sinks["lake"].why_not == "its snapshot is running"
    assert orders.sinks["lake"].merged == 77
    assert (quiet.snapshot, quiet.version, quiet.last_record_ms) == (None, None, None)
    assert quiet.sinks["lake"].why_not.startswith("it was never read")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (TableStatus(table="t", consistent_at=LOG), ""),
        (TableStatus(table="t", consistent_at=LOG, inexact=FOLLOWING), FOLLOWING),
        (TableStatus(table="t", consistent_at=LOG, released=True), "it is not captured any more: it stays as it was"),
        (TableStatus(table="t", consistent_at=LOG, set_aside="no key"), "it is set aside: no key"),
        (TableStatus(table="t", skipped="it has no key"), "it does not go into this sink: it has no key"),
        (TableStatus(table="t", snapshot="done"), "its snapshot is not merged to its end yet"),
        (TableStatus(table="t", snapshot="done", partial=True), "it was read with a condition: the other rows are missing"),
        (TableStatus(table="t", snapshot="failed", error="no SELECT"), "its snapshot is failed: no SELECT"),
        (TableStatus(table="t", snapshot="running", waits="load"), "its snapshot is running, waiting: load"),
    ],
)
def test_why_a_table_is_not_consistent(table: TableStatus, reason: str) -> None:
    assert inconsistency(table)[1] == reason


def test_the_text_has_a_line_for_each_table_and_the_reasons() -> None:
    lines = as_text(tables(status()), ["versions are new"], NOW_MS).splitlines()
    assert lines[0].split() == ["table", "columns", "snapshot", "read", "last", "record", "sink", "merged", "consistent", "lag"]
    assert lines[1].split("  ")[0] == "shop.orders"
    assert "version 3  running   400 of about 1,000  5 s ago      lake  77      no          unknown" in lines[1]
    assert "shop.orders: its snapshot is running" in lines
    assert any(line.startswith("shop.orders: lag unknown: ") for line in lines)
    assert lines[-1] == "note: versions are new"


def test_rows_that_were_counted_are_shown_and_those_that_were_not_have_the_reason() -> None:
    found = tables(status(), {"lake": {"shop.orders": {"shop.orders": 1_234}, "shop.quiet": {"shop.quiet": "there is no table yet"}}})
    text = as_text(found, [], NOW_MS)
    assert "1,234" in text
    assert "shop.quiet: rows not counted: there is no table yet" in text
    document = json.loads(as_json(found, [], NOW_MS))
    assert document["tables"][0]["sinks"]["lake"]["rows"] == {"shop.orders": 1_234}


def test_each_sink_has_a_line_and_is_named_where_there_are_several() -> None:
    done = documents() | {"table/r2/shop.orders": task(2, "shop.orders", state="done", rows=1_000)}
    merged = status_of(done, progress(consistent_at=Position(0, 1, 4).text), NOW_MS)
    found = list(captured_tables({"lake": merged, "copy": status()}, {}, {}))
    lines = as_text(found, [], NOW_MS).splitlines()
    assert lines[1].split()[0] == "shop.orders"
    assert lines[2].split()[0] == "copy"
    assert any(line.startswith("shop.orders: in copy: its snapshot is running") for line in lines)


def test_without_a_sink_tables_have_none() -> None:
    found = list(captured_tables({"": status_of(documents(), {}, NOW_MS, SinkFacts(has_sink=False))}, {}, {}))
    assert found[0].sinks == {}
    assert "shop.orders" in as_text(found, [], NOW_MS)
    assert "no captured table has topics yet" in as_text([], [], NOW_MS)


def test_a_wrong_pattern_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tables", "shop.("]) == 2
    assert "'shop.(' is no regular expression" in capsys.readouterr().err
