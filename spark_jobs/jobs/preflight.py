"""Checks before Spark is started, each with an error of one line: Spark itself fails with a traceback, or after a minute."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import structlog

from schemas.errors import ConfigError, SinkError
from schemas.findings import Finding, Remedy, Severity
from schemas.settings import KafkaSettings, SessionSettings
from spark_jobs.store.sink_layout import SinkLayout

log = structlog.get_logger()

OLDEST_JAVA: Final = 17
MASTER_SILENT: Final = "spark.master"
"""The code of the finding that a retry may mend."""
_NO_SESSION: Final = "Spark cannot be started"
_OWN_JARS: Final = "export TIDEMARK_SPARK__JARS="
_LOCAL: Final = "export TIDEMARK_SPARK__MASTER='local[*]'"
_USUAL_MEMORY: Final = "2g"
_STARTED: Final[set[tuple[str, str]]] = set()
"""Each Java with each size of heap that has started in this process: it is asked once, and again only after a failure."""
_LEAST_MEMORY: Final = 512 << 20  # Spark wants 450 MB of what a JVM has left of its heap
_JAVA_S: Final = 60
_CONNECT_S: Final = 3.0
_MASTER_S: Final = 10.0
_KAFKA_S: Final = 10.0
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PROBE_BYTES: Final = 1 << 20
_MASTER: Final = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|yarn|k8s://.+|spark://[^/]+:\d+(,[^/]+:\d+)*")
_MEMORY: Final = re.compile(r"(\d+)([kmgt])", re.IGNORECASE)
_VERSION: Final = re.compile(r'version "(\d+)')


def require_startable(settings: SessionSettings) -> None:
    """Refuse settings that no session can be started with: `ConfigError`, or `SinkError` where a master does not answer."""
    for found in startable_findings(settings):
        raise (SinkError if found.code == MASTER_SILENT else ConfigError)(found.text)


def startable_findings(settings: SessionSettings) -> Iterator[Finding]:
    """Yield why no session can be started with these settings, each with what is put into the environment instead."""
    if _MASTER.fullmatch(settings.master) is None:
        forms = "local[*], local[<threads>], spark://<host>:<port>, yarn, k8s://<address>"
        yield _wrong(f"spark.master: {settings.master!r} is none of {forms}", _NO_SESSION, _LOCAL)
    for jar in settings.jars:
        yield from _jar_findings(jar)
    yield from _memory_findings(settings.driver_memory)
    if settings.master.startswith("spark://"):
        try:
            _require_one_answers(settings.master.removeprefix("spark://").split(","), "spark.master", _MASTER_S, threading.Event())
        except SinkError as error:
            evidence, _, advice = str(error).rpartition(". ")
            yield Finding(MASTER_SILENT, Severity.ERROR, evidence, _NO_SESSION, advice=advice)
        except ConfigError as error:
            yield _wrong(str(error), _NO_SESSION, _LOCAL)


def require_writable(name: str, layout: SinkLayout) -> None:
    """Make the sink's folder, and refuse one that cannot be written to (`ConfigError` for what is no folder, else `SinkError`)."""
    probe = layout.service / f".probe-{os.getpid()}"
    try:
        layout.service.mkdir(parents=True, exist_ok=True)
        with probe.open("wb") as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except (FileExistsError, NotADirectoryError):
        wrong = [path for path in (layout.service, *layout.service.parents) if path.exists() and not path.is_dir()]
        found = wrong[0] if wrong else layout.service
        message = f"sinks: {name}: path: {found} is a file, not a folder: give the folder of the sink, or move the file elsewhere"
        raise ConfigError(message) from None
    except OSError as error:
        is_full = error.errno in _FULL
        elsewhere = "make room there, or give another folder (sinks.path, of a database sinks.work)"
        advice = elsewhere if is_full else "check its mount and the rights of this user"
        message = f"the sink {layout.sink} cannot be written to: {error.strerror or error}; {advice}"
        raise SinkError(message) from error
    finally:
        _remove(probe)


def require_kafka(kafka: KafkaSettings, stop: threading.Event) -> None:
    """Wait some seconds until a broker accepts a connection; `SinkError` when none does."""
    servers = [server.strip() for server in kafka.bootstrap_servers.split(",") if server.strip()]
    _require_one_answers(servers, "kafka.bootstrap_servers", _KAFKA_S, stop)


def _remove(probe: Path) -> None:
    try:
        probe.unlink(missing_ok=True)
    except OSError:
        return


def _wrong(evidence: str, what: str, fix: str = "", advice: str = "") -> Finding:
    return Finding("spark.start", Severity.ERROR, evidence, what, fix, Remedy.SETTING if fix else Remedy.NONE, advice)


