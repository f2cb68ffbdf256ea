"""Broker and registry on this machine, where the settings name them here and nothing listens. Their data stays."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from devservers import Kafka, Registry
from devservers.fetching import fetch
from devservers.processes import Server, listening
from schemas.errors import ConfigError
from tidemark.api.access import is_loopback

if TYPE_CHECKING:
    from schemas.settings import Settings

REGISTRY_PATH: Final = "/apis/ccompat/v7"
"""Where the registry that we start has Confluent's API."""

Say = Callable[[str], None]


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
        message = (
            f"format.registry: nothing listens at {url.hostname}:{url.port}, and the registry that `tidemark up` starts has its "
            f"API at http://{url.netloc}{REGISTRY_PATH}: write that, or start your own registry"
        )
        raise ConfigError(message)
    return url.port


class LocalServers:
    """The servers that are missing, while entered. `folder` has their data and logs."""

    def __init__(self, settings: Settings, folder: Path, say: Say) -> None:
        self._ports = kafka_port(settings), registry_port(settings)
        self._folder, self._say = folder, say
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        kafka, registry = self._ports
        wanted = [name for name, port in (("kafka", kafka), ("registry", registry)) if port is not None]
        fetch([*wanted, "spark"], self._say)
        if kafka is not None:
            self._servers.append(Kafka(self._folder, port=kafka))
        if registry is not None:
            self._servers.append(Registry(self._folder, port=registry))
        try:
            with ThreadPoolExecutor(2, "local") as pool:
                for server in pool.map(lambda one: one.start(), self._servers):
                    self._say(f"{server.name}: started, log {server.log_path}")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def check(self) -> None:
        """Raise `ConfigError` with the log of a server that has ended by itself."""
        for server in self._servers:
            if not server.running:
                message = f"{server.name} has ended: see {server.log_path}"
                raise ConfigError(message)

    def _stop(self) -> None:
        for server in self._servers:
            server.ask_to_end()
        for server in self._servers:
            server.close()
