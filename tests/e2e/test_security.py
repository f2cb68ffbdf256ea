"""Everything encrypted and everyone authenticated, on real servers; and no secret shows up anywhere."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from devservers import Database, Kafka, Registry, start_database
from devservers.processes import free_port
from tests.e2e.pipeline import SIGNAL_TABLE, Pipeline, create_signal_table, spark_section
from tests.support.certificates import Authority
from tests.support.guarded_registry import GuardedRegistry
from tests.support.own_broker import own_kafka
from tests.support.servers import unique_name

SECRETS = {
    name: f"{name}-s3cr\\et\"'=#;{number}"
    for number, name in enumerate(("mysql", "kafka", "registry", "token", "key", "store"))
}
USER = "captain"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs all certificates here."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure_mysql(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """MySQL 8.0 with a certificate for localhost, and a user who must show one."""
    identity = authority.identity("mysql", hosts=("localhost", "127.0.0.1"))
    options = {"ssl_ca": str(authority.ca), "ssl_cert": str(identity.cert), "ssl_key": str(identity.key)}
    with start_database("mysql80", tmp_path_factory.mktemp("mysql"), options) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("USE shop")
            create_signal_table(connection)
            cursor.execute(
                f"CREATE USER {USER} IDENTIFIED WITH caching_sha2_password BY %s REQUIRE X509", (SECRETS["mysql"],)
            )
            cursor.execute(f"GRANT SELECT ON shop.* TO {USER}")
            cursor.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO {USER}")
            cursor.execute(f"GRANT INSERT, DELETE ON shop.{SIGNAL_TABLE} TO {USER}")
        yield server


@pytest.fixture(scope="module")
def secure_kafka(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that takes SCRAM over TLS, and client certificates."""
    identity = authority.identity("kafka", hosts=("localhost", "127.0.0.1"))
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
    }
    folder = tmp_path_factory.mktemp("kafka")
    with own_kafka(folder, secure=("SSL", "SASL_SSL"), properties=properties) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, credentials, SECRETS["kafka"].encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)
        yield broker


