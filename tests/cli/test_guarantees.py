"""Every promise of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    promises = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| What")]
    named = {line: re.findall(r"`(test_\w+)`", line) for line in promises}
    assert len(promises) > 15
    assert not [line for line, tests in named.items() if not tests]
    there = {
        name
        for file in (ROOT / "tests").rglob("*.py")  # those of suites are in `*behaviour.py`
        for name in re.findall(r"^(?:    )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    missing = {name for tests in named.values() for name in tests} - there
    assert not missing
