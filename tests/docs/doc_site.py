"""The installation that the documentation speaks of, made real: `shop` on a database, Kafka, a registry, producer and merge job.

What a page names and what no test can have (host names, folders at the root of the machine) is replaced by the test's own, and
nothing else: `localised` has the list.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml
from pymysql.constants import CLIENT

from devservers import Database, Kafka, Registry
from devservers.processes import GuardedProcess, free_port
from devservers.prometheus_server import start_prometheus
from tests.docs.doc_blocks import ROOT
from tests.e2e.child_processes import environment
from tests.e2e.pipeline import spark_section
from tests.support.servers import postgres
from tidemark.api.observe import Observer
from tidemark.process import config

ADMINISTRATOR: Final = "administrator"
PATIENCE_S: Final = 180.0
_WAREHOUSE: Final = "db.example:5432"
SHOP: Final = """
CREATE DATABASE shop;
CREATE TABLE shop.customers (id INT PRIMARY KEY, email VARCHAR(120) NOT NULL, country CHAR(2));
CREATE TABLE shop.orders (
  id INT AUTO_INCREMENT PRIMARY KEY, customer_id INT NOT NULL, status VARCHAR(20) NOT NULL, total DECIMAL(10, 2) NOT NULL);
INSERT INTO shop.customers VALUES (1, 'ada@example.org', 'GB'), (2, 'grace@example.org', 'US');
INSERT INTO shop.orders VALUES (1, 1, 'paid', 12.50), (7, 2, 'new', 12.50), (501, 1, 'new', 99.00);
"""


@dataclass
class Site:
    """One installation, in a folder. `document` is `tidemark.yaml`; use it in a `with` statement."""

    database: Database
    kafka: Kafka
    registry: Registry
    folder: Path
    document: dict[str, Any] = field(default_factory=dict)
    services: dict[str, GuardedProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port, self.merge_port = free_port(), free_port()
        self.printed = ""
        for name in ("secrets", "data", "bin"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "secrets" / "db").write_text("...\n", "utf-8")
        self._own_user()
        command = self.folder / "bin" / "tidemark"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tidemark "$@"\n', "utf-8")
        command.chmod(0o755)
        (self.folder / ".curlrc").write_text("fail\n", "utf-8")  # an answer that is an error is an error
        for name in ("python", "pip"):
            (self.folder / "bin" / name).symlink_to(Path(sys.executable).with_name(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.services.values():
            process.terminate(20)

    def _own_user(self) -> None:
        """Make way for the user of the pages: a development server has one of that name, which may do everything."""
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER {ADMINISTRATOR} IDENTIFIED BY 'of the test'")
            cursor.execute(f"GRANT ALL ON *.* TO {ADMINISTRATOR} WITH GRANT OPTION")
        self.sql("DROP USER tidemark@'%'; SET GLOBAL binlog_row_metadata = 'MINIMAL';" + SHOP)

    def localised(self, text: str) -> str:
        """Return a text of a page with the addresses and folders of this installation."""
        pairs = {
            "host: db\n": f"host: {self.database.host}\n  port: {self.database.port}\n",
            "http://registry:8080/apis/ccompat/v7": self.registry.url,
            "kafka:9092": self.kafka.bootstrap_servers,
            "localhost:8080": f"127.0.0.1:{self.port}",
            "http://producer:8080": f"http://127.0.0.1:{self.port}",
            "<producer>:8080": f"127.0.0.1:{self.port}",
            "<merge job>:8081": f"127.0.0.1:{self.merge_port}",
            ".venv/bin/python -m pytest": f"cd {ROOT} && {sys.executable} -m pytest --collect-only -q",
            "/run/secrets/": f"{self.folder}/secrets/",
            "/data/": f"{self.folder}/data/",
            "/var/lib/tidemark/": f"{self.folder}/",
        }
        if _WAREHOUSE in text:
            text = text.replace(_WAREHOUSE, self._warehouse())
        for name, own in pairs.items():
            text = text.replace(name, own)
        return text

    def _warehouse(self) -> str:
        """Return the address of a PostgreSQL with the database that a page writes to, and its user."""
        server = postgres("postgres17")
        with server.connect(autocommit=True) as connection:
            connection.execute(b"DROP DATABASE IF EXISTS warehouse")
            connection.execute(b"CREATE DATABASE warehouse")
        (self.folder / "secrets" / "warehouse").write_text(f"{server.password}\n", "utf-8")  # the user has the name of the page's
        return f"{server.host}:{server.port}"

    # --- settings --------------------------------------------------------------------------------------------

    def configure(self, document: Mapping[str, Any]) -> None:
        """Write `tidemark.yaml`: this document, and what a test adds (ports of its own, a small Spark)."""
        service = {"port": self.port, "merge_port": self.merge_port}
        self.document = {**document, "spark": spark_section(), "service": {**service, **document.get("service", {})}}
        self.path.write_text(yaml.safe_dump(self.document, sort_keys=False), "utf-8")

    @property
    def path(self) -> Path:
        """The file of settings, in the folder where commands run."""
        return self.folder / "tidemark.yaml"

    # --- what a block is -------------------------------------------------------------------------------------

    def sql(self, text: str) -> None:
        """Run statements as an administrator of the database; an error of any of them is raised."""
        account = {"user": ADMINISTRATOR, "password": "of the test"}
        flags = CLIENT.MULTI_STATEMENTS
        with self.database.connect(**account, client_flag=flags) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            while cursor.nextset():
                pass

    def shell(self, command: str, seconds: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run a command as a person at a shell does, in the folder of `tidemark.yaml`."""
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=seconds, check=False
        )

    def first_line(self, command: list[str], seconds: float = PATIENCE_S) -> str:
        """Return the first line that a command prints that never ends, while rows change; the command is ended then."""
        log_path = self.folder / f"bounded-{time.monotonic_ns()}.log"
        process = GuardedProcess.spawn(command, log_path, cwd=self.folder, env=self.environment())
        try:
            deadline = time.monotonic() + seconds
            while True:
                status = process.status
                lines = [line for line in log_path.read_text("utf-8").splitlines() if _is_said(line)]
                if lines:
                    break
                assert status is None, f"it ended with {status} and said nothing: {log_path.read_text('utf-8')}"
                assert time.monotonic() < deadline, f"nothing was printed within {seconds:.0f} s"
                self._change()
                process.wait(0.5)
            assert process.status in {None, 0}, f"it ended with {process.status}: {lines}"
        finally:
            process.terminate(20)
        assert "Traceback" not in log_path.read_text("utf-8"), log_path.read_text("utf-8")
        return lines[0]

    def promql(self, text: str) -> None:
        """Ask a Prometheus that scrapes both jobs: each expression is one, and each metric that it names has data."""
        targets = [f"127.0.0.1:{port}" for port in (self.port, self.merge_port)]
        job = {"job_name": "tidemark", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
        config_path = self.folder / "prometheus.yml"
        config_path.write_text(yaml.safe_dump({"scrape_configs": [job]}), "utf-8")
        with start_prometheus(self.folder, config_path) as server:
            for expression in text.splitlines():
                server.query(expression)
                for metric in re.findall(r"tidemark_\w+", expression):
                    self._wait(metric, lambda metric=metric: self._change() or bool(server.query(metric)))

    def _change(self) -> None:
        """Change two rows: what is printed or counted needs changes."""
        self.sql("UPDATE shop.orders SET status = IF(status = 'paid', 'new', 'paid'), total = total + 0.5 WHERE id IN (7, 501)")

    def environment(self) -> dict[str, str]:
        """The environment of a command: `tidemark` is found, and Java starts fast."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {**environment(), "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "CURL_HOME": str(self.folder)}

    # --- producer and merge job --------------------------------------------------------------------------------

    def start(self, verb: str, command: str) -> None:
        """Start `tidemark run` or `merge` and wait until it is ready; one that runs is stopped first."""
        self.stop(verb)
        log_path = self.folder / f"{verb}.log"
        shell = ["bash", "-c", f"exec {command}"]
        self.services[verb] = process = GuardedProcess.spawn(shell, log_path, cwd=self.folder, env=self.environment())
        port = self.port if verb == "run" else self.merge_port
        self._wait(f"tidemark {verb}", lambda: _answers(port), process, log_path)

    def stop(self, verb: str) -> None:
        """End a service as an operator does, if it runs; its exit code is to be 0."""
        process = self.services.pop(verb, None)
        if process is not None and process.status is None:
            assert process.terminate(60), f"tidemark {verb} does not end"
            assert process.status == 0, f"tidemark {verb} ended with {process.status}\n{self.log_tail(verb)}"

    def is_running(self, verb: str) -> bool:
        """Whether a service was started and has not ended."""
        return verb in self.services and self.services[verb].status is None

    def log_tail(self, verb: str) -> str:
        """Return the end of what a service said."""
        return (self.folder / f"{verb}.log").read_text("utf-8")[-3000:]

    def settle(self) -> None:
        """Wait until the merge job has merged everything, as a person does who reads `tidemark status`."""
        if self.services.keys() >= {"run", "merge"}:
            with Observer(config.load(self.path, {})) as observer:
                self._wait("the sink", lambda: _is_consistent(observer))

    def _wait(self, what: str, until: Callable[[], bool], process: GuardedProcess | None = None, log_path: Path | None = None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not until():
            ended = process is not None and process.status is not None
            if ended or time.monotonic() > deadline:
                tail = log_path.read_text("utf-8")[-3000:] if log_path else ""
                raise AssertionError(f"{what} {'ended' if ended else 'is not ready'}\n{tail}")
            time.sleep(0.3)


def _is_said(line: str) -> bool:
    """Whether a line is what was asked for, and no log."""
    return bool(line.strip()) and not line.startswith("Picked up") and '"level": ' not in line


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError, urllib.error.HTTPError):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
    return False


def _is_consistent(observer: Observer) -> bool:
    status = observer.settled()
    return bool(status.merge.caught_up) and all(table.consistent_at is not None for table in status.tables)


@contextlib.contextmanager
def site_of(database: Database, kafka: Kafka, registry: Registry, folder: Path) -> Iterator[Site]:
    """Give an installation on which nothing was done yet but what a reader has: a database with a shop."""
    with Site(database, kafka, registry, folder) as site:
        yield site
