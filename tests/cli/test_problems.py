"""Everything that is wrong with settings at once; the first of it is what a start says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tidemark.process.config import problems_of_file as problems

GOOD: dict[str, Any] = {
    "name": "shop",
    "source": {"host": "db", "tables": ["shop\\..*"], "signal_table": "shop.signals"},
    "kafka": {"bootstrap_servers": "kafka:9092"},
    "format": {"type": "avro", "registry": "http://registry:8081"},
    "sinks": [{"name": "lake", "type": "delta", "path": "/data/lake"}],
}


def problems_of(document: dict[str, Any]) -> tuple[str, ...]:
    try:
        from_mapping(document)
    except ConfigError as error:
        return error.problems
    return ()


def written(folder: Path, document: object) -> str:
    path = folder / "tidemark.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), "utf-8")
    return str(path)


def test_settings_that_are_accepted_have_no_problem() -> None:
    assert problems_of(GOOD) == ()


def test_every_error_of_a_file_is_named_each_as_a_start_would_say_it(tmp_path: Path) -> None:
    wrong = {
        **GOOD,
        "source": {"prot": 3306, "port": 0, "tables": "shop", "tls": {"mode": "on"}},
        "snapshot": {"mode": "often", "readers": 0},
        "sinks": [{"name": "lake", "pth": "/lake"}, {"type": "delta", "path": 3}],
        "kafka": None,
        "nothing": 1,
    }
    found = problems(written(tmp_path, wrong), {})
    expected = (
        "source.prot: unknown key 'prot' in source; did you mean 'port'?",
        "source.port: 0 is below",
        "source.tables: expected a list",
        "source.tls.mode: expected one of",
        "snapshot.mode: expected one of",
        "snapshot.readers: 0 is below",
        "sinks.0.pth: unknown key 'pth' in sinks.0; did you mean 'path'?",
        "sinks.1.path: expected text, got int 3",
        "kafka: expected a mapping of keys, got nothing",
        "nothing: unknown key",
    )
    assert len(found) == len(set(found))
    for one in expected:
        assert any(message.startswith(one) for message in found), (one, found)
    assert all(any(message.startswith(one) for one in expected) or "is missing" in message for message in found), found


def test_checks_of_sections_that_are_right_are_made_beside_those_that_are_wrong() -> None:
    wrong = {**GOOD, "name": "no good", "source": {**GOOD["source"], "tables": ["("]}, "snapshot": {"mode": 1}}
    assert [message.partition(":")[0] for message in problems_of(wrong)] == ["snapshot.mode", "name", "source.tables"]


def test_what_is_missing_is_named() -> None:
    assert [message.partition(":")[0] for message in problems_of({})] == ["name", "source"]
    assert [message.partition(":")[0] for message in problems_of({"name": "shop", "source": {}})] == ["source.tables"]


def test_variables_and_files_of_secrets_are_checked_too(tmp_path: Path) -> None:
    document = {**GOOD, "source": {**GOOD["source"], "password_file": "none"}}
    found = problems(written(tmp_path, document), {"TIDEMARK_KAFKA__PARTITION": "8", "TIDEMARK_SOURCE__PORT": "many", "HOME": "/"})
    assert found[0].startswith("environment variable TIDEMARK_KAFKA__PARTITION: ")
    assert found[1].startswith("environment variable TIDEMARK_SOURCE__PORT: ")
    assert found[2].startswith("source.password_file: cannot read ")
    assert len(found) == 3


def test_no_secret_is_in_a_message(tmp_path: Path) -> None:
    document = {**GOOD, "source": {**GOOD["source"], "password": 12345678}, "kafka": {"sasl": {"password": ["hidden"]}}}
    assert not any("12345678" in message or "hidden" in message for message in problems(written(tmp_path, document), {}))
