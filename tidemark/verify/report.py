"""What verify found, as values, which `schemas.json_codec` writes as JSON, and as a text table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from schemas.json_codec import Form
from schemas.overriding import override
from schemas.readable import aligned


class DifferenceKind(StrEnum):
    """What is wrong with a row of the sink."""

    VALUE = "value differs"
    MISSING = "missing in the sink"
    EXTRA = "only in the sink"
    DUPLICATE = "more than once in the sink"


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """One column of a row, as text: what the source has and what the sink has."""

    column: str
    source: str
    sink: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not what it should be; `sink_position` is its `_tm_position`, if it has one."""

    kind: DifferenceKind
    key: Mapping[str, str]
    columns: tuple[ColumnDifference, ...] = ()
    sink_position: str | None = None

    @override
    def __str__(self) -> str:
        key = ", ".join(f"{name}={value}" for name, value in self.key.items())
        details = "; ".join(f"{part.column}: source {part.source}, sink {part.sink}" for part in self.columns)
        return f"{key}: {self.kind}" + (f": {details}" if details else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What was found about one table.

    Rows are those counted in the bulk comparison, two moving sides at two moments. `suspects` are the keys
    that differed there and were judged one by one; `differing` of them are wrong, `moving` were changed
    again and again and could not be seen standing still (no difference, see `judge`). `differences` holds
    the first of the differing rows. `not_compared` is the reason why nothing, or not everything, was
    compared; `left_out` why there is nothing to compare, which is right. `sink_only_columns` are columns the source no longer
    has; `absent_columns` those the sink does not have yet, which count as NULL there; `record_columns` are of the newest record
    of a row, which the source does not have.
    `kept_column` is true in rows that were deleted at the source: those are not compared.
    """

    JSON: ClassVar = Form(head=lambda table: {"ok": table.ok})

    table: str
    source_rows: int | None = None
    sink_rows: int | None = None
    ranges: int = 0
    suspects: int = 0
    differing: int = 0
    moving: int = 0
    differences: tuple[Difference, ...] = ()
    not_compared: str | None = None
    left_out: str | None = None
    sink_only_columns: tuple[str, ...] = ()
    absent_columns: tuple[str, ...] = ()
    record_columns: tuple[str, ...] = ()
    kept_column: str | None = None
    note: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the table was compared and no row differs, or is left out."""
        return self.not_compared is None and self.differing == 0

    @property
    def verdict(self) -> str:
        """One or two words."""
        if self.differing:
            return "differs"
        if self.left_out is not None:
            return "no mirror"
        return "equal" if self.not_compared is None else "not compared"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found about all tables. `notes` are facts that are no differences."""

    JSON: ClassVar = Form(head=lambda report: {"ok": report.ok})

    tables: tuple[TableReport, ...]
    seconds: float = 0.0
    problems: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether there were tables to compare, and each was compared and is equal."""
        return bool(self.compared) and not self.problems and all(table.ok for table in self.tables)

    @property
    def compared(self) -> tuple[TableReport, ...]:
        """The reports of tables that are not left out."""
        return tuple(table for table in self.tables if table.left_out is None)

    @property
    def rows(self) -> int:
        """Rows of the source, over all tables."""
        return sum(table.source_rows or 0 for table in self.tables)

    def to_text(self) -> str:
        """Return a table with one line per table, then the rows that differ and the reasons."""
        lines = aligned([_HEADINGS, *(_cells(table) for table in self.tables)], numbers=range(1, len(_HEADINGS) - 1))
        for table in self.tables:
            lines.extend(_details(table))
        lines.extend(_of_records(self.tables))
        lines.extend((*self.problems, *self.notes))
        lines.append(f"verify: {self._verdict}: {len(self.compared)} tables, {self.rows} rows, {self.seconds:.1f} s")
        return "\n".join(lines)

    @property
    def _verdict(self) -> str:
        if self.ok:
            return "source equals sink"
        missing = sum(table.not_compared is not None for table in self.compared)
        if not missing or self.problems or any(table.differing for table in self.tables):
            return "source does NOT equal sink"
        return f"not known whether source equals sink: {missing} not compared"


_HEADINGS = ("table", "rows source", "rows sink", "ranges", "suspects", "differing", "moving", "result")


def _cells(table: TableReport) -> tuple[str, ...]:
    numbers = (table.source_rows, table.sink_rows, table.ranges, table.suspects, table.differing, table.moving)
    return (table.table, *("-" if number is None else str(number) for number in numbers), table.verdict)


def _of_records(tables: Sequence[TableReport]) -> list[str]:
    """Return a line for all tables whose columns of the newest record have the same names."""
    found: dict[tuple[str, ...], list[str]] = {}
    for table in tables:
        if table.record_columns:
            found.setdefault(table.record_columns, []).append(table.table)
    return [
        f"{', '.join(names)}: not compared, of the newest record and not of the row: {', '.join(columns)}"
        for columns, names in found.items()
    ]


def _details(table: TableReport) -> list[str]:
    lines = []
    if table.left_out is not None:
        lines.append(f"{table.table}: has no mirror: {table.left_out}")
    if table.not_compared is not None:
        lines.append(f"{table.table}: could not compare: {table.not_compared}")
    lines.extend(f"{table.table}: {difference}" for difference in table.differences)
    if table.differing > len(table.differences):
        lines.append(f"{table.table}: ... and {table.differing - len(table.differences)} more rows")
    if table.note is not None:
        lines.append(f"{table.table}: {table.note}")
    if table.moving:
        lines.append(
            f"{table.table}: {table.moving} rows changed in every round and were not seen standing still"
        )
    if table.sink_only_columns:
        lines.append(f"{table.table}: not compared, only in the sink: {', '.join(table.sink_only_columns)}")
    if table.kept_column is not None:
        lines.append(f"{table.table}: not compared: rows that are deleted at the source, where {table.kept_column} is true")
    if table.absent_columns:
        lines.append(f"{table.table}: not in the sink yet, taken as NULL: {', '.join(table.absent_columns)}")
    return lines
