"""From a TABLE_MAP event to what its rows become: a codec, a topic and handlers, or only a count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from mysqlio.definitions.table_parts import SYSTEM_DATABASES
from producer.binlog import events
from producer.binlog.rowcount import cell_sizes, count_partial_rows, count_rows
from producer.catalog.online_ddl import real_table
from producer.stream.groups import OPS
from producer.stream.ports import Route, RoutePlan, RowsWatcher, RunHandler, RunPlan
from producer.stream.steps import PartialRows, Rows
from schemas import topics
from schemas.errors import (
    ACCESS_ERRORS,
    DecodeError,
    RetriableSourceError,
    SourceError,
    TidemarkError,
    UnsupportedTypeError,
)
from schemas.loop_marks import META, is_marked, mark_table

if TYPE_CHECKING:
    from producer.binlog import EventBatch, TableMap
    from producer.catalog import Catalog
    from producer.kafka.codecs import LogCodecs
    from producer.kafka.tables import TableTopics
    from producer.stream.ports import Op, RowsHandler, TableErrors
    from rowcodec import TableCodec
    from schemas.columns import TableSchema
    from schemas.position import Position
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

_JSON: Final = 245
_UPDATE_ROWS_V2: Final = 31


class CapturedTables:
    """The tables that are captured: those the settings name, and the signal table. Shared by all that ask."""

    def __init__(self, source: SourceSettings) -> None:
        self._source = source

    def replace(self, source: SourceSettings) -> None:
        """Capture what these settings name from now on. Between two transactions, by the log reader's thread."""
        self._source = source

    def is_signal(self, database: str, table: str) -> bool:
        """Return whether it is the signal table (published, never snapshotted or merged)."""
        return (database, table) == self._source.signal_names

    def holds_data(self, database: str, table: str) -> bool:
        """Return whether the table is captured for its data: published, snapshotted, merged."""
        return database.lower() not in SYSTEM_DATABASES and self._source.captures(database, table)

    def holds(self, database: str, table: str) -> bool:
        """Return whether rows of the table are published."""
        return self.is_signal(database, table) or self.holds_data(database, table)

    def is_mark(self, database: str, table: str) -> bool:
        """Return whether it is the mark table of an ignored channel."""
        return database == META and table in map(mark_table, self._source.ignore_channels)

    def is_marked(self, sql: str) -> bool:
        """Return whether an ignored channel has run the statement."""
        return is_marked(sql, self._source.ignore_channels)

    def follows(self, database: str, table: str) -> bool:
        """Return whether the table's definition matters: captured, or made to replace one that is."""
        real = real_table(table)
        return self.holds(database, table) or (real is not None and self.holds_data(database, real))


def planned(route: Route, handlers: Sequence[RowsHandler]) -> Route:
    """Return the route with its plans: every handler is asked once per operation what it wants."""
    wanted = {
        op: RoutePlan(
            op,
            2 if op == "u" else 1,
            op in route.encoded_ops,
            tuple(one.rows for one in handlers if one.wants(route, op)),
            tuple(one for one in handlers if one.wants(route, op) and isinstance(one, RowsWatcher)),
        )
        for op in sorted(set(OPS.values()))
    }
    runs = {op: _run_plan(route, op, handlers) for op in wanted}
    plans = {kind: wanted[op] for kind, op in OPS.items()}
    return replace(route, plans=plans, run_plans=[_common(runs, bits) for bits in range(8)])


def _run_plan(route: Route, op: Op, handlers: Sequence[RowsHandler]) -> RunPlan | None:
    """Return what happens to rows of the operation in a run; None where a handler or the codec wants its events one by one."""
    wanting = [one for one in handlers if one.wants(route, op)]
    if route.is_mark:
        return None
    able = [one for one in wanting if isinstance(one, RunHandler)]
    if op not in route.encoded_ops or route.codec is None:
        return None if wanting else RunPlan(encodes=False, handlers=())
    if len(able) < len(wanting) or not route.codec.encodes_runs:
        return None
    return RunPlan(encodes=True, handlers=tuple(one.run for one in able))


