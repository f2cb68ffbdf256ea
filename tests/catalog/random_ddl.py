"""Random DDL on one table, and what the server, the log and the text alone say of it after every statement.

`python -m tests.catalog.random_ddl SERVER STATEMENTS [SEED]` runs the long form (`make fuzz-ddl`); the short form is in
`test_random_ddl.py`. The same seed gives the same statements on the same server.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pymysql
import structlog

from devservers import Database, start_database
from mysqlio.information_schema import read_rules, read_table_facts
from producer.binlog.tablemap import TableMap
from producer.catalog.effects import DdlChange, parse_ddl
from producer.catalog.model import CatalogTable, from_document, renamed, state_of, to_document
from producer.catalog.reduce import Unknown, altered, created
from schemas.columns import TableSchema
from schemas.documents import CatalogDocument
from schemas.errors import RetriableSourceError, TidemarkError
from schemas.json_codec import decode, encode
from tests.catalog.comparable_schemas import comparable, comparable_collation, comparable_keys
from tests.catalog.logged_source import catalog_of
from tests.catalog.random_statements import RandomStatements, quoted
from tests.catalog.server_log import LogPosition, end_of_log, events_since

PORTION: Final = 250
"""Statements of one seed in the long form."""


@dataclass
class Tally:
    """What happened. `differences` is empty when all agreed."""

    seed: int
    statements: int = 0
    refused: int = 0
    by_log: int = 0
    by_text: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    uncertain_defaults: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another run's statements in."""
        for name in ("statements", "refused", "by_log", "by_text", "uncertain_defaults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unknown.update(other.unknown)
        self.kinds.update(other.kinds)
        self.differences += other.differences

    @property
    def line(self) -> str:
        """The summary."""
        return (
            f"seed {self.seed}: {self.statements} statements ({self.refused} more refused by the server), "
            f"{self.by_log} versions from the log and {self.by_text} states from the text compared, "
            f"{sum(self.unknown.values())} times the text alone did not say it, "
            f"{self.uncertain_defaults} defaults said to be uncertain, {len(self.differences)} differences"
        )


class Fuzzer:
    """Runs random statements on one server, in one schema of it, and compares after each."""

    def __init__(self, server: Database, schema: str, seed: int) -> None:
        self.server, self.schema = server, schema
        self.make = RandomStatements(seed, server)
        self.make.schema = schema
        self.tally = Tally(seed)
        self.user = server.connect(database=schema)
        self.reader = server.connect()
        for connection in (self.user, self.reader):
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION sql_mode = ''")
        with self.reader.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
        self.rules = read_rules(self.reader)
        self.catalog = catalog_of(server, connect=self._connect)
        self.state: CatalogTable | None = None
        self.before: CatalogTable | None = None
        self.last = ""
        self.statements: list[str] = []

    def close(self) -> None:
        self.user.close()
        self.reader.close()

    def _connect(self) -> Any:
        connection = self.server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        return connection

    def run(self, statements: int) -> Tally:
        """Until that many statements were accepted."""
        self.execute("SET SESSION time_zone = '+05:30'")
        self.step(f"CREATE TABLE `t` ({self.make.body()}) DEFAULT CHARSET=utf8mb4")
        while self.tally.statements < statements and len(self.tally.differences) < 20:
            table = self.make.table
            facts = read_table_facts(self.reader, self.schema, table)
            assert facts is not None
            if self.make.chance(0.02):
                self.execute("SET SESSION sql_mode = " + self.make.random.choice(["''", "''", "'ANSI_QUOTES'"]))
            if not self.step(self.make.statement(state_of(facts))):
                self.make.table = table
        return self.tally

    def execute(self, statement: str) -> bool:
        try:
            with self.user.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.MySQLError:
            return False
        return True

    def step(self, statement: str) -> bool:
        """One statement, rows, and all comparisons; whether the server accepted it."""
        self.last = statement
        self.statements.append(statement)
        position = end_of_log(self.user)
        if not self.execute(statement):
            self.tally.refused += 1
            return False
        self.tally.statements += 1
        self.tally.kinds[" ".join(statement.split()[:2]).upper()] += 1
        self.write_rows()
        self.compare(statement, position)
        return True

    def write_rows(self) -> None:
        table = quoted(self.make.table)
        if self.make.chance(0.5):
            self.execute(f"DELETE FROM {table}")
        for _ in range(self.make.random.randint(1, 3)):
            self.execute(f"INSERT INTO {table} () VALUES ()")
        if self.make.chance(0.4):
            self.execute(f"UPDATE {table} SET id = id + 100")

    def compare(self, statement: str, position: LogPosition) -> None:
        facts = read_table_facts(self.reader, self.schema, self.make.table)
        assert facts is not None
        if facts.refusal or facts.unsupported:  # such a table is not captured: continue with another
            self.state = None
            self.tally.unknown["a table that is refused"] += 1
            self.make.made += 1
            self.make.table = f"t{self.make.made}"
            assert self.execute(f"CREATE TABLE {quoted(self.make.table)} (id INT PRIMARY KEY) CHARSET latin1")
            return
        version = None
        for event in events_since(position):
            if isinstance(event, TableMap):
                if event.table == self.make.table and event.metadata is not None and event.metadata.is_full:
                    version = self.catalog.version_of(event)
            else:
                changes = parse_ddl(event, self.schema, self.server.flavour)
                self.catalog.apply(changes)
                for change in changes:
                    self.apply(change)
        if version is not None:
            self.tally.by_log += 1
            self.judge("log", statement, version.schema, facts.schema, frozenset())
        if self.state is None:
            self.state = state_of(facts)
            return
        self.state = from_document(decode(CatalogDocument, encode(to_document(self.state))))
        self.tally.by_text += 1
        self.tally.uncertain_defaults += len(self.state.uncertain)
        state = self.state
        self.judge("text", statement, state.schema, facts.schema, state.uncertain)
        found = (state.charset, comparable_collation(state.collation), comparable_keys(state.keys))
        real = (facts.charset, comparable_collation(facts.collation), comparable_keys(facts.keys))
        if found != real:
            self.differ("text", statement, f"{found}\n  but the server {real}\n  from {self.before}")

    def apply(self, change: DdlChange) -> None:
        """The change on our state, by its text alone."""
        if change.kind == "other":
            return
        found: CatalogTable | Unknown
        if change.kind == "rename":
            if self.state is not None:
                self.state = renamed(self.state, change.new_database, change.new_table)
            return
        if change.kind == "create":
            copied = change.clauses and type(change.clauses[0]).__name__ == "Copy"
            if copied and self.state is not None:
                self.state = renamed(self.state, change.database, change.table)
                return
            charset = "utf8mb4"
            found = created(change.database, change.table, change.clauses, self.rules, charset, self.rules.collations[charset])
        elif self.state is None:
            return
        else:
            self.before = self.state
            found = altered(self.state, change.clauses, self.rules)
        if isinstance(found, Unknown):
            self.tally.unknown[found.why] += 1
            self.state = None
        else:
            self.state = found

    def judge(
        self, who: str, statement: str, found: TableSchema, real: TableSchema, uncertain: frozenset[str]
    ) -> None:
        ours, theirs = comparable(found, uncertain), comparable(real, uncertain)
        if ours != theirs:
            parts = [
                f"{mine}\n  but the server {other}"
                for mine, other in zip(ours["columns"], theirs["columns"], strict=False)
                if mine != other
            ]
            keys = f"keys {ours['keys']} {theirs['keys']} columns {len(ours['columns'])} {len(theirs['columns'])}"
            self.differ(who, statement, "\n  ".join([*parts, keys]))

    def differ(self, who: str, statement: str, what: str) -> None:
        self.tally.differences.append(f"by the {who} after {statement}:\n  {what}")
        self.tally.differences[-1] += "\n  before that: " + "\n  ".join(self.statements[-9:-1])
        if who == "text":
            self.state = None


def fuzz(server: Database, schema: str, seed: int, statements: int, say: Callable[[str], None] = print) -> Tally:
    """Run and report."""
    fuzzer = Fuzzer(server, schema, seed)
    with closing(fuzzer):
        try:
            tally = fuzzer.run(statements)
        except TidemarkError as error:
            if not isinstance(error, RetriableSourceError):
                fuzzer.tally.differences.append(f"{error} after {fuzzer.last}")
                say("\n".join([*fuzzer.statements[-12:], *fuzzer.tally.differences]))
                return fuzzer.tally
            deadline = time.monotonic() + 30
            while server.running:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            tally = fuzzer.tally  # a statement ended the server (MySQL 8.0.15 has such bugs)
            say(f"the server ended over {fuzzer.last}")
    for difference in tally.differences:
        say(difference)
    return tally


def main(arguments: list[str]) -> int:
    """The long form."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    name, wanted = arguments[0], int(arguments[1])
    seed = int(arguments[2]) if len(arguments) > 2 else random.SystemRandom().randrange(1 << 32)
    total = Tally(seed)
    while total.statements < wanted and not total.differences:
        with (
            tempfile.TemporaryDirectory(prefix="tidemark-fuzz-") as folder,
            start_database(name, Path(folder)) as server,
        ):
            while total.statements < wanted and not total.differences and server.running:
                with server.connect() as connection, connection.cursor() as cursor:
                    cursor.execute(f"CREATE DATABASE fuzz{seed} CHARACTER SET utf8mb4")
                total.add(fuzz(server, f"fuzz{seed}", seed, min(PORTION, wanted - total.statements)))
                seed += 1
    for why, count in total.unknown.most_common():
        print(f"  {count} x unknown: {why}")
    print(f"fuzz-ddl: {name}: {total.line}")
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
