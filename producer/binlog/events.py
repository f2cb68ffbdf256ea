"""Parsers of single binlog events: bytes in, frozen values out; no I/O.

Every parser takes a buffer, the first byte of the event's 19-byte header and the event's end without
checksum, as they stand in an `EventBatch`, and raises `DecodeError` (without a position, the caller knows it)
when the bytes cannot be what they should be. Row images are not read here: the row codec does.

What is made once per transaction or rows event is a named tuple: a third of the cost of a frozen dataclass.

Source: MySQL 9 `libs/mysql/binlog/event/`, MariaDB 11 `sql/log_event.h`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from producer.binlog.byte_reader import Reader, truncated, view_of
from producer.binlog.compressed import decompress_event
from producer.binlog.event_types import (
    ANONYMOUS_GTID_EVENT,
    EXECUTE_LOAD_EVENT,
    FLAG_ARTIFICIAL,
    FORMAT_DESCRIPTION_EVENT,
    GTID_EVENT,
    GTID_EVENTS,
    GTID_TAGGED_EVENT,
    HEARTBEAT_EVENT,
    HEARTBEAT_EVENTS,
    HEARTBEAT_V2_EVENT,
    MARIADB_ANNOTATE_EVENT,
    MARIADB_BINLOG_CHECKPOINT_EVENT,
    MARIADB_COMPRESSED_EVENTS,
    MARIADB_GTID_EVENT,
    MARIADB_GTID_LIST_EVENT,
    PARTIAL_UPDATE_ROWS_EVENT,
    PREVIOUS_GTIDS_EVENT,
    QUERY_EVENT,
    ROTATE_EVENT,
    ROWS_EVENTS,
    ROWS_QUERY_EVENT,
    ROWS_V2_EVENTS,
    STOP_EVENT,
    TABLE_MAP_EVENT,
    TRANSACTION_PAYLOAD_EVENT,
    UPDATE_ROWS_EVENTS,
    XA_PREPARE_EVENT,
    XID_EVENT,
    Verdict,
    classify,
    refusal,
)
from producer.binlog.partial_json import whole_update
from producer.binlog.passed_fields import note_passed_field
from producer.binlog.payload import payload_batches
from producer.binlog.status_variables import parse_status
from producer.binlog.tablemap import TableMap, TableMetadata, parse_table_map, parse_table_name
from rowcodec.charsets import codec_of_collation
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from producer.binlog.byte_reader import Buffer

__all__ = [
    "ANONYMOUS_GTID_EVENT",
    "EXECUTE_LOAD_EVENT",
    "FLAG_ARTIFICIAL",
    "FORMAT_DESCRIPTION_EVENT",
    "GTID_EVENT",
    "GTID_EVENTS",
    "GTID_TAGGED_EVENT",
    "HEARTBEAT_EVENT",
    "HEARTBEAT_EVENTS",
    "HEARTBEAT_V2_EVENT",
    "MARIADB_ANNOTATE_EVENT",
    "MARIADB_BINLOG_CHECKPOINT_EVENT",
    "MARIADB_COMPRESSED_EVENTS",
    "MARIADB_GTID_EVENT",
    "MARIADB_GTID_LIST_EVENT",
    "PARTIAL_UPDATE_ROWS_EVENT",
    "PREVIOUS_GTIDS_EVENT",
    "QUERY_EVENT",
    "ROTATE_EVENT",
    "ROWS_EVENTS",
    "ROWS_QUERY_EVENT",
    "STOP_EVENT",
    "TABLE_MAP_EVENT",
    "TRANSACTION_PAYLOAD_EVENT",
    "UPDATE_ROWS_EVENTS",
    "XA_PREPARE_EVENT",
    "XID_EVENT",
    "FormatDescription",
    "GtidEvent",
    "Heartbeat",
    "MariadbGtid",
    "QueryEvent",
    "Rotate",
    "RowsHeader",
    "TableMap",
    "TableMetadata",
    "Verdict",
    "XaPrepare",
    "XaStatement",
    "classify",
    "decompress_event",
    "parse_annotate",
    "parse_format_description",
    "parse_gtid",
    "parse_heartbeat",
    "parse_mariadb_gtid",
    "parse_query",
    "parse_rotate",
    "parse_rows_header",
    "parse_rows_query",
    "parse_start",
    "parse_table_map",
    "parse_table_name",
    "parse_xa_prepare",
    "parse_xa_statement",
    "payload_batches",
    "refusal",
    "whole_update",
]

_HEADER: Final = 19
_UUID_SIZE: Final = 16
_FILE_NAME: Final = re.compile(r"[^\0/]+\.\d+\Z")
_DUMMY_TABLE_ID: Final = 0xFFFFFF

_ROWS_HEAD: Final = struct.Struct("<IHHH")
_QUERY_HEAD: Final = struct.Struct("<IIBHH")
_LOAD_HEAD: Final = 13
_MARIADB_GTID_HEAD: Final = struct.Struct("<QIB")
_GTID_HEAD: Final = struct.Struct("<B16sqBqq")
_GTID_SHORT: Final = struct.Struct("<B16sq")
_SERIALIZATION_VERSION: Final = 1
_LAST_GTID_FIELD: Final = 11  # the ticket of a commit group
_BEFORE_ROWS: Final = {QUERY_EVENT: 13, TABLE_MAP_EVENT: 8, 23: 8, 24: 8, 25: 8, 30: 10, 31: 10, 32: 10}
"""Bytes of the fixed part of an event, of the kinds in which rows and statements are."""
_LAST_EXTRA: Final = 1


# ---- format description, rotate, heartbeat


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """The first event of a file: who wrote it, and how its events look."""

    binlog_version: int
    server_version: str
    header_size: int
    post_header_sizes: bytes
    checksum_algorithm: int


def parse_format_description(buf: Buffer, start: int, end: int) -> FormatDescription:
    """Body: version 2, server version 50, created 4, header size 1, one byte per type, algorithm 1.

    Raises `DecodeError` for a log that is not of version 4 with 19-byte headers (servers before MySQL 5.0).
    """
    reader = Reader(buf, start + _HEADER, end)
    version = reader.uint(2)
    server = reader.read_bytes(50).rstrip(b"\0").decode("ascii", "replace")
    reader.skip(4)
    header = reader.uint(1)
    if version != 4 or header != _HEADER:
        reason = f"a binlog of version {version} with {header}-byte headers ({server}): not supported"
        raise DecodeError(reason)
    rest = reader.rest()
    if not rest:
        raise truncated("format description")
    for kind, size in _BEFORE_ROWS.items():
        if kind < len(rest) and rest[kind - 1] not in (0, size):  # 0: the server does not write such events
            found = rest[kind - 1]
            reason = f"a log whose events of type {kind} have {found} bytes before their body, not {size} ({server}): not supported"
            raise DecodeError(reason)
    return FormatDescription(version, server, header, rest[:-1], rest[-1])


@dataclass(frozen=True, slots=True)
class Rotate:
    """The log continues in another file."""

    file: str
    position: int


def parse_rotate(buf: Buffer, start: int, end: int) -> Rotate:
    """Body: position 8, file name to the end."""
    reader = Reader(buf, start + _HEADER, end)
    position = reader.uint(8)
    file = reader.text_rest("rotate event")
    if not _FILE_NAME.match(file):
        reason = f"a rotate event to {file[:80]!r}, which is not the name of a log file"
        raise DecodeError(reason)
    return Rotate(file, position)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The server's heartbeat: where the log ends. `position` is 0 for the old form (see its header)."""

    file: str
    position: int