@pytest.fixture
def secret_files(tmp_path: Path) -> Mapping[str, str]:
    """Each secret in a file of its own."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name, value in SECRETS.items():
        (folder / name).write_text(f"{value}\n")
    return {name: str(folder / name) for name in SECRETS}


def kafka_section(
    protocol: str, broker: Kafka, authority: Authority, files: Mapping[str, str]
) -> dict[str, Any]:
    section: dict[str, Any] = {
        "bootstrap_servers": broker.listener(protocol),
        "security_protocol": protocol,
        "tls": {"ca": str(authority.ca)},
    }
    if protocol == "SASL_SSL":
        return section | {"sasl": {"username": USER, "password_file": files["kafka"]}}
    client = authority.identity("kafka-client", password=SECRETS["key"])
    section["tls"] |= {"cert": str(client.cert), "key": str(client.key), "key_password_file": files["key"]}
    return section


@pytest.fixture
def guarded(registry: Registry, authority: Authority) -> Iterator[GuardedRegistry]:
    """The registry, for those who know the password."""
    identity = authority.identity("registry", hosts=("localhost",))
    with GuardedRegistry(registry.url, identity, USER, SECRETS["registry"]) as running:
        yield running


@pytest.fixture
def document(
    authority: Authority,
    secure_mysql: Database,
    secure_kafka: Kafka,
    guarded: GuardedRegistry,
    secret_files: Mapping[str, str],
) -> dict[str, Any]:
    """The sections of a configuration in which everything is encrypted and authenticated."""
    client = authority.identity("mysql-client")
    spark = spark_section()
    mysql_tls = {"mode": "verify_identity", "ca": str(authority.ca), "cert": str(client.cert), "key": str(client.key)}
    access = {"user": USER, "ca": str(authority.ca), "password_file": secret_files["registry"]}
    with secure_mysql.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {SIGNAL_TABLE}")
    return {
        "source": {
            "host": "localhost",
            "port": secure_mysql.port,
            "user": USER,
            "tables": [r"shop\..*"],
            "signal_table": f"shop.{SIGNAL_TABLE}",
            "tls": mysql_tls,
            "password_file": secret_files["mysql"],
        },
        "kafka": kafka_section("SASL_SSL", secure_kafka, authority, secret_files),
        "format": {"registry": guarded.url, "registry_access": access},
        "snapshot": {"mode": "initial", "readers": 1},
        "signal": {"channels": ["source", "kafka"]},
        "service": {"port": free_port(), "token_file": secret_files["token"]},
        "spark": spark | {"conf": spark["conf"] | {"spark.hadoop.fs.s3a.secret.key": SECRETS["store"]}},
    }


@pytest.mark.parametrize("protocol", ["SASL_SSL", pytest.param("SSL", marks=pytest.mark.slow)])
def test_all_connections_are_encrypted_and_no_secret_shows_up(
    protocol: str,
    document: dict[str, Any],
    authority: Authority,
    secure_mysql: Database,
    secure_kafka: Kafka,
    registry: Registry,
    guarded: GuardedRegistry,
    secret_files: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document["kafka"] = kafka_section(protocol, secure_kafka, authority, secret_files)
    # One of them from the environment: the children that a child has must not inherit it.
    monkeypatch.setenv("TIDEMARK_FORMAT__REGISTRY_ACCESS__PASSWORD", SECRETS["registry"])
    del document["format"]["registry_access"]["password_file"]
    port, folder, table = document["service"]["port"], tmp_path / "pipeline", f"orders_{protocol.lower()}"
    with Pipeline(unique_name("sec"), folder, secure_mysql, "shop", secure_kafka, registry, document) as pipeline:
        pipeline.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
        pipeline.start("run", "merge")
        pipeline.wait_for_snapshot(table)
        pipeline.sql(f"UPDATE {table} SET v = 3 WHERE id = 2")
        pipeline.wait_for_sink(table)
        pipeline.assert_equal(table)
        output = descendants(os.getpid())
        output += [answer(port, path) for path in ("/livez", "/readyz", "/metrics", "/api/v1/status")]
        for verb, *more in (["status", "--output", "json"], ["signal", "pause-snapshot", "--channel", "kafka"]):
            child = pipeline.spawn(verb, folder / f"{verb}.log", *more, "--log-level", "debug")
            assert child.wait(180)
            assert child.status == 0, (folder / f"{verb}.log").read_text()
        for verb in ("run", "merge"):
            assert pipeline.stop(verb) == 0
    assert guarded.refused == 0
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".yaml"]
    (merge_log,) = [path for path in files if path.name == "merge.log"]
    assert "merge.workers_" not in merge_log.read_text(), "workers have the certificates and passwords, too"
    output += [f"{path.relative_to(folder)}: {path.read_bytes().decode('latin-1')}" for path in files]
    secrets = list(SECRETS.values())
    if protocol == "SSL":
        secrets.append((authority.ca.parent / "kafka-client.key.pem").read_text().splitlines()[1])
    for secret in secrets:
        for form in (secret, secret.replace("\\", "\\\\").replace('"', '\\"'), json.dumps(secret)[1:-1]):
            assert [text[:200] for text in output if form in text] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("mysql", "refuses the user"),
        ("kafka", "Kafka refuses us"),
        ("authority", "Kafka refuses us"),
        ("registry", "refuses the user (HTTP 401); check format.registry_access"),
    ],
)
def test_credentials_that_were_never_valid_end_the_producer_with_a_clear_error(
    wrong: str,
    words: str,
    document: dict[str, Any],
    secure_mysql: Database,
    secure_kafka: Kafka,
    registry: Registry,
    secret_files: Mapping[str, str],
    tmp_path: Path,
) -> None:
    if wrong == "authority":
        document["kafka"]["tls"]["ca"] = str(Authority(tmp_path / "stranger", "another").ca)
    else:
        Path(secret_files[wrong]).write_text("not-it")
    with Pipeline(unique_name("sec"), tmp_path / "p", secure_mysql, "shop", secure_kafka, registry, document) as pipeline:
        pipeline.start("run")
        status, said = pipeline.wait_for_end("run")
    assert status in (1, 2)
    last = said.splitlines()[-1]
    assert words in last, said
    assert "not-it" not in said


def answer(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
        return f"{path}: {response.read().decode()}"


def descendants(pid: int) -> list[str]:
    """Command lines of all descendants, and the environment of Spark's JVM: ours were given theirs by the test."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, texts = {pid}, []
    while fresh := {child for child, parent in parents.items() if parent in found} - found:
        found |= fresh
    for child in found - {pid}:
        proc = Path(f"/proc/{child}")
        try:
            line = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode("latin-1")
            texts.append(f"command line of {child}: {line}")
            if "SparkSubmit" in line:
                texts.append(f"environment of {child}: {(proc / 'environ').read_text('latin-1')}")
        except OSError:
            continue
    assert any("environment" in text for text in texts), texts
    return texts


def test_a_client_without_its_certificate_is_refused(secure_mysql: Database, authority: Authority) -> None:
    with pytest.raises(pymysql.MySQLError, match="denied"):
        secure_mysql.connect(user=USER, password=SECRETS["mysql"], ssl_ca=str(authority.ca))