def _jar_findings(jar: str) -> Iterator[Finding]:
    scheme, path = urlsplit(jar).scheme, jar
    if scheme in ("file", "local"):
        path = unquote(urlsplit(jar).path)
    elif scheme and "://" in jar:
        return  # fetched by Spark
    file, advice = Path(path), "with none named, those of the lock file are taken"
    if not file.is_file():
        yield _wrong(f"spark.jars: there is no file {path}", _NO_SESSION, _OWN_JARS, advice)
    elif not zipfile.is_zipfile(file):
        what = "it is cut short, or another kind of file"
        yield _wrong(f"spark.jars: {path} is no jar", what, _OWN_JARS, advice)


def _memory_findings(memory: str) -> Iterator[Finding]:
    """Yield what is wrong with the size of the heap; if nothing is, what is wrong with the Java that is to have it."""
    found, fix = _MEMORY.fullmatch(memory.strip()), f"export TIDEMARK_SPARK__DRIVER_MEMORY={_USUAL_MEMORY}"
    if found is None:
        yield _wrong(f"spark.driver_memory: {memory!r} is not a number of megabytes or gigabytes, as 2g or 800m", _NO_SESSION, fix)
    elif int(found.group(1)) << {"k": 10, "m": 20, "g": 30, "t": 40}[found.group(2).lower()] < _LEAST_MEMORY:
        what = f"Spark does not start with less than {_LEAST_MEMORY >> 20}m"
        yield _wrong(f"spark.driver_memory: {memory} is too little", what, fix)
    else:
        yield from _java_findings(memory.strip())


def _java_findings(memory: str) -> Iterator[Finding]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    needed = f"Spark needs a Java of version {OLDEST_JAVA} or 21"
    if java is None:
        yield _wrong("there is no Java", needed, advice="Install one, or set JAVA_HOME to it")
        return
    if (java, memory) in _STARTED:
        return
    where = f"JAVA_HOME: {home}" if home else f"the Java on the PATH ({java})"
    # Without JAVA_HOME the command takes the machine's own Java of the right version, or fetches one.
    fix, advice = ("unset JAVA_HOME", "or set it to such a Java") if home else ("", "Set JAVA_HOME to such a Java")
    try:
        done = subprocess.run([java, f"-Xmx{memory}", "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_S)
    except OSError as error:
        yield _wrong(f"{where}: {java} cannot be run ({error.strerror})", needed, fix, advice)
        return
    except subprocess.TimeoutExpired:
        yield _wrong(f"{where}: {java} -version has not ended after {_JAVA_S} s", needed, fix, advice)
        return
    version = _VERSION.search(done.stderr)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        reason = next((line for line in lines if "heap" in line.lower() or "memory" in line.lower()), None)
        if reason is not None:
            has_gib = (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 30
            smaller = f"export TIDEMARK_SPARK__DRIVER_MEMORY={max(1, has_gib // 2)}g"
            yield _wrong(f"spark.driver_memory: Java does not start with {memory}", reason.strip(), smaller)
        else:
            yield _wrong(f"{where}: {java} does not run: {lines[0].strip()}", needed, fix, advice)
    elif version is None or int(version.group(1)) < OLDEST_JAVA:
        found_version = "an unknown version" if version is None else f"version {version.group(1)}"
        yield _wrong(f"{where} is {found_version}", needed, fix, advice)
    else:
        _STARTED.add((java, memory))


def _require_one_answers(servers: Iterable[str], key: str, seconds: float, stop: threading.Event) -> None:
    """Return when one of these servers accepts a connection; `SinkError` when none does for that long."""
    addresses, deadline, is_logged = [*_addresses(servers, key)], time.monotonic() + seconds, False
    while not stop.is_set():
        problems = [problem for address in addresses if (problem := _problem(*address)) is not None]
        if len(problems) < len(addresses):
            return
        if time.monotonic() >= deadline:
            message = f"{key}: no server answers for {seconds:g} s: {'; '.join(problems)}. Start it, or put the address right"
            raise SinkError(message)
        if not is_logged:
            log.warning("merge.waiting_for_server", setting=key, reason=problems[0])
            is_logged = True
        stop.wait(1)


def _addresses(servers: Iterable[str], key: str) -> Iterator[tuple[str, int]]:
    for server in servers:
        host, _, port = server.rpartition("://")[2].rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"{key}: {server!r} is not of the form <host>:<port>")
        yield host.strip("[]"), int(port)


def _problem(host: str, port: int) -> str | None:
    """Return why a server cannot be connected to; None if it can."""
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
    return None
