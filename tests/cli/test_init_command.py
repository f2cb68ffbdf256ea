"""`tidemark init`: the file for a source, on a real server and from facts; no password in it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from devservers import Database
from schemas.settings import from_mapping
from tests.support.servers import database as server_of
from tests.support.servers import unique_name
from tidemark import cli
from tidemark.commands.initial_file import InitialFile, name_of, pattern_of

PASSWORD = "of this test alone"


def file_of(**values: object) -> InitialFile:
    given = {
        "name": "shop", "server": "MySQL 8.0.36", "host": "db", "port": 3306, "user": "tidemark", "password_file": None,
        "patterns": ("shop\\..*",), "tables": {"shop.orders": 1_000, "shop.one": 1, "shop.view": None},
        "signal_table": "shop.tidemark_signal", "kafka": "kafka:9092", "registry": "http://registry:8081", "lake": "lake",
    }  # fmt: skip
    return InitialFile(**{**given, **values})  # type: ignore[arg-type]


def test_the_file_is_what_it_was_asked_for_and_accepted() -> None:
    text = file_of(password_file='/run/secrets/a "b"', statements=["GRANT SELECT\nON shop.*"], notes=["error: it is\nwrong"]).text
    settings = from_mapping(yaml.safe_load(text))
    assert (settings.name, settings.source.host, settings.source.port, settings.source.user) == ("shop", "db", 3306, "tidemark")
    assert settings.source.password_file == '/run/secrets/a "b"'
    assert settings.source.tables == ("shop\\..*",)
    assert settings.format.registry == "http://registry:8081"
    assert settings.sink.name == "lake"
    assert "#   GRANT SELECT ON shop.*\n" in text
    assert "#   error: it is wrong\n" in text
    assert "  #   shop.orders  about 1,000 rows\n  #   shop.one  about 1 row\n  #   shop.view\n" in text


def test_without_a_file_the_text_says_where_the_password_comes_from() -> None:
    assert "# The password: in the variable TIDEMARK_SOURCE__PASSWORD" in file_of().text


def test_of_many_tables_some_are_named() -> None:
    text = file_of(tables={f"shop.t{number:03}": None for number in range(40)}).text
    assert "shop.t029\n" in text
    assert "shop.t030" not in text
    assert "  #   and 10 more\n" in text


@pytest.mark.parametrize(("database", "name"), [("shop", "shop"), ("Lö den", "L__den"), ("", "source"), ("x" * 120, "x" * 100)])
def test_a_database_gives_a_name_for_topics(database: str, name: str) -> None:
    assert name_of(database) == name


def test_a_pattern_matches_the_tables_of_its_database_alone() -> None:
    source = from_mapping({"name": "s", "source": {"tables": [pattern_of("a.b")]}}).source
    assert source.captures("a.b", "t")
    assert not source.captures("axb", "t")


@pytest.fixture(params=["mysql80", "mariadb114"])
def asked(
    request: pytest.FixtureRequest, fresh_database: Callable[[Database], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[argparse.Namespace]:
    """A user who may read one database and nothing else."""
    server = server_of(request.param)
    database, user = fresh_database(server), unique_name("init").replace("-", "_")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
        cursor.execute(f"CREATE TABLE {database}.keyless (id INT)")
        cursor.execute(f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'")
        cursor.execute(f"GRANT SELECT ON {database}.* TO {user}")
    monkeypatch.setenv("TIDEMARK_SOURCE__PASSWORD", PASSWORD)
    options = ["--host", server.host, "--port", str(server.port), "--user", user]
    flavour = "MariaDB 11.4" if server.flavour == "mariadb" else "MySQL 8.0"
    yield argparse.Namespace(database=database, user=user, flavour=flavour, options=options)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP USER {user}")


def test_a_source_is_inspected_and_what_it_lacks_is_said(
    asked: argparse.Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tidemark.yaml"
    assert cli.main(["init", *asked.options, "--file", str(path), "--output", "json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["server"].startswith(asked.flavour)
    assert sorted(found["tables"]) == [f"{asked.database}.keyless", f"{asked.database}.orders"]
    assert any("REPLICATION SLAVE" in one and asked.user in one for one in found["statements"]), found
    assert any("CREATE TABLE" in one and "tidemark_signal" in one for one in found["statements"]), found
    assert not any("ALTER" in one for one in found["statements"]), "a table without a key is no reason not to begin"
    assert any("keyless has no primary key" in note for note in found["notes"]), found
    assert found["next"] == [f"tidemark run --config {path}", f"tidemark merge --config {path}"]
    text = path.read_text("utf-8")
    assert PASSWORD not in text + said.out + said.err
    settings = from_mapping(yaml.safe_load(text))
    assert settings.name == asked.database
    assert settings.source.captures(asked.database, "orders")
    assert settings.source.signal_table == f"{asked.database}.tidemark_signal"
    assert cli.main(["config", "validate", "--config", str(path)]) == 0


def test_a_password_that_was_typed_is_said_to_be_needed_again(
    asked: argparse.Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["init", *asked.options, "--file", str(tmp_path / "given.yaml")]) == 0
    assert "export" not in capsys.readouterr().out  # the variable is set
    monkeypatch.delenv("TIDEMARK_SOURCE__PASSWORD")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: PASSWORD)
    assert cli.main(["init", *asked.options, "--local", "--file", str(tmp_path / "typed.yaml")]) == 0
    said = capsys.readouterr().out
    assert "source.password_file, or run in each shell first:\n    export TIDEMARK_SOURCE__PASSWORD=...\nnext" in said
    assert PASSWORD not in said
    assert cli.main(["init", *asked.options, "--output", "json", "--local", "--file", str(tmp_path / "again.yaml")]) == 0
    assert json.loads(capsys.readouterr().out)["next"][0] == "export TIDEMARK_SOURCE__PASSWORD=..."


def test_a_variable_that_would_win_over_the_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_SOURCE__HOST", "nowhere.invalid")
    assert cli.main(["init", "--host", "db", "--file", str(tmp_path / "tidemark.yaml")]) == 2
    assert "--host: TIDEMARK_SOURCE__HOST has another value and wins over the file" in capsys.readouterr().err


def test_a_password_file_that_is_missing_ends_as_it_does_for_every_other_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--password-file", str(tmp_path / "nosuch"), "--file", str(tmp_path / "tidemark.yaml")]
    assert cli.main(["init", *options]) == 2
    assert capsys.readouterr().err == f"tidemark: source.password_file: cannot read {tmp_path / 'nosuch'}: No such file or directory\n"


def test_a_file_that_is_there_stays(asked: argparse.Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text("mine", "utf-8")
    assert cli.main(["init", *asked.options, "--file", str(path)]) == 2
    assert "is there already and stays as it is" in capsys.readouterr().err
    assert path.read_text("utf-8") == "mine"


def test_tables_that_are_not_seen_and_passwords_that_are_wrong_end_with_one_line(
    asked: argparse.Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tidemark.yaml"
    assert cli.main(["init", *asked.options, "--tables", "nothing\\..*", "--file", str(path)]) == 1
    said = capsys.readouterr().err
    assert "no table matches nothing\\..* for" in said
    assert f"it sees {asked.database}.keyless, {asked.database}.orders. " in said
    assert f"    GRANT SELECT ON `nothing`.* TO '{asked.user}'@'%';" in said
    monkeypatch.setenv("TIDEMARK_SOURCE__PASSWORD", "wrong one")
    assert cli.main(["init", *asked.options, "--file", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "wrong one" not in error
    assert not path.exists()
