"""`tidemark config`: all errors of a file at once, the reference, the JSON Schema; `version` and `completion` beside them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from schemas.settings import json_schema
from tests.cli.test_problems import GOOD, written
from tidemark import cli


def test_validate_ends_with_2_and_prints_each_problem_on_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, wrong = written(tmp_path, GOOD), tmp_path / "wrong.yaml"
    assert cli.main(["config", "validate", "--config", good]) == 0
    assert capsys.readouterr().out == f"{good}: valid; `tidemark doctor` asks the servers\n"
    wrong.write_text("{name: shop, source: {tables: [a], prot: 1}, kafka: {x: 1}}", "utf-8")
    assert cli.main(["config", "validate", "--config", str(wrong)]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert cli.main(["config", "validate", "--config", str(wrong), "--output", "json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    wrong.write_text("{", "utf-8")
    assert cli.main(["config", "validate", "--config", str(wrong)]) == 2
    assert "is not YAML" in capsys.readouterr().out


def test_the_reference_of_a_key_has_its_default_and_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "reference", "source.heartbeat_s"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("source.heartbeat_s  (integer, default 2)\n    seconds of silence")
    assert text.endswith("    TIDEMARK_SOURCE__HEARTBEAT_S\n")
    assert cli.main(["config", "reference", "--output", "json"]) == 0
    assert "kafka.bootstrap_servers" in {one["path"] for one in json.loads(capsys.readouterr().out)}
    assert cli.main(["config", "reference", "no-such-key"]) == 1


def test_the_json_schema_is_that_of_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_the_version_has_those_of_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    import confluent_kafka

    assert cli.main(["version", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["librdkafka"] == confluent_kafka.libversion()[0]
    assert found["python"].startswith("3.")
    assert cli.main(["version"]) == 0
    assert "Kafka client" in capsys.readouterr().out


COMPLETE = """
source "$1"
COMP_WORDS=(tidemark "${@:2}" "")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
COMP_LINE="${COMP_WORDS[*]}"
_shtab_tidemark
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], {"run", "snapshot", "tables"}), (["snapshot"], {"start", "pause", "list"}), (["signal"], {"execute-snapshot"})],
)
def test_bash_completes_verbs_and_actions(
    words: list[str], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = tmp_path / "tidemark.bash"
    script.write_text(capsys.readouterr().out, "utf-8")
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", str(script), *words], capture_output=True, text=True, check=True)
    assert expected <= set(done.stdout.split()), (done.stdout, done.stderr)


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script_too(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "snapshot" in capsys.readouterr().out
