"""The numbers a column program is made of: what compiles it (Python) and what runs it (kernels) share them."""

from __future__ import annotations

from typing import Final

# ── columns of the program: one row of int64 per table column ────────────────────
LOCATE: Final = 0  # how to find a value's bytes: FIXED, PREFIXED or LENENC
WIDTH: Final = 1  # bytes of a fixed value, or of the length prefix
OP: Final = 2  # how to convert and write it, one of the V_ numbers
ARG_A: Final = 3
ARG_B: Final = 4
NULLABLE: Final = 5
NULL_AT: Final = 6  # pool slice that stands for NULL, the column's name included
NULL_SIZE: Final = 7
LEAD_AT: Final = 8  # pool slice before a value: name, union branch
LEAD_SIZE: Final = 9
ZERO_AT: Final = 10  # pool slice for a zero date in a NOT NULL column, without the lead
ZERO_SIZE: Final = 11
COLUMN: Final = 12  # ordinal of the column in the row image (key programs pick columns)
GROWTH: Final = 13  # most bytes written per byte read
PROGRAM_WIDTH: Final = 14

FIXED: Final = 0  # WIDTH bytes
PREFIXED: Final = 1  # WIDTH bytes of little-endian length, then the value
LENENC: Final = 2  # length-encoded, as in the client/server protocol

# ── value operations ────────────────────
V_SIGNED: Final = 1  # little-endian two's complement
V_UNSIGNED: Final = 2  # little-endian, below 2^63
V_UNSIGNED_DECIMAL: Final = 3  # little-endian up to 64 bits, written as a Decimal's bytes
V_FLOAT: Final = 4
V_DOUBLE: Final = 5
V_FLOAT_WIDENED: Final = 6  # FLOAT(M,D) is a double for Debezium
V_TEXT: Final = 7  # UTF-8, checked
V_SINGLE_BYTE_TEXT: Final = 8  # ARG_A: pool offset of 256 x (length, three bytes) of UTF-8
V_BYTES: Final = 9  # ARG_A: size to pad to with zero bytes, 0 = as it is
V_BITS: Final = 10  # ARG_A: bits; big-endian in, little-endian out
V_BOOLEAN: Final = 11  # BIT(1)
V_DECIMAL_PACKED: Final = 12  # ARG_A: precision, ARG_B: scale
V_DECIMAL_TEXT: Final = 13  # the same
V_DATE_PACKED: Final = 14  # ARG_B of all but TIMESTAMP: microseconds (DATE: days) per unit written, or AS_...
V_DATE_STRUCT: Final = 15
V_TIME_PACKED: Final = 16  # ARG_A: fraction digits
V_TIME_STRUCT: Final = 17
V_DATETIME_PACKED: Final = 18  # ARG_A: fraction digits
V_DATETIME_STRUCT: Final = 19
V_TIMESTAMP_PACKED: Final = 20  # ARG_A: fraction digits
V_TIMESTAMP_STRUCT: Final = 21
V_YEAR: Final = 22  # years since 1900; ARG_A: the year that 0 is
V_ENUM: Final = 23  # ARG_A: first of (pool offset, size) pairs in the side table, ARG_B: members
V_SET: Final = 24  # the same
V_JSON_TEXT: Final = 25  # the server's text, blanks between tokens stripped, line breaks in strings escaped
V_JSON_BINARY: Final = 26  # ARG_A: 1 if whole doubles are printed without `.0`
V_PYTHON: Final = 27  # ARG_A: ordinal among the columns of the Python path
V_YEAR_NUMBER: Final = 28  # the year, or the two digits of a YEAR(2); ARG_A: the year that 0 is

AS_ISO: Final = 0  # ISO 8601 text, in UTC; a TIME within a day only
AS_NANOSECONDS: Final = -1
AS_MILLISECONDS: Final = 1000  # a TIME within a day only, its end included

# ── formats ────────────────────
AVRO: Final = 0
JSON: Final = 1

# ── record operations of a kernel run ────────────────────
INSERT: Final = 0
UPDATE: Final = 1
DELETE: Final = 2
READ: Final = 3
TRUNCATE: Final = 4  # no rows: one record that says the table was emptied

# ── envelope template: rows of (kind, argument) ────────────────────
T_CONSTANT: Final = 0  # (pool offset, size)
T_NUMBER: Final = 1  # slot
T_OPTIONAL_NUMBER: Final = 2  # slot; -1 = null
T_STRING: Final = 3  # slot of the size; strings follow each other in the context bytes
T_OPTIONAL_STRING: Final = 4  # slot of the size; -1 = null
T_RAW_STRING: Final = 5  # slot of the size; bytes as they are
T_MARK: Final = 6  # a segment ends here

# Slots of a context: integers first, then the sizes of its strings.
S_TS_MS: Final = 0
S_TS_US: Final = 1
S_TS_NS: Final = 2
S_SERVER_ID: Final = 3
S_POS: Final = 4
S_THREAD: Final = 5
S_NOW_MS: Final = 6
S_NOW_US: Final = 7
S_NOW_NS: Final = 8
S_ORDINAL: Final = 9
S_ORDINAL_STEP: Final = 10
S_SNAPSHOT: Final = 11
S_POSITION: Final = 12
S_FILE: Final = 13
S_GTID: Final = 14
S_QUERY: Final = 15
S_TRANSACTION: Final = 16
S_TOTAL_ORDER: Final = 17  # of the next record, counted on by the kernel
S_TABLE_ORDER: Final = 18
SLOTS: Final = 19

