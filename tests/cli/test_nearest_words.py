"""Words that the command does not know, and what it says instead."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tidemark import cli

SETTINGS = "name: shop\nsource: {tables: ['shop\\..*']}\nformat: {registry: 'http://r:8081'}\nsinks: [{path: lake}]\n"


def refused(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    """What is said of a line that is no command; exit code 2."""
    capsys.readouterr()
    code: object = None
    try:
        code = cli.main(list(line))
    except SystemExit as end:
        code = end.code
    assert code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["stauts"], "there is no 'stauts'; did you mean 'status'?"),
        (["snapshot", "strat"], "there is no 'strat'; did you mean 'start'?"),
        (["status", "--outptu", "json"], "did you mean '--output'?"),
        (["status", "--output", "jsn"], "there is no 'jsn'; did you mean 'json'?"),
        (["completion", "fishh"], "did you mean 'fish'?"),
        (["page", "--port", "99999"], "'99999' is not a TCP port: a number from 0 to 65535"),
        (["page", "--port", "-1"], "--port"),
        (["init", "--port", "99999"], "is not a TCP port"),
        (["lag", "--watch", "x"], "x is not a number of seconds above 0"),
        (["snapshot", "start", "a", "--wait", "soon"], "'soon' is not a number of seconds"),
        (["tail", "--count", "0"], "'0' is not a number of 1 or more"),
    ],
)
def test_a_word_that_is_unknown_is_answered_with_the_nearest(line: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *line)


def test_a_target_that_does_not_exist_is_refused_before_anything_is_said_of_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tidemark.yaml"
    file.write_text(SETTINGS, "utf-8")
    service = tmp_path / "lake" / "_tidemark"
    service.mkdir(parents=True)
    (service / "progress.json").write_text(json.dumps({"batch_id": 1, "tables": {"shop.orders": {"rows": 1}}}), "utf-8")
    assert "it has the form database.table" in refused(capsys, "rebuild", "nosuch", "--config", str(file))
    assert "did you mean 'shop.orders'?" in refused(capsys, "rebuild", "shop.ordres", "--config", str(file))
    assert cli.main(["rebuild", "shop.orders", "--config", str(file)]) == 1
    assert "say --yes to do it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("kafka: {options: {no.such.option: 1}}", "kafka.options.no.such.option: No such configuration property"),
        ("kafka: {security_protocol: SSL, tls: {ca: missing.pem}}", "kafka.tls.ca: cannot read "),
        ("spark: {master: here}", "spark.master: 'here' is not a Spark master"),
        ("format: {type: json}", "format.type: the merge job reads Avro only"),
    ],
)
def test_the_file_is_checked_for_what_only_its_user_would_notice(
    more: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tidemark.yaml"
    head = SETTINGS.replace("format: {registry: 'http://r:8081'}\n", "") if more.startswith("format") else SETTINGS
    file.write_text(f"{head}{more}\n", "utf-8")
    assert cli.main(["config", "validate", "--config", str(file)]) == 2
    assert capsys.readouterr().out.startswith(key)


def test_fish_completes_verbs_actions_options_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("-a status -d 'show how far log, snapshots and sink are'") and "using;" in line for line in lines)
    assert any("using snapshot;" in line and "-a start" in line for line in lines)
    assert any("using status'" in line and '-l output -xka "text json"' in line for line in lines)
    assert any("-l config" in line and "__fish_complete_path" in line for line in lines)
    shell = shutil.which("fish")
    if shell is not None:
        subprocess.run([shell, "--no-execute"], input="\n".join(lines), text=True, check=True)
