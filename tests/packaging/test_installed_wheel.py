"""The wheel as a user has it: in an environment of its own, beside another project with a package called `schemas`."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devservers import Database, Kafka, Registry
from devservers.processes import GuardedProcess
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.packaging.distributions import Environment, bare_environment, built, other_project
from tidemark.process.versions import DISTRIBUTION

pytestmark = pytest.mark.slow
EVERY_MODULE = """
import importlib, pkgutil, sys, tidemark
names = [found.name for found in pkgutil.walk_packages(tidemark.__path__, "tidemark.") if not found.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
import schemas, producer
assert schemas.OWNER == producer.OWNER == "other-schemas"
print(len(names))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Without an extra, and with the other project's packages."""
    made = Environment.make(tmp_path_factory.mktemp("small") / "venv")
    made.install(str(other_project()), str(built()[1]))
    return made


def test_the_source_archive_has_what_a_build_and_a_reader_need() -> None:
    with tarfile.open(built()[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "tools/wheel_layout.py", "schemas/errors.py", "producer/app.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/"))]


def test_two_projects_with_a_package_of_one_name_do_not_touch_each_other(environment: Environment) -> None:
    print_owned = "import importlib.metadata as m, sys; print(*sorted(str(f) for f in m.files(sys.argv[1])))"
    files = [set(environment.run(environment.python, "-c", print_owned, name).stdout.split()) for name in (DISTRIBUTION, "other-schemas")]
    assert files[0]
    assert files[1]
    assert not files[0] & files[1]
    tops = {name.partition("/")[0] for name in files[0] if not name.startswith((".", "tidemark_cdc-"))}
    assert tops == {"tidemark"}
    said = environment.run(environment.python, "-c", "import schemas, tidemark.schemas.errors as e; print(schemas.OWNER, e.__name__)")
    assert said.stdout.split() == ["other-schemas", "tidemark.schemas.errors"], said.stderr


def test_the_command_works_without_an_extra(environment: Environment) -> None:
    version = environment.run(environment.command, "--version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "tidemark")
    assert version.stdout.split()[1][0].isdigit()
    assert environment.run(environment.command, "--help").returncode == 0
    missing = environment.run(environment.command, "status", "--config", "missing.yaml")
    assert missing.returncode == 2
    assert "missing.yaml" in missing.stderr
    assert "Traceback" not in missing.stderr
    Path(environment.folder, "tidemark.yaml").write_text(
        "name: shop\nsource: {host: nowhere.invalid, user: u, password: p, tables: ['a\\..*'], signal_table: a.s}\n"
        "kafka: {bootstrap_servers: 'nowhere.invalid:1'}\nformat: {type: json}\n",
        "utf-8",
    )
    run = environment.run(environment.command, "run", "--config", "tidemark.yaml")
    assert run.returncode == 2
    assert f"pip install '{DISTRIBUTION}[producer]'" in run.stderr


class InstalledPipeline(Pipeline):
    """A pipeline whose processes are those of an installed wheel; the checkout is not importable there."""

    command = ""

    def spawn(self, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        command = [self.command, verb, "--config", str(self.config_path), *arguments]
        return GuardedProcess.spawn(command, log_path, cwd=self.folder, env={**bare_environment(), **self.env})


@pytest.fixture
def installed(
    tmp_path: Path, mysql80: Database, kafka: Kafka, registry: Registry, fresh_database: Callable[[Database], str]
) -> Iterator[InstalledPipeline]:
    """A pipeline of the wheel with the extras of a whole installation, on real servers."""
    environment = Environment.make(tmp_path / "venv")
    environment.install(str(other_project()), f"{built()[1]}[producer,page,spark,verify]")
    every = environment.run(environment.python, "-c", EVERY_MODULE)
    assert every.returncode == 0, every.stderr
    assert int(every.stdout) > 500
    name = fresh_database(mysql80)
    with mysql80.connect(database=name) as connection:
        create_signal_table(connection)
    with InstalledPipeline("wheel", tmp_path / "pipeline", mysql80, name, kafka, registry, {"snapshot": {"mode": "initial"}}) as pipeline:
        pipeline.command = environment.command
        yield pipeline


def test_rows_reach_the_lake_and_equal_the_source(installed: InstalledPipeline) -> None:
    installed.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    installed.start("merge", "run")
    installed.wait("the producer", lambda status: status.log is not None)
    installed.sql("UPDATE t SET v = 'changed' WHERE id = 2", "INSERT INTO t VALUES (3, 'three')")
    installed.wait_for_sink("t")
    verify = installed.spawn("verify", installed.log_path("verify"))
    assert verify.wait(120)
    assert verify.status == 0, installed.log_tail("verify")
