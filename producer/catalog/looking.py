"""Tables as the server has them now, and whether they were that at another position of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mysqlio.server_facts import current_position
from producer.catalog.effects import parse_ddl
from producer.catalog.information_schema import TableFacts, read_databases, read_table_facts, wait_for_ddl
from producer.catalog.statements.clauses import DatabaseCharset
from producer.source.log_scan import queries_between

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.binlog.events import QueryEvent
    from producer.source.dump import StreamStart
    from schemas.settings import SourceSettings

_DDL_WAIT_S: Final = 5

TableName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Looked:
    """Tables and databases' character sets as they were at a place; `changed` are tables of which that is not known."""

    tables: dict[TableName, TableFacts]
    changed: frozenset[TableName]
    databases: dict[str, tuple[str, str]]


class TableLooks:
    """Reads tables from information_schema for a position of the log: they are that, unless a DDL is in between."""

    def __init__(
        self, settings: SourceSettings, facts: ServerFacts, connect: Callable[[], Connection]
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._connect = connect

    def read(self, tables: Iterable[TableName], start: StreamStart) -> Looked:
        """Return the tables as they were at `start`.

        In this order: the tables are read, then the log's end is asked for; a DDL whose effect was read is in the
        log up to there. Tables that do not exist are left out.
        """
        wanted = list(tables)
        connection = self._connect()
        try:
            answers = {}
            for database, table in wanted:
                wait_for_ddl(connection, database, table, _DDL_WAIT_S)
                facts = read_table_facts(connection, database, table)
                if facts is not None:
                    answers[database, table] = facts
            databases = read_databases(connection)
            end = current_position(connection, self._facts)
        finally:
            connection.close()
        touched = _Touched(self._facts)
        for query in queries_between(self._settings, self._facts, start, end):
            touched.add(query)
        changed = frozenset(name for name in wanted if touched.holds(name))
        return Looked(
            {name: facts for name, facts in answers.items() if name not in changed},
            changed,
            {name: charset for name, charset in databases.items() if name not in touched.databases},
        )


class _Touched:
    """The names statements touch."""

    def __init__(self, facts: ServerFacts) -> None:
        self._facts = facts
        self._tables: set[TableName] = set()
        self.databases: set[str] = set()

    def holds(self, name: TableName) -> bool:
        return name in self._tables or name[0] in self.databases

    def add(self, query: QueryEvent) -> None:
        if query.sql == "BEGIN":
            return
        folded = self._facts.lower_case_table_names == 1
        for change in parse_ddl(
            query.sql, query.database, self._facts.flavour, lower_case_names=folded, sql_mode=query.sql_mode
        ):
            charsets = [clause for clause in change.clauses if isinstance(clause, DatabaseCharset)]
            self.databases.update(clause.database for clause in charsets if not clause.is_new)
            if change.kind == "drop_database" or not (change.table or change.kind == "other"):
                self.databases.add(change.database)
            elif change.kind not in ("other", "truncate"):
                self._tables.update(change.names)
