"""From a TABLE_MAP event to what its rows become: a codec and a topic, or only a count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import structlog

from producer.binlog.rowcount import cell_sizes
from producer.catalog.online_ddl import real_table
from schemas import topics
from schemas.errors import (
    ACCESS_ERRORS,
    RetriableSourceError,
    SourceError,
    StateError,
    TidemarkError,
    UnsupportedTypeError,
)

if TYPE_CHECKING:
    from producer.binlog import TableMap
    from producer.catalog import Catalog
    from producer.codec import BinlogLayout, TableCodec
    from producer.kafka.codecs import CodecFactory, RowIdentity
    from producer.kafka.key_headers import KeyText
    from producer.stream.aside import AsideTables
    from producer.stream.outbox import Outbox
    from schemas.columns import TableSchema
    from schemas.position import Position
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

_JSON: Final = 245
SYSTEM_DATABASES: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema"})


class CapturedTables:
    """Which tables are captured: those the settings name, and the signal table."""

    def __init__(self, source: SourceSettings) -> None:
        self._source = source

    def is_signal(self, database: str, table: str) -> bool:
        """Whether it is the signal table (published, never snapshotted or merged)."""
        return (database, table) == self._source.signal_names

    def holds_data(self, database: str, table: str) -> bool:
        """Whether the table is captured for its data: published, snapshotted, merged."""
        return database.lower() not in SYSTEM_DATABASES and self._source.captures(database, table)

    def holds(self, database: str, table: str) -> bool:
        """Whether rows of the table are published."""
        return self.is_signal(database, table) or self.holds_data(database, table)

    def follows(self, database: str, table: str) -> bool:
        """Whether the table's definition matters: captured, or made to replace one that is."""
        real = real_table(table)
        return self.holds(database, table) or (real is not None and self.holds_data(database, real))


@dataclass(frozen=True, slots=True)
class Route:
    """Where the rows of one table version go. `codec` is None for a table that is not captured.

    `json_columns` are the indices of the columns of type JSON, `schema` is the table version, also of a table that is
    not captured and a parent of one that is.
    """

    database: str
    table: str
    columns: int
    sizes: npt.NDArray[np.int64]
    json_columns: tuple[int, ...] = ()
    topic: str = ""
    codec: TableCodec | None = None
    key_text: KeyText | None = None
    layout: BinlogLayout | None = None
    is_signal: bool = False
    outbox: Outbox | None = None
    schema: TableSchema | None = None


class Router:
    """Finds the route of a TABLE_MAP event, by its bytes; a DDL on a table makes it look again."""

    def __init__(
        self,
        prefix: str,
        captured: CapturedTables,
        catalog: Catalog,
        codecs: CodecFactory,
        on_new_table: Callable[[str, str], None],
        delimiter: str = topics.DELIMITER,
        describes: Callable[[str, str], bool] | None = None,
        aside: AsideTables | None = None,
    ) -> None:
        """`describes` names tables whose columns are wanted (`Route.schema`) although they are not captured.

        `aside` takes those that cannot be published; without it their errors are raised.
        """
        self._prefix = prefix
        self._aside = aside
        self._refused: dict[tuple[str, str], TableMap] = {}
        self._delimiter = delimiter
        self._describes = describes
        self._captured = captured
        self._catalog = catalog
        self._codecs = codecs
        self._on_new_table = on_new_table
        self._routes: dict[bytes, Route] = {}

    def known(self, fingerprint: bytes) -> Route | None:
        """The route found earlier for these very bytes."""
        return self._routes.get(fingerprint)

    def find(self, fingerprint: bytes, table_map: TableMap, position: Position) -> Route:
        """The route of a table map met in the transaction at `position`, built now and remembered by `fingerprint`."""
        route = self._build(table_map, position)
        self._routes[fingerprint] = route
        return route

    def for_truncate(self, database: str, table: str) -> tuple[str, TableCodec] | None:
        """Topic and codec of a table that was emptied; None when the table is gone and its columns unknown."""
        schema = self._catalog.current(database, table)
        if schema is None:
            return None
        self._on_new_table(database, table)
        topic = topics.change_topic(self._prefix, database, table, self._delimiter)
        return topic, self._codecs.codec(schema)

    def is_publishable(self, database: str, table: str) -> bool:
        """Whether a table that is set aside can be published now; raises why not. False for one that is gone.

        It is judged by the rows that were refused, or where a DDL came since, as the server has it.
        """
        refused = self._refused.get((database, table))
        if refused is not None:
            self._published(refused)
        else:
            schema = self._catalog.as_it_is_now(database, table)
            if schema is None:
                return False
            self._on_new_table(database, table)
            self._codecs.codec(schema)
        self.forget(database, table)
        return True

    def identity(self, route: Route) -> RowIdentity:
        """What tells the rows of a captured table version apart."""
        if route.schema is None or route.codec is None:
            message = f"{route.database}.{route.table} is not captured, its rows have no identity"
            raise StateError(message)
        return self._codecs.identity(route.schema, route.layout)

    def forget(self, database: str, table: str) -> None:
        """A DDL touched the table: its next TABLE_MAP is looked at again, also if its bytes are the same."""
        self._refused.pop((database, table), None)
        self._routes = {
            key: route
            for key, route in self._routes.items()
            if (route.database, route.table) != (database, table)
        }

    def _described(self, table_map: TableMap) -> TableSchema | None:
        """The columns of a table that is not captured; None where they can't be told."""
        try:
            return self._catalog.version_of(table_map).schema
        except (RetriableSourceError, *ACCESS_ERRORS):
            raise
        except (SourceError, UnsupportedTypeError) as error:
            name = f"{table_map.database}.{table_map.table}"
            log.warning("catalog.parent_not_described", table=name, reason=str(error))
            return None

    def _build(self, table_map: TableMap, position: Position) -> Route:
        database, table = table_map.database, table_map.table
        sizes = cell_sizes(table_map.types, table_map.metas)
        json_columns = tuple(index for index, code in enumerate(table_map.types) if code == _JSON)
        if not self._captured.holds(database, table):
            schema = self._described(table_map) if self._describes and self._describes(database, table) else None
            return Route(database, table, len(table_map.types), sizes, json_columns, schema=schema)
        try:
            route = self._published(table_map)
        except TidemarkError as error:
            if self._aside is None:
                raise
            self._aside.put(database, table, error, position)
            self._refused[database, table] = table_map
            schema = self._described(table_map) if self._describes and self._describes(database, table) else None
            return Route(database, table, len(table_map.types), sizes, json_columns, schema=schema)
        if self._aside is not None:
            self._refused.pop((database, table), None)
            self._aside.take_up(database, table)
        return route

    def _published(self, table_map: TableMap) -> Route:
        """The route of a captured table; raises what keeps it from being published."""
        database, table = table_map.database, table_map.table
        sizes = cell_sizes(table_map.types, table_map.metas)
        json_columns = tuple(index for index, code in enumerate(table_map.types) if code == _JSON)
        version = self._catalog.version_of(table_map)
        self._on_new_table(database, table)
        return Route(
            database,
            table,
            len(table_map.types),
            sizes,
            json_columns,
            topics.change_topic(self._prefix, database, table, self._delimiter),
            self._codecs.codec(version.schema, version.layout),
            self._codecs.key_text(version.schema),
            version.layout,
            self._captured.is_signal(database, table),
            self._codecs.outbox(version.schema, version.layout),
            version.schema,
        )
