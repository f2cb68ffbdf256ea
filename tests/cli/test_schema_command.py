"""`tidemark schema` and `tidemark offsets`: facts as text and as JSON."""

from __future__ import annotations

import pytest

from producer.source.retention import ResumePosition, reckon
from schemas.documents import OffsetDocument, PartDocument, ResumePoint, TransactionStart
from tests.cli.test_schema_history import ID, KIND, NAME, ORDERS, PRICE, model, record, start
from tidemark import cli
from tidemark.api.schema_history import columns_of, difference, history_of
from tidemark.api.source_log import SourceLog
from tidemark.commands import schema_versions
from tidemark.commands.committed_offset import as_document, as_text
from tidemark.commands.schema_versions import difference_lines, history_lines

OFFSET = OffsetDocument(0, "binlog.000003", 1155, "u:1-9", "u", committed_ms=1_000_000)


def source(size: int = 2000) -> SourceLog:
    room = reckon({"binlog.000002": 900, "binlog.000003": size}, {"binlog_expire_logs_seconds": "7200"}, ResumePosition("binlog.000003", 1155, 0.0), 0.0)
    return SourceLog(room, "", is_of_now=True)


def test_a_history_shows_each_statement_with_its_version_and_what_it_changed() -> None:
    records = [*start(ID), record("ALTER TABLE orders ADD name VARCHAR(20)", "ALTER", model(ID, NAME), 200)]
    lines = history_lines(history_of(ORDERS, [*records, record("DROP TABLE orders", "DROP", None, 300)], is_complete=False))
    assert lines == [
        "older statements are not in Kafka any more: versions are counted from the oldest there",
        "1970-01-01 00:00:04Z  version 1  FOUND  binlog.000001:4",
        "    CREATE TABLE ...",
        "1970-01-01 00:03:20Z  version 2  ALTER  binlog.000001:200",
        "    ALTER TABLE orders ADD name VARCHAR(20)",
        "  + name VARCHAR(20) CHARACTER SET utf8mb4",
        "1970-01-01 00:05:00Z  no columns  DROP  binlog.000001:300",
        "    DROP TABLE orders",
    ]


def test_a_difference_has_a_sign_for_each_column() -> None:
    lines = difference_lines(difference(columns_of(model(ID, NAME)), columns_of(model(PRICE, ID, KIND, key=("id", "kind")))))
    assert lines == [
        "+ price DECIMAL(10,2) UNSIGNED default 0",
        "+ kind ENUM('a','b')",
        "- name VARCHAR(20) CHARACTER SET utf8mb4",
        "~ key: id  →  id, kind",
    ]
    assert difference_lines(difference(columns_of(model(ID)), columns_of(model(ID)))) == ["no column differs"]


def test_the_only_version_of_a_table_differs_from_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It was refused with `--from: no version 0`, which nobody had asked for."""
    history = history_of(ORDERS, start(ID), is_complete=True)
    monkeypatch.setattr(schema_versions, "_history_of", lambda _arguments: history)
    assert cli.main(["schema", "diff", "shop.orders"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{history.table}: version 1 to version 1", "no column differs"]
    assert cli.main(["schema", "diff", "shop.orders", "--from", "0"]) == 2
    assert "--from: " in capsys.readouterr().err


def test_a_table_that_is_no_name_is_wrong_usage(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "show", "orders", "--config", f"{tmp_path}/none.yaml"]) == 2
    capsys.readouterr()


def test_an_offset_says_what_a_restart_reads() -> None:
    lines = as_text(OFFSET, source()).splitlines()
    assert lines == [
        "committed:    binlog.000003:1155, at 1970-01-01 00:16:40Z: everything before it is in Kafka",
        "position:     " + OFFSET.boundary.text + ", epoch 0",
        "GTIDs:        u:1-9",
        "server:       u",
        "a restart:    reads from binlog.000003:1155 on",
        "source:       has binlog.000002 to binlog.000003, 845 bytes of them after that",
        "              and keeps what a restart reads for at least 2.0 h",
    ]
    document = as_document(OFFSET, source(), 7)
    assert document["restart"] == {
        "file": "binlog.000003", "pos": 1155, "gtid_set": "u:1-9", "because_of_prepared_xa": False, "skips_rows": 0,
    }  # fmt: skip
    assert document["source"]["unread_bytes"] == 845


def test_prepared_transactions_and_a_part_of_one_are_named() -> None:
    part = PartDocument(begun=TransactionStart("binlog.000003", 1155, None, None, 0), rows=500)
    known = OffsetDocument(
        0, "binlog.000003", 1155, "", "server_id=1", committed_ms=0, resume=ResumePoint("binlog.000002", 400, ""), part=part
    )  # fmt: skip
    text = as_text(known, SourceLog(None, "the source cannot be asked: refused"))
    assert "a restart:    reads from binlog.000002:400 on\n              because XA transactions" in text
    assert "and skips 500 rows of the first transaction" in text
    assert "source:       the source cannot be asked: refused" in text
    document = as_document(known, SourceLog(None, "refused"), 7)
    assert (document["source"], document["problem"]) == (None, "refused")
    assert document["restart"]["because_of_prepared_xa"]
