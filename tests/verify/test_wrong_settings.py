"""docs/wrong-settings.md: every wrong setting says what the page says, with exit code 2, and makes nothing anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.verify.conftest import Scene
from tidemark import cli
from tidemark.runtime import java_home

PAGE: Final = Path(__file__).parents[2] / "docs" / "wrong-settings.md"
_CASE: Final = re.compile(r"^## (\d+)\. .*?```yaml\n(.*?)```\n\n    tidemark (\w+)\n\n```\n(.*?)```\n", re.DOTALL | re.MULTILINE)
_SOURCE: Final = "db.internal:3306"


@dataclass(frozen=True)
class Case:
    """An example: its number, its settings, its command, and what it writes to standard error."""

    number: int
    settings: str
    verb: str
    words: str


def cases() -> list[Case]:
    return [Case(int(number), *rest) for number, *rest in _CASE.findall(PAGE.read_text("utf-8"))]


COMMON: Final = yaml.safe_load(PAGE.read_text("utf-8").partition("```yaml\n")[2].partition("```")[0])


@pytest.fixture
def stores(scene: Scene) -> Iterator[Scene]:
    """A source with the tables of the page."""
    for name in ("store_1", "store_2"):
        scene.sql(
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, amount DECIMAL(8, 2), status VARCHAR(10), ip VARCHAR(39))",
        )
    yield scene
    for name in ("store_1", "store_2"):
        scene.sql(f"DROP DATABASE {name}")


def written(case: Case, scene: Scene, folder: Path) -> Path:
    """The settings of an example in a file, with the address of the test's own source."""
    address = f"{scene.server.host}:{scene.server.port}"
    own = yaml.safe_load(case.settings.replace(_SOURCE, address))
    access = {"host": scene.server.host, "port": scene.server.port, "user": scene.server.user, "password": scene.server.password}
    document: dict[str, Any] = {**COMMON, **own, "source": COMMON["source"] | access}
    path = folder / "tidemark.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def tables(scene: Scene) -> list[tuple[Any, ...]]:
    with scene.connection.cursor() as cursor:
        cursor.execute("SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2")
        return list(cursor.fetchall())


def test_the_page_has_ten_examples_and_each_is_found() -> None:
    assert [case.number for case in cases()] == list(range(1, 11))
    assert len(re.findall("^## ", PAGE.read_text("utf-8"), re.MULTILINE)) == 10


@pytest.mark.parametrize("scene", ["mysql80"], indirect=True)
def test_each_wrong_setting_says_what_the_page_says_before_anything_is_written(
    stores: Scene, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seventh, where Spark has an error of its own to show, as a process."""
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    before = tables(stores)
    for case in cases():
        path = written(case, stores, folder)
        if case.number == 7:
            command = [sys.executable, "-m", "tidemark", case.verb, "--config", str(path)]
            environment = {**os.environ, "JAVA_HOME": str(java_home(17))}
            done = subprocess.run(command, env=environment, capture_output=True, timeout=90, check=False)
            found = (done.returncode, done.stderr.decode())
        else:
            found = (cli.main([case.verb, "--config", str(path)]), capsys.readouterr().err)
        assert found == (cli.USAGE, case.words), case.number
        assert [file.name for file in folder.iterdir()] == ["tidemark.yaml"], case.number
    assert tables(stores) == before
