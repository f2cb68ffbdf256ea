"""Statements of the log, run once on the target: intent, statement, mark.

A statement ends the transaction it is in, so it cannot commit with the state. Therefore:

1. an intent is committed: the statement, and a digest of its table before it;
2. the statement runs;
3. the state behind it is committed, and the intent removed.

A start that finds an intent compares the table: as before, the statement runs; otherwise it has run. A statement that leaves its
table as it is may run twice. Nobody else may alter a table of the task meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from mysqlio.definitions.tokens import tokenise
from mysqlio.foreign_key_facts import list_foreign_keys
from mysqlio.quoting import qualified, quoted
from schemas.errors import RetriableSourceError, SinkError, SourceError
from schemas.json_codec import Form, decode, encode
from schemas.loop_marks import META
from spark_jobs.replicate.rows.row_events import RowEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState
    from spark_jobs.replicate.order.log_order import StatementEvent

log = structlog.get_logger()

_MODES: Final = {1 << 0: "REAL_AS_FLOAT", 1 << 1: "PIPES_AS_CONCAT", 1 << 2: "ANSI_QUOTES", 1 << 3: "IGNORE_SPACE",
                 1 << 20: "NO_BACKSLASH_ESCAPES"}  # fmt: skip
"""Bits of sql_mode that say how a text is read. Others say which values are refused: the source took those that it has."""
_OF_A_COPY: Final = re.compile(r"\s+START\s+TRANSACTION\s*;?\s*\Z", re.IGNORECASE)
"""The end of CREATE TABLE ... SELECT in the log of MySQL 8.0.21 and later: the rows are in the same transaction."""
_SHOWN: Final = 300
_SYSTEM: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema", META})


@dataclass(frozen=True, slots=True)
class Intent:
    """A statement at `offset` of its topic that runs now, or has run; `before` is the digest of its table before it."""

    JSON: ClassVar = Form(head=lambda _: {"v": 1})

    offset: int
    sql: str
    before: str


class DdlStatements:
    """Runs the statements of one source on the target. `follows` returns whether a table is one of the task."""

    def __init__(self, target: ApplyTarget, source: str, follows: Callable[[str, str], bool]) -> None:
        self._target = target
        self._source = source
        self._follows = follows
        self._databases: dict[str, list[StatementEvent]] = {}

    def run(self, event: StatementEvent | RowEvent, state: SourceState) -> SourceState:
        """Run a statement of the log, or a truncate; return the state behind it, which is committed if anything was run.

        `SinkError`: the target refuses it.
        """
        if isinstance(event, RowEvent):
            return self._truncate(event, state) if self._follows(*event.table) else state
        if event.table is None:
            self._note_database(event)
        if event.offset < state.ddl_offset:
            return state
        behind = replace(state, ddl_offset=event.offset + 1, position=event.position)
        is_noted = event.table is None and event.position < state.begin  # the target's databases are its own until then
        return self._run_once(event, behind) if self._is_wanted(event) and not is_noted else behind

    def _note_database(self, event: StatementEvent) -> None:
        """Keep how a database is made: it is, when a table of it is the first one of the task."""
        verb = event.sql.split(maxsplit=1)[0].upper()
        if verb != "ALTER":
            self._databases.pop(event.database, None)
        if verb in ("CREATE", "ALTER"):
            self._databases.setdefault(event.database, []).append(event)

    # ---- which statements are run

    def _is_wanted(self, event: StatementEvent) -> bool:
        """Return whether a statement is run here. A description is, if it is of a table that is missing.

        The topic has the statements on all tables of the source. Those on tables that are not captured say nothing of the target.
        """
        if not event.session.is_captured:
            return False
        if event.table is None:
            is_ours = bool(event.database) and event.database.lower() not in _SYSTEM and self._follows(event.database, "")
            return is_ours and not event.is_description
        if not self._follows(*event.table):
            return False
        return not event.is_description or (event.kind == "CREATE" and not self._target.exists(*event.table))

    # ---- intent, statement, mark

    def _run_once(self, event: StatementEvent, behind: SourceState) -> SourceState:
        intent = self._intent(event)
        if intent is None:
            intent = Intent(event.offset, event.sql, self._digest(event))
            with self._target.transaction():
                text = json.dumps(encode(intent))
                self._target.execute("REPLACE INTO tidemark_meta.ddl VALUES (%s, %s, %s)", self._target.task, self._source, text)
            self._execute(event)
        elif self._digest(event) == intent.before:
            self._execute(event)
        self._connect_children(event)
        behind = _renamed(event, behind)
        with self._target.transaction():
            self._target.put_state(self._source, behind)
            self._target.execute("DELETE FROM tidemark_meta.ddl WHERE task = %s AND name = %s", self._target.task, self._source)
        log.info("task.statement", position=event.position, sql=event.sql[:_SHOWN])
        return behind

    def _intent(self, event: StatementEvent) -> Intent | None:
        """Return the intent of an earlier process for this statement."""
        asked = "SELECT intent FROM tidemark_meta.ddl WHERE task = %s AND name = %s"
        rows = self._target.rows(asked, self._target.task, self._source)
        intent = decode(Intent, json.loads(rows[0][0])) if rows else None
        return intent if intent is not None and intent.offset == event.offset else None

    def _digest(self, event: StatementEvent) -> str:
        """Return the digest of the statement's table, or database, as it is now."""
        if event.table is not None:
            return self._target.digest(*event.table)
        listed = self._target.rows(
            "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", event.database
        )
        return hashlib.sha256(str(listed).encode()).hexdigest()

    def _execute(self, event: StatementEvent) -> None:
        """Run the statement in a session that reads it as its own did.

        Foreign keys are not checked: tables are described in the order of their names, and the source has checked the rest.
        """
        names = [name for bit, name in _MODES.items() if (event.session.sql_mode or 0) & bit]
        mode = ",".join(["ALLOW_INVALID_DATES", "NO_ENGINE_SUBSTITUTION", *names])
        sql = _OF_A_COPY.sub("", event.sql) if event.kind == "CREATE" else event.sql
        with self._said(event.position, sql):
            if event.table is not None and event.kind != "DROP":
                self._create_database(event.table[0])
            self._use(event.session.database)
            self._target.execute("SET SESSION sql_mode = %s, foreign_key_checks = 0", mode)
            if event.kind == "DROP":
                self._target.drop(sql, event.session.sql_mode)
            else:
                self._target.define(sql, event.session.sql_mode)
        self._target.close()  # with its settings

    def _connect_children(self, event: StatementEvent) -> None:
        """Rebuild a new table to which foreign keys of earlier ones refer: MySQL 8.0.15 does not follow them otherwise.

        It is empty yet. Tables are described in the order of their names, so children come first.
        """
        if event.kind != "CREATE" or event.table is None:
            return
        keys = list_foreign_keys(self._target.connection)
        if any(key.parent == event.table and key.child != event.table for key in keys):
            sql = f"ALTER TABLE {qualified(*event.table)} FORCE"
            with self._said(event.position, sql):
                self._target.define(sql)

    def _create_database(self, database: str) -> None:
        if not self._target.has_database(database):
            statements = self._databases.get(database, [])
            if not statements or statements[0].sql.split(maxsplit=1)[0].upper() != "CREATE":
                self._target.define(f"CREATE DATABASE {quoted(database)}")
            for one in statements:
                self._use(database)
                self._target.define(one.sql)

    def _use(self, database: str) -> None:
        if database and self._target.has_database(database):
            self._target.execute(f"USE {quoted(database)}")

    def _truncate(self, event: RowEvent, state: SourceState) -> SourceState:
        """Empty a table, and commit the state behind it. Until then nothing behind it is applied, so it may run twice."""
        with self._said(event.position, f"TRUNCATE TABLE {'.'.join(event.table)}"):
            self._target.execute("SET SESSION foreign_key_checks = 0")
            self._target.define(f"TRUNCATE TABLE {qualified(*event.table)}")
            self._target.execute("SET SESSION foreign_key_checks = 1")
        with self._target.transaction():
            self._target.put_state(self._source, state)
        return state

    @contextmanager
    def _said(self, position: str, sql: str) -> Iterator[None]:
        try:
            yield
        except RetriableSourceError:
            raise
        except SourceError as error:
            message = (
                f"source {self._source}, {position}: the target refuses a statement: {error}. Nothing behind it is applied. "
                f"The statement: {sql[:_SHOWN]}"
            )
            raise SinkError(message) from error


def _renamed(event: StatementEvent, state: SourceState) -> SourceState:
    """Return the state with the new name of a table that is loaded and gets another one; without a table that is dropped."""
    if event.table is None or not state.loading:
        return state
    old, new = _named(event), ".".join(event.table)
    gone = new if event.kind == "DROP" else ""
    names = (new if name == old and event.kind == "ALTER" else name for name in state.loading if name != gone)
    return replace(state, loading=tuple(names))


def _named(event: StatementEvent) -> str:
    """Return the table that a statement names behind TABLE, with its database."""
    words = tokenise(event.sql, "mysql", event.session.sql_mode)
    at = next((index + 1 for index, word in enumerate(words) if word.upper == "TABLE"), len(words))
    if [word.upper for word in words[at : at + 2]] == ["IF", "EXISTS"]:
        at += 2
    names = [word.text for word in words[at : at + 3]]
    return f"{names[0]}.{names[2]}" if names[1:2] == ["."] else ".".join([event.session.database, *names[:1]])
