"""The source: reachability, settings of the server, privileges, retention, clock, and each captured table."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mysqlio.connection import connect
from mysqlio.information_schema import list_tables, read_table_schema, unsupported_tables
from mysqlio.quoting import quoted as quoted_name
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import source_errors
from mysqlio.server_facts import account, ask, is_denied, server_facts, user_grants
from mysqlio.signal_table import SignalTable
from producer.preparation import require_own_server_id
from producer.source.coverage import coverage, privileges_on, unreadable_tables
from producer.source.log_facts import require_logged, require_stored_name
from producer.source.retention import kept_s
from producer.source.source_preflight import source_findings
from schemas.errors import AccessDeniedError, SourceError
from schemas.findings import Finding, Remedy, Severity
from tidemark.api.source_log import log_seen
from tidemark.doctor.area_findings import UncheckedError, listed
from tidemark.doctor.committed_log import committed_log

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from schemas.settings import Settings

Table = tuple[str, str]
_DAY_S: Final = 86_400
_WEEK_S: Final = 7 * _DAY_S
_CLOCK_S: Final = 5.0
_KEY: Final = "tidemark_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY"
_ADVICE: Final = " A table without"
"""What the advice of a reason begins with (`producer.source.coverage`)."""
_FIRST_ID: Final = 100_000


def source_findings_of(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the source. `UncheckedError` where it does not answer."""
    source = settings.source
    try:
        connection = connect(ServerAccess.of(source))
    except AccessDeniedError as error:
        found = Finding("source.access", Severity.ERROR, str(error), "the server refuses the user or its password")
        raise UncheckedError("the source refuses us", [found]) from error
    except SourceError as error:
        what = "nothing can be read from the source"
        advice = "Check source.host, source.port and source.tls"
        found = Finding("source.unreachable", Severity.ERROR, str(error), what, advice=advice)
        raise UncheckedError("the source cannot be reached", [found]) from error
    with closing(connection):
        facts = server_facts(connection)
        yield from source_findings(facts, connection)
        if facts.log_bin:
            yield from _SourceExamination(settings, connection, facts).findings()


