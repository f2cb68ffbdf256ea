"""Spark and the sinks: Java, jars, memory; folders, free space; reachability and rights of a database."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.errors import SinkError, TidemarkError
from schemas.findings import Finding, Remedy, Severity
from schemas.settings.database_url import DATABASES
from tidemark.api.sink_folder import full_disk
from tidemark.doctor.area_findings import UncheckedError
from tidemark.doctor.other_writers import end_of_merge_job, sink_writer_findings

if TYPE_CHECKING:
    from schemas.settings import Settings
    from schemas.settings.sink_section import SinkSettings
    from tidemark.verify.relational_reader import SinkServer

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LEAST_FREE: Final = 2 << 30
_UNITS: Final = {"k": 10, "m": 20, "g": 30, "t": 40}
_MEMORY: Final = re.compile(r"(\d+)([kmgt])", re.IGNORECASE)
_FETCHED: Final = "the first start of `tidemark merge` fetches what is missing"
_DOES_NOT_START: Final = "the merge job does not start"
_IN_SERVICE: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "CREATE TEMPORARY TABLES")


def spark_findings(settings: Settings) -> Iterator[Finding]:
    """Yield why Spark could not be started.

    `UncheckedError` where no sink needs it, where this machine has no merge job, or where its first start fetches Java or jars.
    """
    if not settings.sinks:
        raise UncheckedError("there are no sinks: no merge job is run")
    if importlib.util.find_spec("pyspark") is None:
        raise UncheckedError("pyspark is not installed here: ask where the merge job runs")
    from spark_jobs.jobs.preflight import OLDEST_JAVA, startable_findings
    from tidemark.runtime import java_home
    from tidemark.runtime.jars import are_jars_here
    from tidemark.runtime.java import is_java_here

    yield from _memory(settings)
    if "JAVA_HOME" not in os.environ and not is_java_here(OLDEST_JAVA):
        raise UncheckedError(f"there is no Java here yet: {_FETCHED}")
    try:
        os.environ.setdefault("JAVA_HOME", str(java_home(OLDEST_JAVA)))
        yield from startable_findings(settings.spark)
        if not settings.spark.jars and not are_jars_here([sink.type for sink in settings.sinks]):
            raise UncheckedError(f"some jars are not here yet: {_FETCHED}")
    except UncheckedError:
        raise
    except TidemarkError as error:
        yield Finding("spark.runtime", Severity.ERROR, str(error), _DOES_NOT_START)


def _memory(settings: Settings) -> Iterator[Finding]:
    given = _MEMORY.fullmatch(settings.spark.driver_memory.strip())
    if given is None or not settings.spark.master.startswith("local"):
        return
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    heap = int(given.group(1)) << _UNITS[given.group(2).lower()]
    if heap > has:
        fits = max(1, (has >> 30) // 2)
        evidence = f"spark.driver_memory is {settings.spark.driver_memory}, and this machine has {has / (1 << 30):.1f} GiB"
        what, fix = "the system ends the merge job when it uses that", f"export TIDEMARK_SPARK__DRIVER_MEMORY={fits}g"
        yield Finding("spark.memory", Severity.ERROR, evidence, what, fix, Remedy.SETTING)


def sink_findings(sink: SinkSettings, *, is_start: bool = False) -> Callable[[Settings], Iterator[Finding]]:
    """Return the checks of one sink; `is_start`: for a merge job that is about to begin, and finds another one in its way."""
    return partial(_findings_of_sink, sink, is_start)


def _findings_of_sink(sink: SinkSettings, is_start: bool, _settings: Settings) -> Iterator[Finding]:  # noqa: FBT001 - of a partial
    if sink.type in DATABASES:
        yield from _database(sink)
    path = sink.folder.removeprefix("file://")
    if _URI.match(path):
        raise UncheckedError(f"{path} is not of this machine: only the merge job can ask")
    yield from _folder(sink.name, Path(path))
    yield from sink_writer_findings(sink, is_start=is_start)
    if not is_start:
        yield from end_of_merge_job(sink)


def _folder(name: str, folder: Path) -> Iterator[Finding]:
    """Yield what is wrong with a folder of this machine. It need not be there: the merge job makes it."""
    try:
        yield from _folder_findings(name, folder)
    except PermissionError as error:
        evidence, what = f"sink {name}: this user may not look at {folder}: {error.strerror}", "the merge job cannot write"
        advice = "Allow this user to enter the folders above it"
        yield Finding("sink.folder_rights", Severity.ERROR, evidence, what, advice=advice)
    except OSError as error:  # of a network file system, for one: it may pass
        evidence = f"sink {name}: the file system does not show {folder}: {error.strerror}"
        yield Finding("sink.unknown", Severity.ERROR, evidence, "the folder could not be checked", advice="Check its mount")


def _folder_findings(name: str, folder: Path) -> Iterator[Finding]:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            evidence, what = f"sink {name}: {path} is a file", "the sink's folder cannot be there"
            fix = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.before')}"
            yield Finding("sink.folder_is_file", Severity.ERROR, evidence, what, fix, Remedy.SHELL)
            return
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        yield _no_rights(name, there)
    free = shutil.disk_usage(there).free
    if full := full_disk(there):
        advice = "Make room; a merge job that waits continues by itself"
        yield Finding("sink.free_space", Severity.ERROR, f"sink {name}: {full}", "no batch can be written", advice=advice)
    elif free < _LEAST_FREE:
        evidence, what = f"sink {name}: {free / (1 << 30):.1f} GiB are free at {there}", "a batch needs room for new files"
        yield Finding("sink.free_space", Severity.WARNING, evidence, what, advice="Make room, or give another path")


def _no_rights(name: str, folder: Path) -> Finding:
    """Return the finding of a folder that cannot be written to; what mends it depends on why not."""
    code, what, path = "sink.folder_rights", "the merge job cannot write", shlex.quote(str(folder))
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        evidence, advice = f"sink {name}: the file system of {folder} is read-only", "Mount it for writing, or give another path"
        return Finding(code, Severity.ERROR, evidence, what, advice=advice)
    evidence = f"sink {name}: this user may not write to {folder}"
    if folder.stat().st_uid == os.getuid():
        return Finding(code, Severity.ERROR, evidence, what, f"chmod u+rwx {path}", Remedy.SHELL)
    fix = f"chown {os.getuid()}:{os.getgid()} {path}"
    return Finding(code, Severity.ERROR, evidence, what, fix, Remedy.SHELL, "as an administrator")


def _database(sink: SinkSettings) -> Iterator[Finding]:
    from tidemark.verify.sink_types import server_of

    server = server_of(sink)
    try:
        yield from _postgres_rights(sink, server) if sink.type == "postgresql" else _mysql_rights(sink, server)
    except SinkError as error:
        advice = "Check url, user and password"
        found = Finding("sink.unreachable", Severity.ERROR, str(error), "the merge job cannot write", advice=advice)
        raise UncheckedError("its database cannot be asked", [found]) from error


def _postgres_rights(sink: SinkSettings, server: SinkServer) -> Iterator[Finding]:
    rights = {"CREATE": "make schemas", "TEMPORARY": "make temporary tables"}
    asked = ", ".join(f"has_database_privilege(current_database(), '{right}')" for right in rights)
    ((database, user, *has),) = server.ask(f"SELECT current_database(), current_user, {asked}")
    for (right, purpose), granted in zip(rights.items(), has, strict=True):
        if not granted:
            evidence = f"sink {sink.name}: user {user} may not {purpose} in the database {database}"
            fix = f"GRANT {right} ON DATABASE {server.quoted(database)} TO {server.quoted(user)}"
            code = f"sink.privilege.{right.lower()}"
            yield Finding(code, Severity.ERROR, evidence, "the merge job cannot write", fix, Remedy.SINK_SQL)


def _mysql_rights(sink: SinkSettings, server: SinkServer) -> Iterator[Finding]:
    from mysqlio.server_facts import grants_of
    from producer.source.coverage import privileges_on
    from tidemark.verify.relational_reader import SERVICE

    grants = grants_of(str(row[0]) for row in server.ask("SHOW GRANTS"))
    ((account,),) = server.ask("SELECT CURRENT_USER()")
    quoted = "@".join(f"'{part}'" for part in str(account).rsplit("@", 1))
    has = privileges_on(grants, SERVICE, "checkpoint")
    missing = [] if "ALL PRIVILEGES" in has else [right for right in _IN_SERVICE if right not in has]
    if missing:
        evidence = f"sink {sink.name}: {account} lacks {', '.join(missing)} on {SERVICE}"
        what, fix = "the sink has its checkpoint and its staging tables there", f"GRANT ALL ON `{SERVICE}`.* TO {quoted}"
        yield Finding("sink.privilege.service", Severity.ERROR, evidence, what, fix, Remedy.SINK_SQL)
