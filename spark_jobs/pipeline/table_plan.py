"""The plan of a sink: routes and known tables enter; which table goes where, and with which others, leaves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from schemas.errors import SinkError, TransformError
from schemas.identity import SourceTable, TableName, Target
from spark_jobs.pipeline.table_routes import PLAIN, Feed, Routes
from spark_jobs.sinks.target_shape import TargetShape

_REBUILD: Final = "give the old {} again, or: tidemark rebuild --sink {} {}"


@dataclass(frozen=True, slots=True)
class Group:
    """Feeds that are merged together: those of tables that share a target, and those into targets that share a table."""

    feeds: tuple[Feed, ...]

    @property
    def tables(self) -> tuple[SourceTable, ...]:
        """The source tables, sorted."""
        return tuple(sorted({feed.table for feed in self.feeds}))

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets, sorted."""
        return tuple(sorted({feed.target for feed in self.feeds}))

    def feeds_of(self, table: SourceTable) -> tuple[Feed, ...]:
        """Return the feeds of one table."""
        return tuple(feed for feed in self.feeds if feed.table == table)

    def tables_into(self, target: Target) -> tuple[SourceTable, ...]:
        """Return the tables that go into one target, sorted."""
        return tuple(sorted(feed.table for feed in self.feeds if feed.target == target))

    def shape(self, target: Target) -> TargetShape:
        """Return how a target is made and kept; `TransformError` where its tables do not agree."""
        return shape_of([feed for feed in self.feeds if feed.target == target])


def shape_of(feeds: Sequence[Feed]) -> TargetShape:
    """Return how the one target of these feeds is made and kept; `TransformError` where they do not agree."""
    first = feeds[0]
    for feed in feeds:
        for item in fields(TargetShape):
            if getattr(feed.shape, item.name) != getattr(first.shape, item.name):
                message = (
                    f"{item.name} of {first.target.name} is not the same for {first.table.name.plain} and {feed.table.name.plain}: "
                    "one target has one. Give their transforms the same, or route them into targets of their own"
                )
                raise TransformError(message)
    return first.shape


@dataclass(frozen=True, slots=True)
class Plan:
    """Which tables go where.

    `alone` are the tables that go as they are into one target, into which no other table goes. All others are in `groups`; a table
    of neither is left out of the sink. Of `failed` tables the targets cannot be named, for the reason that is given.
    """

    alone: Mapping[SourceTable, Target]
    groups: tuple[Group, ...]
    failed: Mapping[SourceTable, str]

    def has(self, table: SourceTable) -> bool:
        """Return whether a table goes into the sink, or would if its targets could be named."""
        return table in self.alone or table in self.failed or any(table in group.tables for group in self.groups)


def plan_of(routes: Routes, tables: Iterable[SourceTable]) -> Plan:
    """Return the plan for these tables."""
    feeds: dict[SourceTable, tuple[Feed, ...]] = {}
    failed: dict[SourceTable, str] = {}
    for table in sorted(set(tables)):
        try:
            feeds[table] = routes.feeds(table)
        except SinkError as error:
            failed[table] = str(error)
    fed_by: dict[Target, list[SourceTable]] = {}
    for table, found in feeds.items():
        for feed in found:
            fed_by.setdefault(feed.target, []).append(table)
    alone = {
        table: found[0].target
        for table, found in feeds.items()
        if len(found) == 1 and found[0].rule == PLAIN and len(fed_by[found[0].target]) == 1
    }
    groups: list[Group] = []
    left = {table for table, found in feeds.items() if found and table not in alone}
    while left:
        reached = {min(left)}
        while True:
            more = {table for one in reached for feed in feeds[one] for table in fed_by[feed.target]}
            if more <= reached:
                break
            reached |= more
        groups.append(Group(tuple(feed for table in sorted(reached) for feed in feeds[table])))
        left -= reached
    return Plan(alone, tuple(groups), failed)


def require_same_rules(routes: Routes, remembered: Mapping[SourceTable, Mapping[str, str] | None]) -> None:
    """Raise `SinkError` if a table that was merged goes elsewhere now, or becomes something else.

    `remembered` has of each table the rule of its feed into each target, by the target's text; None for one that was merged by a
    version without routes: as it is, under its own name.
    """
    for table, before in sorted(remembered.items()):
        own = Target(routes.sink, table.name.text).text
        then = {own: PLAIN} if before is None else before
        now = {feed.target.text: feed.rule for feed in routes.feeds(table)}
        for target in sorted(then.keys() - now.keys()):
            message = f"{_name(target)} has rows of {table.name.plain}, which does not go into it any longer: {_advice(target)}"
            raise SinkError(message)
        for target in sorted(now.keys() - then.keys()):
            message = (
                f"{table.name.plain} now goes into {_name(target)}, and was read before: that target would lack its rows. "
                f"Either {_advice(target)}"
            )
            raise SinkError(message)
        for target in sorted(now):
            if now[target] != then[target]:
                message = f"{_name(target)} was built of {table.name.plain} by another rule: {_advice(target)}"
                raise SinkError(message)


def require_same_batch(
    batch_id: int, before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]], sink: Sequence[str]
) -> None:
    """Raise `SinkError` if the repeat of a batch would make something else of a target that the first attempt has written to.

    `before` has the rule of each source table by the texts of those targets and of the tables, `now` the present ones. `sink` names
    the settings of the sink that are others now.
    """
    for target, rules in sorted(before.items()):
        if sink:
            reason = f"with another {' and '.join(sink)}"
        elif changed := [table for table, rule in rules.items() if now.get(target, {}).get(table) != rule]:
            reason = f"of {SourceTable.parse(changed[0]).name.plain} by another rule"
        else:
            continue
        message = (
            f"{_name(target)} has rows {reason}: an attempt at batch {batch_id} wrote them before it was cut off, and its repeat "
            f"would mix the two. Either {_advice(target, of_sink=bool(sink))}"
        )
        raise SinkError(message)


def _name(target: str) -> str:
    return TableName.parse(Target.parse(target).name).plain


def _advice(target: str, *, of_sink: bool = False) -> str:
    return _REBUILD.format("settings" if of_sink else "routes and transforms", Target.parse(target).sink, _name(target))
