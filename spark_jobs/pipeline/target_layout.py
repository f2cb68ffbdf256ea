"""The columns and the key of a target, and how its columns change in a batch: images, or the writers of its records, enter. Pure.

A `TableLayout` or an `Evolution` leaves. The target follows the source: columns are added and widened; `schema_rules` says whether
they are dropped. A column takes a narrower type only if no value is lost: when every row was read again since the column of the
source has it, or as soon as all fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError, TransformError
from schemas.identity import Target
from spark_jobs.decode.record_columns import SOURCE
from spark_jobs.decode.spark_types import holds, widest
from spark_jobs.decode.table_layout import TableLayout, fill_value
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.pipeline.row_images import Image
from spark_jobs.pipeline.schema_rules import SchemaRule, require_key, require_none_left_out
from spark_jobs.sinks.contract import Columns, Evolution, FedBy


def target_layout(
    target: Target,
    images: Sequence[Image],
    existing: Columns = (),
    keys_of_others: Mapping[str, tuple[str, ...]] | None = None,
    *,
    is_shared: bool,
) -> TableLayout:
    """Return the columns of a target: those it has, then those of the images; each as wide as its widest.

    With `is_shared` it has `SOURCE`, which is the first part of its key. `keys_of_others` are the keys of source tables, by their
    texts, whose images are not given here. `TransformError` if two source tables have different keys.
    """
    columns: dict[str, T.DataType] = dict(existing)
    if is_shared:
        columns.setdefault(SOURCE, T.StringType())
    spelling = {name.lower(): name for name in columns}
    for image in images:
        for name, kind in image.columns:
            known = spelling.setdefault(name.lower(), name)
            columns[known] = widest(columns.get(known, T.NullType()), kind)
    found = dict(keys_of_others or {}) | {image.feed.table.text: image.keys for image in images}
    keys = _same_keys(target, found)
    own = [SOURCE] if is_shared else []
    return TableLayout((), (), (), tuple(columns.items()), (*own, *(spelling[name.lower()] for name in keys)))


def _same_keys(target: Target, found: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    (first, keys), *others = found.items()
    for name, other in others:
        if tuple(map(str.lower, other)) != tuple(map(str.lower, keys)):
            message = (
                f"the tables that go into {target.name} have different keys: {', '.join(keys)} of {first}, {', '.join(other)} of "
                f"{name}. Route them into targets of their own"
            )
            raise TransformError(message)
    return keys


@dataclass(frozen=True, slots=True)
class TargetImages:
    """A target in a batch: its columns (none if it does not exist), the images that go into it, and what went into it before.

    `versions` are the writer schemas of the table of each image, oldest first, in the order of the images. With `is_shared` several
    tables go into it.
    """

    target: Target
    existing: Columns
    images: Sequence[Image]
    versions: Sequence[Sequence[WriterSchema]]
    fed_by: Mapping[str, FedBy]
    is_shared: bool

    def gone(self) -> dict[str, frozenset[str]]:
        """Return the columns that each table had in the target and has there no more, in small letters, by the table's text."""
        found: dict[str, frozenset[str]] = {}
        for image in self.images:
            known = self.fed_by.get(image.feed.table.text)
            now = {item.name.lower() for item in image.items}
            had = () if known is None else (*known.columns, *known.keys)
            found[image.feed.table.text] = frozenset(name.lower() for name in had) - now - {SOURCE.lower()}
        return found

    def dropped(self) -> tuple[str, ...]:
        """Return the columns of the target that a table had there, and that none has any more."""
        gone = self.gone()
        left = {item.name.lower() for image in self.images for item in image.items}
        for name, known in self.fed_by.items():
            left |= {column.lower() for column in (*known.columns, *known.keys)} - gone.get(name, frozenset())
        lost = {name for names in gone.values() for name in names} - left
        return tuple(name for name, _ in self.existing if name.lower() in lost)

    def layout(self, rule: SchemaRule, *, drops: bool) -> TableLayout:
        """Return the columns and the key of the target in this batch. `SchemaChangeError` where the rule cannot be kept to.

        With `drops` columns go that no table has any more.
        """
        gone = self.dropped() if drops else ()
        existing = [(name, kind) for name, kind in self.existing if name not in gone]
        names = {image.feed.table.text for image in self.images}
        others = {
            name: tuple(key for key in one.keys if key != SOURCE) for name, one in self.fed_by.items() if name not in names
        }
        found = target_layout(self.target, self.images, existing, others, is_shared=self.is_shared)
        if not existing:
            return found
        if rule.adds:
            have = dict(self.existing)
            require_none_left_out(self.target.name, [name for name in found.names if name not in have], self._known_names())
        return found if rule.adds and rule.retypes else self._kept(found, rule)

    def _known_names(self) -> frozenset[str]:
        """Return the columns that tables have in the target, or would if they were not left out of it, in small letters."""
        return frozenset(name.lower() for known in self.fed_by.values() for name in known.columns if name != SOURCE)

    def _kept(self, found: TableLayout, rule: SchemaRule) -> TableLayout:
        """Return the layout of a target whose columns do not follow its sources."""
        have = dict(self.existing)
        columns = [(name, kind) for name, kind in found.columns if rule.adds or name in have or name == SOURCE]
        if not rule.retypes:
            columns = [(name, have.get(name, kind)) for name, kind in columns]
        require_key(self.target.name, columns, found.keys)
        return TableLayout((), (), (), tuple(columns), found.keys)

    def evolution(self, layout: TableLayout, *, drops: bool) -> Evolution:
        """Return what leads from the columns of the target to those of the layout.

        A column that a table has for the first time is filled with the table's default, in its own rows only. With `drops` a column
        that one table has no more, and others have, becomes NULL in its rows.
        """
        have, fills = dict(self.existing), self._fills()
        added: list[tuple[str, T.DataType, Any]] = []
        for name, kind in layout.columns:
            if name in have:
                continue
            value = None
            if name == SOURCE:
                value = self._first_source()
            elif not self.is_shared and name.lower() in fills:
                value = fills[name.lower()][0][1]
            added.append((name, kind, value))
        retyped = tuple((name, kind) for name, kind in layout.columns if name in have and have[name] != kind)
        dropped = self.dropped() if drops else ()
        if not self.is_shared:
            return Evolution(tuple(added), retyped, dropped=dropped)
        filled = [(name, source, value) for name in layout.names for source, value in fills.get(name.lower(), ())]
        if drops:
            filled += self._emptied(layout.names, (*dropped, *layout.keys))
        return Evolution(tuple(added), retyped, tuple(filled), dropped)

    def _fills(self) -> dict[str, list[tuple[str, Any]]]:
        """Return the constants of columns that tables have for the first time: (text of the table, value) by the column."""
        fills: dict[str, list[tuple[str, Any]]] = {}
        for image, versions in zip(self.images, self.versions, strict=True):
            table = image.feed.table.text
            known = self.fed_by.get(table)
            if known is None:
                continue  # it has no rows there
            had = {name.lower() for name in known.columns}
            for item in image.items:
                if item.source is not None and item.name.lower() not in had:
                    value = fill_value(versions, None, item.source, item.kind)
                    if value is not None:
                        fills.setdefault(item.name.lower(), []).append((table, value))
        return fills

    def _emptied(self, names: Sequence[str], others: Collection[str]) -> list[tuple[str, str, None]]:
        """Return the columns that tables have no more, while they stay, with NULL for their rows."""
        return [
            (name, table, None)
            for table, gone in sorted(self.gone().items())
            for name in names
            if name.lower() in gone and name not in others and any(name == one for one, _ in self.existing)
        ]

    def _first_source(self) -> str:
        """Return the one table that the rows of the target are from, before it has a second."""
        fed_by = tuple(self.fed_by)
        if len(fed_by) != 1:
            name = self.target.name
            message = f"it is not known from which table the rows of {name} are: tidemark rebuild {name}"
            raise SinkError(message)
        return fed_by[0]


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