def _common(plans: Mapping[Op, RunPlan | None], bits: int) -> RunPlan | None:
    """Return the plan of all operations whose bits are set, if it is the same."""
    found = [plans[op] for bit, op in ((1, "c"), (2, "u"), (4, "d")) if bits & bit]  # type: ignore[index]
    if not found:
        return RunPlan(encodes=False, handlers=())
    return found[0] if all(one == found[0] for one in found) else None


class RouteBuilder:
    """Builds routes of captured tables: codec, topic and key text of a table version. Raises what prevents publishing."""

    def __init__(
        self,
        prefix: str,
        catalog: Catalog,
        codecs: LogCodecs,
        tables: TableTopics,
        captured: CapturedTables,
        skipped: frozenset[Op] = frozenset(),
        delimiter: str = topics.DELIMITER,
    ) -> None:
        """`skipped` operations become no records, except in the signal table."""
        self._prefix = prefix
        self._delimiter = delimiter
        self._catalog = catalog
        self._codecs = codecs
        self._tables = tables
        self._captured = captured
        self._skipped = skipped

    def captured(self, table_map: TableMap) -> Route:
        """Return the route of a captured table."""
        database, table = table_map.database, table_map.table
        version = self._catalog.version_of(table_map)
        layout = replace(version.layout, bare_doubles=table_map.bare_doubles)
        self._ensure_topics(database, table)
        is_signal = self._captured.is_signal(database, table)
        ops = frozenset(OPS.values())
        return replace(
            counted(table_map),
            topic=topics.change_topic(self._prefix, database, table, self._delimiter),
            codec=self._codecs.codec(version.schema, layout),
            key_text=self._codecs.key_text(version.schema),
            layout=layout,
            is_signal=is_signal,
            outbox=self._codecs.outbox(version.schema, layout),
            schema=version.schema,
            encoded_ops=ops if is_signal else ops - self._skipped,
        )

    def others(self, table_map: TableMap, *, described: bool) -> Route:
        """Return the route of a table whose rows are only counted; with its columns where they are `described`."""
        return replace(counted(table_map), schema=self._described(table_map) if described else None)

    def for_truncate(self, database: str, table: str) -> tuple[str, TableCodec] | None:
        """Return topic and codec of a table that was emptied; None when it is gone and its columns unknown."""
        schema = self._catalog.current(database, table)
        if schema is None:
            return None
        self._ensure_topics(database, table)
        return topics.change_topic(self._prefix, database, table, self._delimiter), self._codecs.codec(schema)

    def is_publishable_now(self, database: str, table: str) -> bool:
        """Return whether the table exists; raise what prevents that it is published as the server has it."""
        schema = self._catalog.as_it_is_now(database, table)
        if schema is None:
            return False
        self._ensure_topics(database, table)
        self._codecs.codec(schema)
        return True

    def _ensure_topics(self, database: str, table: str) -> None:
        """Make the topics of a table that the log shows for the first time; those that exist stay."""
        if self._captured.is_signal(database, table):
            self._tables.ensure_signal(database, table)
        else:
            self._tables.ensure(database, table)

    def _described(self, table_map: TableMap) -> TableSchema | None:
        """Return the columns of a table that is not captured; None where they are not known."""
        try:
            return self._catalog.version_of(table_map).schema
        except (RetriableSourceError, *ACCESS_ERRORS):
            raise
        except (SourceError, UnsupportedTypeError) as error:
            name = f"{table_map.database}.{table_map.table}"
            log.warning("catalog.parent_not_described", table=name, reason=str(error))
            return None


def counted(table_map: TableMap) -> Route:
    """Return the route of a table whose rows are only counted."""
    types = table_map.types
    json_columns = tuple(index for index, code in enumerate(types) if code == _JSON)
    return Route(
        table_map.database, table_map.table, len(types), cell_sizes(types, table_map.metas), json_columns
    )


def whole_rows(step: PartialRows, route: Route) -> Rows:
    """Return an update that the log has as differences of JSON documents as one with whole images. Raises `DecodeError`."""
    transaction, batch, index, file, offset = step
    start, end = int(batch.starts[index]), int(batch.ends[index])
    header = events.parse_rows_header(batch.memory, start, end, _UPDATE_ROWS_V2, route.columns)
    plain = events.whole_update(batch.memory, start, header.rows_start, end, route.sizes.tolist(), route.json_columns)
    return Rows(transaction, plain, 0, _UPDATE_ROWS_V2, 0, int(plain.ends[0]), file, offset)


