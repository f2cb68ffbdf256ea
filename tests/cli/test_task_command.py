"""`tidemark task run`: the file of a task is read as the producer's is, and what is wrong with it ends with 2."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from schemas.errors import ConfigError
from schemas.settings import TaskSettings, describe
from tests.cli.test_json_schema import fits
from tidemark import cli
from tidemark.process import config

TASK = """
task: copy-shop
sources: [{name: shop, tables: ['shop\\..*']}]
format: {registry: 'http://registry:8081'}
target: {type: mysql, host: replica, password_file: secret}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("hunter2\n", "utf-8")
    path = tmp_path / "task.yaml"
    path.write_text(TASK, "utf-8")
    return path


def reported(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The only line of a command that is refused."""
    assert cli.main(["task", "run", str(file)]) == cli.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("host:", "hots:", "target.hots: unknown key 'hots' in target; did you mean 'host'?"),
        ("host:", "prot: 1, hots:", "2 settings are wrong"),
        ("task:", "taks: a\ntask:", "taks: unknown key 'taks'; did you mean 'task'?"),
        ("host: replica,", "", "target.host: is missing: host name or address of the server"),
        ("host: replica", "host: replica, port: 70000", "target.port: 70000 is above the largest value, 65535"),
        ("type: mysql", "type: oracle", "target.type: expected one of mysql, mariadb, tidb, file, got str 'oracle'"),
        ("{name: shop,", "{name: shop}, {name: shop,", "sources.1.name: 'shop' is given twice; name all its tables in one entry"),
        ("task:", "order: global\ntask:", "group: is missing: order: global needs the order.group of the sources"),
        ("{registry:", "{type: json, registry:", "format.type: a task reads Avro only"),
        ("password_file: secret", "password_file: nowhere", "target.password_file: cannot read"),
        ("password_file: secret", "tls: {ca: nowhere}", "target.tls.ca: cannot read"),
        ("password_file: secret", "password: 123456", "target.password: expected text, got an integer without quotes"),
    ],
)
def test_a_wrong_task_ends_with_2_and_names_key_and_remedy(
    old: str, new: str, problem: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(TASK.replace(old, new), "utf-8")
    assert cli.main(["task", "run", str(file)]) == cli.USAGE
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith(f"tidemark: {problem}")
    assert len(more) == (2 if "2 settings" in problem else 0)
    assert "123456" not in first


def test_a_missing_task_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = reported(tmp_path / "none.yaml", capsys)
    assert line.endswith("none.yaml: `tidemark config reference --task` prints the keys")


def test_a_task_takes_no_config(file: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["task", "run", str(file), "--config", "tidemark.yaml"])
    assert ended.value.code == cli.USAGE


def test_files_are_beside_the_task_file_and_variables_win(file: Path) -> None:
    settings = config.load_task(file, {"TIDEMARK_TARGET__PORT": "3307", "TIDEMARK_SOURCES__0__NAME": "cafe"})
    assert settings.target.password_file == str(file.parent / "secret")
    assert (settings.target.port, settings.sources[0].name) == (3307, "cafe")


def test_variables_of_a_producer_are_ignored_and_slips_are_not(file: Path) -> None:
    config.load_task(file, {"TIDEMARK_SOURCE__HOST": "db", "TIDEMARK_NAME": "shop", "TIDEMARK_CACHE": "/cache"})
    with pytest.raises(ConfigError, match=r"TIDEMARK_TARGET__PROT: .*did you mean 'port'\?"):
        config.load_task(file, {"TIDEMARK_TARGET__PROT": "1"})
    with pytest.raises(ConfigError, match=r"TIDEMARK_TARGETS: did you mean TIDEMARK_TARGET\?"):
        config.load_task(file, {"TIDEMARK_TARGETS": "1"})


def test_the_password_of_a_target_leaves_the_environment_with_other_secrets(monkeypatch: pytest.MonkeyPatch) -> None:


    monkeypatch.setenv("TIDEMARK_TARGET__PASSWORD", "hunter2")
    config.forget_secrets()
    assert "TIDEMARK_TARGET__PASSWORD" not in os.environ


def test_reference_and_schema_of_task_files(file: Path, capsys: pytest.CaptureFixture[str]) -> None:




    assert cli.main(["config", "reference", "--task", "target.host"]) == 0
    assert capsys.readouterr().out == (
        "target.host  (text, default none)\n    host name or address of the server\n    TIDEMARK_TARGET__HOST\n"
    )
    assert cli.main(["config", "schema", "--task"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert fits(schema, yaml.safe_load(TASK))
    assert not fits(schema, yaml.safe_load(TASK.replace("mysql", "oracle")))
    assert {one.path.partition(".")[0].removesuffix("[]") for one in describe(TaskSettings)} == set(schema["properties"])