def parse_heartbeat(buf: Buffer, start: int, end: int, kind: int) -> Heartbeat:
    """Parse both forms: the file name (27), or fields of code, length and value (41: 1 = file, 2 = position)."""
    reader = Reader(buf, start + _HEADER, end)
    if kind == HEARTBEAT_EVENT:
        return Heartbeat(reader.text_rest("heartbeat"), 0)
    file, position = "", 0
    while reader.left:
        code = reader.packed()
        if code == 0:
            break
        field = Reader(reader.read_bytes(reader.packed()))
        if code == 1:
            file = field.text_rest("heartbeat")
        elif code == 2:
            position = field.packed()
        else:
            note_passed_field("heartbeat", code)
    return Heartbeat(file, position)


# ---- transactions


class GtidEvent(NamedTuple):
    """The start of a transaction in MySQL.

    `gtid` is `uuid:number` or `uuid:tag:number`, None when anonymous. Times are µs since 1970 (MySQL 8.0.1
    and later, else None): `original_commit_us` on the server where the transaction began,
    `immediate_commit_us` on the server read. `transaction_length` is bytes with this event, None if not reported.
    `may_roll_back`: the group may hold statements beside rows, and so a ROLLBACK of some of its rows.
    """

    gtid: str | None
    uuid: bytes
    number: int
    tag: str
    last_committed: int
    sequence_number: int
    original_commit_us: int | None
    immediate_commit_us: int | None
    transaction_length: int | None
    may_roll_back: bool = False


