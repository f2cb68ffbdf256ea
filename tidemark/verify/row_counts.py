"""How many rows of each table a sink has: its targets are read, as `tidemark verify` reads them. No row is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.sink_types import open_reader
from tidemark.verify.ways import Ways

if TYPE_CHECKING:
    from schemas.settings import Settings


def row_counts(settings: Settings, names: Sequence[tuple[str, str]]) -> Mapping[str, Mapping[str, int | str]]:
    """Return, by table and target, the rows of the table in the only sink of the settings, or why they cannot be counted.

    Rows that are deleted at the source and kept in the sink do not count. Raises `ConfigError` for a sink that cannot be read.
    """
    ways, found = Ways(settings, names), dict[str, dict[str, int | str]]()
    reader = open_reader(settings)
    for name in names:
        counts = found.setdefault(".".join(name), {})
        for way in ways.of(*name):
            try:
                counts[way.target.plain] = way.rows(reader).count()
            except IncomparableError as error:
                counts[way.target.plain] = str(error)
    return found
