"""Parts of statements that kernels write, and rows that Python has to write or to refuse."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas.applied.avro_decoding import parsed
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import DecodeError
from schemas.exact_values import ExactValues
from schemas.types.connect import value_schema
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_texts import KernelTexts, RowTexts, TableTexts
from spark_jobs.replicate.rows.row_values import RowDecoder, RowRecord

COLUMNS = (
    Column("id", ColumnType.INT, nullable=False),
    Column("t", ColumnType.TEXT, nullable=True, charset="utf8mb4"),
    Column("d", ColumnType.DATE, nullable=True),
)
TABLE = TableSchema("shop", "orders", COLUMNS, ("id",))
DECODER = RowDecoder(lambda _: to_avro(value_schema(TABLE, "srv", "mysql")))
SOURCE = {"version": "1", "connector": "mysql", "name": "srv", "ts_ms": 1, "db": "shop", "table": "orders", "server_id": 1,
          "file": "b.1", "pos": 4, "row": 0, "sequence": "p", "ts_us": 5, "ts_ns": 0}  # fmt: skip


def record(op: str, before: Any, after: Any, exact: ExactValues | None = None) -> RowRecord:
    out = BytesIO()
    out.write(b"\0\0\0\0\x07")
    envelope = {"op": op, "before": before, "after": after, "source": SOURCE}
    fastavro.schemaless_writer(out, parsed(DECODER.schema(7)), envelope)
    return RowRecord(out.getvalue(), b"" if exact is None else exact.header)


def row(ident: int, text: str | None = None, day: int | None = None) -> dict[str, Any]:
    return {"id": ident, "t": text, "d": day}


def update(before: RowRecord, after: RowRecord) -> RowEvent:
    return RowEvent("p", "u", ("shop", "orders"), 7, before, after, checks_keys=True)


def texts_of(*events: RowEvent) -> list[RowTexts]:
    return TableTexts(TABLE, DECODER).of(events)


def test_rows_with_and_without_exact_values_keep_their_order() -> None:
    changed = [record("u", row(n, "a"), row(n, "b", n)) for n in range(3)]
    exact = record("u", row(9, "a", 0), row(9, "a", 0), ExactValues(after={"d": "0000-00-00"}))
    texts = texts_of(*(update(one, one) for one in (changed[0], exact, *changed[1:])))
    assert [one.old_key for one in texts] == [b"(0)", b"(9)", b"(1)", b"(2)"]
    assert texts[1].changes == b"`d`='0000-00-00'"
    assert texts[2] == RowTexts(b"(1,'b','1970-01-02')", b"(1)", b"(1)", b"`t`='b',`d`='1970-01-02'", is_changed=True, is_strict=True)


def test_an_update_that_changes_no_column_assigns_one() -> None:
    same = record("u", row(1, "a"), row(1, "a"))
    (texts,) = texts_of(update(same, same))
    assert (texts.changes, texts.is_changed) == (b"`id`=1", False)


def test_a_text_of_quotes_gets_room() -> None:
    ours = [record("u", row(1), row(1, "'" * 100_000)), record("u", row(2), row(2, "\\"))]
    texts = KernelTexts(DECODER.schema(7), DECODER.columns(7, TABLE), DECODER.columns(7, TABLE)[:1]).of([update(one, one) for one in ours])
    assert texts is not None
    assert [one.changes for one in texts] == [b"`t`='" + b"''" * 100_000 + b"'", rb"`t`='\\'"]


@pytest.mark.parametrize("damaged", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80"])
def test_a_text_that_is_not_utf8_is_refused(damaged: bytes) -> None:
    whole = record("u", row(1), row(1, "?" * len(damaged)))
    broken = RowRecord(whole.value.replace(b"?" * len(damaged), damaged))
    with pytest.raises(DecodeError, match="do not fit the schema with id 7"):
        texts_of(update(whole, whole), update(broken, broken))


@pytest.mark.parametrize("text", ["é", "€", "\U0001f600", "\ud7ff\ue000\U0010ffff\u0800\u0080"])
def test_a_text_of_any_letters_is_written(text: str) -> None:
    one = record("u", row(1), row(1, text))
    columns = DECODER.columns(7, TABLE)
    texts = KernelTexts(DECODER.schema(7), columns, columns[:1]).of([update(one, one)])
    assert texts is not None
    assert texts[0].changes.decode() == f"`t`='{text}'"


@pytest.mark.parametrize(("before", "after", "image"), [(row(1), None, "after"), (None, row(1), "before")])
def test_a_record_that_lacks_a_row_is_refused(before: Any, after: Any, image: str) -> None:
    one = record("u", before, after)
    with pytest.raises(DecodeError, match=rf"p: a record of shop\.orders with op u has no {image}"):
        texts_of(update(one, one))


def test_a_record_that_is_cut_off_is_refused() -> None:
    one = record("u", row(1), row(1, "text"))
    for size in range(len(one.value)):
        with pytest.raises(DecodeError):
            DECODER.heads([one.value, one.value[:size]])


def test_an_update_of_two_records_reads_each_by_its_own_schema() -> None:
    table = replace(TABLE, columns=(COLUMNS[0], Column("n", ColumnType.INT, nullable=False)))
    tables = {7: table, 8: replace(table, columns=table.columns[::-1])}
    decoder = RowDecoder(lambda ident: to_avro(value_schema(tables[ident], "srv", "mysql")))
    records = []
    for ident, op, before, after in ((8, "d", {"id": 5, "n": 1}, None), (7, "c", None, {"id": 6, "n": 1})):
        out = BytesIO()
        out.write(b"\0\0\0\0%c" % ident)
        fastavro.schemaless_writer(out, parsed(decoder.schema(ident)), {"op": op, "before": before, "after": after, "source": SOURCE})
        records.append(RowRecord(out.getvalue()))
    (written,) = TableTexts(table, decoder).of([update(*records)])
    assert (written.old_key, written.new_key, written.changes) == (b"(5)", b"(6)", b"`id`=6")


def test_literals_of_columns_keep_the_order_of_their_events() -> None:
    changed = [record("u", row(n, "a"), row(n, "NULL", n)) for n in range(3)]
    exact = record("u", row(9, "a", 0), row(9, None, 0), ExactValues(after={"d": "0000-00-00"}))
    created, gone = record("c", None, row(5)), record("d", row(6, "b", 1), None)
    events = [update(one, one) for one in (changed[0], exact, *changed[1:])]
    events += [RowEvent("p", "c", ("shop", "orders"), 7, None, created, checks_keys=True),
               RowEvent("p", "d", ("shop", "orders"), 7, gone, None, checks_keys=True)]  # fmt: skip
    texts, days = TableTexts(TABLE, DECODER).literals(("t", "d"), events)
    assert texts == ([b"'a'"] * 4 + [b"", b"'b'"], [b"'NULL'", b"NULL", b"'NULL'", b"'NULL'", b"NULL", b""])
    assert days.old == [b"NULL", b"'1970-01-01'", b"NULL", b"NULL", b"", b"'1970-01-02'"]
    assert days.new == [b"'1970-01-01'", b"'0000-00-00'", b"'1970-01-02'", b"'1970-01-03'", b"NULL", b""]
    kernels = KernelTexts(DECODER.schema(7), DECODER.columns(7, TABLE), DECODER.columns(7, TABLE)[:1]).literals
    assert kernels([events[0], *events[2:]]) == TableTexts(TABLE, DECODER).literals(("id", "t", "d"), [events[0], *events[2:]])