@dataclass(frozen=True, slots=True)
class _SourceExamination:
    """The questions to a source that has a log."""

    settings: Settings
    connection: Connection
    facts: ServerFacts

    def findings(self) -> Iterator[Finding]:
        grants, tables = user_grants(self.connection), list_tables(self.connection)
        captured = [table for table in tables if self.settings.source.captures(*table)]
        yield from self._server_id()
        yield from self._retention()
        yield from self._needed_log()
        yield from self._clock()
        yield from self._log_filters(captured)
        yield from self._coverage(tables, grants)
        yield from self._signal_table(grants)
        readable = [table for table in captured if privileges_on(grants, *table) & {"SELECT", "ALL PRIVILEGES"}]
        refused = unsupported_tables(self.connection, readable)
        unsupported = (self._unsupported(table, error) for table, error in refused.items())
        yield from listed("source.unsupported_table", "tables that cannot be captured", unsupported)
        keyless = (found for table in readable if table not in refused for found in self._without_key(table))
        yield from listed("source.table_without_key", "tables without a key", keyless)

    def _server_id(self) -> Iterator[Finding]:
        try:
            require_own_server_id(self.settings, self.connection, self.facts)
        except SourceError as error:
            ours = self.settings.source.server_id or 0
            fix = f"export TIDEMARK_SOURCE__SERVER_ID={_FIRST_ID + (ours + 1) % _FIRST_ID}"
            evidence, what = str(error).partition(", and the server")[0], "the server ends the connection of one of the two"
            yield Finding("source.server_id", Severity.ERROR, evidence, what, fix, Remedy.SETTING)

    def _retention(self) -> Iterator[Finding]:
        names = "'binlog_expire_logs_seconds', 'expire_logs_days', 'binlog_expire_logs_auto_purge'"
        found = {str(name).lower(): str(value) for name, value in ask(
            self.connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"
        )}  # fmt: skip
        keeps = kept_s(found)
        if keeps is not None and keeps < _DAY_S:
            in_seconds = "binlog_expire_logs_seconds" in found
            fix = f"binlog_expire_logs_seconds = {_WEEK_S}" if in_seconds else f"expire_logs_days = {_WEEK_S // _DAY_S}"
            yield Finding(
                "source.retention",
                Severity.WARNING,
                f"the server keeps its log for {keeps / 3600:.1f} h",
                "an outage of the producer that lasts longer loses the log, and all tables are to be read again",
                f"SET GLOBAL {fix}",
                Remedy.SOURCE_SQL,
                "and in the server's configuration",
            )

    def _needed_log(self) -> Iterator[Finding]:
        """Yield that the server has no longer the log that the next start of the producer needs, or may purge it soon.

        The position is in Kafka: if that does not answer, its own area says so.
        """
        log = committed_log(self.settings)
        if log is None:
            return
        with source_errors("the source's log"):
            seen = log_seen(self.settings, self.connection, log)
        room = seen.room
        if room is not None and (room.is_purged or room.is_shorter):
            what = "the producer cannot continue: changes since then are lost to it"
            yield Finding("source.log_lost", Severity.ERROR, seen.problem, what, "tidemark repair", Remedy.SHELL)
        elif seen.problem:
            what = "all tables are to be read again when it is purged"
            yield Finding("source.log_head_room", Severity.WARNING, seen.problem, what)

    def _clock(self) -> Iterator[Finding]:
        before = time.time()
        theirs = float(ask(self.connection, "SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])
        after = time.time()
        apart = max(before - theirs, theirs - after)
        if apart > _CLOCK_S:
            yield Finding(
                "source.clock",
                Severity.WARNING,
                f"the clocks of the source and of this machine are {apart:.0f} s apart",
                "every delay that is shown (commit to Kafka, commit to the lake) is wrong by that",
                "timedatectl set-ntp true",
                Remedy.SHELL,
                "on the machine whose clock is wrong",
            )

    def _log_filters(self, captured: list[Table]) -> Iterator[Finding]:
        signal = self.settings.source.signal_names
        try:
            require_stored_name(self.facts, "source.signal_table", self.settings.source.signal_table)
            require_logged(self.connection, self.facts, {*(database for database, _ in captured), *(signal or ())[:1]})
        except SourceError as error:
            if is_denied(error):
                return  # reported as a missing privilege
            yield Finding("source.log_filter", Severity.ERROR, str(error), "these changes would never arrive")

    def _coverage(self, tables: list[Table], grants: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
        document: dict[str, Any] = coverage(self.settings.source, tables, grants)
        none = document["captured"] == 0
        for pattern, reason in document["unmatched"].items():
            evidence = f"source.tables: {pattern!r}: {reason.partition(_ADVICE)[0].removesuffix('.')}"
            what = "no table is captured" if none else "this pattern captures nothing"
            severity, near = Severity.ERROR if none else Severity.WARNING, _near(reason)
            fix = f"export TIDEMARK_SOURCE__TABLES='{json.dumps(self._tables_with(pattern, near))}'" if near else ""
            yield Finding("source.no_match", severity, evidence, what, fix, Remedy.SETTING if fix else Remedy.NONE, _advice(reason))
        yield from listed("source.privilege.table", "tables that may not be read", self._unreadable(tables, grants))

    def _unreadable(self, tables: list[Table], grants: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
        _, quoted = account(self.connection)
        for database, table in unreadable_tables(self.settings.source, tables, grants):
            yield Finding(
                "source.privilege.table",
                Severity.ERROR,
                f"{database}.{table} may not be read",
                "it cannot be snapshotted",
                f"GRANT SELECT ON {quoted_name(database)}.{quoted_name(table)} TO {quoted}",
                Remedy.SOURCE_SQL,
            )

    def _tables_with(self, pattern: str, near: str) -> list[str]:
        """Return `source.tables` with a table in the place of a pattern that matches none."""
        plain = re.escape(near)
        return [plain if one == pattern else one for one in self.settings.source.tables]

    def _signal_table(self, grants: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
        names = self.settings.source.signal_names
        if names is None:
            return
        table = SignalTable(*names)
        rights = privileges_on(grants, *names)
        has_all = "ALL PRIVILEGES" in rights
        writes = not self.settings.source.read_only
        _, quoted = account(self.connection)
        needed = {"SELECT"} | ({"INSERT"} if writes else set()) | ({"DELETE"} if writes and self._deletes_windows else set())
        granted = f"GRANT {', '.join(sorted(needed, reverse=True))} ON {table.sql} TO {quoted}"
        name = ".".join(names)
        try:
            with source_errors(f"{self.settings.source.host}:{self.settings.source.port}"):
                exists = table.is_there(self.connection)
        except SourceError as error:
            evidence, _, advice = str(error).partition(". ")
            yield Finding("source.signal_table", Severity.ERROR, evidence, "snapshots cannot be marked in the log", advice=advice)
            return
        if not exists and not has_all and "CREATE" not in rights:
            what, fix = "and our user may not create it: no snapshot can be asked for", f"{table.definition}; {granted}"
            evidence = f"the signal table {name} does not exist"
            yield Finding("source.signal_table", Severity.ERROR, evidence, what, fix, Remedy.SOURCE_SQL)
        elif not has_all and not rights >= needed:
            missing = " and ".join(sorted(needed - rights))
            why = " (snapshot.watermarking_strategy: insert_delete)" if "DELETE" in needed - rights else ""
            evidence, what = f"{missing} on the signal table {name} is missing{why}", "snapshots cannot be marked in the log"
            yield Finding("source.privilege.signal_table", Severity.ERROR, evidence, what, granted, Remedy.SOURCE_SQL)

    @property
    def _deletes_windows(self) -> bool:
        return self.settings.snapshot.watermarking_strategy == "insert_delete"

    def _unsupported(self, table: Table, error: Exception) -> Finding:
        name = ".".join(table)
        excluded = [*self.settings.source.exclude_tables, re.escape(name)]
        stops = not self.settings.sets_tables_aside
        return Finding(
            "source.unsupported_table",
            Severity.ERROR if stops else Severity.WARNING,
            f"{name}: {error}",
            "the producer stops at it" if stops else "it is set aside",
            f"export TIDEMARK_SOURCE__EXCLUDE_TABLES='{json.dumps(excluded)}'",
            Remedy.SETTING,
        )

    def _without_key(self, table: Table) -> Iterator[Finding]:
        schema = read_table_schema(self.connection, *table)
        if schema is None or schema.record_key:
            return
        yield Finding(
            "source.table_without_key",
            Severity.WARNING,
            f"{'.'.join(table)} has no primary key and no unique key without NULL",
            "its changes go to Kafka without a key; it is not snapshotted, and not merged into a sink",
            f"ALTER TABLE {quoted_name(table[0])}.{quoted_name(table[1])} ADD COLUMN {_KEY}",
            Remedy.SOURCE_SQL,
            "or a primary key of columns that it has",
        )


def _near(reason: str) -> str:
    """Return the first table that the advice on a pattern names; "" where it names none."""
    _, _, named = reason.partition("; did you mean ")
    return named.partition("?")[0].partition(",")[0].strip()


def _advice(reason: str) -> str:
    return "".join(reason.partition(_ADVICE)[1:]).strip()