def count_event(route: Route, batch: EventBatch, kind: int, start: int, end: int, where: str = "") -> int:
    """Return how many rows an event of type `kind` has, also one without all columns. Raises `DecodeError`."""
    header = events.parse_rows_header(batch.memory, start, end, kind, route.columns, whole=False)
    if header.present:
        return count_partial_rows(batch.memory, header.rows_start, end, route.sizes, header.present)
    return count_rows(batch.buf, header.rows_start, end, route.sizes, 2 if OPS[kind] == "u" else 1, where)


class Router:
    """A map from TABLE_MAP events to routes, by their bytes. After DDL on a table its route is built again.

    `describes` names tables whose columns are needed (`Route.schema`) although they are not captured. A captured table
    that cannot be published is set aside.
    """

    def __init__(
        self,
        builder: RouteBuilder,
        captured: CapturedTables,
        aside: TableErrors,
        handlers: Sequence[RowsHandler] = (),
        describes: Callable[[str, str], bool] = lambda _database, _table: False,
    ) -> None:
        self._builder = builder
        self._captured = captured
        self._aside = aside
        self._handlers = handlers
        self._describes = describes
        self._refused: dict[tuple[str, str], TableMap] = {}
        self._routes: dict[bytes, Route] = {}

    def known(self, fingerprint: bytes) -> Route | None:
        """Return the route that was built for these very bytes."""
        return self._routes.get(fingerprint)

    def find(self, fingerprint: bytes, table_map: TableMap, position: Position) -> Route:
        """Build the route of a TABLE_MAP event of the transaction at `position`, and remember it by `fingerprint`."""
        route = planned(self._build(table_map, position), self._handlers)
        self._routes[fingerprint] = route
        return route

    def unreadable(self, fingerprint: bytes, database: str, table: str, error: DecodeError, position: Position) -> Route:
        """Return the route of a table whose TABLE_MAP event cannot be read: its rows cannot be measured either.

        A captured table is set aside. Raises the error for one whose columns are needed although it is not captured.
        """
        if self._describes(database, table):
            raise error
        if self._captured.holds(database, table):
            self._aside.put(database, table, UnsupportedTypeError(error.reason), position)
        unmeasured = Route(database, table, 0, np.empty(0, np.int64))
        route = self._routes[fingerprint] = replace(planned(unmeasured, self._handlers), run_plans=[None] * 8)
        return route

    def is_publishable(self, database: str, table: str) -> bool:
        """Return whether a table that is set aside can be published now; raise why not. False for one that is gone.

        The test uses the rows that were refused, or after DDL the table as the server has it.
        """
        refused = self._refused.get((database, table))
        if refused is not None:
            self._builder.captured(refused)
        elif not self._builder.is_publishable_now(database, table):
            return False
        self.forget(database, table)
        return True

    def forget(self, database: str, table: str) -> None:
        """Forget the routes of a table that DDL changed: the next TABLE_MAP of the same bytes may mean other columns."""
        self._refused.pop((database, table), None)
        self._routes = {
            key: route for key, route in self._routes.items() if (route.database, route.table) != (database, table)
        }

    def forget_all(self) -> None:
        """Forget all routes: rows that follow are of another server version, to which equal bytes may mean other values."""
        self._routes = {}

    def forget_recaptured(self) -> None:
        """Forget the routes of tables that were captured and are not, or the other way round."""
        holds = self._captured.holds
        self._refused = {table: refused for table, refused in self._refused.items() if holds(*table)}
        self._routes = {
            key: route for key, route in self._routes.items() if holds(*route.key) == (route.codec is not None)
        }

    def _build(self, table_map: TableMap, position: Position) -> Route:
        database, table = table_map.database, table_map.table
        if self._captured.is_mark(database, table):
            return replace(counted(table_map), is_mark=True)
        if not self._captured.holds(database, table):
            return self._builder.others(table_map, described=self._describes(database, table))
        try:
            route = self._builder.captured(table_map)
        except TidemarkError as error:
            self._aside.put(database, table, error, position)
            self._refused[database, table] = table_map
            return self._builder.others(table_map, described=self._describes(database, table))
        self._refused.pop((database, table), None)
        self._aside.resume_table(database, table)
        return route
