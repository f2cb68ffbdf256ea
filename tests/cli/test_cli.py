from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from schemas.errors import SourceError
from tests.support.area_logs import of_area
from tidemark import cli
from tidemark.process import logs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tidemark.yaml"
    document = {
        "name": "shop",
        # Nothing listens there: a connection is refused at once.
        "source": {
            "host": "127.0.0.1",
            "port": 1,
            "tables": ["shop\\..*"],
            "signal_table": "shop.tidemark_signal",
        },
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "sinks": [{"path": str(tmp_path / "lake")}],
    }
    path.write_text(json.dumps(document), "utf-8")
    return str(path)


def test_the_command_starts_without_importing_spark_kafka_or_numba() -> None:
    script = (
        "import sys; from tidemark.cli import parser; parser(); "
        "heavy = {'pyspark', 'confluent_kafka', 'numba', 'pymysql', 'deltalake'} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


ACTIONS = [[group, action] for group in cli.GROUPS for action in cli.module_of(group).ACTIONS]


@pytest.mark.parametrize("verb", [[], *[[verb] for verb in [*cli.VERBS, *cli.GROUPS]], *ACTIONS])
def test_every_verb_has_a_help_that_names_the_exit_codes(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*verb, "--help"])

    assert ended.value.code == 0
    assert "1 failed, or a difference was found" in " ".join(capsys.readouterr().out.split())


def test_wrong_usage_ends_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["signal", "no-such-signal"])

    assert ended.value.code == 2


@pytest.mark.parametrize(
    "verb",
    [
        *[[verb] for verb in ("run", "merge", "verify", "status", "tables")],
        ["snapshot", "list"],
        ["schema", "history", "shop.orders"],
        ["offsets", "show"],
    ],
)
def test_a_missing_configuration_ends_with_2_and_one_line(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main([*verb, "--config", str(tmp_path / "none.yaml")])

    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("tidemark: no configuration at ")
    assert error.count("\n") == 1


def test_a_wrong_key_in_the_environment_ends_with_2(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_KAFKA__PARTITION", "8")

    assert cli.main(["status", "--config", config]) == 2
    assert "did you mean 'partitions'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["merge", "verify"])
def test_a_job_without_a_sink_is_refused_before_anything_starts(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text("{name: shop, source: {tables: [a]}}", "utf-8")

    assert cli.main([verb, "--config", str(path)]) == 2
    assert "sinks: none is given" in capsys.readouterr().err


def test_a_table_of_verify_that_is_no_pattern_ends_with_2(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "shop.(", "--config", config]) == 2
    assert "'shop.(' is no regular expression" in capsys.readouterr().err


def test_a_source_that_cannot_be_reached_ends_with_1(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["signal", "pause-snapshot", "--config", config])

    assert code == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["execute-snapshot"], "data-collections is missing"),
        (["execute-snapshot", "shop.("], "is not a regular expression"),
        (["execute-snapshot", "shop.a", "--where", "no colon"], "expected TABLE:PREDICATE"),
        (["execute-snapshot", "shop.a", "--where", "shop.a: 1; DROP"], "holds a ';'"),
        (["execute-snapshot", "--data", "{"], "data is not valid JSON"),
        (["execute-snapshot", "x" * 3000], "characters, more than 2048"),
        (["log"], "message must be text"),
    ],
)
def test_a_signal_the_producer_would_reject_is_refused_here(
    arguments: list[str], expected: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["signal", *arguments, "--config", config]) == 2
    assert expected in capsys.readouterr().err


def test_a_signal_without_a_signal_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text("{name: shop, source: {tables: [a]}}", "utf-8")

    assert cli.main(["signal", "pause-snapshot", "--config", str(path)]) == 2
    assert "source.signal_table: is not set" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line_and_no_traceback(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> int:
        raise SourceError("the server refuses")

    monkeypatch.setattr(cli.module_of("status"), "execute", refuse)

    assert cli.main(["status", "--config", config]) == 1
    assert capsys.readouterr().err == "tidemark: the server refuses\n"


def test_a_missing_package_names_the_extra_to_install(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_spark(_: object) -> int:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(cli.module_of("merge"), "execute", without_spark)

    assert cli.main(["merge", "--config", config]) == 2
    assert capsys.readouterr().err == "tidemark: merge needs pyspark: pip install 'tidemark-cdc[spark]'\n"


def test_an_interrupt_ends_with_130(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.module_of("run"), "execute", interrupted)

    assert cli.main(["run", "--config", config]) == 130


def test_a_logger_that_was_used_before_follows_later_settings() -> None:
    logs.configure()
    log = structlog.wrap_logger(None, cache_logger_on_first_use=True)  # as commands have it; tests keep none (conftest)
    log.info("followed.once")
    logs.configure()
    with capture_logs() as said:
        log.info("followed.twice")
    assert [entry["event"] for entry in of_area(said, "followed")] == ["followed.twice"]


LOGGING = """
import structlog
from tidemark.process import logs
logs.configure()
for number in range(3):
    structlog.get_logger().info("something", number=number)
print("it continued")
"""


def test_a_full_disk_under_the_log_ends_nothing() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", LOGGING], stdout=subprocess.PIPE, stderr=full, timeout=300, check=False)
    assert ended.stdout == b"it continued\n"


def test_a_producer_that_is_stopped_while_it_starts_ends_in_order(config: str) -> None:
    """Kubernetes and systemd stop what they have just started, too; the signal comes in the middle of the imports."""
    script = """
import os, signal, sys
from tidemark.cli import main

class Stopping:
    def find_spec(self, name, path=None, target=None):
        if name == "producer.app":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Stopping())
sys.exit(main(["run", "--config", sys.argv[1]]))
"""

    done = subprocess.run(
        [sys.executable, "-c", script, config], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )

    assert (done.returncode, done.stderr) == (0, "")
