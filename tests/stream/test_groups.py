"""The transaction assembler without servers: sequences of events, and the steps they become."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
import zstandard

from producer.source.begun import Begun
from producer.stream.offset import Part, ResumePoint
from producer.stream.steps import RereadError, RereadHint
from schemas.errors import DecodeError, LogTornError, UnknownEventError
from tests.binlog.build import UUID_TEXT, event, format_description, packed, rotate
from tests.stream.steps_of import (
    FILE,
    MARIADB_OFFSET,
    MYSQL_OFFSET,
    Log,
    gtid,
    mariadb_gtid,
    query,
    rows,
    table_map,
    without_checksum,
    xa,
    xa_prepare,
    xid,
)

FRAME = ["Begin", "BeginRows"]
DONE = ["End"]


def named(text: str, kind: int = 30) -> bytes:
    return rows(kind, text.encode())


def without_offset(steps: list[str]) -> list[str]:
    return [" ".join(step.split(" ")[:3]) if step.startswith("Rows") else step for step in steps]


def test_a_transaction_becomes_begin_rows_and_end() -> None:
    log = Log()
    found = log.read(gtid(10), query("BEGIN"), table_map(), named("one"), named("two", 31), xid())
    assert without_offset(found) == [*FRAME, "TableMapStep", "Rows one #1", "Rows two #2", *DONE]
    offset = log.boundary_offset()
    assert (offset.pos, offset.gtid_set) == (log.end, f"{UUID_TEXT}:1-10")
    assert offset.last is not None
    assert (offset.last.pos, offset.last.gtid) == (100, f"{UUID_TEXT}:10")


def test_events_may_come_in_any_batches() -> None:
    log = Log()
    parts = [gtid(10), query("BEGIN"), table_map(), named("one"), xid()]
    assert without_offset([step for part in parts for step in log.read(part)]) == [*FRAME, "TableMapStep", "Rows one #1", *DONE]


def test_between_two_events_of_a_transaction_nothing_can_be_committed() -> None:
    log = Log()
    assert log.assembler.can_commit
    for part in (gtid(10), query("BEGIN"), table_map()):
        log.read(part)
        assert not log.assembler.can_commit
        assert log.boundary_offset().pos == 100
    assert log.assembler.can_commit_before
    log.read(named("one"))
    assert not log.assembler.can_commit_before, "a part of the open transaction is published"
    log.read(xid())
    assert log.assembler.can_commit


def test_ddl_is_a_transaction_of_its_own_and_one_that_creates_and_selects_continues() -> None:
    log = Log()
    assert log.read(gtid(10), query("CREATE TABLE t (a INT)")) == ["Begin", "Definition CREATE TABLE t (a INT)", *DONE]
    created = "CREATE TABLE t (a INT) START TRANSACTION"
    found = log.read(gtid(11), query("BEGIN"), query(created), table_map(), named("one"), xid())
    assert without_offset(found) == [
        *FRAME, f"Definition {created}", "BeginRows", "TableMapStep", "Rows one #1", *DONE
    ]  # fmt: skip


def test_a_compressed_transaction_has_the_steps_of_a_plain_one_at_the_position_of_its_payload() -> None:
    inner = b"".join(without_checksum(part) for part in (query("BEGIN"), table_map(), named("one"), xid()))
    body = zstandard.ZstdCompressor().compress(inner)
    fields = b"".join(
        packed(code) + packed(len(packed(value))) + packed(value)
        for code, value in ((2, 0), (3, len(inner)), (1, len(body)))
    )
    log = Log()
    found = log.read(gtid(10), event(40, fields + b"\0" + body))
    assert without_offset(found) == [*FRAME, "TableMapStep", "Rows one #1", *DONE]
    assert found[3].endswith(f" {len(without_checksum(gtid(10)))}")
    assert log.boundary_offset().pos == log.end


def test_the_sql_of_rows_is_a_step_only_where_it_is_wanted() -> None:
    text = event(29, b"\x08INSERT 1")
    assert "SqlText INSERT 1" in Log(include_query=True).read(gtid(10), query("BEGIN"), text)
    assert "SqlText INSERT 1" not in Log().read(gtid(10), query("BEGIN"), text)


# ---- pending rows


@pytest.mark.parametrize("limit_bytes", [1 << 20, 10])
def test_rows_that_may_be_rolled_back_are_kept_until_the_commit(limit_bytes: int) -> None:
    log = Log(MARIADB_OFFSET, limit_bytes=limit_bytes)
    assert log.read(mariadb_gtid(10, 0), query("BEGIN"), table_map(), named("one")) == ["Begin", "Kept", "Kept"]
    assert log.memory.used_bytes <= limit_bytes
    released = log.read(query("SAVEPOINT s"), named("two"), query("ROLLBACK TO s"), named("three"), xid())
    assert without_offset(released) == [
        "Kept", "Kept", "Release", "BeginRows", "TableMapStep", "Rows one #1", "Rows three #2", *DONE
    ]  # fmt: skip
    assert log.memory.used_bytes == 0


def test_a_rolled_back_transaction_has_no_rows_and_moves_the_boundary() -> None:
    log = Log(MARIADB_OFFSET)
    found = log.read(mariadb_gtid(10, 0), query("BEGIN"), table_map(), named("one"), query("ROLLBACK"))
    assert found == ["Begin", "Kept", "Kept", "Release", *DONE]
    assert (log.boundary_offset().pos, log.boundary_offset().gtid_set) == (log.end, "0-1-10")


def test_a_rollback_that_was_not_announced_is_refused() -> None:
    log = Log()
    log.read(gtid(10), query("BEGIN"), table_map(), named("one"))
    with pytest.raises(UnknownEventError, match="ROLLBACK"):
        log.read(query("ROLLBACK"))


def test_rows_beside_a_statement_of_another_engine_follow_its_own_group() -> None:
    """A group of a table without transactions is committed by a COMMIT query, and MySQL says that it may roll back."""
    log = Log()
    found = log.read(gtid(10, transactional=False), query("BEGIN"), table_map(), named("one"), query("COMMIT"))
    assert without_offset(found) == ["Begin", "Kept", "Kept", "Release", "BeginRows", "TableMapStep", "Rows one #1", *DONE]


# ---- XA


def prepared(number: int, name: bytes, *texts: str) -> list[bytes]:
    data = [part for text in texts for part in (table_map(), named(text))]
    return [gtid(number), xa("START", name), *data, xa("END", name), xa_prepare(name)]


def test_xa_rows_are_released_at_their_commit_with_its_offset() -> None:
    log = Log()
    assert log.read(*prepared(10, b"a", "one", "two")) == ["Begin", *["Kept"] * 4, *DONE]
    assert log.boundary_offset().resume == ResumePoint(FILE, 100, f"{UUID_TEXT}:1-9")
    between = log.read(gtid(11), query("BEGIN"), table_map(), named("other"), xid())
    assert without_offset(between) == [*FRAME, "TableMapStep", "Rows other #1", *DONE]
    at = log.end - 100 + len(without_checksum(gtid(12)))
    found = log.read(gtid(12), xa("COMMIT", b"a"))
    expected = [f"Rows {text} #{number} {at}" for number, text in ((1, "one"), (2, "two"))]
    assert found == ["Begin", "Release", "BeginRows", "TableMapStep", expected[0], "TableMapStep", expected[1], *DONE]
    assert log.boundary_offset().resume is None
    assert log.memory.used_bytes == 0


def test_xa_commits_may_come_in_another_order_and_rollbacks_drop_rows() -> None:
    log = Log()
    log.read(*prepared(10, b"a", "a"), *prepared(11, b"b", "b"), *prepared(12, b"c", "c"))
    commits = log.read(gtid(13), xa("COMMIT", b"c"), gtid(14), xa("ROLLBACK", b"b"), gtid(15), xa("COMMIT", b"a"))
    assert [step.split()[1] for step in commits if step.startswith("Rows")] == ["c", "a"]


def test_one_phase_commits_at_the_prepare() -> None:
    log = Log()
    parts = [gtid(10), xa("START", b"a"), table_map(), named("one"), xa("END", b"a"), xa_prepare(b"a", one_phase=True)]
    assert "Rows one #1" in without_offset(log.read(*parts))
    assert log.boundary_offset().resume is None


def test_the_commit_of_an_unknown_xid_is_refused() -> None:
    with pytest.raises(UnknownEventError, match=r"X'61',X'',1.*tidemark repair --anew"):
        Log().read(gtid(10), xa("COMMIT", b"a"))


def test_reading_back_to_a_prepare_publishes_nothing_twice() -> None:
    log = Log()
    log.read(*prepared(10, b"a", "one"), gtid(11), query("BEGIN"), table_map(), named("two"), xid())
    again = Log(log.boundary_offset())
    assert again.assembler.cursor.is_reading_back
    found = again.read(*prepared(10, b"a", "one"), gtid(11), query("BEGIN"), table_map(), named("two"), xid())
    assert not [step for step in found if step.startswith("Rows")]
    assert not again.assembler.cursor.is_reading_back
    assert again.boundary_offset() == log.boundary_offset()
    assert "Rows one #1" in without_offset(again.read(gtid(12), xa("COMMIT", b"a")))


# ---- other servers, other epochs, torn logs


def test_transactions_of_an_earlier_epoch_are_dropped() -> None:
    inherited = replace(MYSQL_OFFSET, epoch=1, gtid_set=f"{UUID_TEXT}:1-10", inherited=f"{UUID_TEXT}:1-10")
    log = Log(inherited)
    found = log.read(
        gtid(11), query("BEGIN"), table_map(), named("new"), xid(), gtid(10), query("BEGIN"), table_map(), named("old"), xid()
    )
    assert [step.split()[1] for step in found if step.startswith("Rows")] == ["new"]
    assert "Kept" in found


def test_a_file_that_breaks_off_inside_a_transaction_drops_what_was_kept() -> None:
    log = Log(MARIADB_OFFSET)
    log.read(mariadb_gtid(10, 0), query("BEGIN"), table_map(), named("one"))
    assert "Drop" in log.read(format_description())
    assert log.assembler.transaction is None
    assert log.memory.used_bytes == 0


def test_where_rows_were_published_the_next_attempt_leaves_the_transaction_out() -> None:
    log = Log()
    log.read(gtid(10), query("BEGIN"), table_map(), named("one"))
    with pytest.raises(RereadError) as caught:
        log.assembler.break_off("binlog.000008")
    assert caught.value.hint == RereadHint(0, FILE, 100, "binlog.000008")
    with pytest.raises(LogTornError) as torn:
        Log(hint=caught.value.hint).read(gtid(10))
    assert torn.value.next_file == "binlog.000008"
    assert Log(replace(MYSQL_OFFSET, epoch=1), hint=caught.value.hint).read(gtid(10)) == ["Begin"], "another epoch"


def test_a_rotation_moves_the_boundary_to_the_next_file() -> None:
    log = Log()
    log.read(rotate("binlog.000008"))
    assert log.assembler.cursor.boundary == ("binlog.000008", 4)
    assert log.assembler.resume_point() == ResumePoint("binlog.000008", 4, f"{UUID_TEXT}:1-9")


# ---- parts of long transactions


def test_a_long_transaction_is_committed_in_parts_and_read_again_from_its_beginning() -> None:
    log = Log()
    log.read(gtid(10), query("BEGIN"), table_map(), named("one"), named("two"))
    assert log.assembler.can_be_divided
    part = log.assembler.divide()
    assert (part.rows, part.begun.pos, part.begun.gtid) == (2, 100, f"{UUID_TEXT}:10")
    again = Log(replace(MYSQL_OFFSET, part=part))
    assert again.read(gtid(10)) == ["CommitFirst", "Begin"]
    assert again.assembler.transaction is not None
    assert again.assembler.transaction.in_kafka == 2
    again.read(query("BEGIN"), xid())
    assert again.boundary_offset().part is None


def test_what_a_hint_calls_long_is_preceded_by_a_commit() -> None:
    log = Log(hint=RereadHint(0, FILE, 100))
    assert log.read(gtid(10), query("BEGIN")) == ["CommitFirst", *FRAME]


def test_a_transaction_before_the_one_that_has_a_part_is_not_divided() -> None:
    part = Part(Begun("", 0, f"{UUID_TEXT}:12", None, 1), 5)
    log = Log(replace(MYSQL_OFFSET, part=part))
    log.read(gtid(10), query("BEGIN"), table_map(), named("one"))
    assert not log.assembler.can_be_divided


def test_on_mariadb_no_transaction_is_divided() -> None:
    log = Log(MARIADB_OFFSET)
    log.read(mariadb_gtid(10), query("BEGIN"), table_map(), named("one"))
    assert not log.assembler.can_be_divided


def test_a_data_change_that_is_logged_as_a_statement_is_a_step_inside_its_transaction() -> None:
    log = Log()
    assert log.read(gtid(10), query("BEGIN"), event(5, bytes(9)), query("INSERT INTO t VALUES (1)"), xid()) == [
        *FRAME, "DataStatement", *DONE
    ]  # fmt: skip
    assert Log(MARIADB_OFFSET).read(mariadb_gtid(10, 1), query("INSERT INTO m VALUES (1)")) == ["Begin", "DataStatement", *DONE]


def test_a_memory_table_that_the_server_has_emptied_is_truncated() -> None:
    delete = query("DELETE FROM `a``b`.`m`")
    truncated = "Definition TRUNCATE TABLE `a``b`.`m`"
    assert Log().read(gtid(10), query("BEGIN"), delete, query("COMMIT")) == [*FRAME, truncated, *DONE]
    assert Log(MARIADB_OFFSET).read(mariadb_gtid(10, 9), delete) == ["Begin", truncated, *DONE]
    of_client = Log(MARIADB_OFFSET).read(mariadb_gtid(10, 0), delete, query("COMMIT"))
    assert of_client == ["Begin", "DataStatement", "Release", *DONE]
    status = b"\x0c\1d\0"
    reported = event(2, struct.pack("<IIBHH", 3, 0, 1, 0, len(status)) + status + b"d\0DELETE FROM `d`.`m`")
    assert Log().read(gtid(10), query("BEGIN"), reported, query("COMMIT")) == [*FRAME, "DataStatement", *DONE]


@pytest.mark.parametrize(("extra", "happened"), [(b"\x02", False), (b"\x04" + bytes(8), True), (b"\x08" + bytes(8), False)])
def test_of_an_alter_in_two_phases_the_commit_alone_is_a_step(extra: bytes, happened: bool) -> None:
    log = Log(MARIADB_OFFSET)
    alter = query("ALTER TABLE t ADD a INT")
    found = log.read(event(162, struct.pack("<qIB", 10, 0, 0x29) + extra), alter)
    assert found == ["Begin", *(["Definition ALTER TABLE t ADD a INT"] if happened else []), *DONE]
    assert log.boundary_offset().gtid_set == "0-1-10", "a restart continues behind it"


# ---- refusals


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([table_map()], "outside any transaction"),
        ([gtid(10), gtid(11)], "begins inside the one at"),
        ([gtid(10), query("BEGIN"), xa_prepare(b"a")], "without an XA START"),
        ([event(99, b"?")], "unknown type 99"),
    ],
)
def test_what_cannot_be_resumed_is_refused(parts: list[bytes], reason: str) -> None:
    log = Log()
    with pytest.raises(DecodeError, match=reason):
        log.read(*parts)
    last = sum(len(without_checksum(part)) for part in parts[:-1])
    assert log.assembler.where == f"{FILE}:{100 + last}"


def test_an_unknown_event_that_its_writer_calls_ignorable_is_passed_over() -> None:
    assert Log().read(event(99, b"?", flags=0x80)) == ["Boundary"]


def test_statements_in_the_middle_do_not_end_a_transaction() -> None:
    log = Log()
    log.read(gtid(10), query("BEGIN"), table_map())
    assert log.read(query("SAVEPOINT s")) == []
    assert log.assembler.transaction is not None
