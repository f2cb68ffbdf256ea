"""Spark's executors do not share the driver's disk: a sink of any type is refused, or its rows are those of the source.

Each worker of the cluster runs in a mount namespace of its own, with an empty file system over the folders that it does not share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from devservers import Database, Postgres
from devservers.processes import GuardedProcess
from schemas.names import folder_name
from spark_jobs.sinks.files.manifest import FOLDER
from tests.e2e.child_processes import environment
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, SPARING, Pipeline, create_signal_table
from tests.support.changelogs import events_of_files, events_of_topic, folded, folded_in_order, messages
from tests.support.iceberg_tables import open_iceberg
from tests.support.servers import new_database
from tests.support.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow  # tests/sinks/test_shared_folder.py has the question to the executors; and the rows, tests/sinks/test_arrived_files.py
ROWS: Final = 300
TYPES: Final = ("delta", "iceberg", "postgresql", "mysql", "kafka", "files")
Rows = dict[int, int]


@dataclass(frozen=True, slots=True)
class Target:
    """A sink of the test: its settings, and the function that reads its rows as a user does, without a merge job."""

    settings: dict[str, Any]
    read: Callable[[], Rows]

    def rows(self) -> Rows:
        """The rows; none of a table that names files which are not there."""
        try:
            return self.read()
        except FileNotFoundError:
            return {}

    @property
    def name(self) -> str:
        return str(self.settings["name"])

    @property
    def folder(self) -> Path:
        return Path(self.settings.get("work") or self.settings["path"])

    def merged(self) -> int:
        """The rows that the merge job says it has merged."""
        progress = self.folder / "_tidemark" / "progress.json"
        return int(json.loads(progress.read_text("utf-8"))["rows_total"]) if progress.exists() else 0


class Lakes:
    """The sinks of a test, each with a folder of its own."""

    def __init__(self, root: Path, database: str, mariadb: Database, postgres: Postgres, bootstrap_servers: str) -> None:
        self._root, self._database = root, database
        self._mysql, self._postgres, self._servers = mariadb, postgres, bootstrap_servers

    def of(self, kind: str, mode: str = "", label: str = "", **more: Any) -> Target:
        """A sink of a type; its folder exists."""
        name = "-".join(filter(None, (kind, mode, label)))
        folder = self._root / name
        folder.mkdir(parents=True)
        settings: dict[str, Any] = {"name": name, "type": kind, "path": str(folder), **more}
        table = folder / folder_name(self._database) / "orders"
        if kind in ("postgresql", "mysql"):
            del settings["path"]
            settings |= self._access(kind) | {"work": str(folder)}
            database = self._database
            if label:
                database = f"{label}_{database}"
                settings["routes"] = [{"tables": r"(.*)\.(.*)", "into": f"{label}_$1.$2"}]
            return Target(settings, partial(self._of_database, kind, database))
        if kind == "delta":
            return Target(settings, partial(_of_delta, table))
        if kind == "iceberg":
            return Target(settings, partial(_of_iceberg, table))
        if kind == "files":
            return Target(settings | {"mode": "changelog"}, partial(_of_files, table))
        topic = f"{self._database}-{mode}-orders"
        settings |= {"mode": mode, "topic": f"{self._database}-{mode}-$table"}
        return Target(settings, partial(_of_topic, self._servers, topic, mode))

    def _access(self, kind: str) -> dict[str, Any]:
        secret = self._root / f"{kind}.secret"
        server = self._postgres if kind == "postgresql" else self._mysql
        secret.write_text(f"{server.password}\n", "utf-8")
        url = self._postgres.jdbc_url.removeprefix("jdbc:") if kind == "postgresql" else f"mysql://{self._mysql.host}:{self._mysql.port}"
        return {"url": url, "user": server.user, "password_file": str(secret)}

    def _of_database(self, kind: str, database: str) -> Rows:
        if kind == "mysql":
            with self._mysql.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM information_schema.tables WHERE (table_schema, table_name) = (%s, 'orders')", (database,))
                if cursor.fetchone() is None:
                    return {}
                cursor.execute(f"SELECT id, amount FROM {database}.orders")
                return dict(cursor.fetchall())
        with self._postgres.connect() as reader:
            if reader.execute("SELECT 1 FROM pg_tables WHERE (schemaname, tablename) = (%s, 'orders')", (database,)).fetchone() is None:
                return {}
            return dict(reader.execute(f"SELECT id, amount FROM {database}.orders").fetchall())


def _of_delta(table: Path) -> Rows:
    if not any((table / "_delta_log").glob("*.json")):
        return {}
    return {row["id"]: row["amount"] for row in DeltaTable(str(table)).to_pyarrow_table(columns=["id", "amount"]).to_pylist()}


def _of_iceberg(table: Path) -> Rows:
    if not (table / "metadata").is_dir():
        return {}
    return {row["id"]: row["amount"] for row in open_iceberg(table).scan().to_arrow().to_pylist()}


def _of_files(table: Path) -> Rows:
    if not (table / FOLDER).is_dir():
        return {}
    return {row["id"]: row["amount"] for row in folded(events_of_files(table), ["id"]).values()}


def _of_topic(servers: str, topic: str, mode: str) -> Rows:
    if mode == "mirror":
        return {row["id"]: row["amount"] for row in folded_in_order(messages(servers, topic)).values()}
    return {row["id"]: row["amount"] for row in folded(events_of_topic(servers, topic), ["id"]).values()}


@dataclass(frozen=True, slots=True)
class World:
    """A source whose rows are in Kafka, and the sinks that are to be merged into."""

    pipeline: Pipeline
    lakes: Lakes
    folder: Path

    def source(self) -> Rows:
        with self.pipeline.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, amount FROM orders")
            return dict(cursor.fetchall())

    def publish(self, *statements: str) -> None:
        """Run statements, and have the producer publish all that is in the log, with the snapshot."""
        self.pipeline.sql(*statements)
        self.pipeline.start("run")
        self.pipeline.wait_for_snapshot("orders")
        self.pipeline.wait_for_log()
        assert self.pipeline.stop("run") == 0

    def configure(self, cluster: SparkCluster, targets: Sequence[Target], **spark: Any) -> None:
        """Write the settings of a merge into these sinks on a cluster."""
        section = cluster.section
        section["conf"] |= SPARING
        document = json.loads(self.pipeline.config_path.read_text("utf-8"))
        document |= {"spark": section | spark, "sinks": [target.settings for target in targets]}
        self.pipeline.config_path.write_text(json.dumps(document), "utf-8")

    def merge(self, *, is_probed: bool = True) -> tuple[int | None, str]:
        """Merge all that is in Kafka; the exit status, and what the command says.

        Without the probe of the executors a sink must notice by what arrives.
        """
        log = self.folder / f"merge-{len(list(self.folder.glob('merge-*')))}.log"
        command = ["-m", "tidemark"]
        if not is_probed:
            script = self.folder / "unprobed.py"
            script.write_text(_WITHOUT_PROBE, "utf-8")
            command = [str(script)]
        arguments = [*command, "merge", "--until-caught-up", "--config", str(self.pipeline.config_path)]
        child = GuardedProcess.spawn([sys.executable, *arguments], log, cwd=self.folder, env=environment())
        ended = child.wait(400)
        child.kill()
        said = log.read_text("utf-8", errors="replace")
        assert ended, said
        return child.status, said

    def require_refused_or_equal(self, targets: Sequence[Target], status: int | None, said: str) -> None:
        """Each sink has the rows of the source, or the command names it, and counts no row of it as merged."""
        expected = self.source()
        wrong = [target.name for target in targets if not self._is_refused(target, said) and target.rows() != expected]
        assert not wrong, f"{wrong} differ from the source and are not refused, exit status {status}:\n{said[-6000:]}"
        assert status == (1 if any(self._is_refused(target, said) for target in targets) else 0), said[-6000:]

    @staticmethod
    def _is_refused(target: Target, said: str) -> bool:
        last = said.strip().splitlines()[-1] if said.strip() else ""
        return f"{target.name}: " in last and str(target.folder) in last and not target.merged()


_WITHOUT_PROBE: Final = """
import sys
from spark_jobs.jobs import shared_folder
shared_folder.SharedFolder.require = lambda *_: None
from tidemark.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def world(mysql80: Database, mariadb114: Database, postgres17: Postgres, make_pipeline: MakePipeline, tmp_path: Path) -> World:
    database = new_database(mysql80)
    pipeline = make_pipeline(mysql80, database, snapshot={"mode": "initial"})
    with pipeline.connect() as connection:
        create_signal_table(connection)
    values = ", ".join(f"({number}, {number})" for number in range(ROWS))
    lakes = Lakes(tmp_path / "lakes", database, mariadb114, postgres17, pipeline.kafka.bootstrap_servers)
    made = World(pipeline, lakes, tmp_path)
    (tmp_path / "lakes").mkdir()
    pipeline.sql("CREATE TABLE orders (id INT PRIMARY KEY, amount INT)", f"INSERT INTO orders (id, amount) VALUES {values}")
    return made