@lru_cache(maxsize=64)
def _uuid_text(uuid: bytes) -> str:
    return str(UUID(bytes=uuid))


def parse_gtid(buf: Buffer, start: int, end: int) -> GtidEvent:
    """Parse a GTID, anonymous or tagged GTID event.

    Body: flags 1, uuid 16, number 8, [2, last committed 8, sequence 8, times 7 or 14, length packed,
    versions]. The top bit of the first time says that the second one follows.
    """
    view = view_of(buf)
    if start + _HEADER > end:
        raise truncated("GTID event")
    kind = view[start + 4]
    if kind == GTID_TAGGED_EVENT:
        return _tagged_gtid(view, start, end)
    at = start + _HEADER
    if at + _GTID_SHORT.size > end:
        raise truncated("GTID event")
    if at + _GTID_HEAD.size > end or view[at + 25] != 2:
        flags, uuid, number = _GTID_SHORT.unpack_from(view, at)
        last = sequence = 0
        at = end
    else:
        flags, uuid, number, _, last, sequence = _GTID_HEAD.unpack_from(view, at)
        at += _GTID_HEAD.size
    original, immediate, length = _gtid_times(view, at, end)
    if kind == ANONYMOUS_GTID_EVENT:
        return GtidEvent(None, b"", 0, "", last, sequence, original, immediate, length, bool(flags & 1))
    if number <= 0:
        reason = f"a GTID event with the number {number}"
        raise DecodeError(reason)
    text = f"{_uuid_text(uuid)}:{number}"
    return GtidEvent(text, uuid, number, "", last, sequence, original, immediate, length, bool(flags & 1))


def _gtid_times(view: memoryview, at: int, end: int) -> tuple[int | None, int | None, int | None]:
    """(original time, immediate time, transaction length) where they are reported."""
    if at + 7 > end:
        return None, None, None
    immediate = int.from_bytes(view[at : at + 7], "little")
    original = immediate
    at += 7
    if immediate >> 55:
        immediate &= (1 << 55) - 1
        if at + 7 > end:
            raise truncated("GTID event")
        original = int.from_bytes(view[at : at + 7], "little")
        at += 7
    if at >= end:
        return original or None, immediate, None
    length = view[at]
    return original or None, immediate, length if length < 251 else Reader(view, at, end).packed()


def _tagged_gtid(view: memoryview, start: int, end: int) -> GtidEvent:
    """MySQL's serialization format: version, size, one more than the last field that readers must know, then pairs of id and value.

    Fields: 0 flags, 1 uuid (16 numbers), 2 number (signed), 3 tag, 4 last committed, 5 sequence number, 6
    immediate time, 7 original time (absent = the same), 8 length, 9 and 10 server versions, 11 ticket of a commit group. All
    numbers are of variable length: the 1 bits at the bottom of the first byte count the bytes that follow.
    """
    reader = Reader(view, start + _HEADER, end)
    version, _, last_required = reader.serialized(), reader.serialized(), reader.serialized()
    if version != _SERIALIZATION_VERSION:
        reason = f"a tagged GTID event in version {version} of the serialization format, which is not known"
        raise DecodeError(reason)
    if last_required > _LAST_GTID_FIELD + 1:
        reason = f"a tagged GTID event whose field {last_required - 1} must not be ignored, and is not known"
        raise DecodeError(reason)
    uuid, tag = b"", ""
    numbers: dict[int, int] = {}
    while reader.left:
        code = reader.serialized()
        if code == 1:
            uuid = bytes(_byte(reader.serialized()) for _ in range(_UUID_SIZE))
        elif code == 3:
            tag = _ascii(reader.read_bytes(reader.serialized()))
        elif code in (2, 4, 5):
            numbers[code] = reader.serialized_signed()
        elif code <= _LAST_GTID_FIELD:
            numbers[code] = reader.serialized()
        else:  # ids ascend, and only those up to the last required one must be known
            note_passed_field("tagged GTID", code)
            break
    number = numbers.get(2, 0)
    if len(uuid) != _UUID_SIZE or number <= 0:
        reason = "a tagged GTID event without uuid or number"
        raise DecodeError(reason)
    text = f"{_uuid_text(uuid)}:{tag}:{number}" if tag else f"{_uuid_text(uuid)}:{number}"
    immediate = numbers.get(6)
    return GtidEvent(
        text, uuid, number, tag, numbers.get(4, 0), numbers.get(5, 0),
        numbers.get(7, immediate), immediate, numbers.get(8), bool(numbers.get(0, 0) & 1),
    )  # fmt: skip


