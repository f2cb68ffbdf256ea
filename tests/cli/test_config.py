from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from mysqlio.server_access import ServerAccess
from schemas.applied.kafka_security import client_options
from schemas.errors import ConfigError
from tidemark.cli import USAGE, main
from tidemark.process.config import forget_secrets, load

YAML = """
name: shop
source:
  host: db
  tables: ["shop\\\\..*"]
sinks:
  - {name: lake, path: /lake}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tidemark.yaml"
    path.write_text(YAML, "utf-8")
    return path


def test_a_yaml_file_becomes_settings(file: Path) -> None:
    settings = load(file, {})

    assert settings.source.host == "db"
    assert settings.source.tables == ("shop\\..*",)
    assert settings.sink.path == "/lake"


def test_environment_variables_win_over_the_file(file: Path) -> None:
    settings = load(
        file,
        {
            "TIDEMARK_NAME": "other",
            "TIDEMARK_SOURCE__HOST": "elsewhere",
            "TIDEMARK_SOURCE__PORT": "3307",
            "TIDEMARK_SOURCE__TABLES": "a\\.b,c\\.d",
            "TIDEMARK_SOURCE__TLS__MODE": "required",
            "TIDEMARK_KAFKA__OPTIONS": '{"security.protocol": "SSL"}',
            "TIDEMARK_SINKS__0__PATH": "/other",
            "HOME": "/home/x",
        },
    )

    assert settings.name == "other"
    assert (settings.source.host, settings.source.port) == ("elsewhere", 3307)
    assert settings.source.tables == ("a\\.b", "c\\.d")
    assert settings.source.tls.mode == "required"
    assert settings.kafka.options == {"security.protocol": "SSL"}
    assert settings.sink.path == "/other"
    assert settings.sink.name == "lake"


def test_an_empty_file_may_be_filled_by_the_environment_alone(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("", "utf-8")

    settings = load(
        path,
        {"TIDEMARK_NAME": "shop", "TIDEMARK_SOURCE__TABLES": "a", "TIDEMARK_SINKS__0__PATH": "/lake"},
    )

    assert settings.sink.path == "/lake"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "TIDEMARK_SOURCE__PROT",
            "1",
            "TIDEMARK_SOURCE__PROT: source.prot: unknown key 'prot' in source; did you",
        ),
        ("TIDEMARK_SOURCE__PORT", "x", "TIDEMARK_SOURCE__PORT: source.port: cannot read 'x' as integer"),
        (
            "TIDEMARK_SORCE__PORT",
            "1",
            "TIDEMARK_SORCE__PORT: sorce: unknown key 'sorce'; did you mean 'source'",
        ),
        (
            "TIDEMARK_SINKS__4__PATH",
            "/x",
            "TIDEMARK_SINKS__4__PATH: the list has 1 entries, there is no place 4",
        ),
        ("TIDEMARK_SINKS__²__PATH", "/x", "TIDEMARK_SINKS__²__PATH: the file has a list at sinks, '²' is no place in it"),
        ("TIDEMARK_NAMES", "x", "TIDEMARK_NAMES: did you mean TIDEMARK_NAME?"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(
    file: Path, variable: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, {variable: value})

    assert str(caught.value).startswith(f"environment variable {expected}")


def test_a_variable_for_a_key_where_the_file_has_a_list_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text('{"name": "shop", "source": ["host"]}', "utf-8")
    with pytest.raises(ConfigError, match=r"TIDEMARK_SOURCE__PORT: the file has a list at source, 'port' is no place in it"):
        load(path, {"TIDEMARK_SOURCE__PORT": "1"})


def test_variables_of_the_process_are_no_settings(file: Path) -> None:
    load(file, {"TIDEMARK_CACHE": "/cache", "TIDEMARK_TEST_SERVERS": "all"})


def test_the_password_is_the_first_line_of_its_file_beside_the_configuration(file: Path) -> None:
    (file.parent / "secret").write_text("hunter2\nnot this\n", "utf-8")

    settings = load(file, {"TIDEMARK_SOURCE__PASSWORD_FILE": "secret"})

    assert ServerAccess.of(settings.source).secret() == "hunter2"
    (file.parent / "secret").write_text("rotated\n", "utf-8")
    assert ServerAccess.of(settings.source).secret() == "rotated"
    assert "hunter2" not in repr(settings)


def test_a_missing_password_file_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"source\.password_file: cannot read .*nowhere: No such file"):
        load(file, {"TIDEMARK_SOURCE__PASSWORD_FILE": "nowhere"})


def test_a_missing_file_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration at .*none\.yaml: name the file with --config"):
        load(tmp_path / "none.yaml", {})


def test_broken_yaml_is_refused_with_the_line_but_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("source: {password: hunter2\nname: x\n", "utf-8")

    with pytest.raises(ConfigError, match=r"is not YAML: .*line 2") as caught:
        load(path, {})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("password: *hunter2", "alias: a text that begins with"),
        ("password: !hunter2", "tag: a text that begins with"),
        ("password: !hunter2!x", "handle: a text that begins with"),
        ("password: 2020-13-45", "unreadable"),
        ("{user: a, password:hunter2}", "source.password: its colon needs a blank"),
        ("{user: a, password=hunter2}", "source.password: its colon needs a blank"),
        ("password:hunter2", "source: expected a mapping of keys, got str"),
        ("tls: hunter2", "source.tls: expected a mapping of keys, got str"),
    ],
)
def test_a_slip_beside_a_password_is_reported_without_it(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "slip.yaml"
    path.write_text(f"name: shop\nsource:\n  {line}\n", "utf-8")

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_options_of_kafka_and_hashes_that_are_written_wrongly_are_reported_without_their_secrets(file: Path) -> None:
    begin = file.read_text("utf-8")
    for section, words in (
        ("kafka: {options: {sasl.password:hunter2}}", "kafka.options.sasl.password: expected text"),
        ("records: {column_mask_hash_v2: {salt: hunter2, columns: [a]}}", "column_mask_hash_v2: expected a list, got dict"),
    ):
        file.write_text(f"{begin}{section}\n", "utf-8")
        with pytest.raises(ConfigError) as caught:
            load(file, {})
        assert words in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_a_key_that_is_twice_is_refused_and_merged_ones_are_not(file: Path) -> None:
    file.write_text(f"{YAML}source:\n  host: other\n", "utf-8")
    with pytest.raises(ConfigError, match=r"found a key for the second time, line 8, column 1"):
        load(file, {})
    merged = "name: shop\nsource: {<<: {host: a}, host: db, tables: [t]}\n"
    file.write_text(merged, "utf-8")
    assert load(file, {}).source.host == "db"


def test_yaml_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("- a\n- b\n", "utf-8")

    with pytest.raises(ConfigError, match="expected a mapping of keys at the top"):
        load(path, {})


def test_files_of_secrets_and_certificates_are_beside_the_configuration(
    file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (file.parent / "sasl").write_text("secret", "utf-8")
    elsewhere = tmp_path_factory.mktemp("etc") / "ca.pem"
    for certificates in (elsewhere, file.parent / "ca.pem"):
        certificates.write_text("of somebody", "utf-8")
    settings = load(
        file,
        {
            "TIDEMARK_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "TIDEMARK_KAFKA__SASL__USERNAME": "tidemark",
            "TIDEMARK_KAFKA__SASL__PASSWORD_FILE": "sasl",
            "TIDEMARK_KAFKA__TLS__CA": "ca.pem",
            "TIDEMARK_SOURCE__TLS__CA": str(elsewhere),
            "TIDEMARK_SIGNAL__CHANNELS": "source,file",
            "TIDEMARK_SIGNAL__FILE": "signals",
        },
    )

    assert settings.signal.file == str(file.parent / "signals"), "producer and command may run in different folders"

    assert settings.source.tls.ca == str(elsewhere)
    assert client_options(settings.kafka) == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(file.parent / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tidemark",
        "sasl.password": "secret",
    }


@pytest.mark.parametrize("folder", ["lake", "./lake"])
def test_a_relative_lake_is_beside_the_configuration(file: Path, folder: str) -> None:
    """Else a merge job that is started in another folder would fill another lake, and status would know of none."""
    assert load(file, {"TIDEMARK_SINKS__0__PATH": folder}).sinks[0].path == str(file.parent / "lake")


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("s3a://bucket/lake", "s3a: is not supported yet"),
        ("hdfs:/lake", "hdfs: is not supported yet"),
        ("file://elsewhere/data/lake", "file://elsewhere/data/lake does not name a folder of this machine"),
        ("", "is empty"),
    ],
)
@pytest.mark.parametrize("verb", ["merge", "run", "status", "verify", "quarantine"])
def test_a_lake_that_is_no_folder_is_refused_by_every_verb(
    file: Path, folder: str, words: str, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be a local folder called `s3a:`, and the bucket would stay empty."""
    monkeypatch.setenv("TIDEMARK_SINKS__0__PATH", folder)
    assert main([verb, *(["list"] if verb == "quarantine" else []), "--config", str(file)]) == USAGE
    assert f"tidemark: sinks.0.path: {words}" in (reported := capsys.readouterr().err)
    assert len(reported.splitlines()) == 1


