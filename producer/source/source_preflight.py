"""Whether a source's settings and our privileges would lose data: findings, each with the SQL that mends it.

What enters: `ServerFacts` and a connection. What leaves: findings; `preflight` raises one `SourceError` that lists the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_facts import LOG_STATUS_SINCE, account, ask, is_denied, user_grants
from producer.source.log_facts import xa_recover
from producer.source.object_rights import READS_ALL, TRIGGERS, right_to_routines, sees_routines, sees_triggers
from schemas.errors import SourceError
from schemas.findings import Finding, Remedy, Severity, errors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts

log = structlog.get_logger(__name__)

_SINCE: Final = {"mysql": (5, 7, 0), "mariadb": (10, 5, 0)}
_ROW_METADATA: Final = "source.binlog_row_metadata"
_RECONNECT: Final = "then reconnect the clients (sessions keep the old value)"


def preflight(facts: ServerFacts, connection: Connection | None = None) -> None:
    """Refuse a server whose log would not hold everything.

    With a connection also its user's privileges are looked at. Raises one `SourceError`
    that names every obstacle: what, why, and the SQL that removes it.
    """
    found = list(source_findings(facts, connection))
    problems = errors_of(found)
    if problems:
        listed = "".join(f"\n  * {problem.text}" for problem in problems)
        message = (
            f"the source ({facts.flavour} {facts.version_text}) cannot be captured as it is set up:{listed}"
        )
        raise SourceError(message)
    if facts.row_metadata != "FULL":
        advice = "tables are followed through their DDL; ALTERs hidden from the log (sql_log_bin=0) are not seen"
        better = "".join(f". Better: {one.fix}, {one.advice}" for one in found if one.code == _ROW_METADATA)
        log.warning("source.log_names_no_columns", row_metadata=facts.row_metadata or "none", advice=advice + better)


def source_findings(facts: ServerFacts, connection: Connection | None = None) -> Iterator[Finding]:
    """Yield what is wrong with the server, and, with a connection, with the privileges of its user."""
    yield from _setting_findings(facts)
    if connection is not None:
        yield from _privilege_findings(facts, connection)
        yield from _replica_findings(facts, connection)
        yield from _xa_privilege_findings(connection)


def _error(code: str, evidence: str, what: str, fix: str = "", advice: str = "") -> Finding:
    return Finding(code, Severity.ERROR, evidence, what, fix, Remedy.SOURCE_SQL if fix else Remedy.NONE, advice)


def _unseen(code: str, evidence: str, fix: str) -> Finding:
    what = "a change of a captured table through them is missed if it is logged as a statement about another table"
    return Finding(code, Severity.WARNING, evidence, what, fix, Remedy.SOURCE_SQL)


def _setting_findings(facts: ServerFacts) -> Iterator[Finding]:
    if not facts.log_bin:
        advice = "Start the server with --log-bin and --server-id"
        yield _error("source.log_bin", "log_bin is OFF", "there is no log to read", advice=advice)
        return
    if facts.server_id == 0:
        what = "the server sends its log to nobody"
        yield _error("source.own_server_id", "server_id is 0", what, "SET GLOBAL server_id = 1")
    if facts.binlog_format not in ("ROW", ""):
        evidence, what = f"binlog_format is {facts.binlog_format}", "changes are logged as statements, not rows"
        yield _error("source.binlog_format", evidence, what, "SET GLOBAL binlog_format = 'ROW'", _RECONNECT)
    if facts.row_image not in ("FULL", ""):
        evidence, what = f"binlog_row_image is {facts.row_image}", "rows are logged without all columns"
        yield _error("source.binlog_row_image", evidence, what, "SET GLOBAL binlog_row_image = 'FULL'", _RECONNECT)
    since = _SINCE[facts.flavour]
    if facts.version < since:
        needed = ".".join(str(part) for part in since[:2])
        yield _error("source.version", f"{facts.flavour} {facts.version_text} is too old", f"{needed} or later is needed")
    if facts.order_commits == "OFF":
        what = "a committed transaction need not be visible in log order, snapshots could miss rows"
        yield _error("source.order_commits", "binlog_order_commits is OFF", what, "SET GLOBAL binlog_order_commits = ON")
    if facts.row_metadata not in ("FULL", ""):
        yield Finding(
            _ROW_METADATA,
            Severity.WARNING,
            f"binlog_row_metadata is {facts.row_metadata}",
            "the log does not name columns: tables are followed through their DDL, and an ALTER that is hidden from the log "
            "(sql_log_bin=0) is not seen",
            "SET GLOBAL binlog_row_metadata = 'FULL'",
            Remedy.SOURCE_SQL,
            "and in the server's configuration",
        )


def _replica_findings(facts: ServerFacts, connection: Connection) -> Iterator[Finding]:
    """Yield a replica that does not log what it replicates: it has a log without that."""
    names = "'log_slave_updates', 'log_replica_updates'"
    logged = ask(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    if all(str(value).upper() in ("ON", "1") for _, value in logged):
        return
    try:
        if facts.flavour == "mariadb":
            replicates = bool(ask(connection, "SELECT @@GLOBAL.gtid_slave_pos")[0][0])
        else:
            renamed = facts.version >= LOG_STATUS_SINCE
            replicates = bool(ask(connection, "SHOW REPLICA STATUS" if renamed else "SHOW SLAVE STATUS"))
    except SourceError as error:
        if is_denied(error):
            return  # reported as a missing privilege
        raise
    if replicates:
        name = str(logged[0][0])
        advice = f"Start it with --{name.replace('_', '-')}, or read from its primary"
        evidence, what = f"the server is a replica and {name} is OFF", "what it replicates is not in its log"
        yield _error("source.replica_log", evidence, what, advice=advice)


def _privilege_findings(facts: ServerFacts, connection: Connection) -> Iterator[Finding]:
    grants = user_grants(connection)
    user, quoted = account(connection)
    everywhere = grants.get("*.*", frozenset())
    all_rights = "ALL PRIVILEGES" in everywhere
    monitor = "BINLOG MONITOR" if facts.flavour == "mariadb" else "REPLICATION CLIENT"
    wanted = {
        "REPLICATION SLAVE": "read the log",
        monitor: "ask where the log ends",
    }
    for privilege, purpose in wanted.items():
        known_as = {privilege, "REPLICATION CLIENT"} if privilege == "BINLOG MONITOR" else {privilege}
        if not all_rights and not known_as & everywhere:
            what = f"{privilege} is missing"
            code = f"source.privilege.{privilege.lower().replace(' ', '_')}"
            yield _error(code, f"{user} may not {purpose}", what, f"GRANT {privilege} ON *.* TO {quoted}")
    if not any({"SELECT", "ALL PRIVILEGES"} & privileges for privileges in grants.values()):
        advice = f"GRANT SELECT ON <database>.* TO {quoted}"
        yield _error("source.privilege.select", f"{user} may not read any table", "SELECT is missing", advice=advice)
    if not sees_triggers(grants):
        evidence = f"{user} does not see the triggers and foreign keys of other tables"
        yield _unseen("source.privilege.trigger", evidence, f"GRANT {TRIGGERS} TO {quoted}")
    right = right_to_routines(facts.flavour, facts.version)
    if right != READS_ALL and not sees_routines(grants, right):
        yield _unseen("source.privilege.routines", f"{user} does not see stored functions", f"GRANT {right} TO {quoted}")


def _xa_privilege_findings(connection: Connection) -> Iterator[Finding]:
    try:
        xa_recover(connection)
    except SourceError as error:
        if is_denied(error):
            user, quoted = account(connection)
            evidence, what = f"{user} may not see prepared XA transactions", "XA_RECOVER_ADMIN is missing"
            yield _error("source.privilege.xa_recover", evidence, what, f"GRANT XA_RECOVER_ADMIN ON *.* TO {quoted}")
            return
        raise
