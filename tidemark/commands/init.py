"""`tidemark init`: look at a database and write a commented file of settings for it. The password is never printed or written."""

from __future__ import annotations

import argparse
import getpass
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError, SourceError
from schemas.findings import Remedy
from schemas.identity import TableName
from schemas.readable import counted
from schemas.secrets import secret_of
from schemas.settings import Settings, from_mapping
from tidemark.commands import numbers
from tidemark.commands.action import add_output, emit
from tidemark.commands.initial_file import SIGNAL_TABLE, InitialFile, name_of, pattern_of
from tidemark.process import config

if TYPE_CHECKING:
    from schemas.findings import Finding

HELP: Final = "look at a database and write a commented file of settings for it, with the tables and the missing grants"
_KAFKA: Final = "127.0.0.1:9092"
_REGISTRY: Final = "http://127.0.0.1:8081"
_LOCAL_KAFKA: Final = "127.0.0.1:29192"
_LOCAL_REGISTRY: Final = "http://127.0.0.1:28181/apis/ccompat/v7"
_PASSWORD: Final = "TIDEMARK_SOURCE__PASSWORD"  # noqa: S105 - the name of a variable
_EXPORT: Final = f"export {_PASSWORD}=..."
_NAMED: Final = 10
_DATABASE: Final = re.compile(r"(\w+)\\?\.")
"""The database in a pattern on database.table that names it."""
_ESTIMATES: Final = "SELECT table_schema, table_name, table_rows FROM information_schema.tables WHERE table_type = 'BASE TABLE'"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the source, the other servers, the file."""
    parser.add_argument("--host", help="host of the database (default: TIDEMARK_SOURCE__HOST, or this machine)")
    parser.add_argument("--port", type=numbers.port, help="its port (default: TIDEMARK_SOURCE__PORT, or 3306)")
    parser.add_argument("--user", help="user with the grants of the README (default: TIDEMARK_SOURCE__USER, or tidemark)")
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"file whose first line is the password (default: {_PASSWORD}, else a terminal is asked)",
    )
    parser.add_argument(
        "--tables",
        action="append",
        default=[],
        metavar="PATTERN",
        help="regular expression on database.table; may be repeated (default: every table that the user can see)",
    )
    parser.add_argument("--name", help="prefix of every topic (default: the name of the database)")
    parser.add_argument("--signal-table", metavar="TABLE", help=f"database.table (default: {SIGNAL_TABLE} beside the tables)")
    parser.add_argument("--kafka", metavar="SERVERS", help=f"host:port of Kafka (default: {_KAFKA})")
    parser.add_argument("--registry", metavar="URL", help=f"the schema registry (default: {_REGISTRY})")
    parser.add_argument(
        "--local", action="store_true", help="Kafka and registry are those that `tidemark up` starts on this machine"
    )
    parser.add_argument("--lake", default="lake", metavar="DIR", help="folder of the Delta tables (default: %(default)s)")
    parser.add_argument("--file", default=config.DEFAULT_PATH, metavar="FILE", help="what to write (default: %(default)s)")
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Write the file, say what the source lacks and what comes next. A file that is there stays, with exit code 2."""
    path = Path(arguments.file)
    if path.exists():
        raise ConfigError(f"--file: {path} is there already and stays as it is; name another one, or remove it")
    source, is_typed = _source_of(arguments)
    inspected = inspect(arguments, source, is_typed=is_typed)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(inspected.file.text)
    except OSError as error:
        raise ConfigError(f"--file: {path} cannot be written: {error.strerror}") from None
    emit(arguments, inspected.document(path), "\n".join(inspected.lines(path)))
    return 0


@dataclass(frozen=True, slots=True)
class Inspected:
    """The file for a source, and what is wrong with the source."""

    file: InitialFile
    findings: tuple[Finding, ...]
    is_typed: bool
    """Whether the password was typed, so that nothing keeps it for the commands that come next."""

    def document(self, path: Path) -> dict[str, Any]:
        """Return the facts in JSON."""
        return {
            "file": str(path),
            "server": self.file.server,
            "tables": dict(self.file.tables),
            "statements": list(self.file.statements),
            "notes": list(self.file.notes),
            "next": [*([_EXPORT] if self.is_typed else []), *_next(path, self.file.kafka)],
        }

    def lines(self, path: Path) -> list[str]:
        """Return the facts as text."""
        lines = [f"wrote {path}: {counted(len(self.file.tables), 'table')} of {self.file.server}"]
        lines += [f"note: {note}" for note in self.file.notes]
        if self.file.statements:
            lines.append("to be run at the source by an administrator, first of all:")
            lines += [f"    {statement};" for statement in self.file.statements]
        if self.is_typed:
            lines.append("the typed password is written nowhere: name a file in source.password_file, or run in each shell first:")
            lines.append(f"    {_EXPORT}")
        commands = _next(path, self.file.kafka)
        several = ", each in a shell of its own (`tidemark doctor` checks Kafka and the rest before)" if len(commands) > 1 else ""
        return [*lines, f"next{several}:", *(f"    {command}" for command in commands)]