def _byte(value: int) -> int:
    if value > 255:
        reason = "a tagged GTID event whose uuid is not made of bytes"
        raise DecodeError(reason)
    return value


def _ascii(value: bytes) -> str:
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        reason = "a tagged GTID event whose tag is not ASCII"
        raise DecodeError(reason) from None


_START_ALTER: Final = 2
_ROLLBACK_ALTER: Final = 8
_KNOWN_EXTRA: Final = 31  # several engines 1, START ALTER 2, COMMIT ALTER 4, ROLLBACK ALTER 8, thread 16


class MariadbGtid(NamedTuple):
    """The start of an event group in MariaDB. `gtid` is `domain-server-sequence`.

    `standalone`: the group is this and the next event, without COMMIT (DDL). `prepared_xa`: the group is an XA PREPARE.
    `extra` are the flags that 10.8 added.
    """

    gtid: str
    domain: int
    server_id: int
    sequence: int
    flags: int
    extra: int = 0

    @property
    def standalone(self) -> bool:
        """Whether no COMMIT ends the group."""
        return bool(self.flags & 1)

    @property
    def may_roll_back(self) -> bool:
        """Whether not all of the group is transactional, so that it may hold a ROLLBACK of some of its rows."""
        return not self.flags & 5

    @property
    def prepared_xa(self) -> bool:
        """Whether the group ends with an XA PREPARE."""
        return bool(self.flags & 64)

    @property
    def has_not_happened(self) -> bool:
        """Whether its statement is the first half of an ALTER in two phases, or was rolled back (`START`, `ROLLBACK ALTER`)."""
        return bool(self.extra & (_START_ALTER | _ROLLBACK_ALTER))

    @property
    def unknown_flags(self) -> int:
        """The extra flags whose meaning is not known; what they say of the group is then not known either."""
        return self.extra & ~_KNOWN_EXTRA


def parse_mariadb_gtid(buf: Buffer, start: int, end: int) -> MariadbGtid:
    """Body: sequence 8, domain 4, flags 1, [id of the group commit 8], [xid], extra flags 1. The server id is the header's."""
    view = view_of(buf)
    at = start + _HEADER
    if at + _MARIADB_GTID_HEAD.size > end:
        raise truncated("MariaDB GTID event")
    sequence, domain, flags = _MARIADB_GTID_HEAD.unpack_from(view, at)
    server_id = int.from_bytes(view[start + 5 : start + 9], "little")
    extra = _extra_flags(view, at + _MARIADB_GTID_HEAD.size, end, flags)
    return MariadbGtid(f"{domain}-{server_id}-{sequence}", domain, server_id, sequence, flags, extra)


def _extra_flags(view: memoryview, at: int, end: int, flags: int) -> int:
    """Return the extra flags; 0 where the event ends before, as those of servers before 10.8 may."""
    if flags & 2:
        at += 8
    if flags & (64 | 128) and at + 6 <= end:
        at += 6 + view[at + 4] + view[at + 5]
    return view[at] if at < end else 0


def parse_start(buf: Buffer, start: int, end: int, kind: int) -> tuple[str | None, int | None]:
    """Parse a GTID event of either flavour: the GTID, and the original commit time in µs where it has one."""
    if kind == MARIADB_GTID_EVENT:
        return parse_mariadb_gtid(buf, start, end).gtid, None
    event = parse_gtid(buf, start, end)
    return event.gtid, event.original_commit_us


