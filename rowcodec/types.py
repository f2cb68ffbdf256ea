"""The value objects at the boundary of the codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from schemas.connect_types import PRECISE, ValueModes
from schemas.exact_values import ExactValues

Format = Literal["avro", "json", "json_schema"]


@dataclass(frozen=True, slots=True)
class BinlogLayout:
    """How a TABLE_MAP says the columns lie in row images: type codes and metadata, one each per column.

    Types are real types (247 ENUM, 248 SET, 254 STRING unpacked). Metadata: STRING and VARCHAR bytes,
    BLOB and JSON length bytes, ENUM and SET bytes, BIT bytes << 8 | bits, NEWDECIMAL precision << 8 | scale,
    temporal types fraction digits. `bare_doubles`: the server prints whole doubles of JSON documents without `.0`.
    """

    types: tuple[int, ...]
    metas: tuple[int, ...]
    bare_doubles: bool = False


@dataclass(frozen=True, slots=True)
class WireSchemas:
    """The wire format and its schemas: ids for "avro", JSON texts of the schema blocks for "json_schema"."""

    format: Format
    key_id: int = 0
    value_id: int = 0
    key_schema_json: str | None = None
    value_schema_json: str | None = None


@dataclass(frozen=True, slots=True)
class SourceConstants:
    """What never changes: version, connector and logical server name of the `source` block, and the modes."""

    version: str
    connector: Literal["mysql", "mariadb"]
    name: str
    modes: ValueModes = PRECISE


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What rows become records, and how: the options that are compiled into a column program.

    `tombstones`: a record without value follows each delete. `skip_unchanged`: an update that changes no
    written column gives no record. `transactions`: envelopes of log events have a transaction block. `unwrap`: a
    record is a flat row (the old one of a delete) with `__deleted`, `__op` and `__source_ts_ms` instead. `exact`: what an
    envelope cannot say is beside the records (`Records.exact`).
    """

    tombstones: bool = True
    skip_unchanged: bool = False
    transactions: bool = False
    unwrap: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class EventContext:
    """What the log knows about one rows event.

    `position_prefix` is 28 characters (epoch, file, offset), `first_ordinal` the ordinal of the event's first
    row, `pos` where the event starts, `ts_us` the source's time, `now_ns` ours. With transaction blocks
    `transaction` is the transaction's id, `total_order` and `table_order` count the event's first record.
    `checks_foreign_keys`: the session had foreign_key_checks=1.
    """

    op: Literal["c", "u", "d", "t"]
    position_prefix: str
    first_ordinal: int
    ts_us: int
    server_id: int
    gtid: str | None
    file: str
    pos: int
    thread: int | None
    query: str | None
    now_ns: int
    transaction: str = ""
    total_order: int = 1
    table_order: int = 1
    checks_foreign_keys: bool = True


@dataclass(frozen=True, slots=True)
class RowsOfRun:
    """The rows of one table in a run of transactions (`producer.binlog.transaction_runs`).

    `items` are the rows events of all tables, `count` rows of numbers in one array; those whose table has `group` in `groups` are
    meant. All share `file`, `now_ns` (our time) and the first 16 characters of their positions (`position_prefix`: epoch, file).
    """

    buf: npt.NDArray[np.uint8]
    items: npt.NDArray[np.int64]
    count: int
    groups: npt.NDArray[np.int64]
    group: int
    position_prefix: str
    file: str
    now_ns: int


SnapshotMark = Literal[
    "incremental", "true", "first", "first_in_data_collection", "last_in_data_collection", "last"
]
"""What `source.snapshot` says of a snapshot row."""


@dataclass(frozen=True, slots=True)
class ChunkContext:
    """What is known about the rows of one chunk: `position` is the full text of the chunk's low watermark.

    `file`, `pos`, `gtid`, `thread` and `server_id` say where it was read, or where its window was closed.
    """

    position: str
    snapshot: SnapshotMark
    ts_us: int
    file: str
    pos: int
    gtid: str | None
    now_ns: int
    server_id: int = 0
    thread: int | None = None


@dataclass(slots=True)
class Records:
    """Finished records: record i is values[value_offsets[i]:value_offsets[i + 1]], its key likewise.

    `rows` source rows gave `count` records. A tombstone has an empty slice and is_tombstone 1: its value is
    null. `ops` holds ord() of c, u, d, r, t, and 0 for a tombstone. `related` is the record whose key goes into
    the header `__debezium.newkey` (on d and its tombstone) or `__debezium.oldkey` (on c), -1 for none. `zeros` counts zero and
    impossible dates, for which NULL or a default was written; `exact` are the values of the header `tidemark.exact`, by record.
    """

    count: int
    rows: int
    values: bytes
    value_offsets: npt.NDArray[np.int64]
    is_tombstone: npt.NDArray[np.uint8]
    keys: bytes
    key_offsets: npt.NDArray[np.int64]
    has_key: bool
    ops: npt.NDArray[np.uint8]
    related: npt.NDArray[np.int32]
    zeros: int = 0
    exact: Mapping[int, ExactValues] | None = None
