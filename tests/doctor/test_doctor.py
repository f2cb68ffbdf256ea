"""`tidemark doctor` names each wrong thing, and its fix, pasted as it is printed, mends it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from pymysqlreplication import BinLogStreamReader

from devservers import Kafka, Postgres, Registry
from schemas.findings import Finding, Severity
from tests.doctor.doctored_site import Site, site_of
from tests.support.servers import own_database
from tidemark import cli
from tidemark.doctor.area_findings import MOST, listed


@pytest.fixture(scope="module", params=["mysql80"])
def whole(
    request: pytest.FixtureRequest, kafka: Kafka, registry: Registry, postgres17: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with site_of(own_database(request.param, "doctor"), kafka, registry, postgres17, tmp_path_factory.mktemp("doctor")) as site:
        yield site


@pytest.fixture
def site(whole: Site) -> Iterator[Site]:
    """The site as it is while nothing is broken; settings of a test are gone with it."""
    before = json.dumps(whole.document)
    yield whole
    whole.sql(f"DROP TABLE IF EXISTS {whole.schema}.`odd+name`")
    whole.patch.undo()
    if whole.helper is not None:
        whole.helper.kill()
        whole.helper.communicate()
        whole.helper = None
    shutil.rmtree(whole.folder / "lake", ignore_errors=True)
    whole.document = json.loads(before)


def revoked(privilege: str) -> Callable[[Site], None]:
    return lambda site: site.sql(f"REVOKE {privilege.format(schema=site.schema)} FROM {site.account}")


def variable(name: str, value: str) -> Callable[[Site], None]:
    return lambda site: site.sql(f"SET GLOBAL {name} = {value}")


def setting(section: str, key: str, value: Any) -> Callable[[Site], None]:
    return lambda site: site.document.setdefault(section, {}).__setitem__(key, value(site) if callable(value) else value)


def rule_of_a_subject(site: Site) -> None:
    subject = f"{site.name}.{site.schema}.orders-value"
    site.register(subject, schema=json.dumps({"type": "record", "name": "Envelope", "fields": []}))
    site.put_rule("FULL", subject)


def another_schema(site: Site) -> None:
    schema = {"type": "record", "name": "Order", "namespace": "of.another", "fields": []}
    site.register(f"{site.name}.{site.schema}.orders-key", schema=json.dumps(schema))


def another_writer(site: Site) -> None:
    """Let a process have the lock of the sink, and write no liveness record."""
    service = site.folder / "lake" / "_tidemark"
    service.mkdir(parents=True)
    site.helper = subprocess.Popen([sys.executable, "-c", LOCKING, str(service / "lock")], stdout=subprocess.PIPE)
    assert site.helper.stdout is not None
    assert site.helper.stdout.readline() == b"locked\n"


def file_in_the_way(site: Site) -> None:
    path = site.folder / "lake"
    path.write_text("no folder")
    path.with_name("lake.before").unlink(missing_ok=True)


LOCKING: Final = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""
BROKEN: Final[dict[str, Callable[[Site], Any]]] = {
    "source.binlog_format": variable("binlog_format", "'STATEMENT'"),
    "source.binlog_row_image": variable("binlog_row_image", "'MINIMAL'"),
    "source.binlog_row_metadata": variable("binlog_row_metadata", "'MINIMAL'"),
    "source.order_commits": variable("binlog_order_commits", "OFF"),
    "source.retention": variable("binlog_expire_logs_seconds", "3600"),
    "source.privilege.replication_slave": revoked("REPLICATION SLAVE ON *.*"),
    "source.privilege.replication_client": revoked("REPLICATION CLIENT ON *.*"),
    "source.privilege.binlog_monitor": revoked("BINLOG MONITOR ON *.*"),
    "source.privilege.xa_recover": revoked("XA_RECOVER_ADMIN ON *.*"),
    "source.privilege.trigger": revoked("TRIGGER ON *.*"),
    "source.privilege.routines": revoked("SELECT ON mysql.proc"),
    "source.privilege.table": revoked("SELECT ON {schema}.customers"),
    "source.privilege.signal_table": revoked("INSERT ON {schema}.tidemark_signal"),
    "source.signal_table": lambda site: site.sql(f"DROP TABLE {site.schema}.tidemark_signal"),
    "source.no_match": setting("source", "tables", lambda site: [f"{site.schema}\\.order"]),
    "source.table_without_key": lambda site: site.sql(
        f"DROP TABLE IF EXISTS {site.schema}.keyless",
        f"CREATE TABLE {site.schema}.keyless (a INT)",
        f"GRANT SELECT ON {site.schema}.keyless TO {site.account}",
    ),
    "source.unsupported_table": lambda site: site.sql(
        f"CREATE TABLE {site.schema}.`odd+name` (id INT PRIMARY KEY, one ENUM('x') CHARACTER SET binary)",
        f"GRANT SELECT ON {site.schema}.`odd+name` TO {site.account}",
    ),
    "kafka.message_bytes": lambda site: site.configure(f"{site.name}.{site.schema}.orders", "max.message.bytes=1048588"),
    "kafka.retention": lambda site: site.configure(f"{site.name}.{site.schema}.orders", "retention.ms=3600000"),
    "kafka.state_policy": lambda site: site.configure(f"{site.name}.state", "cleanup.policy=delete"),
    "kafka.transaction_timeout": setting("kafka", "options", {"transaction.timeout.ms": "2000000"}),
    "registry.subject_compatibility": rule_of_a_subject,
    "registry.foreign_schema": another_schema,
    "registry.path": setting("format", "registry", lambda site: f"{site.registry.url}/subject"),
    "registry.compatibility": lambda site: site.put_rule("FULL"),
    "spark.memory": setting("spark", "driver_memory", "9000g"),
    "sink.folder_is_file": file_in_the_way,
    "sink.other_writer": another_writer,
    "sink.privilege.create": lambda site: site.sink_sql(f"REVOKE CREATE ON DATABASE {site.schema} FROM {site.schema}"),
    "sink.privilege.temporary": lambda site: site.sink_sql(f"REVOKE TEMPORARY ON DATABASE {site.schema} FROM {site.schema}"),
}
"""By the code of the finding: what is done to a whole site."""
NOT_ON: Final = {
    "mysql80": {"source.privilege.binlog_monitor", "source.privilege.routines"},
    "mariadb114": {"source.order_commits", "source.privilege.replication_client", "source.privilege.xa_recover"},
}
CASES: Final = [
    pytest.param(server, code, marks=[] if server == "mysql80" else pytest.mark.slow)
    for server in NOT_ON
    for code in BROKEN
    if code not in NOT_ON[server] and (server == "mysql80" or code.startswith("source"))
]
WARNINGS: Final = {
    "source.binlog_row_metadata", "source.retention", "source.privilege.trigger", "source.privilege.routines",
    "source.table_without_key", "source.unsupported_table", "kafka.message_bytes", "kafka.retention",
    "registry.compatibility", "registry.subject_compatibility", "sink.other_writer",
}  # fmt: skip


TOGETHER: Final = {
    "source.binlog_format", "source.binlog_row_image", "source.binlog_row_metadata", "source.order_commits", "source.retention",
    "source.privilege.replication_slave", "source.privilege.xa_recover", "source.privilege.trigger", "source.privilege.table",
    "source.privilege.signal_table", "source.table_without_key", "source.unsupported_table", "kafka.message_bytes", "kafka.retention",
    "kafka.state_policy", "kafka.transaction_timeout",
    "registry.compatibility", "registry.subject_compatibility", "registry.foreign_schema", "spark.memory", "sink.folder_is_file",
    "sink.privilege.create", "sink.privilege.temporary",
}  # fmt: skip
"""What can be wrong at the same time: none of these hides another one."""
_CODE: Final = r"(?:source|kafka|registry|spark|sink)\.[a-z_]+(?:\.[a-z_]+)?"


def codes(found: dict[str, Any]) -> set[str]:
    return {one["code"] for one in found["findings"]}


def test_nothing_is_found_where_nothing_is_wrong(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = site.examined(capsys)
    assert (code, codes(found), found["unchecked"]) == (0, set(), {}), found
    assert found["checked"] == ["source", "kafka", "registry", "spark", "sink lake", "sink shop"]
    assert not Path(site.document["sinks"][0]["path"]).exists(), "nothing is written"


@pytest.mark.parametrize(("whole", "code"), CASES, indirect=["whole"])
def test_each_wrong_thing_is_named_and_its_fix_mends_it(code: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    BROKEN[code](site)
    exit_code, found = site.examined(capsys)
    assert codes(found) == {code}, found["findings"]
    (finding,) = (one for one in found["findings"] if one["code"] == code)
    assert (exit_code, finding["severity"]) == ((0, "warning") if code in WARNINGS else (1, "error"))
    site.paste(finding)
    assert codes(site.examined(capsys)[1]) == set(), finding


def test_many_wrong_things_at_once_are_as_many_findings_and_each_fix_mends_its_own(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """On source, Kafka, registry, Spark and sinks: those of `TOGETHER`, fifteen and more."""
    for code in TOGETHER:
        BROKEN[code](site)
    _, found = site.examined(capsys)
    left = codes(found)
    assert left == TOGETHER
    assert len(found["findings"]) == len(TOGETHER) >= 15
    for finding in found["findings"]:
        site.paste(finding)
        left = left - {finding["code"]}
        assert codes(site.examined(capsys)[1]) == left, finding
    assert left == set()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the replica's own
def test_a_replica_with_our_server_id_is_named_and_another_id_is_given(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.document["source"]["server_id"] = 48_215
    server = site.source
    replica = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        server_id=48_215,
        report_slave={"hostname": "db-7", "username": "", "password": "", "port": 3306},
        resume_stream=False, blocking=True,
    )  # fmt: skip
    try:
        next(iter(replica))  # it is connected, and stays so
        _, found = site.examined(capsys)
        (finding,) = (one for one in found["findings"] if one["code"] == "source.server_id")
        assert "db-7:3306" in finding["evidence"]
        site.paste(finding)
        assert codes(site.examined(capsys)[1]) == set()
    finally:
        replica.close()


def test_the_rights_that_a_sink_in_mysql_lacks_are_named_and_granted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.sql("CREATE USER 'sinker'@'%' IDENTIFIED BY 'sinker'", f"GRANT ALL ON {site.schema}_copy.* TO 'sinker'@'%'")
    try:
        address = f"mysql://{site.source.host}:{site.source.port}"
        sink = {"name": "copy", "type": "mysql", "url": address, "user": "sinker", "password": "sinker"}
        routes = [{"tables": f"{site.schema}\\.(.*)", "into": f"{site.schema}_copy.$1"}]
        site.document["sinks"] = [sink | {"work": str(site.folder / "copy"), "routes": routes}]
        code, found = site.examined(capsys)
        (finding,) = found["findings"]
        assert (code, finding["code"], finding["remedy"]) == (1, "sink.privilege.service", "sink")
        site.sql(finding["fix"])
        assert site.examined(capsys)[1]["findings"] == []
    finally:
        site.sql("DROP USER 'sinker'@'%'")


class InMemory(BaseHTTPRequestHandler):
    """A registry that says of itself what the description of Apicurio's REST API (2.x, `/system/info`) has of the one in memory."""

    def do_GET(self) -> None:
        answers = {
            "/apis/ccompat/v7/subjects": [],
            "/apis/ccompat/v7/config": {"compatibilityLevel": "NONE"},
            "/apis/registry/v2/system/info": {"name": "Apicurio Registry (In Memory)", "version": "2.0.0"},
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answers[self.path]).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_registry_that_forgets_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), InMemory) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site.document["format"]["registry"] = f"http://127.0.0.1:{server.server_port}/apis/ccompat/v7"
        code, found = site.examined(capsys)
        server.shutdown()
    assert (code, [one["code"] for one in found["findings"]]) == (0, ["registry.in_memory"])


