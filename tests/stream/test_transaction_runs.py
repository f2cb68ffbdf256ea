"""Transactions published as runs leave what they leave step by step: the same records, offsets and keys, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stream.log_of_runs import TABLES, Log, Reading

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize("seed", range(12))
def test_any_log_leaves_the_same_records_offsets_and_keys(seed: int, flavour: str) -> None:
    log = Log(seed, flavour).write(250)
    ordinary = Reading(log, seed, tick_s=1.0, by_runs=False).read()
    at_once = Reading(log, seed + 1, tick_s=0.02, by_runs=True).read()
    assert ordinary.error is None
    assert at_once.result == ordinary.result
    assert at_once.runs > 50, "the log has too few runs to show anything"
    for document, visible in at_once.topics.commits:
        assert ordinary.boundaries[document] == visible, "a commit is a boundary of the log, with what is before it"


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_damaged_row_stops_the_reader_where_it_stops_it_step_by_step(flavour: str) -> None:
    log = Log(5, flavour)
    for _ in range(40):
        log.simple(["plain", "json"])
    log.damage()
    ordinary = Reading(log, 1, tick_s=0.0, by_runs=False).read()
    at_once = Reading(log, 1, tick_s=0.0, by_runs=True).read()
    assert ordinary.error is not None
    assert "ends in the middle of a value" in ordinary.error
    assert at_once.result == ordinary.result


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_log_with_any_byte_changed_is_read_or_refused_as_step_by_step(flavour: str) -> None:
    errors = 0
    for seed in range(60):
        log = Log(seed, flavour)
        for _ in range(30):
            log.simple(["plain", "json", "other"])
        log.change_a_byte()
        ordinary = Reading(log, seed, tick_s=0.0, by_runs=False).read()
        at_once = Reading(log, seed, tick_s=0.0, by_runs=True).read()
        assert at_once.result == ordinary.result, f"seed {seed}"
        errors += ordinary.error is not None
    assert errors > 10


def test_with_the_sql_text_in_records_transactions_that_have_it_are_in_no_run() -> None:
    log = Log(3, "mysql").write(200)
    ordinary = Reading(log, 1, tick_s=0.0, by_runs=False, include_query=True).read()
    at_once = Reading(log, 1, tick_s=0.0, by_runs=True, include_query=True).read()
    assert at_once.result == ordinary.result
    assert 0 < at_once.runs < Reading(log, 1, tick_s=0.0, by_runs=True).read().runs


def test_transactions_of_a_table_whose_events_are_wanted_one_by_one_are_in_no_run() -> None:
    log = Log(4, "mysql")
    for _ in range(50):
        log.simple(["handled"])
        log.simple(["plain"])
        log.simple(["plain"])
    found = Reading(log, 1, tick_s=0.0, by_runs=True).read()
    assert found.runs > 20
    assert found.every.seen == Reading(log, 1, tick_s=0.0, by_runs=False).read().every.seen
    assert len(found.every.seen) > 20


def test_a_log_of_simple_transactions_is_nearly_all_runs() -> None:
    log = Log(6, "mysql")
    for _ in range(300):
        log.simple([name for name in TABLES if name not in ("slow", "handled")])
    found = Reading(log, 4, tick_s=0.0, by_runs=True).read()
    assert found.progress.transactions == 300
    assert found.runs > 150


@pytest.mark.slow
def test_kernels_as_plain_python_do_the_same() -> None:
    """Every read outside an array is an error there."""
    chosen = "0-mysql or 1-mariadb or damaged_row"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, str(Path(__file__).relative_to(ROOT))],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
