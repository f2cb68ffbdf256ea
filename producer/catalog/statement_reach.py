"""Which tables a data change reaches that the log has as a statement: text enters, names of tables leave.

The tables that it names are not all: triggers, stored functions, views and foreign keys lead further, and only the server has
them. It describes them as they are now. Every doubt adds names: an alias or a column that is called like a table counts as one.
The server lists only what our user has a right to see. If a right is missing, the statement is passed over with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.connection import server_version
from mysqlio.definitions.token_cursor import Cursor
from mysqlio.definitions.tokens import Kind, Token, tokenise, without_set_statement, without_values
from mysqlio.information_schema import list_tables
from mysqlio.quoting import qualified
from mysqlio.server_errors import source_errors
from mysqlio.server_facts import account, flavour_of, user_grants, version_of
from producer.source.object_rights import TRIGGERS, right_to_routines, sees_routines, sees_triggers
from schemas.documents import UnseenStatementsDocument
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.binlog.events import QueryEvent

log = structlog.get_logger(__name__)

_MODIFIERS: Final = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "CONCURRENT", "LOCAL")
_ENDS_SINGLE_DELETE: Final = ("", "WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION", "AS")
_BODIES_OF_TABLES: Final = (
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_SCHEMA, ACTION_STATEMENT FROM information_schema.TRIGGERS",
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_SCHEMA, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA <> 'sys'",
)
_ROUTINES: Final = (
    "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_SCHEMA, ROUTINE_DEFINITION FROM information_schema.ROUTINES",
)
_CHILDREN: Final = (
    "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
)
_NO_CALLS: Final = {
    "VALUES", "VALUE", "SET", "IN", "AND", "OR", "XOR", "NOT", "ON", "USING", "SELECT", "FROM", "JOIN", "WHERE", "HAVING", "EXISTS",
    "ALL", "ANY", "SOME", "UNION", "AS", "BY", "KEY", "INDEX", "PARTITION", "OVER", "WHEN", "THEN", "ELSE", "CASE", "IF", "RETURN",
    "LIKE", "BETWEEN", "INTERVAL",
}  # fmt: skip
"""Words that a parenthesis may follow and that call nothing."""
_MOST_NOTED: Final = 20
_MOST_WARNED: Final = 1000
_Bodies = dict[TableId, list[tuple[str, str | None]]]


@dataclass(frozen=True, slots=True)
class ServerObjects:
    """What leads from one name to tables: triggers and views of tables that change, routines, and children by foreign keys.

    A body is (default database, text); the text is None if the user may not see it. Names are in small letters. `tables` are
    those that the user sees, `grants` its grants and `account` what GRANT calls it. `right_to_routines` shows all routines.
    """

    of_tables: _Bodies
    routines: _Bodies
    children: Mapping[TableId, list[TableId]]
    tables: Iterable[TableId] = ()
    grants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    right_to_routines: str = ""
    account: str = ""

    def missing_rights(self, databases: Iterable[str] | None, *, calls: bool) -> tuple[str, ...]:
        """Return the GRANT statements without which something may lead to other tables unseen.

        `databases` are all that change, None if that is not known. `calls` is whether a function may be called.
        """
        missing = [] if sees_triggers(self.grants, databases) else [TRIGGERS]
        if calls and not sees_routines(self.grants, self.right_to_routines):
            missing.append(self.right_to_routines)
        return tuple(f"GRANT {right} TO {self.account}" for right in missing)

    def right_to_text(self, hidden: TableId) -> str:
        """Return the GRANT statement that shows the text of a view or routine."""
        name = qualified(*hidden)
        right = f"SELECT, SHOW VIEW ON {name}" if _fold(hidden) in self.of_tables else self.right_to_routines
        return f"GRANT {right} TO {self.account}"

    def all_missing_rights(self) -> set[str]:
        """Return every GRANT statement without which something is not seen."""
        hidden = (name for name, bodies in self.of_tables.items() if any(text is None for _, text in bodies))
        return {*self.missing_rights(None, calls=True), *map(self.right_to_text, hidden)}

    def lack(self, grants: Iterable[str]) -> bool:
        """Return whether something is not seen without one of these GRANT statements, which name views as a statement did."""
        return not {grant.lower() for grant in self.all_missing_rights()}.isdisjoint(grant.lower() for grant in grants)


def read_objects(connection: Connection) -> ServerObjects:
    """Return the objects of the server that the user may see, and its rights."""
    version = server_version(connection)
    children: dict[TableId, list[TableId]] = {}
    with source_errors(f"{connection.host}:{connection.port}"), connection.cursor() as cursor:
        cursor.execute(_CHILDREN)
        for database, name, child_database, child in cursor.fetchall():
            children.setdefault(_fold((str(database), str(name))), []).append((str(child_database), str(child)))
    return ServerObjects(
        _bodies(connection, _BODIES_OF_TABLES),
        _bodies(connection, _ROUTINES),
        children,
        list_tables(connection),
        user_grants(connection),
        right_to_routines(flavour_of(version), version_of(version)),
        account(connection)[1],
    )


def _bodies(connection: Connection, statements: Iterable[str]) -> _Bodies:
    found: _Bodies = {}
    with source_errors(f"{connection.host}:{connection.port}"), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            for database, name, own, body in cursor.fetchall():
                text = str(body) if body else None  # of a view it is "" without the right
                found.setdefault(_fold((str(database), str(name))), []).append((str(own), text))
    return found


class StatementReach:
    """The judge of data changes that are logged as statements. Owned by the log reader's thread.

    `concerns` says whether a table matters. `read` asks the server, again after each DDL. `note` is called with the statements that
    were passed over although our user may not see all that they reach; `noted` is the document of an earlier start, extended here.
    """

    def __init__(
        self,
        read: Callable[[], ServerObjects],
        flavour: str,
        concerns: Callable[[str, str], bool],
        note: Callable[[UnseenStatementsDocument], None],
        noted: UnseenStatementsDocument | None = None,
        *,
        lower_case_names: bool,
    ) -> None:
        self._read = read
        self._flavour = flavour
        self._concerns = concerns
        self._note = note
        self._noted = noted
        self._lower_case_names = lower_case_names
        self._objects: ServerObjects | None = None
        self._captured: set[str] | None = None
        self._warned: set[tuple[str, str]] = set()  # table, missing right

    def forget(self) -> None:
        """Forget what the server reported, and the captured databases: a statement or a setting changed them."""
        self._objects = self._captured = None

    def why_concerned(self, query: QueryEvent, position: str) -> str:
        """Return why the statement at that position may change a table that matters, "" if nothing shows that it does.

        Raises the errors of the source.
        """
        tokens = without_set_statement(tokenise(query.sql, self._flavour, query.sql_mode))
        named, databases = changed_tables(tokens, query.database), query.databases or None
        if query.unclear:
            return f"which tables it changes is not certain: {query.unclear}"
        direct = self._first(named, databases)
        if direct is not None:
            return f"it changes {'.'.join(direct)}, which is captured"
        if self._objects is None:
            self._objects = self._read()
        reached, hidden, calls = self._reached(named, tokens, query.database, self._objects)
        indirect = self._first(reached, databases)
        if indirect is not None:
            return f"a trigger, function, view or foreign key may lead from it to {'.'.join(indirect)}, which is captured"
        captured = self._captured_databases(self._objects)
        changed = captured if databases is None else captured & {self._stored(one) for one in databases}
        if changed:
            if hidden is not None and databases:
                return f"it uses {'.'.join(hidden)}, whose text this user may not see: {self._objects.right_to_text(hidden)}"
            rights = self._objects.missing_rights(databases, calls=calls)
            hidden_text = () if hidden is None else (self._objects.right_to_text(hidden),)
            missing = tuple(dict.fromkeys((*rights, *hidden_text)))
            strays = sorted(changed - {self._stored(database) for database, _ in named | reached}) if databases else []
            if missing and strays:
                grants = "; ".join(missing)
                return f"the server reports that it changes the database {strays[0]} in a way that this user may not see: {grants}"
            if missing or strays:
                self._warn(query, named, missing, position)
        log.info("log.statement_passed", database=query.database, tables=sorted({".".join(one) for one in named})[:5])
        return ""

    def _captured_databases(self, objects: ServerObjects) -> set[str]:
        if self._captured is None:  # a server may have 100,000 tables
            self._captured = {database for database, table in objects.tables if self._concerns(database, table)}
        return self._captured

    def _warn(self, query: QueryEvent, named: set[TableId], missing: tuple[str, ...], position: str) -> None:
        """Log, once for each table and right, that the statement is passed over and may have changed captured tables."""
        tables = sorted({".".join(one) for one in named})
        doubts = set(product(tables or [""], missing or [""]))
        if not doubts <= self._warned:
            if len(self._warned) >= _MOST_WARNED:
                self._warned.clear()
            self._warned |= doubts
            reason = "what it changes by triggers, functions, views and foreign keys cannot be seen: captured tables may differ"
            advice = "; ".join((*missing, "then snapshot the captured tables that it may have changed"))
            log.warning(
                "log.statement_passed_unseen",
                tables=tables[:5],
                statement=without_values(query.sql),
                position=position,
                reason=reason,
                advice=advice,
            )
            earlier = self._noted or UnseenStatementsDocument((), (), position)
            every_table, every_grant = dict.fromkeys((*earlier.tables, *tables)), dict.fromkeys((*earlier.grants, *missing))
            self._noted = UnseenStatementsDocument(tuple(every_table)[:_MOST_NOTED], tuple(every_grant), earlier.position)
            self._note(self._noted)

    def _first(self, tables: Iterable[TableId], databases: tuple[str, ...] | None) -> TableId | None:
        """Return a table that matters. `databases` are those the server reports: no table of another one is changed."""
        folded = None if databases is None else {self._stored(one) for one in databases}
        for database, table in sorted(tables):
            name = self._stored(database), self._stored(table)
            if (folded is None or name[0] in folded) and self._concerns(*name):
                return name
        return None

    def _stored(self, name: str) -> str:
        return name.lower() if self._lower_case_names else name

    def _reached(
        self, changed: set[TableId], tokens: list[Token], database: str, objects: ServerObjects
    ) -> tuple[set[TableId], TableId | None, bool]:
        """Return the tables that these names may change, an object whose text is hidden, and whether functions are called.

        Each name of the statement may be a routine.
        """
        reached: set[TableId] = set()
        hidden: TableId | None = None
        calls = may_call(tokens, changed)
        seen: set[tuple[TableId, bool]] = set()
        waiting = [*((one, False) for one in all_names(tokens, database)), *((one, True) for one in changed)]
        while waiting:
            name, changes = waiting.pop()
            key = _fold(name)
            if (key, changes) in seen:
                continue
            seen.add((key, changes))
            more = set(objects.children.get(key, ())) if changes else set()
            for own, text in (*objects.routines.get(key, ()), *(objects.of_tables.get(key, ()) if changes else ())):
                if text is None:
                    hidden = hidden or name
                else:
                    body = tokenise(text, self._flavour)
                    more |= all_names(body, own)
                    calls = calls or may_call(body, set())
            reached |= more
            waiting += [(one, True) for one in more]
        return reached, hidden, calls


def _fold(name: TableId) -> TableId:
    return name[0].lower(), name[1].lower()


def changed_tables(tokens: list[Token], database: str) -> set[TableId]:
    """Return the tables that a statement names and may change; all its names where its form is not a known one."""
    cursor = Cursor(tokens)
    verb = cursor.accept_any("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD")
    while cursor.accept_any(*_MODIFIERS):
        pass
    if verb in ("INSERT", "REPLACE"):
        return {_name(cursor, database)}
    if verb == "UPDATE":
        return all_names(_until(cursor, "SET"), database)
    if verb == "LOAD":
        while not cursor.done and not cursor.accept("INTO", "TABLE"):
            cursor.next()
        return {_name(cursor, database)}
    if verb == "DELETE" and cursor.accept("FROM"):
        table = _name(cursor, database)
        if cursor.word() in _ENDS_SINGLE_DELETE and (cursor.done or cursor.word()):
            return {table}
    return all_names(_until(Cursor(tokens), "WHERE") if verb == "DELETE" else tokens, database)


def _name(cursor: Cursor, database: str) -> TableId:
    first = cursor.name()
    return (first, cursor.name()) if cursor.accept_punctuation(".") else (database, first)


def _until(cursor: Cursor, word: str) -> list[Token]:
    tokens: list[Token] = []
    depth = 0
    while not cursor.done and (depth or cursor.word() != word):
        token = cursor.next()
        depth += token.is_punctuation("(") - token.is_punctuation(")")
        tokens.append(token)
    return tokens


def all_names(tokens: list[Token], database: str) -> set[TableId]:
    """Return all names, each as a table of the default database, and pairs with a point between them."""
    found: set[TableId] = set()
    for index, token in enumerate(tokens):
        if not _is_name(token):
            continue
        found.add((database, token.text))
        if index + 2 < len(tokens) and tokens[index + 1].is_punctuation(".") and _is_name(tokens[index + 2]):
            found.add((token.text, tokens[index + 2].text))
    return found


def may_call(tokens: list[Token], tables: set[TableId]) -> bool:
    """Return whether a stored function may be called: a name before a parenthesis, which a built-in function has, too."""
    names = {table.lower() for _, table in tables}
    return any(
        _is_name(token)
        and following.is_punctuation("(")
        and token.text.lower() not in names
        and token.upper not in _NO_CALLS
        for token, following in pairwise(tokens)
    ) or any(token.upper == "CALL" for token in tokens)


def _is_name(token: Token) -> bool:
    return token.kind in (Kind.WORD, Kind.NAME) or (token.kind is Kind.STRING and token.double_quoted)