def all_types(lakes: Lakes) -> list[Target]:
    """A sink of each type."""
    return [lakes.of(kind, "mirror" if kind == "kafka" else "") for kind in TYPES]


@pytest.mark.timeout(500)
def test_a_sink_of_any_type_is_refused_or_has_the_rows_of_the_source(world: World, tmp_path: Path) -> None:
    world.publish("UPDATE orders SET amount = amount + 1 WHERE id < 50", "DELETE FROM orders WHERE id < 20")
    targets = all_types(world.lakes)
    hidden = [[target.folder for target in targets]] * 2
    with SparkCluster(tmp_path / "cluster", hidden=hidden) as cluster:
        world.configure(cluster, targets)
        status, said = world.merge()
    world.require_refused_or_equal(targets, status, said)


def variants(lakes: Lakes) -> list[Target]:
    """The other ways in which sinks write."""
    more = [lakes.of("delta", label=writer, writer=writer) for writer in ("arrow", "jvm")]
    more += [lakes.of("kafka", "changelog"), lakes.of("files", label="json", format="changelog-json")]
    transforms = [{"tables": ".*", "where": "id >= 0"}]
    return [*more, *(lakes.of(kind, label="filtered", transforms=transforms) for kind in ("delta", "postgresql"))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("hiding", [2, 1])
def test_without_a_probe_what_does_not_arrive_is_an_error_of_each_sink(world: World, tmp_path: Path, hiding: int) -> None:
    world.publish("UPDATE orders SET amount = amount + 1 WHERE id < 50", "DELETE FROM orders WHERE id < 20")
    targets = [*all_types(world.lakes), *variants(world.lakes)]
    hidden = [[target.folder for target in targets]] * hiding
    with SparkCluster(tmp_path / "cluster", hidden=hidden) as cluster:
        world.configure(cluster, targets)
        status, said = world.merge(is_probed=False)
        world.require_refused_or_equal(targets, status, said)
        if hiding == 2:
            equal = [target.name for target in targets if target.rows() == world.source()]
            assert equal == ["delta-arrow", "kafka-changelog"], "their rows come to the driver, and need no folder"


@pytest.mark.timeout(900)
def test_with_a_shared_folder_every_sink_has_the_rows_of_the_source_batch_after_batch(world: World, tmp_path: Path) -> None:
    targets = [*all_types(world.lakes), *variants(world.lakes)]
    with SparkCluster(tmp_path / "cluster") as cluster:
        world.configure(cluster, targets)
        for step in range(2):
            world.publish(f"UPDATE orders SET amount = amount + 1 WHERE id % 2 = {step}", f"DELETE FROM orders WHERE id < 20 * {step}")
            status, said = world.merge()
            assert status == 0, said[-6000:]
            wrong = [target.name for target in targets if target.rows() != world.source()]
            assert not wrong, said[-6000:]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("hides_work", [True, False])
def test_one_executor_without_the_folder_is_named(world: World, tmp_path: Path, hides_work: bool) -> None:
    world.publish()
    target = world.lakes.of("postgresql")
    folder = target.folder
    if hides_work:  # the folder beside the tables alone is another one
        folder = target.folder / "_tidemark"
        folder.mkdir()
    with SparkCluster(tmp_path / "cluster", hidden=[(), [folder]]) as cluster:
        world.configure(cluster, [target])
        status, said = world.merge()
    assert status == 1
    last = said.strip().splitlines()[-1]
    assert f"its folder {target.folder} is not the same on driver and executors" in last
    assert str(tmp_path / "cluster" / "work-1") in last
    assert str(tmp_path / "cluster" / "work-0") not in last
    assert not list(target.folder.rglob(".probe-*")), "nothing of the probe is left"


@pytest.mark.timeout(900)
def test_an_executor_that_joins_later_without_the_folder_ends_the_sink_before_it_loses_rows(world: World, tmp_path: Path) -> None:
    world.publish()
    target = world.lakes.of("postgresql")
    with SparkCluster(tmp_path / "cluster", workers=1) as cluster:
        world.configure(cluster, [target])
        world.pipeline.start("merge")
        deadline = time.monotonic() + PATIENCE_S
        while target.rows() != world.source():
            world.pipeline.check()
            assert time.monotonic() < deadline
            time.sleep(1)
        cluster.add_worker([target.folder])
        cluster.workers[0].kill()
        time.sleep(5)
        world.publish("UPDATE orders SET amount = amount + 1")
        status, said = world.pipeline.wait_for_end("merge", 400)
    assert status == 1, said
    assert "is not the same on driver and executors" in said.strip().splitlines()[-1]
    assert set(target.rows()) == set(world.source())
    assert target.rows() != world.source()


@pytest.mark.timeout(900)
def test_a_package_that_an_executor_lacks_is_named_and_spark_merges_instead(world: World, tmp_path: Path) -> None:
    world.publish()
    target = world.lakes.of("delta")
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(_WITHOUT_DELTALAKE, "utf-8")
    with SparkCluster(tmp_path / "cluster") as cluster:
        world.configure(cluster, [target])
        document = json.loads(world.pipeline.config_path.read_text("utf-8"))
        document["spark"]["conf"]["spark.executorEnv.PYTHONPATH"] = str(hiding)
        world.pipeline.config_path.write_text(json.dumps(document), "utf-8")
        status, said = world.merge()
    assert "No module named 'deltalake'" in said
    assert "merge.executor_lacks_packages" in said
    assert (status, target.rows()) == (0, world.source()), said[-6000:]


@pytest.mark.timeout(900)
def test_an_executor_without_our_python_is_an_error_with_its_cause(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish()
    target = world.lakes.of("postgresql")
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    with SparkCluster(tmp_path / "cluster") as cluster:
        world.configure(cluster, [target])
        status, said = world.merge()
    last = said.strip().splitlines()[-1]
    assert status == 1
    assert "an executor starts no Python worker" in last
    assert "/nowhere/python" in last


_WITHOUT_DELTALAKE: Final = """
import sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "deltalake":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
"""
