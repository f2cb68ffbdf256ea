"""A whole set-up on real servers, which a test breaks in one way, and the mending of it by what `tidemark doctor` prints."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devservers import Database, Kafka, Postgres, Registry
from kafkaio.topic_admin import TopicAdmin
from schemas.topics import RECORD_BYTES
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name
from tidemark import cli

USER: Final = "doctored"
PASSWORD: Final = "of the test"
_MONITOR: Final = {"mysql": "REPLICATION CLIENT", "mariadb": "BINLOG MONITOR"}
_CONFIGS: Final = Path(__file__).with_name("kafka_configs.py")
_SCRIPTS: Final = {"kafka-configs.sh": _CONFIGS, "kafka-acls.sh": Path(__file__).with_name("kafka_acls.py")}


@dataclass
class Site:
    """The servers, the file of settings, and the environment of the command."""

    source: Database
    kafka: Kafka
    registry: Registry
    postgres: Postgres
    folder: Path
    patch: pytest.MonkeyPatch
    name: str = field(default_factory=lambda: unique_name("doctor"))
    document: dict[str, Any] = field(default_factory=dict)
    helper: subprocess.Popen[bytes] | None = None

    @property
    def schema(self) -> str:
        """The database of the source that is captured."""
        return self.name.replace("-", "_")

    @property
    def account(self) -> str:
        """The source's user, as SQL."""
        return f"'{USER}'@'%'"

    @property
    def monitor(self) -> str:
        """The privilege to ask where the log ends."""
        return _MONITOR[self.source.flavour]

    def sql(self, *statements: str) -> None:
        """Run statements as an administrator of the source."""
        with self.source.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def sink_sql(self, *statements: str) -> None:
        """Run statements as an administrator of the sink's database."""
        with self.postgres.connect(autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def configure(self, topic: str, config: str) -> None:
        """Give a topic of Kafka a setting, as kafka-configs.sh does."""
        servers = self.kafka.bootstrap_servers
        command = ["--bootstrap-server", servers, "--alter", "--entity-type", "topics"]
        which = ["--entity-name", topic, "--add-config", config]
        subprocess.run([sys.executable, str(_CONFIGS), *command, *which], check=True)

    def put_rule(self, rule: str, subject: str = "") -> None:
        """Give the registry, or one subject of it, a rule of compatibility."""
        self._ask_registry("PUT", f"config/{subject}" if subject else "config", {"compatibility": rule})

    def register(self, subject: str, **schema: str) -> None:
        """Register a schema."""
        self._ask_registry("POST", f"subjects/{subject}/versions", schema)

    def _ask_registry(self, method: str, path: str, document: Mapping[str, str]) -> None:
        headers = {"Content-Type": "application/json"}
        body = json.dumps(document).encode()
        request = urllib.request.Request(f"{self.registry.url}/{path}", body, headers, method=method)  # noqa: S310
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310

    def write(self) -> Path:
        """Write the settings, and return the file."""
        path = self.folder / "tidemark.yaml"
        path.write_text(yaml.safe_dump(self.document), "utf-8")
        return path

    def examined(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
        """Return the exit code of `tidemark doctor --output json`, and what it prints."""
        capsys.readouterr()
        code = cli.main(["doctor", "--config", str(self.write()), "--output", "json"])
        said = capsys.readouterr()
        assert said.out, said.err
        return code, json.loads(said.out)

    def paste(self, finding: Mapping[str, str]) -> None:
        """Do what a person does with the fix of a finding."""
        fix, remedy = finding["fix"], finding["remedy"]
        if remedy == "source":
            self.sql(*(statement for statement in fix.split("; ") if statement))
        elif remedy == "sink":
            self.sink_sql(fix)
        elif remedy == "shell":
            self._shell(fix)
        elif remedy == "setting":
            self._export(fix)
        else:
            raise AssertionError(finding)

    def _shell(self, command: str) -> None:
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        paste_in_shell(command, tools, self.kafka.bootstrap_servers)

    def _export(self, command: str) -> None:
        variable = command.removeprefix("export ").partition("=")[0]
        shell = ["bash", "-ec", f"{command}; printenv {variable}"]
        said = subprocess.run(shell, check=True, capture_output=True, text=True, timeout=60)
        self.patch.setenv(variable, said.stdout.removesuffix("\n"))


def paste_in_shell(command: str, folder: Path, administration: str) -> None:
    """Run a command in a shell that has Kafka's scripts; `administration` is the address of the broker's administrators."""
    for script, program in _SCRIPTS.items():
        stand_in = folder / script
        stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
        stand_in.chmod(0o755)
    (folder / "admin.properties").write_text(f"bootstrap.servers={administration}\n")
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", command], check=True, env=environment, cwd=folder, capture_output=True, timeout=60)


@contextlib.contextmanager
def site_of(source: Database, kafka: Kafka, registry: Registry, postgres: Postgres, folder: Path) -> Iterator[Site]:
    """Give a site at which nothing is wrong but what a development registry is."""
    with pytest.MonkeyPatch.context() as patch:
        site = Site(source, kafka, registry, postgres, folder, patch)
        _prepare(site)
        try:
            yield site
        finally:
            site.sql(f"DROP DATABASE {site.schema}", f"DROP USER {site.account}")
            site.sink_sql(f"DROP DATABASE {site.schema}", f"DROP ROLE {site.schema}")


def _prepare(site: Site) -> None:
    site.sql(
        f"CREATE DATABASE {site.schema}",
        f"CREATE TABLE {site.schema}.orders (id INT PRIMARY KEY)",
        f"CREATE TABLE {site.schema}.customers (id INT PRIMARY KEY)",
        f"CREATE TABLE {site.schema}.tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        f"CREATE USER {site.account} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT REPLICATION SLAVE, TRIGGER, {site.monitor} ON *.* TO {site.account}",
        *([f"GRANT SELECT ON mysql.proc TO {site.account}"] if site.source.flavour == "mariadb" else []),
        *([f"GRANT XA_RECOVER_ADMIN ON *.* TO {site.account}"] if site.source.flavour == "mysql" else []),
        f"GRANT SELECT ON {site.schema}.orders TO {site.account}",
        f"GRANT SELECT, INSERT ON {site.schema}.customers TO {site.account}",
        f"GRANT SELECT, INSERT, DELETE ON {site.schema}.tidemark_signal TO {site.account}",
    )
    site.sink_sql(f"CREATE ROLE {site.schema} LOGIN PASSWORD '{PASSWORD}'", f"CREATE DATABASE {site.schema}")
    site.sink_sql(f"GRANT CREATE, TEMPORARY ON DATABASE {site.schema} TO {site.schema}")
    site.sink_sql(f"REVOKE TEMPORARY ON DATABASE {site.schema} FROM PUBLIC")
    topics = {f"{site.name}.{site.schema}.orders": "delete", f"{site.name}.state": "compact"}
    admin = TopicAdmin(cluster(site.kafka.bootstrap_servers))
    for topic, policy in topics.items():
        admin.ensure({topic: 2}, {"cleanup.policy": policy, "max.message.bytes": str(RECORD_BYTES)})
    writer = RecordProducer({"bootstrap.servers": site.kafka.bootstrap_servers, "transactional.id": f"{site.name}-before"})
    writer.init_transactions(60)  # the first one makes the topic of transactions
    access = {"host": site.source.host, "port": site.source.port, "user": USER, "password": PASSWORD}
    address = f"{site.postgres.host}:{site.postgres.port}"
    database = {"type": "postgresql", "url": f"postgresql://{address}/{site.schema}"}
    site.document = {
        "name": site.name,
        "source": {**access, "tables": [f"{site.schema}\\..*"], "signal_table": f"{site.schema}.tidemark_signal"},
        "kafka": {"bootstrap_servers": site.kafka.bootstrap_servers},
        "format": {"type": "avro", "registry": site.registry.url},
        "sinks": [
            {"name": "lake", "type": "delta", "path": str(site.folder / "lake")},
            {"name": "shop", "work": str(site.folder / "shop"), "user": site.schema, "password": PASSWORD, **database},
        ],
        "spark": {"driver_memory": "1g"},
    }


