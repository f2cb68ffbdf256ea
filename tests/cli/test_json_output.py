"""JSON on a standard output that is not UTF-8: every character is written, as JSON's own escape."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.commands.action import emit

ROOT = Path(__file__).parents[2]
DOCUMENT = {"table": "läden.größe", "sign": "😀"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_document_is_the_same_in_each_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    emit(argparse.Namespace(output="json"), DOCUMENT, "")
    sys.stdout.flush()
    assert json.loads(written.getvalue().decode(encoding)) == DOCUMENT
    assert ("größe" in written.getvalue().decode(encoding)) is (encoding == "utf-8")


def test_half_of_a_character_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a file need not be UTF-8."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    emit(argparse.Namespace(output="json"), {"file": os.fsdecode(b"caf\xe9.yaml")}, "")
    sys.stdout.flush()
    assert json.loads(written.getvalue()) == {"file": os.fsdecode(b"caf\xe9.yaml")}


@pytest.mark.parametrize(
    "arguments",
    [["config", "schema"], ["config", "reference", "--output", "json"], ["config", "validate", "--config", "ü.yaml", "--output", "json"]],
    ids=["schema", "reference", "validate"],
)
def test_a_command_prints_its_document_to_an_output_of_ascii(arguments: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tidemark", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.stderr == b""
    assert json.loads(done.stdout.decode("ascii"))
