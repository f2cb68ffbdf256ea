"""Which columns a target should have: its columns and the writers of its records enter, an `Evolution` leaves. Pure.

The target follows the source: columns are added and widened; `pipeline.schema_rules` says whether they are dropped. A column takes
a narrower type only where no value is lost: when every row was read again since the source's column has it, or as soon as all fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.spark_types import holds, widest
from spark_jobs.decode.table_layout import TableLayout, fill_value
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.sinks.contract import Columns, Evolution


def evolution(existing: Columns, plan: TableLayout) -> Evolution:
    """Return the change that leads from the columns of a target to those of the layout."""
    have = dict(existing)

    def fill(name: str, kind: T.DataType) -> Any:
        without = [writer for writer in plan.versions if name.lower() not in writer.by_name]
        return fill_value(plan.versions, without[-1] if without else None, name, kind)  # it may have been dropped before

    added = [(name, kind, fill(name, kind)) for name, kind in plan.columns if name not in have]
    retyped = [(name, kind) for name, kind in plan.columns if name in have and have[name] != kind]
    return Evolution(tuple(added), tuple(retyped))


def narrowing(existing: Columns, writers: Iterable[WriterSchema]) -> Columns:
    """Return the columns that are wider than the records of these writers need, with the type that would do."""
    found: list[tuple[str, T.DataType]] = []
    for name, kind in existing:
        wanted: T.DataType = T.NullType()
        for writer in writers:
            if name.lower() in writer.by_name:
                wanted = widest(wanted, writer.by_name[name.lower()].type)
        if wanted not in (kind, T.NullType()):
            found.append((name, wanted))
    return found


def outgrown(existing: Columns, writers: Iterable[WriterSchema]) -> tuple[int, ...]:
    """Return the ids of the writers some of whose values the columns cannot have."""
    types = {name.lower(): kind for name, kind in existing}
    return tuple(
        writer.id
        for writer in writers
        if not all(holds(types[name], item.type) for name, item in writer.by_name.items() if name in types)
    )