# ── what a kernel reports ────────────────────
R_CODE: Final = 0
R_COLUMN: Final = 1
R_ROW: Final = 2
R_RECORDS: Final = 3
R_ROWS: Final = 4
R_VALUE_BYTES: Final = 5
R_KEY_BYTES: Final = 6
R_NEED_VALUES: Final = 7
R_NEED_KEYS: Final = 8
R_ZEROS: Final = 9  # zero and impossible dates, for which NULL or a default was written
REPORT: Final = 16

OK: Final = 0
GROW_VALUES: Final = 1
GROW_KEYS: Final = 2
GROW_RECORDS: Final = 3
E_TRUNCATED: Final = 10
E_TRAILING: Final = 11
E_NULL: Final = 12
E_LENGTH: Final = 13
E_TEXT: Final = 14
E_DATE: Final = 15
E_TIME: Final = 16
E_DECIMAL: Final = 17
E_MEMBER: Final = 18
E_BITS: Final = 19
E_PACKET: Final = 20
E_JSON: Final = 21
E_OPERATION: Final = 22
E_FLOAT: Final = 23
E_RANGE: Final = 24

REASONS: Final = {
    E_TRUNCATED: "the row ends in the middle of a value",
    E_TRAILING: "bytes are left over after the last column of a row",
    E_NULL: "NULL in a column that is declared NOT NULL",
    E_LENGTH: "the value has a length its type cannot have",
    E_TEXT: "the text is not valid in its character set",
    E_DATE: "the date has an impossible part",
    E_TIME: "the time has an impossible part",
    E_DECIMAL: "the decimal has impossible digits",
    E_MEMBER: "the index is beyond the members of the column",
    E_BITS: "bits are set beyond the width of the column",
    E_PACKET: "not a row packet of the binary protocol",
    E_JSON: "the JSON document is damaged",
    E_FLOAT: "the number is infinite or not a number",
    E_RANGE: "the time is outside what format.time can hold, in a column that is NOT NULL; set another",
    E_OPERATION: "the column program holds an unknown operation",
}

# ── head of a program array; then the row program, the key program, the template, the member tables ──────────
H_LAYOUT: Final = 0  # AVRO or JSON
H_COLUMNS: Final = 1
H_KEYS: Final = 2  # key columns, 0 = no record key
H_ROW_AT: Final = 3
H_KEY_AT: Final = 4
H_TEMPLATE_AT: Final = 5
H_TEMPLATE_SIZE: Final = 6
H_NULL_BIT: Final = 7  # first bit of the null bitmap: 0 in the binlog, 2 in the binary protocol
H_PYTHON: Final = 8  # columns of the Python path
H_RECORD_BOUND: Final = 9  # bytes of a record beside its images and the context's strings
H_ROW_BOUND: Final = 10  # bytes of an image beside GROWTH times its input
H_KEY_BOUND: Final = 11
H_FACTOR: Final = 12  # the largest GROWTH
H_TOMBSTONES: Final = 13  # whether a tombstone follows a delete
H_SKIP_UNCHANGED: Final = 14  # whether an update that changes nothing written gives no record
H_TRANSACTION: Final = 15  # whether the envelope has a transaction block
H_IMAGE_AT: Final = 16  # rows of the written columns; the row program itself where all are written
H_WRITTEN: Final = 17
H_HIDDEN_AT: Final = 18  # rows of columns that stand in the key only
H_HIDDEN: Final = 19
H_UNWRAP: Final = 20  # whether a record is a flat row instead of an envelope
H_PIECES: Final = 21  # (pool offset, size) of the P_ pieces
P_FRAME: Final = 0  # up to the value of `before`
P_AFTER: Final = 1  # between `before` and `after`
P_OPEN: Final = 2
P_CLOSE: Final = 3
P_NULL: Final = 4
P_KEY_FRAME: Final = 5
P_KEY_CLOSE: Final = 6
P_DELETED: Final = 7  # the values of `__deleted` in a flat row
P_LIVE: Final = 8
PIECES: Final = 9
HEAD_SIZE: Final = H_PIECES + 2 * PIECES

# ── regions of the int64 scratch ────────────────────
X_REPORT: Final = 0
X_SLOTS: Final = X_REPORT + REPORT
X_SEGMENTS: Final = X_SLOTS + SLOTS  # offsets in the byte scratch
# Segments: up to the ordinal, up to `row`, [up to `total_order`, up to `data_collection_order`,] up to `op`, the
# rest. Of a flat row: up to `__deleted`, up to `__op`, the rest.
X_IMAGES: Final = X_SEGMENTS + 8  # where the row's images start and end in the values
X_LIMBS: Final = X_IMAGES + 4
X_STACK: Final = X_LIMBS + 24
X_CELLS: Final = X_STACK + 640  # the stack of an open JSON document

# ── regions of the byte scratch ────────────────────
SMALL: Final = 64  # bytes for one number, then the segments
