"""Tables as the server has them now, and whether they were that at another position of the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mysqlio.connection import connect
from mysqlio.information_schema import TableFacts, read_databases, read_table_facts, wait_for_ddl
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position
from producer.catalog.effects import parse_ddl
from producer.catalog.statements.clauses import DatabaseCharset
from producer.source.log_scan import queries_between
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.server_facts import LogPosition, ServerFacts
    from producer.binlog.events import QueryEvent
    from producer.source.dump import StreamStart
    from schemas.settings import SourceSettings


@dataclass(frozen=True, slots=True)
class PastTables:
    """Tables and databases' character sets at a position; `changed` are tables of which they are not known."""

    tables: dict[TableId, TableFacts]
    changed: frozenset[TableId]
    databases: dict[str, tuple[str, str]]


def tables_at(start: StreamStart, tables: Iterable[TableId], settings: SourceSettings, server: ServerFacts) -> PastTables:
    """Return the tables as they were at `start`: as information_schema has them, unless a DDL is in between.

    In this order: the tables are read, then the log's end is asked for; a DDL whose effect was read is in the
    log up to there. Tables that do not exist are left out.
    """
    wanted, present = list(tables), {}
    with closing(connect(ServerAccess.of(settings))) as connection:
        for name in wanted:
            wait_for_ddl(connection, *name)
            facts = read_table_facts(connection, *name)
            if facts is not None:
                present[name] = facts
        databases = read_databases(connection)
        end = current_position(connection, server)
    touched = _touched_between(start, end, settings, server)
    changed = frozenset(name for name in wanted if name in touched or (name[0], "") in touched)
    return PastTables(
        {name: facts for name, facts in present.items() if name not in changed},
        changed,
        {name: charset for name, charset in databases.items() if (name, "") not in touched},
    )


def altered_since(start: StreamStart, tables: Iterable[TableId], settings: SourceSettings, server: ServerFacts) -> list[TableId]:
    """Return the tables that statements between `start` and the present end of the log change, in order."""
    with closing(connect(ServerAccess.of(settings))) as connection:
        end = current_position(connection, server)
    touched = _touched_between(start, end, settings, server)
    return sorted(name for name in tables if name in touched or (name[0], "") in touched)


def _touched_between(start: StreamStart, end: LogPosition, settings: SourceSettings, server: ServerFacts) -> set[TableId]:
    touched: set[TableId] = set()
    for query in queries_between(settings, server, start, end):
        touched |= _touched_by(query, server)
    return touched


def _touched_by(query: QueryEvent, server: ServerFacts) -> set[TableId]:
    """Return the tables that a statement changes; a name without a table is a database, with all its tables."""
    touched: set[TableId] = set()
    if query.sql == "BEGIN":
        return touched
    folds = server.lower_case_table_names == 1
    changes = parse_ddl(query.sql, query.database, server.flavour, lower_case_names=folds, sql_mode=query.sql_mode)
    for change in changes:
        for clause in change.clauses:
            if isinstance(clause, DatabaseCharset) and not clause.is_new:
                touched.add((clause.database, ""))
        if change.kind == "drop_database" or not (change.table or change.kind == "other"):
            touched.add((change.database, ""))
        elif change.kind not in ("other", "truncate"):
            touched.update(change.names)
    return touched
