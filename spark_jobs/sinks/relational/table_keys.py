"""The keys of a table of a database: the identity of its rows and the key that is asked for enter, key and indexes leave. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.decode.record_columns import SOURCE


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The primary key, and the columns of other indexes, none where there is no such index.

    `identity` finds rows where the primary key begins with other columns; it goes without `SOURCE`, which may come later. `plain`
    is asked for, and its columns are not the identity: they may be NULL, and several rows may have the same.
    """

    primary: tuple[str, ...]
    identity: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()

    @staticmethod
    def of(identity: Sequence[str], asked: Sequence[str] = ()) -> TableKeys:
        """Return the keys of a table whose rows are found by `identity`, and that is asked to have the key `asked`."""
        own = tuple(name for name in identity if name != SOURCE)
        if not asked:
            return TableKeys(tuple(identity))
        if not set(own) <= set(asked):
            return TableKeys(tuple(identity), plain=tuple(asked))
        first = (SOURCE,) if SOURCE in identity else ()
        finds = set(asked[: len(own)]) == set(own)
        return TableKeys((*first, *(name for name in asked if name != SOURCE)), identity=() if finds else own)