def test_what_cannot_be_asked_is_named_and_the_rest_is_asked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.document["source"]["port"] = 1
    site.document["sinks"][1]["password"] = "another"
    site.document["format"] = {"type": "json"}
    code, found = site.examined(capsys)
    assert code == 1
    assert codes(found) == {"source.unreachable", "sink.unreachable"}
    assert found["checked"] == ["kafka", "spark", "sink lake"]
    assert list(found["unchecked"]) == ["source", "registry", "sink shop"]

    capsys.readouterr()
    assert cli.main(["doctor", "--config", str(site.write())]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "not checked: registry: format.type is json: no registry is used" in said
    assert said[-1] == "2 errors, 0 warnings; checked: kafka, spark, sink lake"


def test_no_password_is_in_what_is_printed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.document["source"]["password"] = "secret-of-the-source"
    site.document["sinks"][1]["password"] = "secret-of-the-sink"
    _, found = site.examined(capsys)
    assert {"source.access", "sink.unreachable"} <= codes(found)
    assert "secret-of" not in json.dumps(found)


def test_the_page_has_every_code_and_no_other() -> None:
    root = Path(__file__).parents[2]
    preflights = ("producer/source/source_preflight.py", "spark_jobs/jobs/preflight.py")
    sources = [*(root / name for name in preflights), *(root / "tidemark" / "doctor").glob("*.py")]
    named = {code for path in sources for code in re.findall(rf'"({_CODE})"', path.read_text("utf-8"))}
    of_privileges = {f"source.privilege.{name}" for name in ("replication_slave", "replication_client", "binlog_monitor")}
    named.remove("kafka.bootstrap_servers")  # a setting
    unknown = {f"{area}.unknown" for area in ("source", "kafka", "registry", "spark", "sink")}
    sinks = {"sink.privilege.create", "sink.privilege.temporary"}
    table = (root / "docs" / "doctor.md").read_text("utf-8").partition("| code |")[2].replace("`source.tables`", "")
    listed = set(re.findall(f"`({_CODE})`", table))
    assert listed == named - {"source.log_names_no_columns"} | of_privileges | unknown | sinks


def test_an_area_whose_client_is_not_installed_is_not_checked(site: Site) -> None:
    absent = ["confluent_kafka", "pymysql", "psycopg", "pyspark"]
    script = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); from tidemark.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "doctor", "--config", str(site.write()), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = json.loads(done.stdout)
    assert (done.returncode, found["findings"], found["checked"]) == (0, [], ["registry", "sink lake"]), done.stderr
    assert found["unchecked"] == {
        "source": "pymysql is not installed here",
        "kafka": "confluent_kafka is not installed here",
        "spark": "pyspark is not installed here: ask where the merge job runs",
        "sink shop": "pymysql is not installed here",
    }


def test_what_is_not_listed_is_counted_and_an_error_among_it_is_one() -> None:
    many = [Finding("a.b", Severity.WARNING, str(number), "") for number in range(MOST + 2)]
    many.append(Finding("a.b", Severity.ERROR, "last", ""))
    found = list(listed("a.b", "tables", many))
    assert found[:MOST] == many[:MOST]
    assert [(one.severity, one.evidence) for one in found[MOST:]] == [(Severity.ERROR, "3 further tables")]
    assert list(listed("a.b", "tables", many[:MOST])) == many[:MOST]