@pytest.mark.parametrize("part", ["[", "]", "{", "}", "*", "?", "^", "|", "\\", "%20", "%c3"])
def test_a_folder_that_spark_or_delta_rs_misread_is_refused(file: Path, part: str) -> None:
    """delta-rs panics at `[]^|`, finds another folder for a backslash and `%20`; Spark takes `*?{}` for a pattern of names."""
    for folder in (f"/data/a{part}b", f"file:///data/a{quote(part)}b"):
        with pytest.raises(ConfigError, match=re.escape(f"sinks.0.path: /data/a{part}b: Spark and delta-rs misread {part} in a path")):
            load(file, {"TIDEMARK_SINKS__0__PATH": folder})
    other = "/100%/a b/ü日#:;,+='\"`~&<>$@!()%zz"
    assert load(file, {"TIDEMARK_SINKS__0__PATH": other}).sinks[0].path == other


def test_an_absolute_lake_is_as_it_is_and_a_file_of_a_setting_is_no_address(file: Path) -> None:
    assert load(file, {"TIDEMARK_SINKS__0__PATH": "/data/lake"}).sinks[0].path == "/data/lake"
    assert load(file, {"TIDEMARK_SINKS__0__PATH": "file:///data/a%20lake"}).sinks[0].path == "/data/a lake"
    with pytest.raises(ConfigError, match=r"kafka\.tls\.ca: is a file of this machine, not a URI; got s3a://\.\.\."):
        load(file, {"TIDEMARK_KAFKA__TLS__CA": "s3a://bucket/ca.pem"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDEMARK_KAFKA__OPTIONS", '{"sasl.password": hunter2}'),
        ("TIDEMARK_KAFKA__OPTIONS", '{"sasl.password": ["hunter2"]}'),
        ("TIDEMARK_FORMAT__REGISTRY", "https://tidemark:hunter2@registry"),
        ("TIDEMARK_SPARK__CONF", '"hunter2"'),
    ],
)
def test_what_is_wrong_with_a_secret_is_reported_without_it(file: Path, variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.options|format\.registry|spark\.conf") as caught:
        load(file, {variable: value})

    assert "hunter2" not in str(caught.value)


def test_a_number_where_a_password_belongs_is_not_shown(file: Path) -> None:
    file.write_text(YAML.replace("host: db", "password: 123456"), "utf-8")

    with pytest.raises(ConfigError, match=r"source\.password: expected text, got an integer without quotes"):
        load(file, {})


def test_children_inherit_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SOURCE__PASSWORD", "hunter2")
    monkeypatch.setenv("TIDEMARK_KAFKA__OPTIONS", '{"sasl.password": "hunter2"}')
    monkeypatch.setenv("TIDEMARK_KAFKA__SASL", '{"password": "hunter2"}')
    monkeypatch.setenv("TIDEMARK_FORMAT", '{"registry_access": {"password": "hunter2"}}')
    monkeypatch.setenv("TIDEMARK_SOURCE__HOST", "db")
    monkeypatch.setenv("TIDEMARK_RECORDS__COLUMN_MASK_HASH_V2", '[{"salt": "hunter2", "columns": ["a"]}]')
    monkeypatch.setenv("TIDEMARK_RECORDS__COLUMN_MASK_HASH_V2__0__SALT", "hunter2")

    forget_secrets()

    sections = ("TIDEMARK_FORMAT", "TIDEMARK_KAFKA", "TIDEMARK_SOURCE", "TIDEMARK_RECORDS")
    assert [name for name in os.environ if name.startswith(sections)] == ["TIDEMARK_SOURCE__HOST"]
