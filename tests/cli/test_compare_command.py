"""`python -m conformance`: what it refuses before it reads anything. What it finds: tests/integration/test_compare_prefixes.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.__main__ import USAGE, main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--left", "a", "--right", "a", "--bootstrap-servers", "127.0.0.1:1"], "both prefixes are a"),
        (["--left", "a", "--right", "b", "--bootstrap-servers", "127.0.0.1:1", "("], "'(' is no regular expression"),
        (["--left", "a", "--right", "b", "--exclude", "["], "'[' is no regular expression"),
        (["--left", "a", "--right", "b", "--config", "nowhere.yaml"], "no configuration at nowhere.yaml"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_clear_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidemark.yaml").write_text("name: b\nsource: {host: db, user: u, tables: ['.*']}\n")
    assert main(arguments) == USAGE
    assert words in capsys.readouterr().err


def test_both_prefixes_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--left", "a"])
    assert ended.value.code == USAGE
    assert "--right" in capsys.readouterr().err