class XaPrepare(NamedTuple):
    """The end of an XA transaction's rows; `one_phase`: committed with it, no XA COMMIT follows."""

    xid: str
    one_phase: bool


def parse_xa_prepare(buf: Buffer, start: int, end: int) -> XaPrepare:
    """Body: one phase 1, format id 4 (signed), sizes of gtrid and bqual 4 each, those."""
    reader = Reader(buf, start + _HEADER, end)
    one_phase = reader.uint(1) != 0
    format_id = int.from_bytes(reader.read_bytes(4), "little", signed=True)
    gtrid_size, bqual_size = reader.uint(4), reader.uint(4)
    return XaPrepare(_xid(reader.read_bytes(gtrid_size), reader.read_bytes(bqual_size), format_id), one_phase)


class XaStatement(NamedTuple):
    """An XA statement in the log: `verb` is START, END, COMMIT or ROLLBACK."""

    verb: str
    xid: str


_XA: Final = re.compile(
    r"XA\s+(START|END|COMMIT|ROLLBACK)\s+X'([0-9A-F]*)',\s*X'([0-9A-F]*)',\s*(-?\d+)\s*\Z", re.IGNORECASE
)


def parse_xa_statement(sql: str) -> XaStatement:
    """Parse the text both servers write, `XA COMMIT X'gtrid',X'bqual',format`. Raises `DecodeError` for another."""
    match = _XA.match(sql)
    if match is None:
        reason = f"an XA statement that is not understood: {sql[:200]!r}"
        raise DecodeError(reason)
    verb, gtrid, bqual, format_id = match.groups()
    return XaStatement(verb.upper(), _xid(bytes.fromhex(gtrid), bytes.fromhex(bqual), int(format_id)))


def _xid(gtrid: bytes, bqual: bytes, format_id: int) -> str:
    return f"X'{gtrid.hex()}',X'{bqual.hex()}',{format_id}"


# ---- statements


class QueryEvent(NamedTuple):
    """A statement in the log: BEGIN, COMMIT, DDL; and DML where a session does not log rows.

    `sql_mode` is the session's bit mask where reported (1 << 2 is ANSI_QUOTES), None else. `error_code` is what
    the statement failed with (0 = it did not). `databases` are those of the tables it changes, triggers and functions
    included, where the server reports them (MySQL; () = more than it names), None else. `unclear` says which part of the event
    is not understood, so that the statement may mean something else, "" for none; an escaped name is then not the real one.
    `may_be_temporary`: its tables may be temporary ones of the session.
    """

    thread_id: int
    database: str
    sql: str
    error_code: int
    sql_mode: int | None = None
    databases: tuple[str, ...] | None = None
    unclear: str = ""
    may_be_temporary: bool = False


_BEGIN_BODY: Final = b"BEGIN"
_THREAD_SPECIFIC: Final = 4  # a flag of the event's header


def parse_query(buf: Buffer, start: int, end: int) -> QueryEvent:
    r"""Parse a statement with its session; also that of LOAD DATA, whose event has 13 bytes more before the status variables.

    Body: thread 4, seconds 4, size of database 1, error 2, size of status variables 2, those, database, 0,
    statement. The statement is decoded by the session's character set; what cannot be is escaped (`\xff`).
    """
    view = view_of(buf)
    at = start + _HEADER
    if at + _QUERY_HEAD.size > end:
        raise truncated("query event")
    thread_id, _, database_size, error_code, status_size = _QUERY_HEAD.unpack_from(view, at)
    at += _QUERY_HEAD.size + (_LOAD_HEAD if view[start + 4] == EXECUTE_LOAD_EVENT else 0)
    sql_at = at + status_size + database_size + 1
    if sql_at > end:
        raise truncated("query event")
    database = _database_text(bytes(view[at + status_size : sql_at - 1]))
    statement = bytes(view[sql_at:end])
    if statement == _BEGIN_BODY:
        return QueryEvent(thread_id, database, "BEGIN", error_code)
    status = parse_status(Reader(view, at, at + status_size))
    codec = codec_of_collation(status.collation)
    unclear = status.unclear
    if codec is None and not statement.isascii() and not unclear:
        unclear = f"the character set of its text (collation {status.collation}) is not known"
    return QueryEvent(
        thread_id,
        database,
        statement.decode(codec or ("ascii" if unclear else "utf-8"), "backslashreplace"),
        error_code,
        status.sql_mode,
        status.databases,
        unclear,
        bool(view[start + 17] & _THREAD_SPECIFIC),
    )


