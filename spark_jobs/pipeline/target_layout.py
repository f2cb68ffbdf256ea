"""The columns and the key of a target: the images of its source tables enter, one `TableLayout` leaves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import TransformError
from schemas.identity import Target
from spark_jobs.decode.record_columns import SOURCE
from spark_jobs.decode.spark_types import widest
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.pipeline.row_images import Image
from spark_jobs.sinks.contract import Columns


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
