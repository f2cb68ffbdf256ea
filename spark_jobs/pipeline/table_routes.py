"""Routes: the name of a source table enters, its feeds leave: the targets it goes into, each with its transform. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from schemas.errors import ConfigError, SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.settings import SinkSettings
from schemas.settings.declaration import compiled
from schemas.settings.route_section import PLACEHOLDER, RouteSettings, TransformSettings
from spark_jobs.sinks.target_shape import CHANGELOG_OF, PLAIN_SHAPE, TargetShape

PLAIN: Final = ""
"""The rule of a feed without a transform: the rows as they are."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A source table on its way into one target. `transform_number` is that of the sink's list, for messages.

    With `is_changelog` its events go there, beside the mirror of its rows (`mode: both`). With `has_records` the target has records
    with keys, and those have the identity.
    """

    table: SourceTable
    target: Target
    transform: TransformSettings | None = None
    transform_number: int = -1
    is_changelog: bool = False
    has_records: bool = False

    @property
    def rule(self) -> str:
        """What the rows become, as a short text that differs where the transform does; `PLAIN` without one."""
        if self.transform is None:
            return PLAIN
        one = self.transform
        parts: list[object] = [list(one.select) or ["*"], one.where]
        if one.soft_delete is not None or one.partition_by or one.options:
            parts += [one.soft_delete, list(one.partition_by), dict(sorted(one.options.items()))]
        if one.key:
            parts += [{"key": list(one.key)}]
        document = json.dumps(parts)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    @property
    def shape(self) -> TargetShape:
        """How the target is made and kept."""
        one = self.transform
        return PLAIN_SHAPE if one is None else TargetShape(one.soft_delete, one.partition_by, one.options, one.key)


class Routes:
    """The routes and transforms of a sink. `sink` is its name in targets.

    With `adds_changelogs` each target has another one beside it, with its changelog.
    """

    def __init__(
        self,
        sink: str,
        routes: Sequence[RouteSettings] = (),
        transforms: Sequence[TransformSettings] = (),
        match: Literal["all", "first"] = "all",
        unrouted: Literal["keep", "leave_out"] = "keep",
        *,
        adds_changelogs: bool = False,
        has_records: bool = False,
    ) -> None:
        self._adds_changelogs = adds_changelogs
        self.sink = sink
        self._has_records = has_records
        self._routes = tuple(routes)
        self._transforms = tuple(transforms)
        self._takes_first = match == "first"
        self._keeps_unrouted = unrouted == "keep"
        self._is_circle: Callable[[str, str], bool] = lambda _database, _table: False

    def refusing(self, is_circle: Callable[[str, str], bool]) -> Routes:
        """Return these routes, which refuse a table with a target (database, table) whose rows would be read again."""
        self._is_circle = is_circle
        return self

    @staticmethod
    def of(sink: str, settings: SinkSettings) -> Routes:
        """Return the routes of a configured sink."""
        return Routes(
            sink,
            settings.routes,
            settings.transforms,
            settings.match,
            settings.unrouted,
            adds_changelogs=settings.mode == "both",
            has_records=settings.type == "kafka" or settings.mode != "mirror",
        )

    @property
    def are_given(self) -> bool:
        """Whether a route, a transform or a changelog is configured: else each table goes as it is into the target of its name."""
        return bool(self._routes or self._transforms) or not self._keeps_unrouted or self._adds_changelogs

    def feeds(self, table: SourceTable) -> tuple[Feed, ...]:
        """Return the feeds of a table, in the order of the routes; none where it is left out.

        `SinkError` for a target without a database or a table name: a group of the route is empty for this table.
        `ConfigError` for one that is captured on the server that is read.
        """
        targets = self._targets(table.name)
        if not targets and self._keeps_unrouted:
            targets = [table.name]
        for target in targets:
            if self._is_circle(target.database, target.table):
                where = "sinks: url: this is the server that is read"
                raise ConfigError(f"{where}, and {target.plain} is captured there: rows would come round")
        feeds = [self._feed(table, target) for target in dict.fromkeys(targets)]
        if self._adds_changelogs:
            feeds += [self._changelog(feed) for feed in feeds]
        return tuple(feeds)

    def _changelog(self, feed: Feed) -> Feed:
        """Return the feed of the changelog beside a mirror. `ConfigError` where the mirror has the name of a changelog."""
        name = TableName.parse(feed.target.name)
        if name.table.endswith(CHANGELOG_OF):
            message = f"sinks: {self.sink}: mode: {name.plain} would be the changelog of another target: route it elsewhere"
            raise ConfigError(message)
        target = Target(feed.target.sink, TableName(name.database, f"{name.table}{CHANGELOG_OF}").text)
        return replace(feed, target=target, is_changelog=True)

    def _targets(self, name: TableName) -> list[TableName]:
        found: list[TableName] = []
        for route in self._routes:
            matched = compiled(route.tables).fullmatch(name.plain)
            if matched is not None:
                found.append(_target_of(route, matched, name))
                if self._takes_first:
                    break
        return found

    def _feed(self, table: SourceTable, target: TableName) -> Feed:
        name = Target(self.sink, target.text)
        for number, transform in enumerate(self._transforms):
            if compiled(transform.tables).fullmatch(table.name.plain) is None:
                continue
            if transform.into is None or compiled(transform.into).fullmatch(target.plain) is not None:
                return Feed(table, name, transform, number, has_records=self._has_records)
        return Feed(table, name, has_records=self._has_records)


def _target_of(route: RouteSettings, matched: re.Match[str], name: TableName) -> TableName:
    """Return the target of a table: the template is divided at its dot before names with dots are put into it."""
    database, table = (_filled(part, matched, name) for part in route.into.split("."))
    if not database or not table:
        message = (
            f"the route {route.tables!r} into {route.into!r} gives no name for {name.plain}: a group of it is empty. Correct the "
            "pattern, or leave the table out of it"
        )
        raise SinkError(message)
    return TableName(database, table)


def _filled(template: str, matched: re.Match[str], name: TableName) -> str:
    values = {"database": name.database, "table": name.table}

    def value(found: re.Match[str]) -> str:
        word = found[1] or found[2] or found[3]
        return values[word] if word in values else matched[int(word)] or ""

    return PLACEHOLDER.sub(value, template)