@lru_cache(maxsize=256)
def _database_text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def parse_rows_query(buf: Buffer, start: int, end: int) -> str:
    """Parse the statement behind the next rows events (MySQL). Body: a length byte, not to be trusted, then it."""
    reader = Reader(buf, start + _HEADER, end)
    reader.skip(1)
    return reader.rest().decode("utf-8", "backslashreplace")


def parse_annotate(buf: Buffer, start: int, end: int) -> str:
    """Parse the statement behind the next rows events (MariaDB)."""
    return Reader(buf, start + _HEADER, end).rest().decode("utf-8", "backslashreplace")


# ---- rows


class RowsHeader(NamedTuple):
    """What is before the rows. `rows_start` is the first row's null bitmap.

    `statement_end`: the last rows event of its statement, table ids end with it. `present`, a bit per column and a number
    per image, where some columns are missing.
    """

    table_id: int
    flags: int
    columns: int
    rows_start: int
    statement_end: bool
    present: tuple[int, ...] = ()


NO_FOREIGN_KEY_CHECKS: Final = 2
"""A flag of rows events: the session had foreign_key_checks=0."""
_MISSING_COLUMNS: Final = (
    "a rows event does not hold all columns of its table: some session runs without binlog_row_image=FULL. "
    "SET GLOBAL binlog_row_image='FULL', reconnect the clients, then snapshot the changed tables again"
)


def parse_rows_header(
    buf: Buffer, start: int, end: int, kind: int, columns: int | None = None, *, whole: bool = True
) -> RowsHeader:
    """Parse what is before the rows: table id 6, flags 2, [extra data with length 2], columns packed, bitmaps.

    `columns` is the number the table map announced. Raises `DecodeError` when it differs, and, if it has to be `whole`,
    when the event does not hold all columns.
    """
    view = view_of(buf)
    at = start + _HEADER
    if at + 10 > end:
        raise truncated("rows event")
    low, high, flags, extra = _ROWS_HEAD.unpack_from(view, at)
    table_id = low | high << 32
    at += 8
    if kind in ROWS_V2_EVENTS:
        if extra < 2:
            raise truncated("rows event")
        if extra > 2 and at + 2 < end and view[at + 2] > _LAST_EXTRA:  # NDB, partition; the rows do not depend on it
            note_passed_field("rows", view[at + 2])
        at += extra
    if at >= end:
        raise truncated("rows event")
    count = view[at]
    if count < 251:
        at += 1
    else:
        reader = Reader(view, at, end)
        count = reader.packed()
        at = end - reader.left
    if table_id == _DUMMY_TABLE_ID and count == 0:  # a table may have that number, too
        return RowsHeader(table_id, flags, 0, end, True)
    if columns is not None and count != columns:
        reason = f"a rows event of {count} columns for a table of {columns}"
        raise DecodeError(reason)
    at, present = _present(view, at, end, count, 2 if kind in UPDATE_ROWS_EVENTS else 1)
    if present and whole:
        raise DecodeError(_MISSING_COLUMNS)
    return RowsHeader(table_id, flags, count, at, bool(flags & 1), present)


@lru_cache(maxsize=256)
def _all_present(columns: int) -> int:
    return (1 << columns) - 1


def _present(view: memoryview, at: int, end: int, columns: int, images: int) -> tuple[int, tuple[int, ...]]:
    """Return the first byte behind the bitmaps of present columns, and those, () where all columns are there."""
    size = (columns + 7) // 8
    if not 0 < columns <= 4096 or at + images * size > end:
        raise truncated("rows event")
    wanted = _all_present(columns)
    found = []
    for _ in range(images):
        bits = view[at] if size == 1 else int.from_bytes(view[at : at + size], "little")
        found.append(bits & wanted)  # bits beyond the last column are set in some events
        at += size
    return at, () if found.count(wanted) == images else tuple(found)
