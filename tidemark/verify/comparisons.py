"""How a table is compared with its rows in a target: a way and the target's columns enter, a rule per column leaves.

Columns that go into the target as they are, of a way that leaves no row out, are compared as text (`rules`), without Spark. Of any
other way the images are compared, as the plan makes them of the source's rows (`image_rows`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from schemas.avro import avro_field_name
from schemas.columns import Column, ColumnType
from schemas.connect_types import TimeMode
from schemas.names import adjusted_field_name
from spark_jobs.pipeline.select_items import columns_as_they_are, computes
from tidemark.verify.bulk_comparison import TablePlan
from tidemark.verify.column_rule import NO_KEY, ColumnRule, IncomparableError
from tidemark.verify.expected_rows import ExpectedRows, TextRows
from tidemark.verify.image_rules import image_rule
from tidemark.verify.rules import rule
from tidemark.verify.sink_reader import POSITION_COLUMN, TargetRows
from tidemark.verify.source import ReadTable, Source

if TYPE_CHECKING:
    from schemas.settings import Settings
    from spark_jobs.pipeline.row_images import Image, Item
    from tidemark.verify.image_rows import Cast
    from tidemark.verify.local_session import LocalSession
    from tidemark.verify.ways import Way

_MILLISECONDS: Final = 3
_OF_A_RECORD: Final = re.compile(r"\b__(?:op|position|ts)__\b", re.IGNORECASE)
"""What an expression may name that is of the newest record, not of the row: the source does not have it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rules, what reads the rows that the target must have over a connection, and columns that cannot be compared."""

    plan: TablePlan
    rows: Callable[[Source], ExpectedRows]
    uncompared: tuple[str, ...] = ()


class Comparisons:
    """The comparisons of the tables of one sink; `session` is started for the first one with images."""

    def __init__(self, settings: Settings, session: LocalSession) -> None:
        self._settings = settings
        self._session = session

    def of(self, way: Way, source: Source, sink: TargetRows) -> Comparison:
        """Return how the rows of a way are compared. `IncomparableError` where they cannot be."""
        table = source.table(way.table.name.database, way.table.name.table)
        if not table.schema.record_key:
            raise IncomparableError(NO_KEY)
        if sink.find(POSITION_COLUMN) is None:
            raise IncomparableError(f"the sink's table has no column {POSITION_COLUMN}: it is not one of ours")
        fields = self._fields(table)
        if way.where is not None or computes(way.select, list(fields)):
            return self._of_images(way, table, fields, sink)
        return self._of_text(way, table, fields, sink)

    def _fields(self, table: ReadTable) -> dict[str, Column]:
        """Return the columns by their names in records."""
        mode = self._settings.format.field_names
        return {avro_field_name(adjusted_field_name(column.name, mode)): column for column in table.schema.columns}

    def _of_text(self, way: Way, table: ReadTable, fields: Mapping[str, Column], sink: TargetRows) -> Comparison:
        mode = self._settings.format.field_names
        names = {column.name: field for field, column in fields.items()}
        kept = columns_as_they_are(way.select, list(fields), [names[name] for name in table.schema.record_key])
        rules = []
        for field, column in fields.items():
            if field not in kept:
                continue
            own = adjusted_field_name(column.name, mode)
            found = (sink.find(own) if kept[field] == field else None) or sink.find(kept[field])
            require_exact(column, self._settings.format.time)
            rules.append(rule(column, found and found.name, found and found.type))
        indexes = tuple([one.name for one in rules].index(key) for key in table.schema.record_key)
        plan = _with_keys(TablePlan(table, tuple(rules), indexes))
        return Comparison(plan, lambda source: TextRows(source, plan))

    def _of_images(self, way: Way, table: ReadTable, fields: Mapping[str, Column], sink: TargetRows) -> Comparison:
        spark = self._session.get()
        from tidemark.verify.codec_rows import CodecRows
        from tidemark.verify.image_rows import Cast, ImageRows, bound_image

        assert way.feed is not None
        rows = CodecRows(self._settings, way.table.name.database, way.table.name.table)
        image = bound_image(spark, way.feed, rows)
        if _asks_for_a_record(image):
            raise IncomparableError(f"the condition {way.where} is about the newest record, which the source does not have")
        by_field = {field.lower(): column for field, column in fields.items()}
        rules: list[ColumnRule] = []
        casts: list[Cast] = []
        uncompared: list[str] = []
        for item in image.items:
            if item.text is not None and _OF_A_RECORD.search(item.text):
                uncompared.append(item.name)
                continue
            found = sink.find(item.name)
            casts.append(Cast.to(item.name, item.kind, found and found.type))
            rules.append(self._rule(item, by_field, casts[-1], sink))
        indexes = tuple([cast.name for cast in casts].index(key) for key in image.keys)
        plan = _with_keys(TablePlan(table, tuple(rules), indexes))
        expected = ImageRows(spark, rows, image, plan, casts)
        return Comparison(plan, lambda _source: expected, tuple(uncompared))

    def _rule(self, item: Item, columns: Mapping[str, Column], cast: Cast, sink: TargetRows) -> ColumnRule:
        """Return the rule of a column of an image, of which both sides are arrays of the sink's type."""
        from pyspark.sql.pandas.types import to_arrow_type

        found = sink.find(item.name)
        if item.source is None:
            return image_rule(item.name, found and found.name, to_arrow_type(cast.kind) if found is None else found.type)
        column = columns[item.source.lower()]
        require_exact(column, self._settings.format.time)
        made = rule(column, found and found.name, found and found.type)
        return replace(made, from_source=made.from_sink)


def _asks_for_a_record(image: Image) -> bool:
    """Return whether the condition of an image names what is of the newest record, also as a computed column."""
    if image.where is None:
        return False
    of_record = [item.name for item in image.items if item.text is not None and _OF_A_RECORD.search(item.text)]
    named = re.findall(r"\w+", image.where.lower())
    return _OF_A_RECORD.search(image.where) is not None or any(name.lower() in named for name in of_record)


def _with_keys(plan: TablePlan) -> TablePlan:
    """Return a plan whose key is in the target; `IncomparableError` for any other."""
    for key in plan.key_rules:
        if key.sink_name is None:
            raise IncomparableError(f"the sink's table has no key column {key.name}")
    return plan


def require_exact(column: Column, mode: TimeMode) -> None:
    """Refuse a column whose values `format.time` cannot all hold: its sink is not meant to equal the source."""
    digits = column.precision or 0
    lossy = {
        "connect": column.type is ColumnType.TIME or (column.type is ColumnType.DATETIME and digits > _MILLISECONDS),
        "isostring": column.type is ColumnType.TIME,
        "nanoseconds": column.type is ColumnType.DATETIME,
    }
    if lossy.get(mode, False):
        raise IncomparableError(
            f"column {column.name}: format.time {mode} cannot hold every {column.type.upper()}({digits}), so the sink is "
            "not meant to equal the source; verify needs microseconds"
        )