def inspect(arguments: argparse.Namespace, source: Mapping[str, object], *, is_typed: bool = False) -> Inspected:
    """Ask the source for its tables, and for what is wrong with it. `is_typed`: the password was typed.

    Raises `SourceError` where it cannot be reached, or where the user sees no table that is asked for.
    """
    from mysqlio.connection import connect
    from mysqlio.information_schema import list_tables
    from mysqlio.server_access import ServerAccess
    from mysqlio.server_errors import source_errors
    from mysqlio.server_facts import account, server_facts
    from tidemark.doctor.area_findings import UncheckedError
    from tidemark.doctor.source_checks import source_findings_of

    patterns = tuple(arguments.tables)
    probe = from_mapping({"name": "init", "source": {**source, "tables": list(patterns) or [r".*\..*"]}})
    with closing(connect(ServerAccess.of(probe.source))) as connection:
        facts = server_facts(connection)
        seen = [table for table in list_tables(connection) if table[1] != SIGNAL_TABLE]
        captured = [table for table in seen if probe.source.captures(*table)]
        if not captured:
            raise SourceError(_no_table(probe, patterns, seen, account(connection)[1]))
        with source_errors("the tables of the source"), connection.cursor() as cursor:
            cursor.execute(_ESTIMATES)
            estimates = {(str(row[0]), str(row[1])): row[2] for row in cursor.fetchall()}
    databases = list(dict.fromkeys(database for database, _ in captured))
    patterns = patterns or tuple(pattern_of(database) for database in databases)
    name = arguments.name or name_of(databases[0])
    signal_table = arguments.signal_table or TableName(databases[0], SIGNAL_TABLE).text
    settings = from_mapping({"name": name, "source": {**source, "tables": list(patterns), "signal_table": signal_table}})
    try:
        findings = tuple(source_findings_of(settings))
    except UncheckedError as error:
        findings = tuple(error.findings)
    needed = [one for one in findings if one.remedy is Remedy.SOURCE_SQL and one.is_error]
    statements = [statement for one in needed for statement in one.fix.split("; ")]
    file = InitialFile(
        name=name,
        server=f"{'MariaDB' if facts.flavour == 'mariadb' else 'MySQL'} {facts.version_text}",
        host=probe.source.host,
        port=probe.source.port,
        user=probe.source.user,
        password_file=probe.source.password_file,
        patterns=patterns,
        tables={".".join(table): _whole(estimates.get(table)) for table in captured},
        signal_table=signal_table,
        kafka=arguments.kafka or (_LOCAL_KAFKA if arguments.local else _KAFKA),
        registry=arguments.registry or (_LOCAL_REGISTRY if arguments.local else _REGISTRY),
        lake=arguments.lake,
        statements=list(dict.fromkeys(statements)),
        notes=[f"{one.severity}: {one.text}" for one in findings if one not in needed],
    )
    return Inspected(file, findings, is_typed)


def _source_of(arguments: argparse.Namespace) -> tuple[dict[str, object], bool]:
    """Return the section `source`, variables of the environment with the options laid over them; whether the password was typed."""
    is_typed = False
    mapping: dict[str, object] = {}
    config.overlay(mapping, {name: text for name, text in os.environ.items() if name.startswith("TIDEMARK_SOURCE__")})
    section = mapping.get("source")
    source = dict(section) if isinstance(section, dict) else {}
    given = {"host": arguments.host, "port": arguments.port, "user": arguments.user, "password_file": arguments.password_file}
    for key, value in given.items():
        if value is not None and source.get(key, value) != value:
            option, variable = f"--{key.replace('_', '-')}", f"TIDEMARK_SOURCE__{key.upper()}"
            raise ConfigError(f"{option}: {variable} has another value and wins over the file: unset it, or leave {option} out")
    source |= {key: value for key, value in given.items() if value is not None}
    if source.get("password_file"):
        source["password_file"] = file = str(Path(str(source["password_file"])).absolute())
        secret_of("", file, "source.password_file")
        source.pop("password", None)
    elif "password" not in source and sys.stdin.isatty():
        source["password"], is_typed = getpass.getpass("password of the source: "), True
    return {key: value for key, value in source.items() if key not in ("tables", "signal_table")}, is_typed


def _no_table(settings: Settings, patterns: tuple[str, ...], seen: Sequence[tuple[str, str]], quoted_account: str) -> str:
    which = f"matches {', '.join(patterns)}" if patterns else "can be seen"
    names = [".".join(table) for table in seen]
    there = f"it sees {', '.join(names[:_NAMED])}{' and others' if len(names) > _NAMED else ''}. " if names else ""
    databases = [match[1] for pattern in patterns if (match := _DATABASE.match(pattern))]
    grants = [f"    GRANT SELECT ON `{database}`.* TO {quoted_account};" for database in databases or ["<database>"]]
    return (
        f"no table {which} for {settings.source.user!r} at {settings.source.host}:{settings.source.port}. {there}A table without a "
        "right is not seen: have an administrator of the source run this, and run `tidemark init` again, which names what else is "
        "missing:\n" + "\n".join(grants)
    )


def _whole(rows: object) -> int | None:
    return None if rows is None else int(str(rows))


def _next(path: Path, kafka: str) -> list[str]:
    """Return the commands that come next."""
    option = "" if str(path) == config.DEFAULT_PATH else f" --config {shlex.quote(str(path))}"
    if kafka == _LOCAL_KAFKA:
        return [f"tidemark up{option}"]
    return [f"tidemark run{option}", f"tidemark merge{option}"]
