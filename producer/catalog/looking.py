"""Tables as the server tells them now, and whether they were that at another place of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from producer.catalog.ddl import parse_ddl
from producer.catalog.information_schema import TableFacts, read_table_facts, wait_for_ddl
from producer.source.between import queries_between
from producer.source.facts import current_position

if TYPE_CHECKING:
    from producer.binlog.events import QueryEvent
    from producer.source.connection import Connection
    from producer.source.dump import StreamStart
    from producer.source.facts import ServerFacts
    from schemas.settings import SourceSettings

_DDL_WAIT_S: Final = 5

TableName = tuple[str, str]


class TableLooks:
    """Reads tables from information_schema for a place of the log: they are that, unless a DDL lies in between."""

    def __init__(
        self, settings: SourceSettings, facts: ServerFacts, connect: Callable[[], Connection]
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._connect = connect

    def read(
        self, tables: Iterable[TableName], start: StreamStart
    ) -> tuple[dict[TableName, TableFacts], set[TableName]]:
        """(the tables as they were at `start`, those that a DDL touched between then and now).

        In this order: the tables are read, then the log's end is asked for; a DDL whose effect was read is in the
        log up to there. Tables that do not exist are in neither.
        """
        wanted = list(tables)
        connection = self._connect()
        try:
            found = {}
            for database, table in wanted:
                wait_for_ddl(connection, database, table, _DDL_WAIT_S)
                facts = read_table_facts(connection, database, table)
                if facts is not None:
                    found[database, table] = facts
            end = current_position(connection, self._facts)
        finally:
            connection.close()
        touched: set[TableName] = set()
        databases: set[str] = set()

        def take(query: QueryEvent) -> None:
            if query.sql == "BEGIN":
                return
            folded = self._facts.lower_case_table_names == 1
            for change in parse_ddl(query.sql, query.database, self._facts.flavour, lower_case_names=folded):
                if change.kind == "drop_database":
                    databases.add(change.database)
                elif change.kind not in ("other", "truncate"):
                    touched.update(
                        {(change.database, change.table), (change.new_database, change.new_table)}
                    )

        queries_between(self._settings, start, end, take)
        changed = {name for name in wanted if name in touched or name[0] in databases}
        return {name: facts for name, facts in found.items() if name not in changed}, changed
