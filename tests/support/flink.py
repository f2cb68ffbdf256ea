"""Flink SQL in a JVM of its own: each query runs in a MiniCluster there, and what it reports is folded to rows.

The class path is what is in `lib/` of Flink's own distribution, and its SQL connector for Kafka. Py4J, which
pyspark carries, is in place of Flink's SQL client: the statements are the same, and values come typed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from devservers.bundles import bundle_files
from devservers.processes import Server, free_port, listening
from tidemark.runtime import java_home
from tidemark.runtime.ivy import ivy_jar

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

LOG4J: Final = """Configuration:
  Appenders:
    Console:
      name: C
      target: SYSTEM_OUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n%throwable"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: C
"""
# What Flink's own configuration opens on Java 17, as far as a MiniCluster needs it.
OPENED: Final = (
    "lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent", "util.concurrent.atomic",
    "util.concurrent.locks",
)  # fmt: skip
CONFIGURATION: Final = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "rest.port": "0",
}
ADDED: Final = ("+I", "+U")

Rows = Counter[tuple[Any, ...]]


class Flink(Server):
    """The JVM; `sql` and `rows` are for one thread."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__("flink", run_dir)
        self._java = java_home(17) / "bin" / "java"
        self._jars = [*bundle_files("flink", print), next(ivy_jar().parent.glob("py4j-*.jar"))]
        self._port = 0
        self._gateway: JavaGateway | None = None
        self._tables: Any = None

    def sql(self, statement: str) -> Any:
        """Run a statement; raises `Py4JJavaError` with Flink's words."""
        return self._environment_of_tables().executeSql(statement)

    def set(self, name: str, value: str) -> None:
        """What `SET` does in the SQL client."""
        self._environment_of_tables().getConfig().set(name, value)

    def rows(self, query: str) -> Rows:
        """The rows of a query over bounded tables: what is left when every change it reported is applied."""
        left: Rows = Counter()
        changes = self.sql(query).collect()
        while changes.hasNext():
            row = changes.next()
            values = tuple(_plain(row.getField(number)) for number in range(row.getArity()))
            left[values] += 1 if row.getKind().shortString() in ADDED else -1
        assert all(count >= 0 for count in left.values()), left
        return +left

    def _environment_of_tables(self) -> Any:
        if self._gateway is None:
            from py4j.java_gateway import GatewayParameters, JavaGateway

            parameters = GatewayParameters(port=self._port, auth_token=self._token(), auto_convert=True)
            self._gateway = JavaGateway(gateway_parameters=parameters)
            api = self._gateway.jvm.org.apache.flink.table.api
            self._tables = api.TableEnvironment.create(api.EnvironmentSettings.inStreamingMode())
            for name, value in CONFIGURATION.items():
                self._tables.getConfig().set(name, value)
        return self._tables

    def _token(self) -> str:
        """What the gateway says behind its port, when it is configured to let nobody else in."""
        lines = self._log_since(self._log_begin).splitlines()
        return lines[lines.index(str(self._port)) + 1]

    def _choose_ports(self) -> None:
        self._port = free_port()

    def _prepare(self) -> None:
        (self.folder / "log4j2.yaml").write_text(LOG4J, "utf-8")

    def _command(self) -> list[str]:
        return [
            str(self._java), "-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED),
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}", f"-Djava.io.tmpdir={self.folder}",
            "-cp", os.pathsep.join(map(str, self._jars)), "py4j.GatewayServer", "--enable-auth", str(self._port),
        ]  # fmt: skip

    def _ready(self) -> bool:
        lines = self._log_since(self._log_begin).splitlines()
        return str(self._port) in lines[:-1] and listening(self._port)

    def stop(self) -> None:
        """As the base class, and let the connections to it go."""
        gateway, self._gateway, self._tables = self._gateway, None, None
        if gateway is not None:
            gateway.close()
        super().stop()


def _plain(value: Any) -> Any:
    """Bytes as Python's own; the rest comes so."""
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """Flink, for the tests of one module."""
    with Flink(tmp_path_factory.mktemp("flink")).start() as server:
        yield server
