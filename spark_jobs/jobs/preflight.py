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
from schemas.settings import KafkaSettings, SparkSettings
from spark_jobs.store.sink_layout import SinkLayout

log = structlog.get_logger()

OLDEST_JAVA: Final = 17
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


def require_startable(settings: SparkSettings) -> None:
    """Refuse settings that no session can be started with: `ConfigError`, or `SinkError` where a master does not answer."""
    if _MASTER.fullmatch(settings.master) is None:
        message = f"spark.master: {settings.master!r} is none of local[*], local[<threads>], spark://<host>:<port>, yarn, k8s://..."
        raise ConfigError(message)
    for jar in settings.jars:
        _require_jar(jar)
    _require_java(settings.driver_memory)
    if settings.master.startswith("spark://"):
        _require_one_answers(settings.master.removeprefix("spark://").split(","), "spark.master", _MASTER_S, threading.Event())


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
        advice = "make room there, or give another sinks.path" if is_full else "check its mount and the rights of this user"
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


def _require_jar(jar: str) -> None:
    scheme, path = urlsplit(jar).scheme, jar
    if scheme in ("file", "local"):
        path = unquote(urlsplit(jar).path)
    elif scheme and "://" in jar:
        return  # fetched by Spark
    file = Path(path)
    if not file.is_file():
        message = f"spark.jars: there is no file {path}: name the jars of the lock file that is in use, or leave spark.jars out"
        raise ConfigError(message)
    if not zipfile.is_zipfile(file):
        message = f"spark.jars: {path} is no jar: it is cut short, or another kind of file"
        raise ConfigError(message)


def _require_java(memory: str) -> None:
    found = _MEMORY.fullmatch(memory.strip())
    if found is None:
        message = f"spark.driver_memory: {memory!r} is not a number of megabytes or gigabytes, as 2g or 800m"
        raise ConfigError(message)
    if int(found.group(1)) << {"k": 10, "m": 20, "g": 30, "t": 40}[found.group(2).lower()] < _LEAST_MEMORY:
        message = f"spark.driver_memory: {memory} is too little: Spark does not start with less than {_LEAST_MEMORY >> 20}m"
        raise ConfigError(message)
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError(f"there is no Java: install one of version {OLDEST_JAVA} or 21, or set JAVA_HOME")
    where = f"JAVA_HOME: {home}" if home else f"the Java on the PATH ({java})"
    try:
        done = subprocess.run(
            [java, f"-Xmx{memory.strip()}", "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_S
        )
    except OSError as error:
        message = f"{where}: {java} cannot be run ({error.strerror}): set JAVA_HOME to a Java of version {OLDEST_JAVA} or 21"
        raise ConfigError(message) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{where}: {java} -version has not ended after {_JAVA_S} s") from None
    version = _VERSION.search(done.stderr)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        reason = next((line for line in lines if "heap" in line.lower() or "memory" in line.lower()), None)
        if reason is not None:
            raise ConfigError(f"spark.driver_memory: Java does not start with {memory}: {reason.strip()}")
        raise ConfigError(f"{where}: {java} does not run: {lines[0].strip()}")
    if version is None or int(version.group(1)) < OLDEST_JAVA:
        found_version = "an unknown version" if version is None else f"version {version.group(1)}"
        raise ConfigError(f"{where} is {found_version}: Spark needs {OLDEST_JAVA} or 21")


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
