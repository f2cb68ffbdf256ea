"""Verify: source tables and targets of a sink enter, a report of every row that differs leaves.

Nothing here is shared with the row codec, so that the two cannot be wrong in the same way: source rows come
as text through PyMySQL, sink rows as Arrow through the reader of the sink's type (`sink_reader`, `sink_types`), and
neither needs a JVM. `rules` says what equal means, `compare` finds suspects in bulk, `judge` decides about them while both
sides move, `report` shows it.
"""

from __future__ import annotations

from tidemark.verify.report import ColumnDifference, Difference, DifferenceKind, TableReport, VerifyReport
from tidemark.verify.verification import OnProgress, VerifyProgress, verify

__all__ = [
    "ColumnDifference",
    "Difference",
    "DifferenceKind",
    "OnProgress",
    "TableReport",
    "VerifyProgress",
    "VerifyReport",
    "verify",
]
