"""`tidemark snapshot`: what it sends, and what it shows of requests."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from schemas.documents import SnapshotState
from tests.cli.test_snapshot_list import documents, listed
from tidemark import cli
from tidemark.commands import signal
from tidemark.commands.snapshot_actions import as_text
from tidemark.commands.snapshot_progress import SnapshotDisplay, figures_of


def data_of(*arguments: str) -> tuple[str, Any]:
    parsed = cli.parser().parse_args(["snapshot", *arguments])
    text = signal.data_of(parsed)
    signal.prepared(parsed)
    return parsed.type, None if text is None else json.loads(text)


def test_each_action_is_a_signal() -> None:
    assert data_of("start", "shop\\.a", "--where", "shop\\.a: id > 5", "--via", "kafka", "--wait") == (
        "execute-snapshot",
        {
            "data-collections": ["shop\\.a"],
            "type": "INCREMENTAL",
            "additional-conditions": [{"data-collection": "shop\\.a", "filter": "id > 5"}],
            "via": "kafka",
        },
    )
    assert data_of("pause") == ("pause-snapshot", None)
    assert data_of("resume", "--wait") == ("resume-snapshot", None)
    assert data_of("stop") == ("stop-snapshot", None)
    assert data_of("stop", "shop\\.a") == ("stop-snapshot", {"data-collections": ["shop\\.a"]})


@pytest.mark.parametrize("arguments", [["start"], ["pause", "shop.a"], ["list", "--output", "xml"], []])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["snapshot", *arguments])
    assert ended.value.code == 2


def test_the_list_shows_each_request_with_its_tables() -> None:
    found = listed(documents())
    earlier = documents()
    earlier["table/r2/shop.orders"]["rows"] -= 200
    lines = as_text(found.with_rates(listed(earlier, found.read_ms - 2_000))).splitlines()
    assert lines[0].startswith("the producer is unknown: `tidemark run` was not started"), "what looks as if it ran, nobody reads"
    assert lines[2:] == [
        "r1  done  asked for by a signal 1970-01-01 00:00:00Z, ended 1970-01-01 00:15:00Z",
        "  table        state  rows read  of about  read  rows/s  ETA  chunks  via",
        "  shop.orders  done   1,200      1,000     100%  -       -    0       kafka",
        "",
        "r2  running  asked for by a signal 1970-01-01 00:00:00Z",
        "  table        state    rows read  of about  read  rows/s  ETA  chunks          via",
        "  shop.orders  running  400        1,000     40%   100     6 s  4 of 4 or more  kafka",
        "  shop.items   queued   0          -         -     -       -    0 of 0 or more  kafka",
    ]


def test_a_list_without_snapshots_says_so() -> None:
    assert as_text(listed({})) == "no snapshot is known: none was asked for, or all are long done"
    assert [one.id for one in listed(documents()).running_only.requests] == ["r2"]


def test_notes_of_a_table_are_below_it() -> None:
    known = documents()
    known["table/r2/shop.orders"] |= {"condition": "id > 5", "via_reason": "it has a condition", "error": "no primary key"}
    text = as_text(listed(known))
    assert "  shop.orders: only rows with id > 5\n" in text
    assert "  shop.orders: rows go through Kafka: it has a condition\n" in text
    assert "  shop.orders: no primary key" in text


def test_the_figures_of_a_table_leave_out_what_is_not_known() -> None:
    orders, items = listed(documents()).requests[1].tasks
    assert figures_of(replace(orders, rows_per_s=100.0)) == "running, 400 of about 1,000 rows (40%), 100 rows/s, 6 s left"
    assert figures_of(items) == "queued, 0 rows"
    assert figures_of(replace(orders, state=SnapshotState.DONE, rows=1_100)) == "done, 1,100 rows"
    assert figures_of(replace(orders, waits="Threads_running 87 > 50")).endswith("waiting: Threads_running 87 > 50")


def test_a_file_gets_lines_and_a_silent_producer_is_named() -> None:
    file = io.StringIO()
    found = listed(documents())
    with SnapshotDisplay(Console(file=file, width=80)) as display:
        display.show(found.requests[1], found, "the producer has been silent for 20 s")
        display.show(found.requests[1], found)
    assert file.getvalue() == (
        "r2: running, 0 of 2 tables ended | shop.orders running, 400 of about 1,000 rows (40%) | shop.items queued, 0 rows | "
        "the producer has been silent for 20 s\n"
    ), "one line in five seconds"


def test_the_last_line_in_a_file_says_how_many_tables_failed() -> None:
    known = documents()
    known["table/r1/shop.orders"] |= {"state": "failed", "error": "the server went away"}
    file, found = io.StringIO(), listed(known)
    with SnapshotDisplay(Console(file=file, width=80)) as display:
        display.show(found.requests[0], found)
    assert file.getvalue() == "r1: done, 1 failed, 1 of 1 tables ended\n"


def test_a_terminal_gets_a_bar_for_each_table() -> None:
    file = io.StringIO()
    found = listed(documents())
    with SnapshotDisplay(Console(file=file, width=160, force_terminal=True)) as display:
        display.show(found.requests[1], found)
    text = file.getvalue()
    assert "━" in text
    assert "running, 400 of about 1,000 rows (40%)" in text
    assert "shop.items" in text
