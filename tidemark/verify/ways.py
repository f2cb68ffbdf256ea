"""Ways: where each captured table goes in the sink, by its routes, and what becomes of its rows there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.settings import Settings
from spark_jobs.pipeline.table_plan import plan_of
from spark_jobs.pipeline.table_routes import Feed, Routes
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.sink_reader import SinkReader, TargetRows


@dataclass(frozen=True, slots=True)
class Way:
    """A captured table on its way into one target: which that is, whether others go into it, and what the rows become (`feed`).

    `reason` says why the rows cannot be compared, where there is no feed.
    """

    table: SourceTable
    target: TableName
    feed: Feed | None = None
    is_shared: bool = False
    reason: str = ""

    @property
    def name(self) -> str:
        """The name of the table, and of the target where it has another."""
        own = self.table.name.plain
        return own if self.target == self.table.name else f"{own} → {self.target.plain}"

    @property
    def select(self) -> tuple[str, ...]:
        """The columns that are chosen; empty for all."""
        return () if self.feed is None or self.feed.transform is None else self.feed.transform.select

    @property
    def where(self) -> str | None:
        """The condition of the rows; None for all."""
        return None if self.feed is None or self.feed.transform is None else self.feed.transform.where

    @property
    def kept(self) -> str | None:
        """The column that is true in rows that are deleted at the source; None where they leave."""
        return None if self.feed is None or self.feed.transform is None else self.feed.transform.soft_delete

    def rows(self, reader: SinkReader) -> TargetRows:
        """Open the rows of the table in the target; `IncomparableError` where they cannot be compared."""
        if self.feed is None:
            raise IncomparableError(self.reason)
        rows = reader.rows(self.target, self.table.text if self.is_shared else None)
        if self.kept is not None and rows.find(self.kept) is None:
            message = f"the sink's table has no column {self.kept}, which is true in rows that are deleted at the source"
            raise IncomparableError(message)
        rows.kept = self.kept
        return rows


class Ways:
    """Where the captured tables go in the sink."""

    def __init__(self, settings: Settings, names: Sequence[tuple[str, str]]) -> None:
        self._captures = settings.source.captures
        self._routes, self._source = Routes.of("sink", settings.sink), SourceId(settings.name)
        tables = [SourceTable.of(self._source, *name) for name in names]
        self._plan = plan_of(self._routes, tables)
        fed_by: dict[TableName, list[SourceTable]] = {}
        for table in tables:
            for feed in () if table in self._plan.failed else self._feeds(table):
                fed_by.setdefault(_name(feed.target), []).append(table)
        self._targets = frozenset(fed_by)
        self.sources = {target: [table.text for table in found] for target, found in fed_by.items() if len(found) > 1}
        """The texts of the tables that go into each target that has more than one."""

    def of(self, database: str, name: str) -> list[Way]:
        """Return the ways of a table; one with the reason where it has none."""
        table = SourceTable.of(self._source, database, name)
        if table in self._plan.failed:
            return [Way(table, table.name, reason=self._plan.failed[table])]
        return [self._way(feed) for feed in self._feeds(table)]

    def gone(self, reader: SinkReader) -> Iterator[TableName]:
        """Yield the targets of the sink with the name of a captured table, which the source does not have (any more)."""
        for name in reader.targets():
            if name not in self._targets and self._captures(name.database, name.table):
                yield name

    def _feeds(self, table: SourceTable) -> list[Feed]:
        """Return the feeds of a table into mirrors: a changelog has no current rows."""
        return [feed for feed in self._routes.feeds(table) if not feed.is_changelog]

    def _way(self, feed: Feed) -> Way:
        target = _name(feed.target)
        return Way(feed.table, target, feed, target in self.sources)


def _name(target: Target) -> TableName:
    return TableName.parse(target.name)
