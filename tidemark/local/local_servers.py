"""Broker and registry on this machine, where the settings name them here and nothing listens. Their data stays."""

from __future__ import annotations

import fcntl
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from devservers import Kafka, Registry
from devservers.fetching import fetch
from devservers.processes import Server, listening
from schemas.errors import ConfigError, TidemarkError
from tidemark.api.access import is_loopback
from tidemark.doctor.examination import AREA_S, OF_ALL, asked, gathered, has_answers
from tidemark.process.shutdown import end_children

if TYPE_CHECKING:
    from schemas.findings import Finding
    from schemas.settings import Settings

REGISTRY_PATH: Final = "/apis/ccompat/v7"
"""Where the registry that we start has Confluent's API."""

Say = Callable[[str], None]
_TURN_S: Final = 0.1
_START_ENDS_S: Final = 1.0


class ServerEndedError(TidemarkError):
    """A server that we started has ended by itself."""


@contextmanager
def only_user_of(folder: Path) -> Iterator[None]:
    """Make the folder and lock it. Raises `ConfigError` where another process has it locked, or where it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "up.lock").open("w")
    except OSError as error:
        raise ConfigError(f"--folder: {folder} cannot be used: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"--folder: another `tidemark up` runs with {folder}: end it, or give this one another folder"
            raise ConfigError(message) from None
        yield


def require_free_ports(settings: Settings) -> None:
    """Raise `ConfigError` with the first port that one of our jobs cannot listen on."""
    service = settings.service
    ports = {"page_port": service.page_port, "port": service.port, "merge_port": service.merge_port if settings.sinks else 0}
    for key, port in ports.items():
        try:
            if port:
                family = socket.getaddrinfo(service.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
                socket.create_server((service.host, port), family=family).close()
        except OSError as error:
            reason = f"cannot listen on {service.host}:{port}: {error.strerror or error}"
            raise ConfigError(f"service.{key}: {reason}; end what listens there, or set another port") from None


def kafka_port(settings: Settings) -> int | None:
    """Return the port of a broker that is to be on this machine and is not there; None where there is nothing to start.

    Raises `ConfigError` for one that we cannot start.
    """
    servers = settings.kafka.bootstrap_servers.split(",")
    host, _, port = servers[0].strip().rpartition(":")
    if len(servers) > 1 or not is_loopback(host.strip("[]")) or not port.isdigit() or listening(int(port)):
        return None
    if settings.kafka.security_protocol != "PLAINTEXT":
        message = f"kafka.security_protocol: nothing listens at {servers[0]}, and `tidemark up` starts a broker without TLS only"
        raise ConfigError(message)
    return int(port)


def registry_port(settings: Settings) -> int | None:
    """Return the same of a schema registry; None also where the settings have none."""
    url = urlsplit(settings.format.registry or "")
    if url.scheme != "http" or not is_loopback(url.hostname or "") or url.port is None or listening(url.port):
        return None
    if url.path.rstrip("/") != REGISTRY_PATH:
        raise ConfigError(
            f"format.registry: nothing listens at {url.hostname}:{url.port}, and the registry that `tidemark up` starts has its "
            f"API at http://{url.netloc}{REGISTRY_PATH}: write that, or start your own registry"
        )
    return url.port


class NotReadyError(TidemarkError):
    """A server keeps the pipeline from running; the text has a line for each reason, with its fix."""


def require_ready(settings: Settings, stop: threading.Event) -> None:
    """Raise `NotReadyError` with all errors that `tidemark doctor` would report of these servers; return once `stop` is set."""
    names = ["source"]
    names += ["kafka"] if kafka_port(settings) is None else []
    names += ["registry"] if settings.format.registry and registry_port(settings) is None else []
    threads = asked({name: OF_ALL[name] for name in names}, settings)
    until_s = time.monotonic() + AREA_S
    if not has_answers(threads, until_s, stop):
        return
    errors = [one for one in gathered(threads, until_s).findings if one.is_error]
    if errors:
        raise NotReadyError("nothing was started:" + "".join(f"\n  * {_line(one, settings)}" for one in errors))


def _line(found: Finding, settings: Settings) -> str:
    host, _, port = settings.kafka.bootstrap_servers.split(",")[0].strip().rpartition(":")
    is_here = is_loopback(host.strip("[]")) and port.isdigit() and listening(int(port))
    return f"{found.text}; something listens there: is it Kafka?" if found.code == "kafka.unreachable" and is_here else found.text


class LocalServers:
    """The servers that are missing. `folder` has their data and logs. What was started ends at the end of the context."""

    def __init__(self, settings: Settings, folder: Path, say: Say) -> None:
        self._ports = kafka_port(settings), registry_port(settings)
        self._folder, self._say = folder, say
        self._servers: list[Server] = []
        self._stop = threading.Event()
        self._starting: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def start(self, stop: threading.Event) -> bool:
        """Fetch what is missing and start the servers; return False as soon as `stop` is set, before all are ready.

        A thread does it, which nobody waits for at the end: it may be in a request that gets no answer. Raises
        `UnavailableError` where a file cannot be fetched or a server does not start.
        """
        self._stop = stop
        started: Future[None] = Future()

        def make() -> None:
            try:
                self._start()
            except BaseException as error:  # noqa: BLE001 - raised again below
                started.set_exception(error)
            else:
                started.set_result(None)

        self._starting = threading.Thread(target=make, name="local-servers", daemon=True)
        self._starting.start()
        while not started.done():
            if stop.wait(_TURN_S):
                return False
        started.result()
        return not stop.is_set()

    def _start(self) -> None:
        kafka, registry = self._ports
        wanted = [name for name, port in (("kafka", kafka), ("registry", registry)) if port is not None]
        fetch([*wanted, "spark"], self._say)
        if kafka is not None:
            self._servers.append(Kafka(self._folder, port=kafka))
        if registry is not None:
            self._servers.append(Registry(self._folder, port=registry))
        with ThreadPoolExecutor(2, "local") as pool:
            try:
                for server in pool.map(self._started, self._servers):
                    if server.running:
                        self._say(f"{server.name}: started, log {server.log_path}")
            except BaseException:
                self._ask_to_end()  # the other one, which the pool waits for
                raise

    def _started(self, server: Server) -> Server:
        return server if self._stop.is_set() else server.start()

    def __exit__(self, *_: object) -> None:
        self._ask_to_end()
        if self._starting is not None:
            self._starting.join(_START_ENDS_S)  # the start of a server that is asked to end fails
            if self._starting.is_alive():
                end_children()
                return
        for server in self._servers:
            server.close()

    def check(self) -> None:
        """Raise `ServerEndedError` for a server that has ended by itself."""
        for server in self._servers:
            if not server.running:
                raise ServerEndedError(f"{server.name} has ended by itself: see {server.log_path}")

    def _ask_to_end(self) -> None:
        for server in self._servers:
            server.ask_to_end()
