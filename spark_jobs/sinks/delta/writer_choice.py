"""Which writer puts a batch into a table: what it will cost enters, a name leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

WriterName = Literal["arrow", "jvm"]
WriterSetting = Literal["auto", "arrow", "jvm"]

# Nanoseconds of CPU, measured on two cores with deltalake 1.6.6, Spark 4.1.4 and Delta 4.4.0. Keys are uniform, all files touched.
#   delta-rs: 100 changes of 1,000,000 rows (28 bytes each in files) 0.55 s, of 5,000,000 rows 3.0 s; 1,000,000 changes of
#     5,000,000 rows 3.8 s; 100 changes of 400,000 rows of 1,240 bytes 2.0 s.
#   JVM, deletion vectors, warm: 100 changes of 400,000 wide rows 3.9 s, of 1,000,000 rows 5.0 to 5.9 s, of 5,000,000 rows 8.2 to
#     10 s, most of it the scan for the keys; 100,000 changes of 5,000,000 rows 11 to 13 s, 1,000,000 changes 20 s.
_ARROW_NS: Final = 20_000_000
_ARROW_NS_PER_ROW: Final = 900
_COPY_NS_PER_ROW: Final = 450
_COPY_NS_PER_BYTE: Final = 4
_FILE_COPIES: Final = 3
"""Memory of a MERGE of delta-rs for each byte of the files it touches, which no pool bounds: two rows by a text key into 212 MB of
files took 0.87 GB of RSS, into 530 MB 1.77 GB, with a pool of 256 MB as without."""
_JVM_NS: Final = 4_000_000_000
_JVM_NS_PER_ROW: Final = 9_000
_SCAN_NS_PER_ROW: Final = 900


@dataclass(frozen=True, slots=True)
class Size:
    """What a batch has, or what it finds in a table: rows, and their bytes (in memory of a batch, in files of a table)."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class WriterRules:
    """How writers are chosen: what is forced, the memory of a worker, and whether the JVM may use deletion vectors."""

    forced: WriterSetting = "auto"
    memory_bytes: int = 2 << 30
    has_vectors: bool = True


NOTHING: Final = Size()


def chosen_writer(batch: Size, touched: Size, reason: str | None, rules: WriterRules) -> WriterName:
    """Return the cheaper writer of those that are possible.

    `touched` is of the files that may have a key of the batch; `reason` is why delta-rs must not write the table
    (`arrow_limits.why_not`), which no rule overrules. Where the JVM may not mark rows as deleted in a file (deletion vectors), it
    copies files as delta-rs does, and is never cheaper. Files for which a worker has too little memory are the JVM's. A batch
    whose records do not fit into that memory does not get here (`WorkerPut.most_bytes`).

    Any choice is exact, also another one when the batch is run again: both writers give the same rows from the same winners, and
    name the transaction alike, so the second does nothing once the first has made its commit.
    """
    if reason is not None or rules.forced == "jvm":
        return "jvm"
    if rules.forced == "arrow":
        return "arrow"
    if _FILE_COPIES * touched.bytes > rules.memory_bytes:
        return "jvm"
    return "jvm" if rules.has_vectors and _jvm_ns(batch, touched) < _arrow_ns(batch, touched) else "arrow"


def _arrow_ns(batch: Size, touched: Size) -> int:
    return _ARROW_NS + batch.rows * _ARROW_NS_PER_ROW + touched.rows * _COPY_NS_PER_ROW + touched.bytes * _COPY_NS_PER_BYTE


def _jvm_ns(batch: Size, touched: Size) -> int:
    return _JVM_NS + batch.rows * _JVM_NS_PER_ROW + touched.rows * _SCAN_NS_PER_ROW
