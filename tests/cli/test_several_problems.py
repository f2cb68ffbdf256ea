"""Everything that is wrong with a configuration is reported at once, by every verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import ConfigError, SecretError
from tidemark.cli import USAGE, VERBS, main
from tidemark.process.config import load

WRONG = """
name: shop
source:
  prot: 3306
  tables: ["shop\\\\..*", "("]
  signal_table: tidemark_signal
  password_file: nowhere
kafka: {partitions: many, security_protocol: SASL_SSL}
snapshot: {readers: 0}
sinks:
  - {name: lake, path: "s3://bucket"}
  - {name: mart, type: postgresql, url: "postgresql://db", work: /work}
"""
SECTION = """
name: "no name"
source:
  tables: ["("]
  signal_table: tidemark_signal
  start_at: {skip_rows: 3}
"""
OF_A_FILE = {"run", "merge", "plan", "verify", "status", "lag", "tail", "quarantine", "rebuild", "reload", "repair", "doctor"}
MORE = {"quarantine": ["list"], "plan": [], "signal": ["pause-snapshot"], "rebuild": ["shop.t"], "tail": ["shop.t"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tidemark.yaml"
    path.write_text(WRONG, "utf-8")
    return path


def test_each_key_that_is_wrong_has_its_line(file: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    where = [problem.partition(":")[0] for problem in raised.value.problems]
    assert where == ["source.password_file", "source.prot", "kafka.partitions", "snapshot.readers", "sinks.0.path", "sinks.1.url", "sinks.1.user"]
    head, *lines = str(raised.value).splitlines()
    assert head == "7 settings are wrong:"
    assert [line.strip() for line in lines] == list(raised.value.problems)


def test_several_settings_of_one_section_that_exclude_each_other_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text(SECTION, "utf-8")
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    where = [problem.partition(":")[0] for problem in raised.value.problems]
    assert where == ["name", "source.tables", "source.signal_table", "source.start_at.skip_rows"]


def test_several_variables_that_are_wrong_are_all_named(file: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(file, {"TIDEMARK_SOURCE__PORT": "many", "TIDEMARK_KAFKA__PARTITION": "3"})
    of_variables = [problem.startswith("environment variable TIDEMARK_") for problem in raised.value.problems]
    assert of_variables == [True, True, *(False for _ in range(7))]  # those of the file are named, too


def test_one_problem_is_one_line_and_keeps_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text("name: shop\nsource: {tables: [a], password_file: nowhere}\n", "utf-8")
    with pytest.raises(SecretError, match=r"source\.password_file: cannot read") as raised:
        load(path, {})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("verb", sorted(OF_A_FILE & {*VERBS}))
def test_every_verb_reports_all_of_it(verb: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *MORE.get(verb, []), "--config", str(file)]) == USAGE
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "tidemark: 7 settings are wrong:"
    assert len(said) == 8
